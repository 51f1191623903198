"""Sessions of browsers: a signed token with an end, in a cookie that scripts cannot read."""

import base64
import hmac
import secrets
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import Response

from ai_platform_engineering.core.settings import ServerSettings

Clock = Callable[[], float]
_SAFE_METHODS = ("GET", "HEAD")


class Sessions:
    """Makes and checks tokens. The key that signs them is derived from the shared key.

    So a new shared key ends all sessions, they survive a restart, and replicas accept each other's."""

    def __init__(self, shared_key: bytes, settings: ServerSettings, clock: Clock = time.time) -> None:
        self._signing_key = hmac.digest(shared_key, b"caipe: session tokens, 1", "sha256")
        self._seconds = settings.session_seconds
        self._clock = clock
        self._external_origin = _origin_of(settings.external_url or "")
        # Cookies know no ports: each server of a machine has a name of its own.
        tag = hmac.digest(self._signing_key, b"caipe: cookie name", "sha256").hex()[:8]
        self._cookie = f"caipe_session_{tag}"

    @classmethod
    def from_settings(cls, settings: ServerSettings) -> "Sessions | None":
        """None without a shared key, for whose holders sessions are."""
        if settings.shared_key is None:
            return None
        return cls(settings.shared_key.get_secret_value().encode(), settings)

    def is_valid(self, headers: Headers) -> bool:
        """Whether the request has the cookie of a session that has not ended."""
        token = cookie_parser(headers.get("cookie", "")).get(self._cookie)
        if token is None:
            return False
        content, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(content).encode()):
            return False
        ends = content.partition(".")[0]
        return int(ends) > self._clock()

    def is_own_page(self, method: str, headers: Headers) -> bool:
        """Whether a page of this server sends the request: a cookie comes along whoever sends it.

        Browsers name the origin with each request that changes something. With others they may send
        nothing, as over HTTP."""
        if method not in _SAFE_METHODS and "origin" not in headers:
            return headers.get("sec-fetch-site") == "same-origin"
        return not self.is_other_page(headers)

    def is_other_page(self, headers: Headers) -> bool:
        """Whether a page of another server sends the request, as far as the browser tells."""
        origin = headers.get("origin")
        if origin is not None:
            return not self._is_own_origin(origin, headers)
        return headers.get("sec-fetch-site") not in (None, "same-origin", "none")

    def open(self, response: Response, headers: Headers) -> None:
        """Puts the cookie of a new session into the response to a page."""
        content = f"{int(self._clock() + self._seconds)}.{secrets.token_urlsafe(16)}"
        response.set_cookie(
            self._cookie,
            f"{content}.{self._sign(content)}",
            max_age=int(self._seconds),
            httponly=True,
            samesite="strict",
            secure=_is_over_tls(headers),
        )

    def close(self, response: Response, headers: Headers) -> None:
        """Takes the cookie away."""
        response.delete_cookie(self._cookie, httponly=True, samesite="strict", secure=_is_over_tls(headers))

    def _is_own_origin(self, origin: str, headers: Headers) -> bool:
        host = headers.get("host", "").lower()
        return origin.lower() in {f"http://{host}", f"https://{host}", self._external_origin}

    def _sign(self, content: str) -> str:
        digest = hmac.digest(self._signing_key, content.encode(), "sha256")
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _is_over_tls(headers: Headers) -> bool:
    """As the browser sees it: TLS may end at a proxy."""
    return headers.get("origin", "").lower().startswith("https://")


def _origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()
