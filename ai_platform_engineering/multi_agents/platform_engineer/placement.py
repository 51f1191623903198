"""Placement: each agent of the catalogue in-process with its MCP tools, or remote, as it is told."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ai_platform_engineering.agents.agent_catalog import (
    AgentCatalog,
    AgentEntry,
    PlacementRule,
    is_enabled,
    load_entries,
    place_entries,
    place_entry,
    shipped_names,
)
from ai_platform_engineering.agents.check_records import CheckRecords
from ai_platform_engineering.agents.installed_commands import (
    find_trust_folder,
    missing_commands,
    resolve_commands,
)
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.redaction import mask_urls
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.mcp_client.oauth.oauth_access import CLIENT_METADATA_PATH, OAuthAccess
from ai_platform_engineering.mcp_client.server_slots import ServerSlots
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from ai_platform_engineering.multi_agents.agent_registry import AgentRegistry
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent, McpTools
from ai_platform_engineering.multi_agents.platform_engineer.network_environment import set_network_environment
from ai_platform_engineering.multi_agents.platform_engineer.remote_agents import RemoteAgent
from ai_platform_engineering.multi_agents.platform_engineer.server_check import (
    CheckedAgent,
    ToolServerCheck,
)
from ai_platform_engineering.utils.a2a_common.a2a_remote_agent_connect import (
    A2ARemoteAgentConnectTool,
    HttpClients,
)

PlacedAgent = LocalAgent | RemoteAgent


class AgentNotOffered(ConfigurationError):
    """There is no such agent, or it is switched off, or something that it needs is missing."""


@dataclass(frozen=True, slots=True)
class AgentBuilder:
    """Builds agents from entries of the catalogue; what is open for them belongs to it."""

    settings: Settings
    variables: Mapping[str, str]
    oauth: OAuthAccess
    sessions: McpSessionPool
    http: HttpClients
    registry: AgentRegistry

    @classmethod
    def from_settings(
        cls, settings: Settings, variables: Mapping[str, str], slots: ServerSlots | None = None
    ) -> "AgentBuilder":
        """Nothing is started and no request is made yet. `slots`: how many tool servers may run."""
        skip_check = settings.placement.skip_check
        registry = AgentRegistry(
            timeout=settings.placement.check_timeout,
            interval=settings.placement.check_every,
            checks=None if skip_check is None else not skip_check,
        )
        oauth = build_oauth_access(settings)
        sessions = build_mcp_sessions(settings, variables, oauth, slots)
        return cls(settings, variables, oauth, sessions, HttpClients(settings.placement), registry)

    def build(self, entry: AgentEntry, service_urls: Sequence[str]) -> PlacedAgent:
        """The agent where its entry places it. `service_urls`: those of all agents that run as services."""
        if entry.placement == "remote":
            return self._build_remote(entry, service_urls)
        return self._build_local(entry, service_urls)

    async def aclose(self) -> None:
        await self.registry.aclose()
        await self.http.aclose()
        await self.sessions.aclose()
        await self.oauth.aclose()

    def _build_local(self, entry: AgentEntry, service_urls: Sequence[str]) -> LocalAgent:
        definition = resolve_commands(entry.definition, self.settings.agent.home)
        definition = set_network_environment(definition, self.settings, service_urls)
        read_only = self.settings.people.read_only
        return LocalAgent(definition, McpTools(self.sessions, definition, read_only=read_only))

    def _build_remote(self, entry: AgentEntry, service_urls: Sequence[str]) -> RemoteAgent:
        connection = A2ARemoteAgentConnectTool(
            name=entry.name,
            description=entry.definition.description,
            url=entry.address or "",
            token=entry.token,
            connect_timeout=self.settings.placement.connect_timeout,
            idle_timeout=self.settings.placement.idle_timeout,
            lost_timeout=self.settings.placement.third_party_lost_timeout,
            http=self.http,
        )
        self.registry.add(entry.name, connection)
        return RemoteAgent(
            entry.definition,
            connection,
            problem=partial(self.registry.problem, entry.name),
            record_contact=partial(self.registry.record_contact, entry.name),
            fallback=self._build_fallback(entry, service_urls),
        )

    def _build_fallback(self, entry: AgentEntry, service_urls: Sequence[str]) -> LocalAgent | None:
        """The same agent in this process, where that is configured and possible."""
        if not self.settings.placement.fallback:
            return None
        # Without its variables the agent could not work in this process either.
        if not entry.definition.mcp_servers or entry.missing:
            return None
        return self._build_local(entry, service_urls)


@dataclass(slots=True)
class _CatalogAgents:
    """The agents of a catalogue: as they were read, as they are placed, and built."""

    builder: AgentBuilder
    unplaced: Mapping[str, AgentEntry]
    placed: dict[str, AgentEntry]
    built: dict[tuple[str, str], PlacedAgent] = field(default_factory=dict)  # by name and placement

    def find(self, name: str) -> PlacedAgent:
        """The agent where it is placed, built when first needed. Raises AgentNotOffered."""
        entry = self.placed.get(name)
        if entry is None:
            raise AgentNotOffered(f"There is no agent {name}.")
        if entry.status != "ready":
            raise AgentNotOffered(f"The agent {name} is {entry.status.replace('_', ' ')}: {entry.note}.")
        key = (name, entry.placement)
        if key not in self.built:
            self.built[key] = self.builder.build(entry, self._list_service_urls())
        return self.built[key]

    def move(self, name: str, *, remote: bool) -> None:
        """Places the agent anew if it is to run elsewhere than it does, or was switched off."""
        entry = self.placed.get(name)
        if entry is None:
            return
        runs_as_service = entry.placement == "remote"
        if entry.status == "disabled" or runs_as_service != remote:
            variables = self.builder.variables
            self.placed[name] = place_entry(self.unplaced[name], variables, enabled=True, remote=remote)

    def list_local(self) -> list[CheckedAgent]:
        """The offered agents that run in this process."""
        agents: list[CheckedAgent] = []
        for entry in self.placed.values():
            agent = self.find(entry.name) if entry.status == "ready" else None
            if isinstance(agent, LocalAgent):
                agents.append(CheckedAgent(entry, agent))
        return agents

    def _list_service_urls(self) -> list[str]:
        entries = self.placed.values()
        return [entry.address for entry in entries if entry.status == "ready" and entry.address]


class PlacedAgents:
    """The agents of a deployment, each where it is placed, and what is open for them.

    Agents that are handed in stay as they are; those of a catalogue can be placed anew.
    """

    def __init__(
        self,
        agents: Sequence[PlacedAgent] = (),
        *,
        catalog: _CatalogAgents | None = None,
        distributed: frozenset[str] | None = None,
        warning: str = "",
    ) -> None:
        """`distributed`: the names of the agents that run as services; None leaves them to the settings."""
        self.distributed = distributed
        self.registry = AgentRegistry() if catalog is None else catalog.builder.registry
        self.variables: Mapping[str, str] = {} if catalog is None else catalog.builder.variables
        self.oauth = None if catalog is None else catalog.builder.oauth
        self._handed_in = {agent.definition.name: agent for agent in agents}
        self._catalog = catalog
        self._warning = warning
        self._server_check: ToolServerCheck | None = None

    @property
    def agents(self) -> Sequence[PlacedAgent]:
        """The agents that are offered."""
        agents = list(self._handed_in.values())
        if self._catalog is not None:
            for entry in self._catalog.placed.values():
                if entry.status == "ready":
                    agents.append(self._catalog.find(entry.name))
        return agents

    @property
    def catalog(self) -> AgentCatalog:
        if self._catalog is None:
            return AgentCatalog()
        return AgentCatalog(tuple(self._catalog.placed.values()), self._warning)

    @property
    def handed_in(self) -> tuple[str, ...]:
        """The names of the agents that were handed in."""
        return tuple(self._handed_in)

    @property
    def configured(self) -> tuple[str, ...]:
        """The names of the agents of `AGENTS_CONFIG`, offered or not."""
        if self._catalog is None:
            return ()
        return tuple(name for name, entry in self._catalog.placed.items() if not entry.is_shipped)

    def place(self, name: str, *, remote: bool) -> PlacedAgent:
        """The agent of that name, in-process or as a service. Raises AgentNotOffered."""
        if name in self._handed_in:
            return self._handed_in[name]
        if self._catalog is None:
            raise AgentNotOffered(f"There is no agent {name}.")
        self._catalog.move(name, remote=remote)
        return self._catalog.find(name)

    def start_server_check(self, is_busy: Callable[[], bool]) -> None:
        """Checks the tool servers of the catalogue's agents in the background."""
        if self._catalog is None or self._server_check is not None:
            return
        settings = self._catalog.builder.settings
        records = CheckRecords(settings.agent.home)
        self._server_check = ToolServerCheck(self._catalog.list_local(), settings.mcp, records)
        self._server_check.start(is_busy)

    async def aclose(self) -> None:
        if self._server_check is not None:
            await self._server_check.aclose()
        if self._catalog is not None:
            await self._catalog.builder.aclose()

    def report(self) -> dict[str, dict[str, Any]]:
        """The state of each agent, for `/ready`."""
        report: dict[str, dict[str, Any]] = {}
        if self._warning:
            report["agents"] = {"status": "degraded", "message": self._warning}
        for entry in self.catalog:
            if entry.status != "disabled":
                report[f"agent {entry.name}"] = self._report_agent(entry)
        for agent in self.agents:
            if isinstance(agent, LocalAgent) and agent.source.problem:
                name = f"agent {agent.definition.name}"
                report[name] = {
                    **report.get(name, {}),
                    "status": "degraded",
                    "message": agent.source.problem,
                }
        return report

    def find_missing_programs(self, entry: AgentEntry) -> list[str]:
        """The programs of an in-process agent's tool servers that are not on this machine."""
        if self._catalog is None or entry.placement == "remote" or entry.status != "ready":
            return []
        return missing_commands(entry.definition, self._catalog.builder.settings.agent.home)

    def _report_agent(self, entry: AgentEntry) -> dict[str, Any]:
        if entry.warning:
            return {"status": "degraded", "message": entry.warning, "placement": entry.placement}
        missing = self.find_missing_programs(entry)
        if missing:
            message = f"not on this machine: {', '.join(missing)}"
            return {"status": "degraded", "message": message, "placement": entry.placement}
        if entry.placement != "remote" or entry.status != "ready":
            return {"status": entry.status, "message": entry.note, "placement": entry.placement}
        reachability = self.registry.reachability(entry.name)
        return {
            "status": "degraded" if reachability.problem else entry.status,
            "message": reachability.problem or entry.note,
            "placement": "remote",
            "url": mask_urls(entry.address or ""),
            "reachable": reachability.status,
        }


