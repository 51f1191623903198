"""An authorization server and a stock MCP server that wants its tokens, with our side of OAuth."""

import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ai_platform_engineering.core.agent_definition import McpServer, OAuthConfig
from ai_platform_engineering.core.oauth_settings import OAuthSettings
from ai_platform_engineering.mcp_client.oauth.oauth_access import OAuthAccess
from ai_platform_engineering.mcp_client.oauth.sign_in_target import SignInTarget
from tests.support.fakes.mcp_protected import build_app
from tests.support.fakes.oauth_server import OAuthServer, allow, read_answer, serve_oauth
from tests.support.harness import serve_app

REDIRECT = "http://127.0.0.1:9/callback"  # nobody listens there: the test is the browser


@dataclass
class OAuthStage:
    """Both servers, and what a person does with them."""

    authorization: OAuthServer
    url: str
    home: Path
    oauth: OAuthAccess

    def server(self, **config: Any) -> McpServer:
        return McpServer(url=self.url, auth=OAuthConfig(**config))

    def target(self, principal: str = "", server: McpServer | None = None) -> SignInTarget:
        return SignInTarget("desk", "desk", server or self.server(), principal)

    async def sign_in_on_page(self, user: str, principal: str = "") -> None:
        """As the web page does: its redirect URI stays the same, so its registration is stored."""
        sign_ins = await self.oauth.load_sign_ins()
        begun = await sign_ins.begin_browser(self.target(principal), REDIRECT, browser_secret="of a browser")
        answer = read_answer(await allow(begun.authorization_url, user))
        await sign_ins.finish_browser(
            answer["state"], answer["code"], answer["iss"], browser_secret="of a browser"
        )

    async def sign_in(self, user: str, principal: str = "", server: McpServer | None = None) -> None:
        """Signs in at the authorization server as `user`, for runs of `principal`."""
        sign_ins = await self.oauth.load_sign_ins()
        begun = await sign_ins.begin_browser(self.target(principal, server), REDIRECT, browser_secret=None)
        answer = read_answer(await allow(begun.authorization_url, user))
        await sign_ins.finish_browser(answer["state"], answer["code"], answer.get("iss"), principal=principal)


@contextlib.asynccontextmanager
async def serve_protected(issuer: str) -> AsyncIterator[str]:
    """The stock MCP server of the library that is installed here; its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with serve_app(build_app(issuer, url), listener):
        yield f"{url}/mcp"


@contextlib.asynccontextmanager
async def open_oauth_stage(
    home: Path, authorization: OAuthServer | None = None, **settings: Any
) -> AsyncIterator[OAuthStage]:
    async with serve_oauth(authorization) as running, serve_protected(running.url) as url:
        oauth = OAuthAccess(home, OAuthSettings(**settings))
        try:
            yield OAuthStage(running, url, home, oauth)
        finally:
            await oauth.aclose()
