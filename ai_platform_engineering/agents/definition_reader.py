"""From what a file holds to checked definitions: one, a list of them, or a plain `mcp.json`, with a place for every mistake."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from ai_platform_engineering.agents.variables import BadReference, names, parse
from ai_platform_engineering.agents.yaml_positions import FilePosition, FileProblem, Loc, Written
from ai_platform_engineering.core.agent_definition import (
    RESERVED,
    AgentDefinition,
    Install,
    McpServer,
    ToolPolicy,
)

SERVERS = "mcpServers"
# What a server of a plain `mcp.json` may say about the agent that is made from it.
_OF_THE_AGENT = {"description": str, "disabled": bool}


@dataclass(frozen=True, slots=True)
class ParsedDefinition:
    """A definition that is right in form, its variables not yet filled in; `root` is where its data stand in their file."""

    name: str
    prefix: str
    data: Mapping[str, Any] = field(repr=False)
    written: Written = field(repr=False)
    root: Loc
    place: FilePosition
    from_server: bool = False
    disabled: bool = False

    def mentions(self) -> Iterator[str]:
        """Every variable of the definition."""
        for _, text in _texts(self.data, ()):
            yield from names(parse(text))
        for requirement in self.data.get("requires", ()):
            yield from requirement.split("|")


def drafts(written: Written) -> tuple[list[ParsedDefinition], list[FileProblem]]:
    """The definitions of a file, and what is wrong with the others."""
    if written.data is None:  # nothing but comments
        return [], []
    if isinstance(written.data, list):
        return _all(_draft(written, item, (at,)) for at, item in enumerate(written.data))
    if isinstance(written.data, dict) and _is_plain(written.data):
        return _all(_of_servers(written))
    return _all([_draft(written, written.data, ())])


def _all(
    results: "Iterator[ParsedDefinition | list[FileProblem]] | list[ParsedDefinition | list[FileProblem]]",
) -> tuple[list[ParsedDefinition], list[FileProblem]]:
    good: list[ParsedDefinition] = []
    wrong: list[FileProblem] = []
    for result in results:
        if isinstance(result, ParsedDefinition):
            good.append(result)
        else:
            wrong += result
    return good, wrong


def _is_plain(data: Mapping[str, Any]) -> bool:
    """A file of servers alone, as other MCP clients have it; any other key of a definition makes it a definition."""
    return SERVERS in data and not (_keys(AgentDefinition) - {SERVERS}) & data.keys()


def _draft(written: Written, data: Any, root: Loc) -> ParsedDefinition | list[FileProblem]:
    if not isinstance(data, dict):
        return [
            FileProblem(written.place(root), "an agent's definition must be a mapping of keys and values")
        ]
    data = _with_texts(written, data, root)
    definition, problems = _checked(written, data, root)
    if definition is None or problems:
        return problems
    return ParsedDefinition(
        definition.name, definition.variable_prefix, data, written, root, written.place((*root, "name"))
    )


def _of_servers(written: Written) -> Iterator[ParsedDefinition | list[FileProblem]]:
    strange = sorted(written.data.keys() - {SERVERS})
    yield [FileProblem(written.place((key,)), _unknown(key, {SERVERS})) for key in strange]
    servers = written.data[SERVERS]
    if not isinstance(servers, dict):
        yield [FileProblem(written.place((SERVERS,)), f"`{SERVERS}` must be a mapping of keys and values")]
        return
    for title, server in servers.items():
        yield _of_server(written, title, server)


def _of_server(written: Written, title: str, server: Any) -> ParsedDefinition | list[FileProblem]:
    loc: Loc = (SERVERS, title)
    about = {key: server[key] for key in _OF_THE_AGENT if key in server} if isinstance(server, dict) else {}
    problems = [
        FileProblem(
            written.place((*loc, key)), f"`{key}` must be {'true or false' if key == 'disabled' else 'text'}"
        )
        for key, value in about.items()
        if not isinstance(value, _OF_THE_AGENT[key])
    ]
    name = agent_name(title)
    if not name:
        problems.append(
            FileProblem(
                written.place(loc), "a server's name becomes an agent's name and needs a letter or a digit"
            )
        )
    bare = {key: value for key, value in server.items() if key not in about} if about else server
    data = {
        "name": name or "unnamed",
        "title": title.replace("${", "$${"),
        "description": about.get("description") or f"Works with the tools of the MCP server {name}.",
        SERVERS: {title: bare},
    }
    data = _with_texts(written, data, ())
    definition, more = _checked(written, data, ())
    if definition is None or problems or more:
        return problems + more
    disabled = about.get("disabled", False)
    return ParsedDefinition(
        name,
        definition.variable_prefix,
        data,
        written,
        (),
        written.place(loc),
        from_server=True,
        disabled=disabled,
    )


def agent_name(server: str) -> str:
    """The name of the agent that is made from a server: `My Server` gives `my-server`."""
    name = re.sub(r"[^a-z0-9_]+", "-", server.lower()).strip("-_")
    if name and (not name[0].isalpha() or name in RESERVED):
        return f"mcp-{name}"
    return name


def _with_texts(written: Written, data: dict[str, Any], root: Loc) -> dict[str, Any]:
    """Takes `PORT: 8080` in a server's `env`, `headers` and `args` as it is written: there, everything is text."""
    servers = data.get(SERVERS)
    if not isinstance(servers, dict):
        return data

    def texts(value: Any, loc: Loc) -> Any:
        if isinstance(value, dict):
            return {key: texts(item, (*loc, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [texts(item, (*loc, at)) for at, item in enumerate(value)]
        if isinstance(value, str) or value is None:
            return value
        return written.spot(loc).text

    def server(value: Any, loc: Loc) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            key: texts(item, (*loc, key)) if key in ("env", "headers", "args") else item
            for key, item in value.items()
        }

    return {**data, SERVERS: {name: server(value, (*root, SERVERS, name)) for name, value in servers.items()}}


def _checked(
    written: Written, data: Mapping[str, Any], root: Loc
) -> tuple[AgentDefinition | None, list[FileProblem]]:
    """The definition with its variables not filled in, so that no error can quote a value of one."""
    problems: list[FileProblem] = []
    definition: AgentDefinition | None = None
    try:
        definition = AgentDefinition.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        for detail in error.errors(include_input=False, include_url=False):
            problems.append(
                FileProblem(
                    written.place(root + detail["loc"]),
                    _in_words(detail["type"], detail["msg"], detail["loc"]),
                )
            )
    for loc, text in _texts(data, ()):
        try:
            parse(text)
        except BadReference as error:
            place = written.place_of_match(root + loc, r"\$\{", text.count("${", 0, error.at))
            problems.append(FileProblem(place, str(error)))
    return definition, sorted(problems)


def _texts(data: Any, loc: Loc) -> Iterator[tuple[Loc, str]]:
    if isinstance(data, str):
        yield loc, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _texts(value, (*loc, key))
    elif isinstance(data, list):
        for at, value in enumerate(data):
            yield from _texts(value, (*loc, at))


def _in_words(kind: str, message: str, loc: Loc) -> str:
    key = next((part for part in reversed(loc) if isinstance(part, str)), "")
    what = f"every item of `{key}`" if loc and isinstance(loc[-1], int) else f"`{key}`"
    match kind:
        case "extra_forbidden":
            return _unknown(key, _keys(_model_at(loc[:-1])))
        case "missing":
            return f"the key `{key}` is missing"
        case "string_type":
            return f"{what} must be text; numbers, true and false need quotes"
        case "tuple_type":
            return f"{what} must be a list"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"{what} must be a mapping of keys and values"
        case "value_error":
            return message.removeprefix("Value error, ")
        case "literal_error":
            return f"{what}: {message.removeprefix('Input ')}"
        case _:
            return f"{what}: {message}"


def _unknown(key: str, known: set[str]) -> str:
    close = get_close_matches(key, known, n=1) or [
        other for other in known if other.lower() == key.lower().replace("_", "")
    ]
    hint = (
        f"did you mean `{close[0]}`?"
        if close
        else f"known are {', '.join(f'`{other}`' for other in sorted(known))}"
    )
    return f"unknown key `{key}`; {hint}"


def _model_at(loc: Loc) -> type[BaseModel]:
    match loc:
        case ("tools",):
            return ToolPolicy
        case ("install",):
            return Install
        case (str(key), _) if key == SERVERS:
            return McpServer
        case _:
            return AgentDefinition


def _keys(model: type[BaseModel]) -> set[str]:
    return {found.alias or name for name, found in model.model_fields.items()}
