"""Addresses that others name in a sign-in: checked before anything is sent, and no token goes elsewhere."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from ai_platform_engineering.core.agent_definition import McpServer, OAuthConfig
from ai_platform_engineering.core.oauth_settings import OAuthSettings
from ai_platform_engineering.mcp_client.mcp_errors import McpUnavailable
from ai_platform_engineering.mcp_client.oauth.access_tokens import login_resource
from ai_platform_engineering.mcp_client.oauth.checked_http import CheckedHttp
from ai_platform_engineering.mcp_client.oauth.discovery import discover
from ai_platform_engineering.mcp_client.oauth.oauth_access import OAuthAccess
from ai_platform_engineering.mcp_client.oauth.oauth_errors import SignInFailed
from ai_platform_engineering.mcp_client.oauth.stored_login import RegisteredClient, StoredLogin
from tests.support.fakes.mcp_servers import open_sessions
from tests.support.harness import serve_app

SERVER = "https://192.0.2.1/mcp"


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://metadata.google.internal/",
        "https://10.1.2.3/token",
        "https://127.0.0.1/token",
        "https://[::1]/token",
        "http://8.8.8.8/token",
        "ftp://8.8.8.8/token",
        "https://user:password@8.8.8.8/token",
    ],
)
async def test_addresses_in_other_networks_and_plain_http_are_refused(url: str) -> None:
    http = CheckedHttp(OAuthSettings())
    with pytest.raises(SignInFailed):
        await http.post_form(url, {"code": "secret"}, server_url="https://8.8.4.4/mcp")


async def test_listed_hosts_and_the_servers_own_are_allowed() -> None:
    http = CheckedHttp(OAuthSettings(private_hosts=("10.0.0.0/8",)))
    assert (await http.check_url("http://10.1.2.3/", server_url="https://8.8.4.4/mcp")).host == "10.1.2.3"
    assert (await http.check_url("https://10.1.2.3/", server_url="https://8.8.4.4/mcp")).host == "10.1.2.3"
    own_host = await http.check_url("http://127.0.0.1:9/token", server_url="http://127.0.0.1:8/mcp")
    assert own_host.port == 9
    with pytest.raises(SignInFailed, match="https"):
        await http.check_url("http://127.0.0.1:9/token", server_url="https://127.0.0.1/mcp")


@contextlib.asynccontextmanager
async def _serve_metadata(
    resource: Mapping[str, Any], authorization: Mapping[str, Any]
) -> AsyncIterator[str]:
    """A server with these documents; `{url}` stands for its address."""
    own_url = ""

    def answer(document: Mapping[str, Any]) -> Any:
        async def show(_: Request) -> Response:
            if "location" in document:
                return RedirectResponse(document["location"])
            return JSONResponse({name: _fill(value, own_url) for name, value in document.items()})

        return show

    routes = [
        Route("/.well-known/oauth-protected-resource", answer(resource)),
        Route("/.well-known/oauth-authorization-server", answer(authorization)),
    ]
    async with serve_app(Starlette(routes=routes)) as url:
        own_url = url.rstrip("/")
        yield own_url


def _fill(value: Any, url: str) -> Any:
    if isinstance(value, str):
        return value.replace("{url}", url)
    if isinstance(value, list):
        return [_fill(item, url) for item in value]
    return value


RESOURCE = {"resource": "{url}/mcp", "authorization_servers": ["{url}"]}
AUTHORIZATION = {
    "issuer": "{url}",
    "authorization_endpoint": "{url}/authorize",
    "token_endpoint": "{url}/token",
    "code_challenge_methods_supported": ["S256"],
}


@pytest.mark.parametrize(
    ("resource", "authorization", "words"),
    [
        ({**RESOURCE, "resource": "https://other.example/mcp"}, AUTHORIZATION, "another server"),
        ({**RESOURCE, "authorization_servers": ["http://169.254.169.254/"]}, AUTHORIZATION, "sign-in at"),
        (RESOURCE, {**AUTHORIZATION, "issuer": "https://other.example"}, "another authorization server"),
        (RESOURCE, {**AUTHORIZATION, "code_challenge_methods_supported": ["plain"]}, "PKCE"),
        (RESOURCE, {**AUTHORIZATION, "filler": "x" * 300_000}, "larger than"),
        (RESOURCE, {"location": "http://169.254.169.254/"}, "no metadata"),
    ],
)
async def test_metadata_that_cannot_be_trusted_ends_the_sign_in(
    resource: Mapping[str, Any], authorization: Mapping[str, Any], words: str
) -> None:
    async with _serve_metadata(resource, authorization) as url:
        with pytest.raises(SignInFailed, match=words):
            await discover(CheckedHttp(OAuthSettings()), f"{url}/mcp", ())


async def test_good_metadata_is_found_and_scopes_of_the_definition_win() -> None:
    async with _serve_metadata(RESOURCE, {**AUTHORIZATION, "scopes_supported": ["all"]}) as url:
        http = CheckedHttp(OAuthSettings())
        assert (await discover(http, f"{url}/mcp", ())).scope == "all"
        assert (await discover(http, f"{url}/mcp", ("one", "two"))).scope == "one two"


async def test_a_token_is_not_sent_to_where_a_server_redirects(tmp_path: Path) -> None:
    seen: list[Mapping[str, str]] = []

    async def take(request: Request) -> Response:
        seen.append(dict(request.headers))
        return JSONResponse({}, 401)

    async with serve_app(Starlette(routes=[Route("/mcp", take, methods=["POST", "GET", "DELETE"])])) as other:

        async def redirect(_: Request) -> Response:
            return RedirectResponse(f"{other}mcp", 307)

        routes = [Route("/mcp", redirect, methods=["POST", "GET", "DELETE"])]
        async with serve_app(Starlette(routes=routes)) as url:
            server = McpServer(url=f"{url}mcp", auth=OAuthConfig())
            oauth = OAuthAccess(tmp_path / "home", OAuthSettings())
            login = StoredLogin(
                client=RegisteredClient(issuer=url, client_id="ours"),
                resource=f"{url}mcp",
                token_endpoint=f"{url}token",
                access_token="a-token-of-a-person",
            )
            await oauth.store.save_login("", login_resource(server), login)
            async with open_sessions(tmp_path, oauth=oauth) as sessions:
                with pytest.raises(McpUnavailable, match="redirects to"):
                    await sessions.tools("desk", server)
            await oauth.aclose()
    assert seen == []
