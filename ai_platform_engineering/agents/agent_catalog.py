"""The agent catalogue: shipped definitions and those of `AGENTS_CONFIG`, checked, expanded, each with its
status."""

import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr, TypeAdapter, ValidationError

from ai_platform_engineering.agents.definition_files import (
    list_configured_files,
    list_shipped_files,
    read_definitions,
)
from ai_platform_engineering.agents.definition_reader import MCP_SERVERS, ParsedDefinition
from ai_platform_engineering.agents.service_address import find_service_address
from ai_platform_engineering.agents.variables import MissingVariable, expand_tree, read_variable
from ai_platform_engineering.core.agent_definition import (
    AgentDefinition,
    enabling_variable,
    variable_prefix,
)
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.placement_settings import EVERY_AGENT, is_distributed
from ai_platform_engineering.core.redaction import mask_urls
from ai_platform_engineering.core.setting_types import Flag
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.files.yaml_document import FileProblem

logger = logging.getLogger(__name__)

SHIPPED_FOLDER = Path(__file__).parent

AgentStatus = Literal["ready", "not_configured", "disabled"]
Placement = Literal["in-process", "remote"]
MissingVariables = tuple[tuple[str, str], ...]  # names, and the "file:line" that uses them

_OWN_PACKAGE = __name__.split(".")[0]
_PROTECTION_SUFFIX = "READ_ONLY"
_NO_ADDRESSES = (
    "All agents are to run as services, and none has an address, so none is offered: "
    "set <NAME>_AGENT_URL for each that is to be used"
)
_flag = TypeAdapter(Flag)


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """An agent with its variables expanded; its status says whether it is offered to the model.

    `missing` holds each variable (`A|B`: one of them) with the "file:line" that uses it. A ready agent can
    have some: `ENABLE_<NAME>=true` is set, or it is remote and they belong to its service. `from_server`:
    made from a server of a plain `mcp.json`, so the description is a guess until its tools are known.
    `warning`: somebody wants the agent, and it cannot be offered.
    """

    definition: AgentDefinition
    source: str
    status: AgentStatus
    missing: MissingVariables = ()
    note: str = ""
    variables: tuple[str, ...] = ()
    from_server: bool = False
    is_shipped: bool = False
    disabled_at: str = ""  # the position that switches it off in its file
    placement: Placement = "in-process"
    address: str | None = None  # of a remote agent
    token: SecretStr | None = None  # for its service
    warning: str = ""

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def unavailable(self) -> str:
        """Why the agent is not offered: "not configured: set ARGOCD_TOKEN"; empty for one that is."""
        if self.status == "ready":
            return ""
        if self.status == "disabled":
            return self.note
        if self.placement == "remote":
            return f"not configured: {self.note}"
        variables = " and ".join(names.replace("|", " or ") for names, _ in self.missing)
        return f"not configured: set {variables}"


@dataclass(frozen=True, slots=True)
class ReportRow:
    """An agent in the start-up table, `caipe agents` and `/ready`: names of variables, never their values."""

    name: str
    status: AgentStatus
    source: str
    missing: MissingVariables
    note: str
    placement: Placement = "in-process"
    address: str | None = None

    @classmethod
    def of(cls, entry: AgentEntry) -> "ReportRow":
        return cls(
            entry.name,
            entry.status,
            entry.source,
            entry.missing,
            entry.note,
            entry.placement,
            mask_urls(entry.address) if entry.address else None,
        )


@dataclass(frozen=True, slots=True)
class AgentCatalog:
    """All agents of a deployment, the ready ones and the others.

    `warning`: what is wrong with all of them together.
    """

    entries: tuple[AgentEntry, ...] = ()
    warning: str = ""

    def __iter__(self) -> Iterator[AgentEntry]:
        return iter(self.entries)

    def get(self, name: str) -> AgentEntry | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    @property
    def ready(self) -> tuple[AgentDefinition, ...]:
        """The agents that are offered to the model."""
        return tuple(entry.definition for entry in self.entries if entry.status == "ready")

    def report(self) -> tuple[ReportRow, ...]:
        return tuple(ReportRow.of(entry) for entry in self.entries)


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """Which of the shipped agents there are, which agents are switched on, and which run as services."""

    shipped: Collection[str]
    distributed: Collection[str]
    is_enabled: Callable[[str], bool]
    is_distributed: Callable[[str, Collection[str]], bool] = is_distributed

    @classmethod
    def from_settings(cls, settings: Settings, variables: Mapping[str, str]) -> "PlacementRule":
        return cls(shipped_names(), settings.placement.distributed, lambda name: is_enabled(name, variables))

    def place(self, entry: AgentEntry, variables: Mapping[str, str]) -> AgentEntry:
        """The agent with its status, where the rule places it."""
        return place_entry(
            entry,
            variables,
            enabled=self.is_enabled(entry.name),
            remote=self.is_distributed(entry.name, self.distributed),
            is_named=entry.name in self.distributed,
        )


