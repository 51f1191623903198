"""Parses a file into checked agent definitions: one, a list of them, or a plain `mcp.json`; every mistake has
a line."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from ai_platform_engineering.agents.variables import BadReference, find_names, parse_template
from ai_platform_engineering.core.agent_definition import (
    RESERVED,
    AgentDefinition,
    CheckCall,
    Install,
    McpServer,
    OAuthConfig,
    SandboxAccess,
    ToolPolicy,
    variable_prefix,
)
from ai_platform_engineering.files.yaml_document import FilePosition, FileProblem, KeyPath, YamlDocument

MCP_SERVERS = "mcpServers"
# Keys of a server in a plain `mcp.json` that are about the agent made from it.
_AGENT_KEYS = {"description": str, "disabled": bool}
_TEXT_KEYS = ("env", "headers", "args")


@dataclass(frozen=True, slots=True)
class ParsedDefinition:
    """A definition of the right form, its variables not expanded; `root` is the path of its data in the
    document."""

    name: str
    data: Mapping[str, Any] = field(repr=False)
    document: YamlDocument = field(repr=False)
    root: KeyPath
    position: FilePosition
    from_server: bool = False
    disabled: bool = False

    @property
    def prefix(self) -> str:
        """How variables of the agent begin."""
        return variable_prefix(self.name)

    def variable_names(self) -> Iterator[str]:
        """Every variable of the definition."""
        for _, text in _find_texts(self.data, ()):
            yield from find_names(parse_template(text))
        for requirement in self.data.get("requires", ()):
            yield from requirement.split("|")


_ParseResult = ParsedDefinition | list[FileProblem]


def parse_definitions(document: YamlDocument) -> tuple[list[ParsedDefinition], list[FileProblem]]:
    """The definitions of a file, and the problems of those that are wrong."""
    definitions: list[ParsedDefinition] = []
    problems: list[FileProblem] = []
    for result in _parse_all(document):
        if isinstance(result, ParsedDefinition):
            definitions.append(result)
        else:
            problems += result
    return definitions, problems


def derive_agent_name(server: str) -> str:
    """The name of the agent that is made from a server: `My Server` gives `my-server`."""
    name = re.sub(r"[^a-z0-9_]+", "-", server.lower()).strip("-_")
    if name and (not name[0].isalpha() or name in RESERVED):
        return f"mcp-{name}"
    return name


def _parse_all(document: YamlDocument) -> Iterable[_ParseResult]:
    data = document.data
    if data is None:  # nothing but comments
        return
    if isinstance(data, list):
        for index, item in enumerate(data):
            yield _parse_definition(document, item, (index,))
    elif isinstance(data, dict) and _is_plain_mcp_json(data):
        yield from _parse_servers(document)
    else:
        yield _parse_definition(document, data, ())


def _is_plain_mcp_json(data: Mapping[str, Any]) -> bool:
    """A file of servers alone, as other MCP clients have it; any other key of a definition makes it a
    definition."""
    return MCP_SERVERS in data and not (_keys_of(AgentDefinition) - {MCP_SERVERS}) & data.keys()


def _parse_definition(document: YamlDocument, data: Any, root: KeyPath) -> _ParseResult:
    if not isinstance(data, dict):
        text = "an agent's definition must be a mapping of keys and values"
        return [FileProblem(document.find_position(root), text)]
    data = _restore_texts(document, data, root)
    definition, problems = _check_definition(document, data, root)
    if definition is None or problems:
        return problems
    position = document.find_position((*root, "name"))
    return ParsedDefinition(definition.name, data, document, root, position)


def _parse_servers(document: YamlDocument) -> Iterator[_ParseResult]:
    unknown_keys = sorted(document.data.keys() - {MCP_SERVERS})
    yield [
        FileProblem(document.find_position((key,)), _describe_unknown_key(key, {MCP_SERVERS}))
        for key in unknown_keys
    ]
    servers = document.data[MCP_SERVERS]
    if not isinstance(servers, dict):
        text = f"`{MCP_SERVERS}` must be a mapping of keys and values"
        yield [FileProblem(document.find_position((MCP_SERVERS,)), text)]
        return
    for title, server in servers.items():
        yield _parse_server(document, title, server)


def _parse_server(document: YamlDocument, title: str, server: Any) -> _ParseResult:
    path: KeyPath = (MCP_SERVERS, title)
    agent_values: dict[str, Any] = {}
    if isinstance(server, dict):
        agent_values = {key: server[key] for key in _AGENT_KEYS if key in server}
        server = {key: value for key, value in server.items() if key not in agent_values}
    problems = _check_agent_values(document, path, agent_values)
    name = derive_agent_name(title)
    if not name:
        text = "a server's name becomes an agent's name and needs a letter or a digit"
        problems.append(FileProblem(document.find_position(path), text))
    data = {
        "name": name or "unnamed",
        "title": title.replace("${", "$${"),
        "description": agent_values.get("description") or f"Works with the tools of the MCP server {name}.",
        MCP_SERVERS: {title: server},
    }
    data = _restore_texts(document, data, ())
    definition, definition_problems = _check_definition(document, data, ())
    problems += definition_problems
    if definition is None or problems:
        return problems
    return ParsedDefinition(
        name,
        data,
        document,
        (),
        document.find_position(path),
        from_server=True,
        disabled=agent_values.get("disabled", False),
    )


def _check_agent_values(
    document: YamlDocument, path: KeyPath, agent_values: Mapping[str, Any]
) -> list[FileProblem]:
    problems: list[FileProblem] = []
    for key, value in agent_values.items():
        if not isinstance(value, _AGENT_KEYS[key]):
            expected = "true or false" if key == "disabled" else "text"
            problems.append(FileProblem(document.find_position((*path, key)), f"`{key}` must be {expected}"))
    return problems


def _restore_texts(document: YamlDocument, data: dict[str, Any], root: KeyPath) -> dict[str, Any]:
    """Takes `PORT: 8080` in a server's `env`, `headers` and `args` as it is written: there, every value is
    text."""
    servers = data.get(MCP_SERVERS)
    if not isinstance(servers, dict):
        return data
    restored: dict[str, Any] = {}
    for name, server in servers.items():
        restored[name] = _restore_server_texts(document, server, (*root, MCP_SERVERS, name))
    return {**data, MCP_SERVERS: restored}


def _restore_server_texts(document: YamlDocument, server: Any, path: KeyPath) -> Any:
    if not isinstance(server, dict):
        return server
    restored = dict(server)
    for key in _TEXT_KEYS:
        if key in server:
            restored[key] = _as_text(document, server[key], (*path, key))
    return restored


def _as_text(document: YamlDocument, value: Any, path: KeyPath) -> Any:
    if isinstance(value, dict):
        return {key: _as_text(document, item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_text(document, item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, str) or value is None:
        return value
    return document.find_lines(path).text


def _check_definition(
    document: YamlDocument, data: Mapping[str, Any], root: KeyPath
) -> tuple[AgentDefinition | None, list[FileProblem]]:
    """The definition with its variables not expanded, so that no error can quote a value of one."""
    problems: list[FileProblem] = []
    definition: AgentDefinition | None = None
    try:
        definition = AgentDefinition.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        for detail in error.errors(include_input=False, include_url=False):
            path = detail["loc"]
            text = _describe_error(detail["type"], detail["msg"], path)
            problems.append(FileProblem(document.find_position(root + path), text))
    for path, text in _find_texts(data, ()):
        try:
            parse_template(text)
        except BadReference as error:
            references_before = text.count("${", 0, error.position)
            position = document.find_match(root + path, r"\$\{", references_before)
            problems.append(FileProblem(position, str(error)))
    return definition, sorted(problems)


def _find_texts(data: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Every text of the data with its path."""
    if isinstance(data, str):
        yield path, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _find_texts(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _find_texts(value, (*path, index))


def _describe_error(kind: str, message: str, path: KeyPath) -> str:
    """pydantic's error in words for whoever wrote the file."""
    key = next((part for part in reversed(path) if isinstance(part, str)), "")
    subject = f"`{key}`"
    if path and isinstance(path[-1], int):
        subject = f"every item of `{key}`"
    match kind:
        case "extra_forbidden":
            return _describe_unknown_key(key, _keys_of(_find_model(path[:-1])))
        case "missing":
            return f"the key `{key}` is missing"
        case "string_type":
            return f"{subject} must be text; numbers, true and false need quotes"
        case "tuple_type":
            return f"{subject} must be a list"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"{subject} must be a mapping of keys and values"
        case "value_error":
            return message.removeprefix("Value error, ")
        case "literal_error":
            return f"{subject}: {message.removeprefix('Input ')}"
        case _:
            return f"{subject}: {message}"


def _describe_unknown_key(key: str, known_keys: set[str]) -> str:
    similar_key = _find_similar_key(key, known_keys)
    if similar_key:
        return f"unknown key `{key}`; did you mean `{similar_key}`?"
    listed_keys = ", ".join(f"`{known_key}`" for known_key in sorted(known_keys))
    return f"unknown key `{key}`; known are {listed_keys}"


def _find_similar_key(key: str, known_keys: set[str]) -> str | None:
    matches = get_close_matches(key, known_keys, n=1)
    if matches:
        return matches[0]
    bare_key = key.lower().replace("_", "")  # snake case for camel case
    return next((known_key for known_key in known_keys if known_key.lower() == bare_key), None)


def _find_model(path: KeyPath) -> type[BaseModel]:
    match path:
        case ("tools",):
            return ToolPolicy
        case ("install",):
            return Install
        case ("check",):
            return CheckCall
        case (str(key), _) if key == MCP_SERVERS:
            return McpServer
        case (str(key), _, "sandbox") if key == MCP_SERVERS:
            return SandboxAccess
        case (str(key), _, "auth") if key == MCP_SERVERS:
            return OAuthConfig
        case _:
            return AgentDefinition


def _keys_of(model: type[BaseModel]) -> set[str]:
    return {info.alias or name for name, info in model.model_fields.items()}
