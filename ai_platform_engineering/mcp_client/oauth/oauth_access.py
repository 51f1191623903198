"""OAuth of one process: the stored logins, the tokens of sessions, and sign-ins."""

import asyncio
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.oauth_settings import OAuthSettings
from ai_platform_engineering.mcp_client.oauth.access_tokens import AccessTokens, login_owner, login_resource
from ai_platform_engineering.mcp_client.oauth.checked_http import CheckedHttp
from ai_platform_engineering.mcp_client.oauth.token_store import LoginRow, TokenStore
from ai_platform_engineering.net.connections import Connector

if TYPE_CHECKING:
    from ai_platform_engineering.mcp_client.oauth.sign_ins import SignIns

CLIENT_METADATA_PATH = "/.well-known/oauth-client.json"
"""Where a server publishes who it is as an OAuth client."""


class OAuthAccess:
    """What sessions and sign-ins share. Nothing is opened or loaded before it is used."""

    def __init__(
        self,
        home: Path,
        settings: OAuthSettings,
        *,
        client_metadata_url: str | None = None,
        connector: Connector | None = None,
    ) -> None:
        """`client_metadata_url`: where this server publishes its client metadata document, if it does."""
        self.settings = settings
        self.store = TokenStore(home, settings)
        self._http = CheckedHttp(settings, connector)
        self._client_metadata_url = client_metadata_url
        self._sign_ins: SignIns | None = None

    def tokens_for(self, name: str, server: McpServer, owner: str) -> AccessTokens:
        """The tokens that a session of this owner with this server sends."""
        return AccessTokens(name, server, owner, self.store, self._http, self.settings.timeout)

    async def find_login(self, server: McpServer, principal: str) -> LoginRow | None:
        """The login that is used when this person asks; without its tokens."""
        return await self.store.find_row(login_owner(server, principal), login_resource(server))

    async def has_logins(self, server: McpServer) -> bool:
        """Whether anybody has signed in."""
        return bool(await self.store.list_logins(login_resource(server), limit=1))

    async def load_sign_ins(self) -> "SignIns":
        """Loads the MCP library, which takes a second, in a thread."""
        if self._sign_ins is None:
            module = await asyncio.to_thread(
                import_module, "ai_platform_engineering.mcp_client.oauth.sign_ins"
            )
            self._sign_ins = module.SignIns(self.store, self._http, self.settings, self._client_metadata_url)
        return self._sign_ins

    async def aclose(self) -> None:
        await self.store.aclose()
