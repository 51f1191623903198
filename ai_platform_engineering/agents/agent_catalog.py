"""The agents there are: shipped ones and those of `AGENTS_CONFIG`, checked, filled in, and each with its status."""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr, TypeAdapter

from ai_platform_engineering.agents.definition_reader import SERVERS, ParsedDefinition, drafts
from ai_platform_engineering.agents.service_address import address_of
from ai_platform_engineering.agents.variables import expand_tree, value_of
from ai_platform_engineering.agents.yaml_positions import FilePosition, FileProblem, Loc, MalformedFile, read
from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import EVERY_AGENT, Flag, Settings, is_distributed

logger = logging.getLogger(__name__)

SHIPPED_FOLDER = Path(__file__).parent
ENDINGS = (".yaml", ".yml", ".json")

AgentStatus = Literal["ready", "not_configured", "disabled"]
Placement = Literal["in-process", "remote"]
Missing = tuple[tuple[str, str], ...]

_OURS = __name__.split(".")[0]
_flag = TypeAdapter(Flag)


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """An agent with its variables filled in; its status says whether it is offered to the model.

    `missing` holds each variable (`A|B`: one of them) with the "file:line" that wants it. It can be there although the agent is ready:
    `ENABLE_<NAME>=true` was said, or it is remote and they belong to its service. `from_server`: made from a server of a plain
    `mcp.json`, so the description is a guess until its tools are known.
    """

    definition: AgentDefinition
    source: str
    status: AgentStatus
    missing: Missing = ()
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
    """What the start-up table, `caipe agents` and `/ready` say about an agent: names of variables, never their values."""

    name: str
    status: AgentStatus
    source: str
    missing: Missing
    note: str
    placement: Placement = "in-process"
    address: str | None = None


@dataclass(frozen=True, slots=True)
class AgentCatalog:
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
        return tuple(
            ReportRow(
                entry.name,
                entry.status,
                entry.source,
                entry.missing,
                entry.note,
                entry.placement,
                entry.address,
            )
            for entry in self.entries
        )


def load_placed_catalog(settings: Settings, variables: Mapping[str, str]) -> AgentCatalog:
    """All agents, each placed as the settings say. A distributed name that no agent has is a warning."""
    distributed = settings.placement.distributed
    catalog = load_catalog(
        variables,
        agents_config=settings.agent.definitions,
        distributed=lambda name: is_distributed(name, distributed),
    )
    if unknown := sorted(distributed - {EVERY_AGENT} - {entry.name for entry in catalog}):
        known = ", ".join(entry.name for entry in catalog)
        logger.warning(
            "DISTRIBUTED_AGENTS names %s, which no agent has. The agents are: %s", ", ".join(unknown), known
        )
    return catalog


def is_enabled(name: str, variables: Mapping[str, str]) -> bool:
    """Whether `ENABLE_<NAME>` lets the agent be."""
    said = value_of(f"ENABLE_{name.upper().replace('-', '_')}", variables)
    if said:
        return _flag.validate_python(said)
    return True


def load_catalog(
    variables: Mapping[str, str],
    *,
    agents_config: str | None,
    shipped: bool = True,
    distributed: Callable[[str], bool] = lambda name: False,
) -> AgentCatalog:
    """Reads all definitions. Raises one ConfigurationError that lists every problem of every file."""
    problems: list[FileProblem] = []
    ours = _unique(_read_all(_shipped_files() if shipped else [], problems), problems)
    theirs = _unique(_read_all(_configured_files(agents_config or "", problems), problems), problems)
    if problems:
        raise ConfigurationError(
            "Agent definitions are wrong:\n" + "\n".join(f"  {problem}" for problem in problems)
        )
    for prefix in ours.keys() & theirs.keys():
        logger.info("Agent %s from %s replaces the shipped one", theirs[prefix].name, theirs[prefix].place)
    return AgentCatalog(tuple(_entry(draft, variables, distributed) for draft in {**ours, **theirs}.values()))


def shipped_names() -> tuple[str, ...]:
    """The shipped agents; each file is named after its agent."""
    return tuple(path.stem for path in sorted(SHIPPED_FOLDER.glob("*.yaml")))


def _shipped_files() -> list[tuple[Path, str]]:
    return [(path, f"{SHIPPED_FOLDER.name}/{path.name}") for path in sorted(SHIPPED_FOLDER.glob("*.yaml"))]


def _configured_files(config: str, problems: list[FileProblem]) -> list[tuple[Path, str]]:
    """The files that `AGENTS_CONFIG` names, by itself or by their folder."""
    found: list[tuple[Path, str]] = []
    for given in filter(None, (part.strip() for part in config.split(os.pathsep))):
        path = Path(given).expanduser()
        if path.is_dir():
            inside = sorted(
                file
                for file in path.iterdir()
                if file.suffix in ENDINGS and file.name[0] != "." and file.is_file()
            )
            if not inside:
                logger.warning("AGENTS_CONFIG: %s holds no file that ends in %s", given, ", ".join(ENDINGS))
            found += [(file, str(Path(given) / file.name)) for file in inside]
        elif path.exists():
            found.append((path, given))
        else:
            problems.append(
                FileProblem(
                    FilePosition(given, 1), "AGENTS_CONFIG names it, and there is no such file or folder"
                )
            )
    return found


