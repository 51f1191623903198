"""Who may speak to the server, and for whom: a bearer key where one is set, and on loopback only pages and names of this machine."""

import hmac
from urllib.parse import urlsplit

from starlette.authentication import AuthCredentials, SimpleUser
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ai_platform_engineering.a2a.on_behalf_of import OWNER_HEADER, USER_HEADER, read_name_header
from ai_platform_engineering.core.errors import ConfigurationError, Refused
from ai_platform_engineering.core.settings import ServerSettings, is_loopback
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse

_OPEN_PATHS = ("/health", "/ready")
SHARED_KEY_USER, DELEGATE_USER = "shared-key", "delegate"
_UNKNOWN = "Send the server's key as a bearer token in the Authorization header."
_NOT_FOR_OTHERS = (
    f"This key may not speak for others, so {USER_HEADER} and {OWNER_HEADER} are refused. "
    "Set A2A_AUTH_DELEGATE_KEY on the server and use it as the token."
)


def check_exposure(settings: ServerSettings) -> None:
    """Refuses to listen beyond loopback without authentication, unless told so, and a key that is two keys at once."""
    if settings.delegate_key is not None and settings.delegate_key == settings.shared_key:
        raise ConfigurationError(
            "A2A_AUTH_DELEGATE_KEY is the same as A2A_AUTH_SHARED_KEY, so that every client could speak for others. Use two keys."
        )
    if settings.loopback or settings.needs_key or settings.allow_unauthenticated:
        return
    raise ConfigurationError(
        f"A2A_HOST={settings.host} would open the server to the network without authentication. Set A2A_AUTH_SHARED_KEY, "
        "or listen on 127.0.0.1, or set A2A_ALLOW_UNAUTHENTICATED=true if something in front of it authenticates."
    )


class HostCheckMiddleware:
    """Checks Host and Origin, so that a web page cannot reach a server on this machine under a name of its own."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app, self._settings = app, settings
        self._hosts = {host.lower() for host in settings.allowed_hosts}
        if settings.external_url and (name := urlsplit(settings.external_url).hostname):
            self._hosts.add(name.lower())
        self._checks_hosts = settings.loopback or bool(settings.allowed_hosts)
        self._checks_origins = settings.loopback or bool(settings.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and not self._is_probe(scope["path"])
            and (reason := self._refusal(Headers(scope=scope)))
        ):
            await PlainTextResponse(f"Forbidden: {reason}\n", 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_probe(self, path: str) -> bool:
        """Whoever watches a server on a network asks it by its address, which no list of names holds."""
        return path in _OPEN_PATHS and not self._settings.loopback

    def _refusal(self, headers: Headers) -> str | None:
        host = _hostname(f"//{headers.get('host', '')}")
        if self._checks_hosts and not self._is_known(host):
            return "this Host is not served here; add it to A2A_ALLOWED_HOSTS if it should be."
        origin = headers.get("origin")
        if origin is None or not self._checks_origins or origin in self._settings.allowed_origins:
            return None
        if self._is_known(_hostname(origin)):
            return None
        return "this Origin may not use the server; add it to A2A_ALLOWED_ORIGINS if it should."

    def _is_known(self, host: str) -> bool:
        return host in self._hosts or (self._settings.loopback and is_loopback(host))


class OnBehalfOfUser(SimpleUser):
    """A person for whom the client speaks. `owner` is whose conversations it is about."""

    def __init__(self, principal: str, owner: str) -> None:
        super().__init__(principal)
        self.owner = owner


class BearerAuthMiddleware:
    """The keys, where any are set; cards and probes stay open. Who may speak for others names them in two headers."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        given = {SHARED_KEY_USER: settings.shared_key, DELEGATE_USER: settings.delegate_key}
        self._keys = {user: key.get_secret_value().encode() for user, key in given.items() if key is not None}
        self._trusts_anybody = not self._keys and (settings.loopback or settings.allow_unauthenticated)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._admit(scope) if scope["type"] == "http" and not _is_open(scope) else None
        await (refusal or self._app)(scope, receive, send)

    def _admit(self, scope: Scope) -> Response | None:
        """Names the user in the scope; the answer to whoever may not come in."""
        headers = Headers(scope=scope)
        user = self._login(headers.get("authorization", ""))
        if self._keys and user is None:
            return AsciiJSONResponse(
                {"error": "unauthorized", "message": _UNKNOWN}, 401, {"WWW-Authenticate": "Bearer"}
            )
        if user is not None:
            scope["user"], scope["auth"] = SimpleUser(user), AuthCredentials(["authenticated"])
        if USER_HEADER not in headers and OWNER_HEADER not in headers:
            return None
        # Where nothing is verified, anybody may say anything; but not over somebody whom an application around this one has verified.
        if user != DELEGATE_USER and not (self._trusts_anybody and "user" not in scope):
            return AsciiJSONResponse({"error": "forbidden", "message": _NOT_FOR_OTHERS}, 403)
        try:
            scope["user"] = _acting(headers)
        except Refused as error:
            return AsciiJSONResponse({"error": "bad_request", "message": str(error)}, 400)
        return None

    def _login(self, authorization: str) -> str | None:
        """The user whose key it is. Every key is compared, so that the time tells nothing."""
        scheme, _, given = authorization.partition(" ")
        token = given.strip().encode()
        found = [user for user, key in self._keys.items() if hmac.compare_digest(token, key)]
        if found and scheme.lower() == "bearer":
            return found[0]
        return None


def _acting(headers: Headers) -> OnBehalfOfUser:
    """The person and the owner that the headers name. Raises Refused."""
    principal = read_name_header(USER_HEADER, headers.getlist(USER_HEADER))
    owner = read_name_header(OWNER_HEADER, headers.getlist(OWNER_HEADER))
    if principal is None:
        raise Refused(f"{OWNER_HEADER} is sent alone. Name the person in {USER_HEADER}, too.")
    for header, name in ((USER_HEADER, principal), (OWNER_HEADER, owner)):
        if name is not None and name.strip() in (SHARED_KEY_USER, DELEGATE_USER):
            raise Refused(f"{header}: {name} is the name of a key and cannot be a person's.")
    return OnBehalfOfUser(principal, principal if owner is None else owner)


def _is_open(scope: Scope) -> bool:
    # At its place alone: further down, where files have addresses, anything may be called so.
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return scope["path"] in _OPEN_PATHS or path.startswith(("/.well-known/", "/v1/.well-known/"))


def _hostname(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
