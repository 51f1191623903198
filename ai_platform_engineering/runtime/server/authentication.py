"""Authentication: bearer keys, users on whose behalf a client speaks, and the check of Host and Origin."""

from urllib.parse import urlsplit

from starlette.authentication import AuthCredentials, SimpleUser
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ai_platform_engineering.a2a.on_behalf_of import (
    OWNER_HEADER,
    USER_HEADER,
    USER_META_KEY,
    check_person_name,
    read_name_header,
)
from ai_platform_engineering.core.call_targets import NETWORK_TOOL_USER_AGENT
from ai_platform_engineering.core.errors import ConfigurationError, Refused
from ai_platform_engineering.core.host_patterns import is_loopback
from ai_platform_engineering.core.settings import ServerSettings
from ai_platform_engineering.runtime.server.access_keys import DELEGATE_USER, SHARED_KEY_USER, AccessKeys
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.rate_limits import RequestCounter
from ai_platform_engineering.runtime.server.sessions import Sessions

OAUTH_CALLBACK_PATH = "/v1/oauth/callback"
"""Where authorization servers send browsers back to: a cookie of the sign-in proves which one began it."""

_PROBE_PATHS = ("/health", "/ready")
_KEY_USER = "caipe.key_user"  # in the scope: whose key was sent
_MAY_NAME_OTHERS = "caipe.may_name_others"  # in the scope: whether the client may speak for people
_UNAUTHORIZED = "Send the server's key as a bearer token in the Authorization header."
_OTHER_PAGE = "A session is for this server's own page, and this request does not come from it."
_NOT_FOR_TOOLS = "a network tool may check that this port is open, and nothing else."
_TOO_MANY_KEYS = "Too many wrong keys came from this address. Try again in {seconds} s."
_TOO_MANY_REQUESTS = "Too many requests. Try again in {seconds} s, or raise A2A_MAX_REQUESTS_PER_MINUTE."
_NOT_FOR_OTHERS = (
    f"This key may not speak for others, so {USER_HEADER} and {OWNER_HEADER} are refused. "
    "Set A2A_AUTH_DELEGATE_KEY on the server and use it as the token."
)


def check_exposure(settings: ServerSettings) -> None:
    """Refuses to listen beyond loopback without authentication, unless allowed, and two equal keys.

    Also a server that another deployment protected in a way that is not offered here."""
    if settings.delegate_key is not None and settings.delegate_key == settings.shared_key:
        raise ConfigurationError(
            "A2A_AUTH_DELEGATE_KEY is the same as A2A_AUTH_SHARED_KEY, "
            "so that every client could speak for others. Use two keys."
        )
    if settings.oauth2 and not settings.needs_key:
        raise ConfigurationError(
            "A2A_AUTH_OAUTH2 is on, and tokens of an identity provider are not checked here, so that the "
            "server would be open. Set A2A_AUTH_SHARED_KEY, or have a proxy check the tokens, set "
            "A2A_AUTH_OAUTH2=false and let nobody else reach the server."
        )
    if settings.loopback or settings.needs_key or settings.allow_unauthenticated:
        return
    raise ConfigurationError(
        f"A2A_HOST={settings.host} would open the server to the network without authentication. "
        "Set A2A_AUTH_SHARED_KEY, or listen on 127.0.0.1, "
        "or set A2A_ALLOW_UNAUTHENTICATED=true if something in front of it authenticates."
    )


