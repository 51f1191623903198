"""`${VAR}` and `${VAR:-default}` in the texts of a definition, expanded from a mapping of variables."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ai_platform_engineering.files.yaml_document import KeyPath

_SPECIAL = re.compile(r"\$\$\{|\$\{|\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_DEPTH = 10  # of variables in the defaults of variables


class BadReference(ValueError):
    """A `${` that is no reference to a variable, and its position in the text."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True, slots=True)
class VariableReference:
    name: str
    default: "Template | None" = None


Template = tuple[str | VariableReference, ...]
MissingVariable = tuple[
    str, KeyPath
]  # the names, `A|B` where one of several would do, and where they are used


@dataclass(frozen=True, slots=True, repr=False)
class ExpandedText:
    """A text after expansion, and the variables that were missing: `A|B` where one of several would do."""

    text: str
    missing: tuple[str, ...] = ()


def parse_template(text: str) -> Template:
    """The parts of a text: plain ones and references; `$${` stands for `${`. Raises BadReference."""
    parts, _ = _parse_parts(text, 0)
    return parts


def find_names(template: Template) -> Iterator[str]:
    """Every variable that a template names, those in defaults too."""
    for part in template:
        if isinstance(part, VariableReference):
            yield part.name
            yield from find_names(part.default or ())


def expand_text(text: str, variables: Mapping[str, str]) -> ExpandedText:
    if "${" not in text:
        return ExpandedText(text)
    return expand_template(parse_template(text), variables)


def expand_template(template: Template, variables: Mapping[str, str]) -> ExpandedText:
    texts: list[str] = []
    missing: list[str] = []
    for part, next_part in zip_longest(template, template[1:], fillvalue=""):
        if isinstance(part, str):
            texts.append(part)
        elif value := read_variable(part.name, variables):
            # `${URL}/path` holds for an address with and without a slash at its end; servers redirect or
            # refuse `//`.
            if isinstance(next_part, str) and next_part.startswith("/"):
                value = value.rstrip("/")
            texts.append(value)
        elif part.default is None:
            missing.append(part.name)
        else:
            default = expand_template(part.default, variables)
            texts.append(default.text)
            missing += [f"{part.name}|{other}" for other in default.missing]
    return ExpandedText("".join(texts), tuple(missing))


def read_variable(name: str, variables: Mapping[str, str]) -> str:
    """A variable's value without surrounding white space, which files and shells add; empty counts as
    unset."""
    return variables.get(name, "").strip()


def expand_tree(
    data: Any, variables: Mapping[str, str], path: KeyPath = ()
) -> tuple[Any, list[MissingVariable]]:
    """All texts of a definition expanded (keys stay), and the missing variables with the path of their
    text."""
    if isinstance(data, dict):
        return _expand_mapping(data, variables, path)
    if isinstance(data, list | tuple):
        return _expand_list(data, variables, path)
    if isinstance(data, str):
        return _expand_leaf(data, variables, path)
    return data, []


def _expand_mapping(
    data: dict[str, Any], variables: Mapping[str, str], path: KeyPath
) -> tuple[dict[str, Any], list[MissingVariable]]:
    expanded: dict[str, Any] = {}
    missing: list[MissingVariable] = []
    for key, value in data.items():
        key_path = (*path, key)
        expanded_value, missing_in_value = expand_tree(value, variables, key_path)
        missing += missing_in_value
        if isinstance(value, str) and _is_omitted(value, expanded_value, bool(missing_in_value), key_path):
            continue
        expanded[key] = expanded_value
    return expanded, missing


def _expand_list(
    data: list[Any] | tuple[Any, ...], variables: Mapping[str, str], path: KeyPath
) -> tuple[list[Any], list[MissingVariable]]:
    items: list[Any] = []
    missing: list[MissingVariable] = []
    for index, value in enumerate(data):
        item, missing_in_item = expand_tree(value, variables, (*path, index))
        items.append(item)
        missing += missing_in_item
    return items, missing


def _expand_leaf(text: str, variables: Mapping[str, str], path: KeyPath) -> tuple[str, list[MissingVariable]]:
    expanded = expand_text(text, variables)
    missing = expanded.missing
    if _is_required(path) and not expanded.text and not missing:
        missing = tuple(find_names(parse_template(text)))
    return expanded.text, [(name, path) for name in missing]


def _is_required(path: KeyPath) -> bool:
    """Whether an agent or server without this text could not be started or reached."""
    match path:
        case ("url",) | ("mcpServers", _, "command" | "url"):
            return True
        case _:
            return False


def _is_omitted(template: str, expanded: str, has_missing: bool, path: KeyPath) -> bool:
    """Whether a key is dropped because its variables are not set: an empty token confuses a server more than
    none."""
    if "${" not in template:
        return False
    match path:
        case ("mcpServers", _, "env" | "headers", _):
            return has_missing or not expanded
        case ("title" | "model" | "url",) | ("mcpServers", _, "cwd"):
            return not expanded
        case _:
            return False


def _parse_parts(
    text: str, position: int, reference_start: int | None = None, depth: int = 0
) -> tuple[Template, int]:
    """The parts from a position on; inside a reference, which began at `reference_start`, up to its closing
    brace."""
    if depth > _MAX_DEPTH:
        raise BadReference(f"variables are nested deeper than {_MAX_DEPTH} levels", reference_start or 0)
    parts: list[str | VariableReference] = []
    while special := _SPECIAL.search(text, position):
        _append_text(parts, text[position : special.start()])
        position = special.end()
        if special[0] == "$${":
            _append_text(parts, "${")
        elif special[0] == "${":
            reference, position = _parse_reference(text, special.start(), depth)
            parts.append(reference)
        elif reference_start is not None:
            return tuple(parts), position
        else:
            _append_text(parts, "}")
    if reference_start is not None:
        raise BadReference("`${` is not closed by `}`", reference_start)
    _append_text(parts, text[position:])
    return tuple(parts), len(text)


def _parse_reference(text: str, start: int, depth: int) -> tuple[VariableReference, int]:
    name = _NAME.match(text, start + 2)
    if not name:
        raise BadReference(
            "`${` must be followed by the name of a variable; write `$${` for the characters themselves",
            start,
        )
    position = name.end()
    if text.startswith("}", position):
        return VariableReference(name[0]), position + 1
    if not text.startswith(":-", position):
        raise BadReference(
            "a variable is written `${NAME}` or `${NAME:-default}`;"
            " write `$${` for the characters themselves",
            start,
        )
    default, position = _parse_parts(text, position + 2, start, depth + 1)
    return VariableReference(name[0], default), position


def _append_text(parts: list[str | VariableReference], text: str) -> None:
    """Joins neighbouring plain texts, so that a template has one form."""
    if not text:
        return
    if parts and isinstance(parts[-1], str):
        parts[-1] += text
    else:
        parts.append(text)