def _read_all(files: Sequence[tuple[Path, str]], problems: list[FileProblem]) -> list[ParsedDefinition]:
    good: list[ParsedDefinition] = []
    for path, file in files:
        try:
            found, wrong = drafts(read(path, file))
        except MalformedFile as error:
            problems += error.problems
        else:
            good += found
            problems += wrong
    return good


def _unique(found: Sequence[ParsedDefinition], problems: list[FileProblem]) -> dict[str, ParsedDefinition]:
    """Drafts by the prefix of their variables, since `my-agent` and `my_agent` could not be told apart by `ENABLE_MY_AGENT`."""
    unique: dict[str, ParsedDefinition] = {}
    for draft in found:
        first = unique.setdefault(draft.prefix, draft)
        if first is draft:
            continue
        if first.name == draft.name:
            text = f"the name `{draft.name}` is taken by the agent at {first.place}"
        else:
            text = f"the name `{draft.name}` has the same variables as `{first.name}` at {first.place}"
        problems.append(FileProblem(draft.place, text))
    return unique


def _entry(
    draft: ParsedDefinition, variables: Mapping[str, str], distributed: Callable[[str], bool]
) -> AgentEntry:
    data, absent = expand_tree(draft.data, variables)
    for server in data.get(SERVERS, {}).values():
        _settle(server, draft.written.folder)
    definition = AgentDefinition.model_validate(data, by_alias=True, by_name=False)
    if model := value_of(f"{draft.prefix}_LLM_MODEL", variables):
        definition = definition.model_copy(update={"model": model})
    entry = AgentEntry(
        definition,
        str(draft.place),
        "ready",
        _missing(draft, absent, variables),
        variables=tuple(dict.fromkeys(draft.mentions())),
        from_server=draft.from_server,
    )
    return _with_status(entry, draft, variables, distributed)


def _settle(server: dict[str, Any], folder: Path) -> None:
    """Makes a server's definition independent of where this process was started and of its PATH."""
    if "cwd" in server:  # as people expect of a path in a file: relative to that file
        server["cwd"] = str(folder / Path(server["cwd"]).expanduser())
    match server.get("args"):
        case ["-m", str(module), *_] if server.get("command") == "python" and module.split(".")[0] == _OURS:
            server["command"] = sys.executable  # our own servers need our own packages


def _missing(
    draft: ParsedDefinition, absent: Sequence[tuple[str, Loc]], variables: Mapping[str, str]
) -> Missing:
    """Each missing variable once, with the first place that wants it."""
    places: dict[str, str] = {}
    for names, loc in absent:
        mentioned = rf"\$\{{{names.split('|')[0]}(\}}|:-)"
        places.setdefault(names, str(draft.written.place_of_match((*draft.root, *loc), mentioned)))
    for at, names in enumerate(draft.data.get("requires", ())):
        if not any(value_of(name, variables) for name in names.split("|")):
            places.setdefault(names, str(draft.written.place((*draft.root, "requires", at))))
    return tuple(places.items())


def _with_status(
    entry: AgentEntry,
    draft: ParsedDefinition,
    variables: Mapping[str, str],
    distributed: Callable[[str], bool],
) -> AgentEntry:
    switch = f"ENABLE_{draft.prefix}"
    said = value_of(switch, variables)
    wanted = _flag.validate_python(said) if said else None
    if wanted is False:
        return replace(entry, status="disabled", missing=(), note=f"switched off by {switch}")
    if wanted is None and draft.disabled:
        return replace(entry, status="disabled", missing=(), note=f"disabled at {draft.place}")
    if distributed(entry.name) or (entry.definition.url and not entry.definition.mcp_servers):
        return _elsewhere(entry, draft, variables)
    if not entry.missing:
        return entry
    needs = " and ".join(f"{name.replace('|', ' or ')} ({place})" for name, place in entry.missing)
    if wanted:
        return replace(entry, note=f"offered because {switch} is true, without {needs}")
    return replace(entry, status="not_configured", note=f"set {needs}")


def _elsewhere(entry: AgentEntry, draft: ParsedDefinition, variables: Mapping[str, str]) -> AgentEntry:
    """The agent as a service: it needs only an address, its credentials live with the service."""
    # What is missing stays: without it the agent could not run here in the service's stead.
    found = address_of(draft.prefix, entry.definition.url, variables)
    token = value_of(f"{draft.prefix}_AGENT_TOKEN", variables) or value_of("AGENT_TOKEN", variables)
    at = replace(entry, placement="remote", address=found.url, token=SecretStr(token) if token else None)
    if found.url:
        return at
    return replace(at, status="not_configured", note=found.problem)
