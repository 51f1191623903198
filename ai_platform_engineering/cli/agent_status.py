"""Status of the catalogue's agents: what each still needs, and whether remote agents can be reached."""

from collections.abc import Iterable, Mapping, Sequence

from ai_platform_engineering.agents.agent_catalog import (
    AgentCatalog,
    AgentEntry,
    load_catalog,
    load_placed_catalog,
)
from ai_platform_engineering.agents.check_records import CheckRecords
from ai_platform_engineering.agents.installed_commands import missing_commands
from ai_platform_engineering.cli.agent_trust import find_held_tools
from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.redaction import mask_urls
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.terminals import command_name
from ai_platform_engineering.terminal.agent_view import AgentRow


async def list_agent_rows(settings: Settings, variables: Mapping[str, str]) -> list[AgentRow]:
    """One row for each agent of the catalogue; remote agents are asked for their cards."""
    catalog = load_placed_catalog(settings, variables)
    remote_entries = [entry for entry in catalog if entry.status == "ready" and entry.address]
    problems = await check_remote_agents(settings, remote_entries)
    missing_logins = await _find_missing_logins(settings, catalog)
    return [
        _build_row(entry, settings, problems.get(entry.name), missing_logins.get(entry.name))
        for entry in catalog
    ]


async def _find_missing_logins(settings: Settings, entries: Iterable[AgentEntry]) -> dict[str, str]:
    """The agents with a tool server that nobody has signed in to, and the server's name."""
    servers: list[tuple[AgentEntry, str, McpServer]] = []
    for entry in filter(_runs_here, entries):
        for name, server in entry.definition.mcp_servers.items():
            if server.oauth is not None:
                servers.append((entry, name, server))
    if not servers:
        return {}
    # Imported late: few installations have such servers.
    from ai_platform_engineering.mcp_client.oauth.oauth_access import OAuthAccess

    missing: dict[str, str] = {}
    oauth = OAuthAccess(settings.agent.home, settings.oauth)
    try:
        for entry, name, server in servers:
            if not await oauth.has_logins(server):
                missing.setdefault(entry.name, name)
    finally:
        await oauth.aclose()
    return missing


def _build_row(
    entry: AgentEntry, settings: Settings, unreachable: str | None, missing_login: str | None
) -> AgentRow:
    """`unreachable`: why its service cannot be reached. `missing_login`: where nobody has signed in."""
    placement = _describe_placement(entry)
    if unreachable:
        return AgentRow(entry.name, "unreachable", unreachable, placement)
    if entry.warning:
        return AgentRow(entry.name, "no_address", entry.note, placement)
    missing = describe_missing_program(entry, settings)
    if missing:
        return AgentRow(entry.name, "not_installed", missing, placement)
    if missing_login:
        needs = f"a sign-in: {command_name()} agents login {entry.name}"
        return AgentRow(entry.name, "not_signed_in", needs, placement)
    failure = describe_failed_check(entry, settings)
    if failure:
        needs = f"{failure}; to try it: {command_name()} agents test {entry.name}"
        return AgentRow(entry.name, "failing", needs, placement)
    return AgentRow(entry.name, entry.status, _describe_needs(entry, settings), placement)


async def check_remote_agents(settings: Settings, entries: Sequence[AgentEntry]) -> dict[str, str | None]:
    """Fetches the cards of remote agents; the problem of each, by agent."""
    if not entries:
        return {}
    # Imported late: the libraries of A2A take a while, and most installations have no remote agent.
    from ai_platform_engineering.multi_agents.agent_registry import AgentRegistry
    from ai_platform_engineering.utils.a2a_common.a2a_remote_agent_connect import (
        A2ARemoteAgentConnectTool,
        HttpClients,
    )

    http = HttpClients(settings.placement)
    connections: dict[str, A2ARemoteAgentConnectTool] = {}
    for entry in entries:
        connections[entry.name] = A2ARemoteAgentConnectTool(
            name=entry.name, description="", url=entry.address or "", token=entry.token, http=http
        )
    registry = AgentRegistry(connections, timeout=settings.placement.check_timeout)
    try:
        await registry.check_all()
    finally:
        await registry.aclose()
        await http.aclose()
    return {name: registry.problem(name) for name in connections}


def load_agent(settings: Settings, variables: Mapping[str, str], name: str) -> AgentEntry:
    """The agent of that name. Raises CaipeError."""
    catalog: AgentCatalog = load_catalog(variables, agents_config=settings.agent.definitions)
    entry = catalog.get(name)
    if entry is None:
        names = ", ".join(entry.name for entry in catalog)
        raise CaipeError(f"There is no agent {name}. The agents are: {names}.")
    return entry


def describe_missing_program(entry: AgentEntry, settings: Settings) -> str | None:
    """Which programs of an agent are not on this machine, and how they get here; None when all are."""
    if not _runs_here(entry):
        return None
    missing = missing_commands(entry.definition, settings.agent.home)
    if not missing:
        return None
    problem = f"{', '.join(missing)} is not installed"
    if entry.definition.install is not None:
        return f"{problem}; run: {command_name()} agents install {entry.name}"
    return f"{problem}; install it, or correct `command` in {entry.source}"


def describe_failed_check(entry: AgentEntry, settings: Settings) -> str | None:
    """What a running server has found wrong with the agent's tool servers."""
    if not _runs_here(entry):
        return None
    record = CheckRecords(settings.agent.home).read(entry)
    if record is None:
        return None
    seen_at = record.checked_at.astimezone().strftime("%Y-%m-%d %H:%M")
    return f"{record.problem} (seen {seen_at})"


def _describe_needs(entry: AgentEntry, settings: Settings) -> str:
    if _runs_here(entry) and find_held_tools(settings, entry):
        return f"{command_name()} agents trust {entry.name}"
    return entry.note


def _runs_here(entry: AgentEntry) -> bool:
    return entry.status == "ready" and entry.placement != "remote"


def _describe_placement(entry: AgentEntry) -> str:
    if entry.placement == "remote":
        if entry.address:
            return f"as a service at {mask_urls(entry.address)}"
        return "as a service"
    servers = entry.definition.mcp_servers.values()
    programs = ", ".join(server.command or mask_urls(server.url or "") for server in servers)
    if programs:
        return f"here, with {programs}"
    return "here"
