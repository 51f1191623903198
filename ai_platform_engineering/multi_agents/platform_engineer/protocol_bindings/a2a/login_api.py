"""REST routes for signing in to hosted tool servers of agents, and the address that browsers return to."""

import hashlib
import html
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.core.host_patterns import is_loopback
from ai_platform_engineering.core.settings import ServerSettings
from ai_platform_engineering.mcp_client.oauth.oauth_access import CLIENT_METADATA_PATH, OAuthAccess
from ai_platform_engineering.mcp_client.oauth.sign_in_target import SignInTarget
from ai_platform_engineering.multi_agents.platform_engineer.agent_logins import NoSuchLogin, find_targets
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgents
from ai_platform_engineering.runtime.rest.problems import (
    Forbidden,
    NotFound,
    read_json_body,
    with_problem_responses,
)
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.authentication import (
    OAUTH_CALLBACK_PATH,
    OnBehalfOfUser,
    is_trusted,
    principal_of_request,
)

if TYPE_CHECKING:
    from ai_platform_engineering.mcp_client.oauth.sign_ins import BrowserSignIn

_MAX_BODY_BYTES = 16 * 1024
_EXPECTED = "Send a JSON object."
_NEVER_KEPT = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
_PAGE_HEADERS = {
    **_NEVER_KEPT,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
_NOT_FOR_ALL = (
    "This sign-in is for everybody who uses this installation. It takes the server's own key, or its machine."
)
_LOOPBACK_ONLY = "`redirect_uri` is the address of a command: http, 127.0.0.1 or [::1], and a port."


@dataclass(frozen=True, slots=True)
class LoginApi:
    """REST routes over the logins of the person who asks. No response holds a token."""

    placed: Callable[[], PlacedAgents]
    settings: ServerSettings

    def routes(self) -> list[Route]:
        login = "/v1/agents/{name}/login"
        return [
            Route(login, with_problem_responses(self.begin), methods=["POST"]),
            Route(login, with_problem_responses(self.sign_out), methods=["DELETE"]),
            Route(f"{login}/finish", with_problem_responses(self.finish), methods=["POST"]),
            Route(f"{login}/poll", with_problem_responses(self.poll), methods=["POST"]),
            Route(OAUTH_CALLBACK_PATH, self.return_from_browser),
            Route(CLIENT_METADATA_PATH, self.show_client_metadata),
        ]

    async def begin(self, request: Request) -> Response:
        """Begins a sign-in: in this browser, in the browser of a command, or on another device."""
        body = await _read_object(request)
        target = self._find_targets(request, body.get("server"))[0]
        if body.get("flow") == "device":
            return await self._begin_device(target)
        if body.get("redirect_uri") is not None:
            return await self._begin_for_command(target, _check_loopback_uri(body["redirect_uri"]))
        return await self._begin_for_page(target, f"{self._find_origin(request)}{OAUTH_CALLBACK_PATH}")

    async def _begin_device(self, target: SignInTarget) -> Response:
        sign_ins = await self._oauth.load_sign_ins()
        device = await sign_ins.begin_device(target)
        content = {
            "server": target.name,
            "state": device.state,
            "issuer": device.issuer,
            "user_code": device.user_code,
            "verification_uri": device.verification_uri,
            "verification_uri_complete": device.verification_uri_complete,
            "interval": device.interval,
        }
        return AsciiJSONResponse(content, headers=_NEVER_KEPT)

    async def _begin_for_command(self, target: SignInTarget, redirect_uri: str) -> Response:
        sign_ins = await self._oauth.load_sign_ins()
        sign_in = await sign_ins.begin_browser(target, redirect_uri, browser_secret=None)
        return _describe_sign_in(target, sign_in)

    async def _begin_for_page(self, target: SignInTarget, redirect_uri: str) -> Response:
        """The browser gets a cookie: whoever brings the answer has to have begun."""
        sign_ins = await self._oauth.load_sign_ins()
        browser_secret = secrets.token_urlsafe(32)
        sign_in = await sign_ins.begin_browser(target, redirect_uri, browser_secret=browser_secret)
        response = _describe_sign_in(target, sign_in)
        # Lax: the browser comes back from the authorization server, which is another site.
        response.set_cookie(
            _cookie_name(sign_in.state),
            browser_secret,
            max_age=int(self._oauth.settings.sign_in_seconds),
            path=OAUTH_CALLBACK_PATH,
            httponly=True,
            samesite="lax",
            secure=redirect_uri.startswith("https://"),
        )
        return response

    async def finish(self, request: Request) -> Response:
        """Finishes the sign-in that a command began, with what its browser brought back."""
        body = await _read_object(request)
        self._find_targets(request, None)
        sign_ins = await self._oauth.load_sign_ins()
        state = _read_text(body, "state")
        principal = principal_of_request(request)
        if body.get("error"):
            await sign_ins.refuse(state, _read_text(body, "error"), principal=principal)
        signed_in = await sign_ins.finish_browser(
            state, _read_text(body, "code"), _read_optional_text(body, "iss"), principal=principal
        )
        return AsciiJSONResponse({"agent": signed_in.agent, "server": signed_in.server})

    async def poll(self, request: Request) -> Response:
        """Whether the person has entered the code of a device sign-in; 202 while not."""
        body = await _read_object(request)
        self._find_targets(request, None)
        sign_ins = await self._oauth.load_sign_ins()
        result = await sign_ins.poll_device(
            _read_text(body, "state"), principal=principal_of_request(request)
        )
        if isinstance(result, float):
            return AsciiJSONResponse({"interval": result}, HTTPStatus.ACCEPTED)
        return AsciiJSONResponse({"agent": result.agent, "server": result.server})

    async def sign_out(self, request: Request) -> Response:
        """Deletes the tokens of the person at the agent's servers, and revokes them where that is offered."""
        sign_ins = await self._oauth.load_sign_ins()
        servers: list[str] = []
        for target in self._find_targets(request, request.query_params.get("server")):
            if await sign_ins.sign_out(target):
                servers.append(target.name)
        return AsciiJSONResponse({"signed_out": servers})

    async def return_from_browser(self, request: Request) -> Response:
        """Where an authorization server sends the browser: finishes the sign-in that this browser began."""
        query = request.query_params
        state = query.get("state", "")
        browser_secret = request.cookies.get(_cookie_name(state))
        response: Response
        try:
            sign_ins = await self._oauth.load_sign_ins()
            if "error" in query:
                text = query.get("error_description") or query["error"]
                await sign_ins.refuse(state, text, browser_secret=browser_secret)
            signed_in = await sign_ins.finish_browser(
                state, query.get("code", ""), query.get("iss"), browser_secret=browser_secret
            )
        except Refused as error:
            response = _build_page("Not signed in", str(error), HTTPStatus.BAD_REQUEST)
        else:
            text = f"You are signed in to {signed_in.server}. You can close this window."
            response = _build_page("Signed in", text, HTTPStatus.OK)
        response.delete_cookie(_cookie_name(state), path=OAUTH_CALLBACK_PATH, httponly=True, samesite="lax")
        return response

    async def show_client_metadata(self, _: Request) -> Response:
        """Who we are, for authorization servers that read it here in place of a registration."""
        base = self.settings.url.rstrip("/")
        metadata = {
            "client_id": f"{base}{CLIENT_METADATA_PATH}",
            "client_name": "AI Platform Engineer",
            "redirect_uris": [
                f"{base}{OAUTH_CALLBACK_PATH}",
                "http://127.0.0.1/callback",  # of commands, with any port (RFC 8252)
            ],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
        return AsciiJSONResponse(metadata, headers={"Cache-Control": "max-age=3600"})

    @property
    def _oauth(self) -> OAuthAccess:
        """Raises NotFound where no agents of a catalogue are served."""
        oauth = self.placed().oauth
        if oauth is None:
            raise NotFound("No agent of this server needs a sign-in.")
        return oauth

    def _find_targets(self, request: Request, server: Any) -> list[SignInTarget]:
        """Raises NotFound, and Forbidden for a sign-in that is not this person's to make."""
        if server is not None and not isinstance(server, str):
            raise Refused("`server` is the name of a tool server.")
        principal = principal_of_request(request)
        try:
            targets = find_targets(self.placed().catalog, request.path_params["name"], principal, server)
        except NoSuchLogin as error:
            raise NotFound(str(error)) from None
        speaks_for_other = isinstance(request.scope.get("user"), OnBehalfOfUser)
        is_operator = is_trusted(request.scope, self.settings) and not speaks_for_other
        if any(target.config.owner == "installation" for target in targets) and not is_operator:
            raise Forbidden(_NOT_FOR_ALL)
        return targets

    def _find_origin(self, request: Request) -> str:
        """The origin of the page that asks, where the browser has its cookie; else the configured one."""
        origin = request.headers.get("origin", "").lower()
        own_url = urlsplit(self.settings.url)
        configured_origin = f"{own_url.scheme}://{own_url.netloc}"
        host = request.headers.get("host", "").lower()
        if origin in (f"http://{host}", f"https://{host}"):
            return origin
        return configured_origin


def _describe_sign_in(target: SignInTarget, sign_in: "BrowserSignIn") -> AsciiJSONResponse:
    content = {
        "server": target.name,
        "state": sign_in.state,
        "issuer": sign_in.issuer,
        "authorization_url": sign_in.authorization_url,
        "has_device_flow": sign_in.has_device_flow,
    }
    return AsciiJSONResponse(content, headers=_NEVER_KEPT)


def _cookie_name(state: str) -> str:
    """Of this sign-in alone: a person may have several open."""
    return f"caipe_sign_in_{hashlib.sha256(state.encode()).hexdigest()[:16]}"


def _check_loopback_uri(uri: Any) -> str:
    """The address of a command on the person's machine; a code sent elsewhere would be given away."""
    if not isinstance(uri, str):
        raise Refused(_LOOPBACK_ONLY)
    try:
        parts = urlsplit(uri)
        is_loopback_port = is_loopback(parts.hostname or "") and parts.port is not None
    except ValueError:
        raise Refused(_LOOPBACK_ONLY) from None
    has_more = parts.username or parts.query or parts.fragment
    if parts.scheme != "http" or not is_loopback_port or has_more:
        raise Refused(_LOOPBACK_ONLY)
    return uri


async def _read_object(request: Request) -> dict[str, Any]:
    try:
        content = json.loads(await read_json_body(request, _MAX_BODY_BYTES, _EXPECTED) or b"{}")
    except ValueError:
        raise Refused(_EXPECTED) from None
    if not isinstance(content, dict):
        raise Refused(_EXPECTED)
    return content


def _read_text(body: dict[str, Any], name: str) -> str:
    text = body.get(name)
    if not isinstance(text, str) or not text:
        raise Refused(f"`{name}` is missing.")
    return text


def _read_optional_text(body: dict[str, Any], name: str) -> str | None:
    if body.get(name) is None:
        return None
    return _read_text(body, name)


def _build_page(title: str, text: str, status: HTTPStatus) -> HTMLResponse:
    content = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title>"
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1rem;"
        "color-scheme:light dark}</style>"
        f"<main><h1>{html.escape(title)}</h1><p>{html.escape(text)}</p></main></html>"
    )
    return HTMLResponse(content, status, headers=_PAGE_HEADERS)