def place_agents(
    settings: Settings,
    variables: Mapping[str, str],
    rule: PlacementRule | None = None,
    slots: ServerSlots | None = None,
) -> PlacedAgents:
    """All agents of the catalogue, placed as the rule says. Nothing is started and no request is made yet.

    `slots`: how many tool servers may run."""
    rule = rule or PlacementRule.from_settings(settings, variables)
    entries = load_entries(variables, agents_config=settings.agent.definitions, shipped=rule.shipped)
    catalog = place_entries(entries, settings, variables, rule)
    agents = _CatalogAgents(
        AgentBuilder.from_settings(settings, variables, slots),
        {entry.name: entry for entry in entries},
        {entry.name: entry for entry in catalog},
    )
    return PlacedAgents(catalog=agents, distributed=frozenset(rule.distributed), warning=catalog.warning)


def place_single_agent(
    settings: Settings,
    variables: Mapping[str, str],
    name: str,
    *,
    remote: bool,
    slots: ServerSlots | None = None,
) -> PlacedAgents:
    """One agent of the catalogue, in-process or remote as `remote` says. Raises ConfigurationError."""
    entries = load_entries(variables, agents_config=settings.agent.definitions, shipped=shipped_names())
    unplaced = {entry.name: entry for entry in entries}
    if name not in unplaced:
        raise AgentNotOffered(f"There is no agent {name}. The agents are: {', '.join(unplaced)}.")
    entry = place_entry(unplaced[name], variables, enabled=is_enabled(name, variables), remote=remote)
    builder = AgentBuilder.from_settings(settings, variables, slots)
    agents = _CatalogAgents(builder, {name: unplaced[name]}, {name: entry})
    if isinstance(agents.find(name), RemoteAgent) and not remote:
        address = mask_urls(entry.address or "")
        raise ConfigurationError(f"The agent {name} has no tools of its own: it is the service at {address}.")
    return PlacedAgents(catalog=agents)


