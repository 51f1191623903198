"""Tools that servers have changed since they were trusted: finds them, and trusts them as they are now."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ai_platform_engineering.agents.agent_catalog import AgentEntry, load_placed_catalog
from ai_platform_engineering.agents.installed_commands import find_trust_folder, resolve_commands
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.mcp_client.trust_record import ToolVersion, TrustFile
from ai_platform_engineering.terminal.trust_view import ToolChange, ToolText


@dataclass(frozen=True, slots=True)
class HeldServer:
    """A server with held tools: the file of its record, and the changes in it."""

    file: TrustFile
    changes: tuple[ToolChange, ...]
    digests: frozenset[str]

    def approve(self) -> None:
        """Trusts exactly the changes that were shown; later ones are held again. Raises CaipeError."""
        try:
            self.file.approve(self.digests)
        except OSError as error:
            raise CaipeError(f"The decision cannot be saved: {error.strerror}.") from None


def find_held_servers(
    settings: Settings, variables: Mapping[str, str], name: str | None = None
) -> list[HeldServer]:
    """The servers with held tools, of one agent or of all. Raises CaipeError for an unknown agent."""
    catalog = load_placed_catalog(settings, variables)
    entries: Iterable[AgentEntry] = catalog
    if name is not None:
        entry = catalog.get(name)
        if entry is None:
            names = ", ".join(entry.name for entry in catalog)
            raise CaipeError(f"There is no agent {name}. The agents are: {names}.")
        entries = (entry,)
    held_servers: list[HeldServer] = []
    for entry in entries:
        held_servers += find_held_tools(settings, entry)
    return held_servers


def find_held_tools(settings: Settings, entry: AgentEntry) -> Sequence[HeldServer]:
    """The servers of an agent with tools that are held."""
    if not settings.mcp.hold_changed_tools or entry.placement == "remote":
        return ()
    definition = resolve_commands(entry.definition, settings.agent.home)
    folder = find_trust_folder(settings.agent.home)
    servers: list[HeldServer] = []
    for server_name, server in definition.mcp_servers.items():
        file = TrustFile(folder, server_name, server)
        record = file.read()
        if record is None or not record.held:
            continue
        changes: list[ToolChange] = []
        for tool, version in record.held.items():
            old = record.last_trusted(tool)
            old_text = _to_text(old) if old else None
            changes.append(ToolChange(entry.name, server_name, tool, old_text, _to_text(version)))
        digests = frozenset(version.digest for version in record.held.values())
        servers.append(HeldServer(file, tuple(changes), digests))
    return servers


def _to_text(version: ToolVersion) -> ToolText:
    return ToolText(version.title, version.description, version.hints, version.input_schema)