class HostCheckMiddleware:
    """Checks Host and Origin, so that no web page reaches a server on loopback (DNS rebinding).

    Our own network tools are refused, too: on loopback they would be taken for the person at the machine."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        self._hosts = {host.lower() for host in settings.allowed_hosts}
        self._origins = set(settings.allowed_origins)
        external = urlsplit(settings.external_url or "")
        if external.hostname:
            self._hosts.add(external.hostname.lower())
            self._origins.add(f"{external.scheme}://{external.netloc}".lower())
        self._checks_hosts = settings.loopback or bool(settings.allowed_hosts)
        self._checks_origins = settings.loopback or bool(settings.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reason = None
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if headers.get("user-agent") == NETWORK_TOOL_USER_AGENT:
                reason = _NOT_FOR_TOOLS
            elif not self._is_probe(scope["path"]):
                reason = self._find_refusal_reason(headers)
        if reason:
            await PlainTextResponse(f"Forbidden: {reason}\n", 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_probe(self, path: str) -> bool:
        """Whether it is a probe over the network, which uses an IP address as its Host."""
        return path in _PROBE_PATHS and not self._settings.loopback

    def _find_refusal_reason(self, headers: Headers) -> str | None:
        host = _parse_hostname(f"//{headers.get('host', '')}")
        if self._checks_hosts and not self._is_known_host(host):
            return "this Host is not served here; add it to A2A_ALLOWED_HOSTS if it should be."
        if self._checks_origins and not self._is_own_page(headers):
            return "this Origin may not use the server; add it to A2A_ALLOWED_ORIGINS if it should."
        return None

    def _is_own_page(self, headers: Headers) -> bool:
        """Whether no web page sends the request, or a page of this server or of an allowed origin does.

        A page of another port of the same machine is another page."""
        origin = headers.get("origin")
        if origin is not None:
            return origin in self._origins or origin.lower() in self._own_origins(headers)
        # A browser sends no Origin with an image or a script; a link that a person follows is no harm.
        is_navigation = headers.get("sec-fetch-mode") == "navigate"
        return is_navigation or headers.get("sec-fetch-site") not in ("cross-site", "same-site")

    def _own_origins(self, headers: Headers) -> tuple[str, ...]:
        host = headers.get("host", "").lower()
        if self._settings.loopback:
            return (f"http://{host}",)
        return (f"http://{host}", f"https://{host}")  # what is in front of it may speak TLS

    def _is_known_host(self, host: str) -> bool:
        return host in self._hosts or (self._settings.loopback and is_loopback(host))


class OnBehalfOfUser(SimpleUser):
    """A user on whose behalf the client speaks; `owner` is the owner of the conversations that it uses."""

    def __init__(self, principal: str, owner: str) -> None:
        super().__init__(principal)
        self.owner = owner


class BearerAuthMiddleware:
    """Checks the bearer key, if any are configured; cards, probes and the page's files need none.

    A client with the delegate key names in two headers the user on whose behalf it speaks."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        keys: AccessKeys | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        """`sessions`: of browsers, which send a cookie in place of the key."""
        self._app = app
        self._keys = keys or AccessKeys(settings)
        self._sessions = sessions
        self._trusts_anybody = not self._keys and (settings.loopback or settings.allow_unauthenticated)
        self._requests = RequestCounter(settings.requests_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal: Response | None = None
        if scope["type"] == "http":
            refusal = self._check(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> Response | None:
        """Sets the user of the scope; returns the response for a request that is refused."""
        if _is_open(scope):
            # Whoever has a key sees more there; whoever has none is not refused.
            self._authenticate(scope)
            return None
        refusal = self._authenticate(scope)
        # Without keys anybody may name anybody, but not replace a user that an outer application verified.
        is_unverified = self._trusts_anybody and "user" not in scope
        scope[_MAY_NAME_OTHERS] = scope.get(_KEY_USER) == DELEGATE_USER or is_unverified
        refusal = refusal or self._read_names(scope)
        if refusal is None:
            seconds = self._requests.take(_person(scope))
            if seconds:
                refusal = _too_many_requests(_TOO_MANY_REQUESTS, seconds)
        return refusal

    def _authenticate(self, scope: Scope) -> Response | None:
        """Sets the user of the key."""
        if not self._keys:
            return None
        headers = Headers(scope=scope)
        if self._sessions is not None and "authorization" not in headers and self._sessions.is_valid(headers):
            return self._use_session(scope, self._sessions, headers)
        address = (scope.get("client") or ("", 0))[0]
        seconds = self._keys.wrong.seconds_to_wait(address)
        if seconds:
            return _too_many_requests(_TOO_MANY_KEYS, seconds)
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        key = credentials.strip().encode()
        user = self._keys.find_user(key)
        if user is not None and scheme.lower() == "bearer":
            _set_user(scope, user)
            return None
        if key and user is None:
            self._keys.wrong.record(address, key)
        return AsciiJSONResponse(
            {"error": "unauthorized", "message": _UNAUTHORIZED}, 401, {"WWW-Authenticate": "Bearer"}
        )

    def _use_session(self, scope: Scope, sessions: Sessions, headers: Headers) -> Response | None:
        """Sets the user of the shared key, for a page of this server."""
        if not sessions.is_own_page(scope["method"], headers):
            return AsciiJSONResponse({"error": "forbidden", "message": _OTHER_PAGE}, 403)
        _set_user(scope, SHARED_KEY_USER)
        return None

    def _read_names(self, scope: Scope) -> Response | None:
        """Sets the user on whose behalf the client speaks."""
        headers = Headers(scope=scope)
        if USER_HEADER not in headers and OWNER_HEADER not in headers:
            return None
        if not scope[_MAY_NAME_OTHERS]:
            return AsciiJSONResponse({"error": "forbidden", "message": _NOT_FOR_OTHERS}, 403)
        try:
            scope["user"] = _read_on_behalf_of_user(headers)
        except Refused as error:
            return AsciiJSONResponse({"error": "bad_request", "message": str(error)}, 400)
        return None


def _set_user(scope: Scope, user: str) -> None:
    scope[_KEY_USER] = user
    scope["user"] = SimpleUser(user)
    scope["auth"] = AuthCredentials(["authenticated"])


def principal_of_request(request: HTTPConnection) -> str:
    """The authenticated user's name; empty without one."""
    user = request.scope.get("user")
    if user is not None:
        return str(user.display_name)
    return ""