def load_placed_catalog(
    settings: Settings, variables: Mapping[str, str], rule: PlacementRule | None = None
) -> AgentCatalog:
    """All agents, each placed as the rule says, by default that of the settings."""
    rule = rule or PlacementRule.from_settings(settings, variables)
    entries = load_entries(variables, agents_config=settings.agent.definitions, shipped=rule.shipped)
    return place_entries(entries, settings, variables, rule)


def place_entries(
    entries: Sequence[AgentEntry], settings: Settings, variables: Mapping[str, str], rule: PlacementRule
) -> AgentCatalog:
    """The agents, each with its status; what cannot have been meant is a warning in the log."""
    placed = tuple(rule.place(entry, variables) for entry in entries)
    warning = ""
    if EVERY_AGENT in rule.distributed and not any(entry.address for entry in placed):
        warning = _NO_ADDRESSES
        logger.warning("%s", warning)
    catalog = AgentCatalog(placed, warning)
    agent_names = [entry.name for entry in catalog]
    names = settings.placement.names | (set(rule.distributed) - {EVERY_AGENT})
    unknown_names = sorted(names - set(agent_names))
    if unknown_names:
        logger.warning(
            "DISTRIBUTED_AGENTS names %s, which no agent has. The agents are: %s",
            ", ".join(unknown_names),
            ", ".join(agent_names),
        )
    for entry in catalog:
        if entry.warning:
            logger.warning("%s", entry.warning)
    _warn_misspelled_switches(agent_names, variables)
    return catalog


def _warn_misspelled_switches(agent_names: Sequence[str], variables: Mapping[str, str]) -> None:
    """Warns of an `ENABLE_<NAME>` that is almost an agent's: the agent stays as it is."""
    switches = {enabling_variable(name) for name in agent_names}
    own_switches = switches | {"ENABLE_RAG", "ENABLE_SKILLS"}
    for name in sorted(variables):
        if not name.startswith("ENABLE_") or name in own_switches:
            continue
        similar_names = get_close_matches(name, switches, n=1, cutoff=0.85)
        if similar_names:
            logger.warning("%s belongs to no agent. Did you mean %s?", name, similar_names[0])


def is_enabled(name: str, variables: Mapping[str, str]) -> bool:
    """Whether `ENABLE_<NAME>` is true or not set."""
    return _read_flag(enabling_variable(name), variables) is not False


def load_catalog(
    variables: Mapping[str, str],
    *,
    agents_config: str | None,
    shipped: bool = True,
    distributed: Collection[str] = (),
) -> AgentCatalog:
    """All agents, in this process but for the distributed ones. Raises ConfigurationError."""
    names = shipped_names() if shipped else ()
    entries = load_entries(variables, agents_config=agents_config, shipped=names)
    rule = PlacementRule(names, distributed, lambda name: is_enabled(name, variables))
    return AgentCatalog(tuple(rule.place(entry, variables) for entry in entries))


def load_entries(
    variables: Mapping[str, str], *, agents_config: str | None, shipped: Collection[str]
) -> tuple[AgentEntry, ...]:
    """Reads all definitions; nothing is placed yet.

    `shipped` names the shipped agents that there are. Raises one ConfigurationError that lists every problem
    of every file.
    """
    problems: list[FileProblem] = []
    shipped_files = list_shipped_files(SHIPPED_FOLDER, shipped)
    shipped_definitions = read_definitions(shipped_files, problems)
    configured_files = list_configured_files(agents_config or "", problems)
    configured_definitions = read_definitions(configured_files, problems)
    if problems:
        lines = [f"  {problem}" for problem in problems]
        raise ConfigurationError("Agent definitions are wrong:\n" + "\n".join(lines))
    for prefix in shipped_definitions.keys() & configured_definitions.keys():
        replacing = configured_definitions[prefix]
        logger.info("Agent %s from %s replaces the shipped one", replacing.name, replacing.position)
    definitions = {**shipped_definitions, **configured_definitions}
    return tuple(
        _build_entry(parsed, variables, is_shipped=prefix not in configured_definitions)
        for prefix, parsed in definitions.items()
    )


def shipped_names() -> tuple[str, ...]:
    """The shipped agents; each file is named after its agent."""
    return tuple(path.stem for path in sorted(SHIPPED_FOLDER.glob("*.yaml")))


