"""Who may speak to the server: a bearer key where one is set, and on loopback only pages and names of this machine."""

import hmac
from urllib.parse import urlsplit

from starlette.authentication import AuthCredentials, SimpleUser
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import ServerSettings, is_loopback
from ai_platform_engineering.runtime.ascii_json import AsciiJSON

_OPEN_PATHS = ("/health", "/ready")
SHARED_KEY_USER = "shared-key"


def check_exposure(settings: ServerSettings) -> None:
    """Refuses to listen beyond loopback without authentication, unless told so."""
    if settings.loopback or settings.shared_key or settings.allow_unauthenticated:
        return
    raise ConfigurationError(
        f"A2A_HOST={settings.host} would open the server to the network without authentication. Set A2A_AUTH_SHARED_KEY, "
        "or listen on 127.0.0.1, or set A2A_ALLOW_UNAUTHENTICATED=true if something in front of it authenticates."
    )


class HostGuard:
    """Checks Host and Origin, so that a web page cannot reach a server on this machine under a name of its own."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app, self._settings = app, settings
        self._hosts = {host.lower() for host in settings.allowed_hosts}
        if settings.external_url and (name := urlsplit(settings.external_url).hostname):
            self._hosts.add(name.lower())
        self._checks_hosts = settings.loopback or bool(settings.allowed_hosts)
        self._checks_origins = settings.loopback or bool(settings.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_probe(scope["path"]) and (reason := self._refusal(Headers(scope=scope))):
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


class BearerAuth:
    """The shared key, when one is set; cards and probes stay open."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._key = settings.shared_key.get_secret_value().encode() if settings.shared_key else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._key is None or _is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._key):
            error = {"error": "unauthorized", "message": "Send the shared key as a bearer token in the Authorization header."}
            await AsciiJSON(error, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
            return
        scope["user"], scope["auth"] = SimpleUser(SHARED_KEY_USER), AuthCredentials(["authenticated"])
        await self._app(scope, receive, send)


def _is_open(path: str) -> bool:
    return path in _OPEN_PATHS or "/.well-known/" in path


def _hostname(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
