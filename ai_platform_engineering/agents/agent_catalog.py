"""The agent catalogue: shipped definitions and those of `AGENTS_CONFIG`, checked, expanded, each with its
status."""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr, TypeAdapter

from ai_platform_engineering.agents.definition_reader import MCP_SERVERS, ParsedDefinition, parse_definitions
from ai_platform_engineering.agents.service_address import find_service_address
from ai_platform_engineering.agents.variables import MissingVariable, expand_tree, read_variable
from ai_platform_engineering.core.agent_definition import AgentDefinition, enabling_variable
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import EVERY_AGENT, Flag, Settings, is_distributed
from ai_platform_engineering.files.yaml_document import (
    FilePosition,
    FileProblem,
    MalformedFile,
    read_document,
)
from ai_platform_engineering.files.yaml_file import SUFFIXES, list_config_files

logger = logging.getLogger(__name__)

SHIPPED_FOLDER = Path(__file__).parent

AgentStatus = Literal["ready", "not_configured", "disabled"]
Placement = Literal["in-process", "remote"]
MissingVariables = tuple[tuple[str, str], ...]  # names, and the "file:line" that uses them

_OWN_PACKAGE = __name__.split(".")[0]
_flag = TypeAdapter(Flag)


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """An agent with its variables expanded; its status says whether it is offered to the model.

    `missing` holds each variable (`A|B`: one of them) with the "file:line" that uses it. A ready agent can
    have some: `ENABLE_<NAME>=true` is set, or it is remote and they belong to its service. `from_server`:
    made from a server of a plain `mcp.json`, so the description is a guess until its tools are known.
    """

    definition: AgentDefinition
    source: str
    status: AgentStatus
    missing: MissingVariables = ()
    note: str = ""
    variables: tuple[str, ...] = ()
    from_server: bool = False
    placement: Placement = "in-process"
    address: str | None = None  # of a remote agent
    token: SecretStr | None = None  # for its service

    @property
    def name(self) -> str:
        return self.definition.name


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
            entry.address,
        )


@dataclass(frozen=True, slots=True)
class AgentCatalog:
    """All agents of a deployment, the ready ones and the others."""

    entries: tuple[AgentEntry, ...] = ()

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


def load_placed_catalog(settings: Settings, variables: Mapping[str, str]) -> AgentCatalog:
    """All agents, each placed as the settings say. A distributed name that no agent has is a warning."""
    distributed = settings.placement.distributed
    catalog = load_catalog(
        variables,
        agents_config=settings.agent.definitions,
        distributed=lambda name: is_distributed(name, distributed),
    )
    agent_names = [entry.name for entry in catalog]
    unknown_names = sorted(distributed - {EVERY_AGENT} - set(agent_names))
    if unknown_names:
        logger.warning(
            "DISTRIBUTED_AGENTS names %s, which no agent has. The agents are: %s",
            ", ".join(unknown_names),
            ", ".join(agent_names),
        )
    return catalog


def is_enabled(name: str, variables: Mapping[str, str]) -> bool:
    """Whether `ENABLE_<NAME>` is true or not set."""
    return _read_flag(enabling_variable(name), variables) is not False


def load_catalog(
    variables: Mapping[str, str],
    *,
    agents_config: str | None,
    shipped: bool = True,
    distributed: Callable[[str], bool] = lambda name: False,
) -> AgentCatalog:
    """Reads all definitions. Raises one ConfigurationError that lists every problem of every file."""
    problems: list[FileProblem] = []
    shipped_files = _list_shipped_files() if shipped else []
    shipped_definitions = _read_definitions(shipped_files, problems)
    configured_files = _list_configured_files(agents_config or "", problems)
    configured_definitions = _read_definitions(configured_files, problems)
    if problems:
        lines = [f"  {problem}" for problem in problems]
        raise ConfigurationError("Agent definitions are wrong:\n" + "\n".join(lines))
    for prefix in shipped_definitions.keys() & configured_definitions.keys():
        replacing = configured_definitions[prefix]
        logger.info("Agent %s from %s replaces the shipped one", replacing.name, replacing.position)
    definitions = {**shipped_definitions, **configured_definitions}
    return AgentCatalog(
        tuple(_build_entry(parsed, variables, distributed) for parsed in definitions.values())
    )


def shipped_names() -> tuple[str, ...]:
    """The shipped agents; each file is named after its agent."""
    return tuple(path.stem for path in sorted(SHIPPED_FOLDER.glob("*.yaml")))


def _read_flag(name: str, variables: Mapping[str, str]) -> bool | None:
    """None when the variable is not set."""
    value = read_variable(name, variables)
    if not value:
        return None
    return _flag.validate_python(value)


def _list_shipped_files() -> list[tuple[Path, str]]:
    return [(path, f"{SHIPPED_FOLDER.name}/{path.name}") for path in sorted(SHIPPED_FOLDER.glob("*.yaml"))]