def _read_flag(name: str, variables: Mapping[str, str]) -> bool | None:
    """None when the variable is not set."""
    value = read_variable(name, variables)
    if not value:
        return None
    try:
        return _flag.validate_python(value)
    except ValidationError as error:
        reason = error.errors(include_input=False)[0]["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"Invalid settings. {name}: {reason}.") from None


def _build_entry(parsed: ParsedDefinition, variables: Mapping[str, str], *, is_shipped: bool) -> AgentEntry:
    variables = {**variables, **_read_protections(parsed, variables)}
    data, missing = expand_tree(parsed.data, variables)
    for server in data.get(MCP_SERVERS, {}).values():
        _resolve_paths(server, parsed.document.folder)
    definition = AgentDefinition.model_validate(data, by_alias=True, by_name=False)
    if model := read_variable(f"{parsed.prefix}_LLM_MODEL", variables):
        definition = definition.model_copy(update={"model": model})
    return AgentEntry(
        definition,
        str(parsed.position),
        "ready",
        _locate_missing(parsed, missing, variables),
        variables=tuple(dict.fromkeys(parsed.variable_names())),
        from_server=parsed.from_server,
        is_shipped=is_shipped,
        disabled_at=str(parsed.position) if parsed.disabled else "",
    )


def _read_protections(parsed: ParsedDefinition, variables: Mapping[str, str]) -> dict[str, str]:
    """The `<NAME>_READ_ONLY` of a definition as `true` or `false`: a server may take a `1` for no."""
    switches: dict[str, str] = {}
    for name in parsed.variable_names():
        if name.endswith(_PROTECTION_SUFFIX):
            enabled = _read_flag(name, variables)
            if enabled is not None:
                switches[name] = "true" if enabled else "false"
    return switches


def _resolve_paths(server: dict[str, Any], folder: Path) -> None:
    """Makes a server's definition independent of this process's working directory and PATH."""
    if "cwd" in server:  # as people expect of a path in a file: relative to that file
        server["cwd"] = str(folder / Path(server["cwd"]).expanduser())
    access = server.get("sandbox", {})
    for key in {"read", "write"} & access.keys():
        access[key] = [str(folder / Path(path).expanduser()) for path in access[key] if path]
    match server.get("args"):
        case ["-m", str(module), *_] if (
            server.get("command") == "python" and module.split(".")[0] == _OWN_PACKAGE
        ):
            server["command"] = sys.executable  # our own servers need our own packages
            # Not those of the current folder, where `-m` looks first: a stranger's `httpx.py` would run.
            server["args"] = ["-P", *server["args"]]


def _locate_missing(
    parsed: ParsedDefinition, missing: Sequence[MissingVariable], variables: Mapping[str, str]
) -> MissingVariables:
    """Each missing variable once, with the position of its first use."""
    positions: dict[str, str] = {}
    for names, path in missing:
        reference = rf"\$\{{{names.split('|')[0]}(\}}|:-)"
        position = parsed.document.find_match((*parsed.root, *path), reference)
        positions.setdefault(names, str(position))
    for index, names in enumerate(parsed.data.get("requires", ())):
        if not any(read_variable(name, variables) for name in names.split("|")):
            position = parsed.document.find_position((*parsed.root, "requires", index))
            positions.setdefault(names, str(position))
    return tuple(positions.items())


def place_entry(
    entry: AgentEntry,
    variables: Mapping[str, str],
    *,
    enabled: bool,
    remote: bool,
    is_named: bool = False,
) -> AgentEntry:
    """An agent that was read, with its status in this place.

    `enabled`: nobody has switched it off. `is_named`: it is named as one that runs as a service.
    """
    switch = enabling_variable(entry.name)
    is_wanted = _read_flag(switch, variables) is True
    if not enabled:
        return replace(entry, status="disabled", missing=(), note=f"switched off by {switch}")
    if entry.disabled_at and not is_wanted:
        return replace(entry, status="disabled", missing=(), note=f"disabled at {entry.disabled_at}")
    if remote or (entry.definition.url and not entry.definition.mcp_servers):
        return _place_remotely(entry, variables, is_wanted=is_named or is_wanted)
    if not entry.missing:
        return entry
    needs = " and ".join(f"{names.replace('|', ' or ')} ({position})" for names, position in entry.missing)
    if is_wanted:
        return replace(entry, note=f"offered because {switch} is true, without {needs}")
    return replace(entry, status="not_configured", note=f"set {needs}")


def _place_remotely(entry: AgentEntry, variables: Mapping[str, str], *, is_wanted: bool) -> AgentEntry:
    """The agent as a service: it needs only an address, its credentials live with the service."""
    # `missing` stays: without these variables the agent could not run in this process instead.
    prefix = variable_prefix(entry.name)
    address = find_service_address(prefix, entry.definition.url, variables)
    own_token = read_variable(f"{prefix}_AGENT_TOKEN", variables)
    token = own_token or read_variable("AGENT_TOKEN", variables)
    remote = replace(
        entry, placement="remote", address=address.url, token=SecretStr(token) if token else None
    )
    if address.url is not None:
        return remote
    warning = ""
    if is_wanted or address.is_given:
        warning = (
            f"The agent {entry.name} is to run as a service and has no address, so it is not offered: "
            f"{address.problem}"
        )
    return replace(remote, status="not_configured", note=address.problem, warning=warning)