def principal_of_call(request: HTTPConnection, named_user: str | None) -> str:
    """The principal of a tool call, whose `_meta` may name the person that the client speaks for. Raises
    Refused, for a client that may not."""
    if named_user is None or isinstance(request.scope.get("user"), OnBehalfOfUser):
        return principal_of_request(request)
    if not request.scope.get(_MAY_NAME_OTHERS):
        raise Refused(_NOT_FOR_OTHERS)
    check_person_name(USER_META_KEY, named_user)
    return named_user


def is_trusted(scope: Scope, settings: ServerSettings) -> bool:
    """Whether the caller may see what the server consists of: it has a key, or is on this machine and none is
    needed."""
    return "user" in scope or (settings.loopback and not settings.needs_key)


def _person(scope: Scope) -> str:
    user = scope.get("user")
    if user is None:
        return ""
    return str(user.display_name)


def _too_many_requests(message: str, seconds: int) -> Response:
    body = {"error": "too_many_requests", "message": message.format(seconds=seconds)}
    return AsciiJSONResponse(body, 429, {"Retry-After": str(seconds)})


def _read_on_behalf_of_user(headers: Headers) -> OnBehalfOfUser:
    """The user and the owner that the headers name. Raises Refused."""
    principal = read_name_header(USER_HEADER, headers.getlist(USER_HEADER))
    owner = read_name_header(OWNER_HEADER, headers.getlist(OWNER_HEADER))
    if principal is None:
        raise Refused(f"{OWNER_HEADER} is sent alone. Name the person in {USER_HEADER}, too.")
    for header, name in ((USER_HEADER, principal), (OWNER_HEADER, owner)):
        if name is not None and name.strip() in (SHARED_KEY_USER, DELEGATE_USER):
            raise Refused(f"{header}: {name} is the name of a key and cannot be a person's.")
    if owner is None:
        owner = principal
    return OnBehalfOfUser(principal, owner)


def _is_open(scope: Scope) -> bool:
    """Whether the request needs no key: probes, cards, logins, and the page's files, which hold no data.

    Cards only at the root: below mounted routes a file may have any name."""
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    is_read = scope["method"] in ("GET", "HEAD")
    if is_read and (path in ("/", OAUTH_CALLBACK_PATH) or path.startswith(("/assets/", "/c/"))):
        return True
    return (
        scope["path"] in _PROBE_PATHS
        or path == "/v1/session"
        or path.startswith(("/.well-known/", "/v1/.well-known/"))
    )


def _parse_hostname(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
