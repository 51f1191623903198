"""`/v1/session`: whether a page's user is known, and the login with the server's key."""

import json
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.runtime.rest.problems import (
    ProblemResponse,
    read_json_body,
    with_problem_responses,
)
from ai_platform_engineering.runtime.server.access_keys import SHARED_KEY_USER, AccessKeys
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.authentication import principal_of_request
from ai_platform_engineering.runtime.server.sessions import Sessions

SESSION_PATH = "/v1/session"
_MAX_BODY_BYTES = 16 * 1024
_EXPECTED = 'Send the key as JSON: {"key": "…"}.'
_WRONG = "The server does not accept this key."
_NO_LOGIN = "Nobody can sign in to this server's page: A2A_AUTH_SHARED_KEY is not set."
_TOO_MANY = "Too many wrong keys came from this address. Try again in {seconds} s."
_OTHER_PAGE = "Only this server's own page can sign in and out."
_NEVER_KEPT = {"Cache-Control": "no-store"}


class SessionApi:
    """Opens and closes sessions. `sessions` is None when there is no shared key."""

    def __init__(self, keys: AccessKeys, sessions: Sessions | None) -> None:
        self._keys = keys
        self._sessions = sessions

    def routes(self) -> list[BaseRoute]:
        handlers = {"GET": self._show, "POST": self._open, "DELETE": self._close}
        return [
            Route(SESSION_PATH, with_problem_responses(handler), methods=[method])
            for method, handler in handlers.items()
        ]

    async def _show(self, request: Request) -> Response:
        """`login` names the method; others, such as OpenID Connect, get names of their own."""
        user = principal_of_request(request) or None
        session = {
            "authenticated": user is not None or not self._keys,
            "login": "key" if self._keys else "none",
            "user": user,
        }
        return AsciiJSONResponse(session, headers=_NEVER_KEPT)

    async def _open(self, request: Request) -> Response:
        key = _parse_key(await read_json_body(request, _MAX_BODY_BYTES, _EXPECTED))
        if not self._keys:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        if self._sessions is None:
            return ProblemResponse.of(HTTPStatus.UNAUTHORIZED, _NO_LOGIN)
        if self._sessions.is_other_page(request.headers):
            return ProblemResponse.of(HTTPStatus.FORBIDDEN, _OTHER_PAGE)
        address = request.client.host if request.client else ""
        seconds = self._keys.wrong.seconds_to_wait(address)
        if seconds:
            refusal = ProblemResponse.of(HTTPStatus.TOO_MANY_REQUESTS, _TOO_MANY.format(seconds=seconds))
            refusal.headers["Retry-After"] = str(seconds)
            return refusal
        # The delegate key opens no session: a browser never speaks for others.
        if self._keys.find_user(key) != SHARED_KEY_USER:
            self._keys.wrong.record(address, key)
            return ProblemResponse.of(HTTPStatus.UNAUTHORIZED, _WRONG)
        response = Response(status_code=HTTPStatus.NO_CONTENT, headers=_NEVER_KEPT)
        self._sessions.open(response, request.headers)
        return response

    async def _close(self, request: Request) -> Response:
        response = Response(status_code=HTTPStatus.NO_CONTENT, headers=_NEVER_KEPT)
        if self._sessions is not None:
            if self._sessions.is_other_page(request.headers):
                return ProblemResponse.of(HTTPStatus.FORBIDDEN, _OTHER_PAGE)
            self._sessions.close(response, request.headers)
        return response


def _parse_key(body: bytes) -> bytes:
    try:
        content = json.loads(body)
    except ValueError:
        raise Refused(_EXPECTED) from None
    key = content.get("key") if isinstance(content, dict) else None
    if not isinstance(key, str) or not key:
        raise Refused(_EXPECTED)
    return key.encode(errors="surrogatepass")
