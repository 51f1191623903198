"""From the catalogue to agents: each in this process with its MCP tools, or as a service elsewhere, as the settings say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ai_platform_engineering.agents.agent_catalog import (
    AgentCatalog,
    AgentEntry,
    load_catalog,
    load_placed_catalog,
)
from ai_platform_engineering.agents.installed_commands import resolve_commands
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from ai_platform_engineering.multi_agents.agent_registry import AgentRegistry
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent, McpTools
from ai_platform_engineering.multi_agents.platform_engineer.remote_agents import RemoteAgent
from ai_platform_engineering.utils.a2a_common.a2a_remote_agent_connect import (
    A2ARemoteAgentConnectTool,
    HttpClients,
)

PlacedAgent = LocalAgent | RemoteAgent


@dataclass(frozen=True, slots=True)
class PlacedAgents:
    """The agents as they were placed at one time, and what is open for them."""

    agents: Sequence[PlacedAgent] = ()
    catalog: AgentCatalog = field(default_factory=AgentCatalog)
    registry: AgentRegistry = field(default_factory=lambda: AgentRegistry({}))
    sessions: McpSessionPool | None = None
    http: HttpClients | None = None

    async def aclose(self) -> None:
        await self.registry.aclose()
        if self.http is not None:
            await self.http.aclose()
        if self.sessions is not None:
            await self.sessions.aclose()

    def report(self) -> dict[str, dict[str, Any]]:
        """How each agent is, for `/ready`."""
        found = {
            f"agent {row.name}": self._row(row.name, row.status, row.note)
            for row in self.catalog.report()
            if row.status != "disabled"
        }
        broken = {
            agent.definition.name: agent.source.problem
            for agent in self.agents
            if isinstance(agent, LocalAgent)
        }
        for name, problem in broken.items():
            if problem:
                found[f"agent {name}"] |= {"status": "degraded", "message": problem}
        return found

    def _row(self, name: str, status: str, note: str) -> dict[str, Any]:
        entry = self.catalog.get(name)
        placement = entry.placement if entry else "in-process"
        row: dict[str, Any] = {"status": status, "message": note, "placement": placement}
        if placement == "remote" and status == "ready":
            reach = self.registry.state(name)
            row |= {"url": entry.address if entry else None, "reachable": reach.status}
            if reach.problem:
                row |= {"status": "degraded", "message": reach.problem}
        return row


def place_agents(settings: Settings, variables: Mapping[str, str]) -> PlacedAgents:
    """All agents of the catalogue that are offered. Nothing is started and nobody is asked yet."""
    catalog = load_placed_catalog(settings, variables)
    sessions = build_mcp_sessions(settings, variables)
    http = HttpClients()
    entries = [entry for entry in catalog if entry.status == "ready"]
    connections = {
        entry.name: _connection(settings, entry, http) for entry in entries if entry.placement == "remote"
    }
    skip = settings.placement.skip_check
    registry = AgentRegistry(
        connections,
        timeout=settings.placement.check_timeout,
        every=settings.placement.check_every,
        checks=bool(connections) if skip is None else not skip,
    )
    agents = [
        _remote(settings, entry, connections[entry.name], registry, sessions)
        if entry.name in connections
        else build_local_agent(settings, entry, sessions)
        for entry in entries
    ]
    return PlacedAgents(agents, catalog, registry, sessions, http)


def build_mcp_sessions(settings: Settings, variables: Mapping[str, str]) -> McpSessionPool:
    return McpSessionPool(
        connect_timeout=settings.mcp.connect_timeout,
        call_timeout=settings.mcp.call_timeout,
        cache_dir=settings.agent.home / "cache" / "mcp",
        environment=variables,
    )


def build_local_agent(settings: Settings, entry: AgentEntry, sessions: McpSessionPool) -> LocalAgent:
    definition = resolve_commands(entry.definition, settings.agent.home)
    return LocalAgent(definition, McpTools(sessions, definition, read_only=settings.people.read_only))


def place_single_agent(
    settings: Settings, variables: Mapping[str, str], name: str, *, remote: bool
) -> PlacedAgents:
    """A single agent of the catalogue, here or elsewhere whatever the placement says. Raises ConfigurationError."""
    catalog = load_catalog(
        variables, agents_config=settings.agent.definitions, distributed=lambda one: remote and one == name
    )
    entry = catalog.get(name)
    if entry is None:
        raise ConfigurationError(
            f"There is no agent {name}. The agents are: {', '.join(one.name for one in catalog)}."
        )
    if entry.status != "ready":
        raise ConfigurationError(f"The agent {name} is {entry.status.replace('_', ' ')}: {entry.note}.")
    if entry.placement == "remote" and not remote:
        raise ConfigurationError(
            f"The agent {name} has no tools of its own: it is the service at {entry.address}."
        )
    only = AgentCatalog((entry,))
    if not remote:
        sessions = build_mcp_sessions(settings, variables)
        return PlacedAgents([build_local_agent(settings, entry, sessions)], only, sessions=sessions)
    http = HttpClients()
    connection = _connection(settings, entry, http)
    registry = AgentRegistry({name: connection}, checks=False)
    return PlacedAgents([_remote(settings, entry, connection, registry, None)], only, registry, http=http)


def _connection(settings: Settings, entry: AgentEntry, http: HttpClients) -> A2ARemoteAgentConnectTool:
    return A2ARemoteAgentConnectTool(
        name=entry.name,
        description=entry.definition.description,
        url=entry.address or "",
        token=entry.token,
        connect_timeout=settings.placement.connect_timeout,
        idle_timeout=settings.placement.idle_timeout,
        http=http,
    )


def _remote(
    settings: Settings,
    entry: AgentEntry,
    connection: A2ARemoteAgentConnectTool,
    registry: AgentRegistry,
    sessions: McpSessionPool | None,
) -> RemoteAgent:
    # Without its variables the agent could not work here either.
    falls_back = (
        settings.placement.fallback
        and sessions is not None
        and entry.definition.mcp_servers
        and not entry.missing
    )
    return RemoteAgent(
        entry.definition,
        connection,
        problem=partial(registry.problem, entry.name),
        record_contact=partial(registry.record_contact, entry.name),
        fallback=build_local_agent(settings, entry, sessions)
        if falls_back and sessions is not None
        else None,
    )
