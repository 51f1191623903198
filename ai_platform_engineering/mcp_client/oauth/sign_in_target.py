"""What a person signs in to."""

from dataclasses import dataclass

from ai_platform_engineering.core.agent_definition import McpServer, OAuthConfig
from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.mcp_client.oauth.access_tokens import login_owner


@dataclass(frozen=True, slots=True)
class SignInTarget:
    """A server of an agent, and who signs in: for themselves, or for the installation."""

    agent: str
    name: str
    server: McpServer
    principal: str

    @property
    def owner(self) -> str:
        return login_owner(self.server, self.principal)

    @property
    def config(self) -> OAuthConfig:
        """Raises Refused for a server that needs no sign-in."""
        if self.server.oauth is None:
            raise Refused(f"The tool server {self.name} needs no sign-in.")
        return self.server.oauth
