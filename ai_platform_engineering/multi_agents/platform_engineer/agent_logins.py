"""The logins of people at the hosted tool servers of in-process agents."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ai_platform_engineering.agents.agent_catalog import AgentCatalog
from ai_platform_engineering.core.agent_definition import AgentDefinition, McpServer
from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.mcp_client.oauth.oauth_access import OAuthAccess
from ai_platform_engineering.mcp_client.oauth.sign_in_target import SignInTarget


@dataclass(frozen=True, slots=True)
class LoginState:
    """Whether the login that a person uses at a server is there, and since when."""

    server: str
    owner: Literal["person", "installation"]
    signed_in_at: datetime | None


class NoSuchLogin(Refused):
    """There is no such agent, or none of its servers needs a sign-in."""

    code = "no_such_login"


async def list_login_states(
    oauth: OAuthAccess | None, definition: AgentDefinition, principal: str
) -> tuple[LoginState, ...]:
    """The servers of an agent that need a sign-in."""
    states: list[LoginState] = []
    for name, server in oauth_servers(definition):
        if oauth is None or server.oauth is None:
            continue
        row = await oauth.find_login(server, principal)
        states.append(LoginState(name, server.oauth.owner, row.signed_in_at if row else None))
    return tuple(states)


def oauth_servers(definition: AgentDefinition) -> Iterator[tuple[str, McpServer]]:
    """The servers of an agent that need a sign-in, by name."""
    for name, server in definition.mcp_servers.items():
        if server.oauth is not None:
            yield name, server


def find_targets(
    catalog: AgentCatalog, name: str, principal: str, server_name: str | None = None
) -> list[SignInTarget]:
    """The servers of the agent, or the server of that name, for this person. Raises NoSuchLogin.

    `server_name`: only this one of them.
    """
    targets: list[SignInTarget] = []
    for entry in catalog:
        if entry.placement == "remote":
            continue
        for server, definition in oauth_servers(entry.definition):
            if name in (entry.name, server) and server_name in (None, server):
                targets.append(SignInTarget(entry.name, server, definition, principal))
    own_targets = [target for target in targets if target.agent == name]
    if own_targets:
        return own_targets
    if not targets:
        raise NoSuchLogin(_describe_missing(catalog, name))
    return targets[:1]


def _describe_missing(catalog: AgentCatalog, name: str) -> str:
    entry = catalog.get(name)
    if entry is None:
        names = ", ".join(entry.name for entry in catalog if any(oauth_servers(entry.definition)))
        return f"There is no agent {name}. The agents that need a sign-in: {names or 'none'}."
    if entry.placement == "remote":
        return f"{name} runs as a service. Sign in there: use its address as CAIPE_URL."
    return f"No tool server of {name} needs a sign-in: its definition has no `auth: oauth`."