def _list_configured_files(config: str, problems: list[FileProblem]) -> list[tuple[Path, str]]:
    """The files that `AGENTS_CONFIG` names, by themselves or by their folder, each with its name in
    messages."""
    files: list[tuple[Path, str]] = []
    for part in config.split(os.pathsep):
        name = part.strip()
        if not name:
            continue
        path = Path(name).expanduser()
        if path.is_dir():
            folder_files = list_config_files(path)
            if not folder_files:
                logger.warning("AGENTS_CONFIG: %s holds no file that ends in %s", name, ", ".join(SUFFIXES))
            files += [(file, str(Path(name) / file.name)) for file in folder_files]
        elif path.exists():
            files.append((path, name))
        else:
            text = "AGENTS_CONFIG names it, and there is no such file or folder"
            problems.append(FileProblem(FilePosition(name, 1), text))
    return files


def _read_definitions(
    files: Sequence[tuple[Path, str]], problems: list[FileProblem]
) -> dict[str, ParsedDefinition]:
    """The definitions of the files by the prefix of their variables."""
    definitions: list[ParsedDefinition] = []
    for path, file in files:
        try:
            document = read_document(path, file)
        except MalformedFile as error:
            problems += error.problems
            continue
        file_definitions, file_problems = parse_definitions(document)
        definitions += file_definitions
        problems += file_problems
    return _index_by_prefix(definitions, problems)


def _index_by_prefix(
    definitions: Sequence[ParsedDefinition], problems: list[FileProblem]
) -> dict[str, ParsedDefinition]:
    """By prefix, since `ENABLE_MY_AGENT` could not tell `my-agent` from `my_agent`."""
    by_prefix: dict[str, ParsedDefinition] = {}
    for parsed in definitions:
        first = by_prefix.setdefault(parsed.prefix, parsed)
        if first is parsed:
            continue
        if first.name == parsed.name:
            text = f"the name `{parsed.name}` is taken by the agent at {first.position}"
        else:
            text = f"the name `{parsed.name}` has the same variables as `{first.name}` at {first.position}"
        problems.append(FileProblem(parsed.position, text))
    return by_prefix


def _build_entry(
    parsed: ParsedDefinition, variables: Mapping[str, str], distributed: Callable[[str], bool]
) -> AgentEntry:
    data, missing = expand_tree(parsed.data, variables)
    for server in data.get(MCP_SERVERS, {}).values():
        _resolve_paths(server, parsed.document.folder)
    definition = AgentDefinition.model_validate(data, by_alias=True, by_name=False)
    if model := read_variable(f"{parsed.prefix}_LLM_MODEL", variables):
        definition = definition.model_copy(update={"model": model})
    entry = AgentEntry(
        definition,
        str(parsed.position),
        "ready",
        _locate_missing(parsed, missing, variables),
        variables=tuple(dict.fromkeys(parsed.variable_names())),
        from_server=parsed.from_server,
    )
    return _set_status(entry, parsed, variables, distributed)


def _resolve_paths(server: dict[str, Any], folder: Path) -> None:
    """Makes a server's definition independent of this process's working directory and PATH."""
    if "cwd" in server:  # as people expect of a path in a file: relative to that file
        server["cwd"] = str(folder / Path(server["cwd"]).expanduser())
    match server.get("args"):
        case ["-m", str(module), *_] if (
            server.get("command") == "python" and module.split(".")[0] == _OWN_PACKAGE
        ):
            server["command"] = sys.executable  # our own servers need our own packages


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


def _set_status(
    entry: AgentEntry,
    parsed: ParsedDefinition,
    variables: Mapping[str, str],
    distributed: Callable[[str], bool],
) -> AgentEntry:
    switch = enabling_variable(parsed.name)
    enabled = _read_flag(switch, variables)
    if enabled is False:
        return replace(entry, status="disabled", missing=(), note=f"switched off by {switch}")
    if enabled is None and parsed.disabled:
        return replace(entry, status="disabled", missing=(), note=f"disabled at {parsed.position}")
    if distributed(entry.name) or (entry.definition.url and not entry.definition.mcp_servers):
        return _place_remotely(entry, parsed, variables)
    if not entry.missing:
        return entry
    needs = " and ".join(f"{names.replace('|', ' or ')} ({position})" for names, position in entry.missing)
    if enabled:
        return replace(entry, note=f"offered because {switch} is true, without {needs}")
    return replace(entry, status="not_configured", note=f"set {needs}")


def _place_remotely(entry: AgentEntry, parsed: ParsedDefinition, variables: Mapping[str, str]) -> AgentEntry:
    """The agent as a service: it needs only an address, its credentials live with the service."""
    # `missing` stays: without these variables the agent could not run in this process instead.
    address = find_service_address(parsed.prefix, entry.definition.url, variables)
    own_token = read_variable(f"{parsed.prefix}_AGENT_TOKEN", variables)
    token = own_token or read_variable("AGENT_TOKEN", variables)
    remote = replace(
        entry, placement="remote", address=address.url, token=SecretStr(token) if token else None
    )
    if address.url is None:
        return replace(remote, status="not_configured", note=address.problem)
    return remote