def build_oauth_access(settings: Settings) -> OAuthAccess:
    """The logins of people at hosted tool servers. Nothing is opened yet."""
    metadata_url = None
    if (settings.server.external_url or "").startswith("https://"):
        metadata_url = f"{settings.server.url.rstrip('/')}{CLIENT_METADATA_PATH}"
    return OAuthAccess(settings.agent.home, settings.oauth, client_metadata_url=metadata_url)


def build_mcp_sessions(
    settings: Settings,
    variables: Mapping[str, str],
    oauth: OAuthAccess | None = None,
    slots: ServerSlots | None = None,
) -> McpSessionPool:
    return McpSessionPool(
        connect_timeout=settings.mcp.connect_timeout,
        call_timeout=settings.mcp.call_timeout,
        idle=settings.mcp.idle_timeout,
        question=settings.mcp.question_timeout,
        message_bytes=settings.mcp.max_message_bytes,
        message_values=settings.mcp.max_message_values,
        cache_dir=settings.agent.home / "cache" / "mcp",
        environment=variables,
        sandbox=settings.mcp.sandbox,
        private_paths=(settings.agent.home,),
        trust_dir=find_trust_folder(settings.agent.home) if settings.mcp.hold_changed_tools else None,
        oauth=oauth,
        slots=slots,
    )
