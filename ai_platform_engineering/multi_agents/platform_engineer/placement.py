"""Placement: each agent of the catalogue in-process with its MCP tools, or remote, as the settings say."""

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
    """The placed agents, and what is open for them: the registry, MCP sessions and HTTP clients."""

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
        """The state of each agent, for `/ready`."""
        report: dict[str, dict[str, Any]] = {}
        for row in self.catalog.report():
            if row.status != "disabled":
                report[f"agent {row.name}"] = self._report_agent(row.name, row.status, row.note)
        for agent in self.agents:
            if isinstance(agent, LocalAgent) and agent.source.problem:
                problem = {"status": "degraded", "message": agent.source.problem}
                report[f"agent {agent.definition.name}"] |= problem
        return report

    def _report_agent(self, name: str, status: str, note: str) -> dict[str, Any]:
        entry = self.catalog.get(name)
        if entry is None or entry.placement != "remote" or status != "ready":
            placement = entry.placement if entry else "in-process"
            return {"status": status, "message": note, "placement": placement}
        reachability = self.registry.reachability(name)
        if reachability.problem:
            status = "degraded"
            note = reachability.problem
        return {
            "status": status,
            "message": note,
            "placement": "remote",
            "url": entry.address,
            "reachable": reachability.status,
        }


def place_agents(settings: Settings, variables: Mapping[str, str]) -> PlacedAgents:
    """All agents of the catalogue that are offered. Nothing is started and no request is made yet."""
    catalog = load_placed_catalog(settings, variables)
    sessions = build_mcp_sessions(settings, variables)
    http = HttpClients()
    entries = [entry for entry in catalog if entry.status == "ready"]
    connections = {
        entry.name: _build_connection(settings, entry, http)
        for entry in entries
        if entry.placement == "remote"
    }
    skip_check = settings.placement.skip_check
    registry = AgentRegistry(
        connections,
        timeout=settings.placement.check_timeout,
        interval=settings.placement.check_every,
        checks=bool(connections) if skip_check is None else not skip_check,
    )
    agents: list[PlacedAgent] = []
    for entry in entries:
        connection = connections.get(entry.name)
        if connection is not None:
            agents.append(_build_remote_agent(settings, entry, connection, registry, sessions))
        else:
            agents.append(build_local_agent(settings, entry, sessions))
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
    """One agent of the catalogue, in-process or remote as `remote` says. Raises ConfigurationError."""
    catalog = load_catalog(
        variables,
        agents_config=settings.agent.definitions,
        distributed=lambda agent: remote and agent == name,
    )
    entry = catalog.get(name)
    if entry is None:
        names = ", ".join(entry.name for entry in catalog)
        raise ConfigurationError(f"There is no agent {name}. The agents are: {names}.")
    if entry.status != "ready":
        raise ConfigurationError(f"The agent {name} is {entry.status.replace('_', ' ')}: {entry.note}.")
    if entry.placement == "remote" and not remote:
        raise ConfigurationError(
            f"The agent {name} has no tools of its own: it is the service at {entry.address}."
        )
    single_catalog = AgentCatalog((entry,))
    if not remote:
        sessions = build_mcp_sessions(settings, variables)
        agent = build_local_agent(settings, entry, sessions)
        return PlacedAgents([agent], single_catalog, sessions=sessions)
    http = HttpClients()
    connection = _build_connection(settings, entry, http)
    registry = AgentRegistry({name: connection}, checks=False)
    remote_agent = _build_remote_agent(settings, entry, connection, registry, None)
    return PlacedAgents([remote_agent], single_catalog, registry, http=http)


def _build_connection(settings: Settings, entry: AgentEntry, http: HttpClients) -> A2ARemoteAgentConnectTool:
    return A2ARemoteAgentConnectTool(
        name=entry.name,
        description=entry.definition.description,
        url=entry.address or "",
        token=entry.token,
        connect_timeout=settings.placement.connect_timeout,
        idle_timeout=settings.placement.idle_timeout,
        http=http,
    )


def _build_remote_agent(
    settings: Settings,
    entry: AgentEntry,
    connection: A2ARemoteAgentConnectTool,
    registry: AgentRegistry,
    sessions: McpSessionPool | None,
) -> RemoteAgent:
    return RemoteAgent(
        entry.definition,
        connection,
        problem=partial(registry.problem, entry.name),
        record_contact=partial(registry.record_contact, entry.name),
        fallback=_build_fallback(settings, entry, sessions),
    )


def _build_fallback(
    settings: Settings, entry: AgentEntry, sessions: McpSessionPool | None
) -> LocalAgent | None:
    """The same agent in this process, where that is configured and possible."""
    if not settings.placement.fallback or sessions is None:
        return None
    # Without its variables the agent could not work in this process either.
    if not entry.definition.mcp_servers or entry.missing:
        return None
    return build_local_agent(settings, entry, sessions)
