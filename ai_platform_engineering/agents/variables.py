"""`${VAR}` and `${VAR:-default}` in the texts of a definition, filled from variables that are handed in."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ai_platform_engineering.agents.yaml_positions import Loc

_SPECIAL = re.compile(r"\$\$\{|\$\{|\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BadReference(ValueError):
    """A `${` that is no reference to a variable, and where it stands in its text."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True, slots=True)
class VariableReference:
    name: str
    default: "Template | None" = None


Template = tuple[str | VariableReference, ...]


@dataclass(frozen=True, slots=True, repr=False)
class ExpandedText:
    """A text after expansion, and the variables that were missing: `A|B` where any one of several would do."""

    text: str
    missing: tuple[str, ...] = ()


def parse(text: str) -> Template:
    """The parts of a text: plain ones and references; `$${` stands for `${`. Raises BadReference."""
    parts, _ = _parts(text, 0)
    return parts


def names(template: Template) -> Iterator[str]:
    """Every variable that a template mentions, those in defaults too."""
    for part in template:
        if isinstance(part, VariableReference):
            yield part.name
            yield from names(part.default or ())


def expand(text: str, variables: Mapping[str, str]) -> ExpandedText:
    if "${" in text:
        return fill(parse(text), variables)
    return ExpandedText(text)


def fill(template: Template, variables: Mapping[str, str]) -> ExpandedText:
    texts: list[str] = []
    missing: list[str] = []
    for part, following in zip_longest(template, template[1:], fillvalue=""):
        if isinstance(part, str):
            texts.append(part)
        elif value := value_of(part.name, variables):
            # `${URL}/path` holds for an address with and without a slash at its end; servers redirect or refuse `//`.
            texts.append(
                value.rstrip("/") if isinstance(following, str) and following.startswith("/") else value
            )
        elif part.default is None:
            missing.append(part.name)
        else:
            inner = fill(part.default, variables)
            texts.append(inner.text)
            missing += [f"{part.name}|{other}" for other in inner.missing]
    return ExpandedText("".join(texts), tuple(missing))


def value_of(name: str, variables: Mapping[str, str]) -> str:
    """A variable's value without surrounding white space, which files and shells tend to add; empty counts as unset."""
    return variables.get(name, "").strip()


def expand_tree(data: Any, variables: Mapping[str, str], loc: Loc = ()) -> tuple[Any, list[tuple[str, Loc]]]:
    """All texts of a definition expanded (keys stay), and what was missing with the path of the text that wanted it."""
    missing: list[tuple[str, Loc]] = []
    if isinstance(data, dict):
        filled: dict[str, Any] = {}
        for key, value in data.items():
            filled[key], absent = expand_tree(value, variables, (*loc, key))
            missing += absent
            if isinstance(value, str) and _is_left_out(value, filled[key], bool(absent), (*loc, key)):
                del filled[key]
        return filled, missing
    if isinstance(data, list | tuple):
        items = [expand_tree(value, variables, (*loc, at)) for at, value in enumerate(data)]
        return [item for item, _ in items], [one for _, absent in items for one in absent]
    if isinstance(data, str):
        return _expand_leaf(data, variables, loc)
    return data, []


def _expand_leaf(text: str, variables: Mapping[str, str], loc: Loc) -> tuple[str, list[tuple[str, Loc]]]:
    filled = expand(text, variables)
    missing = filled.missing
    if _is_needed(loc) and not filled.text:
        missing = missing or tuple(names(parse(text)))
    return filled.text, [(name, loc) for name in missing]


def _is_needed(loc: Loc) -> bool:
    """Whether nothing would be left to start or to reach without this text."""
    match loc:
        case ("url",) | ("mcpServers", _, "command" | "url"):
            return True
        case _:
            return False


def _is_left_out(written: str, filled: str, missing: bool, loc: Loc) -> bool:
    """Whether an entry goes because its variables are not set: an empty token or profile confuses a server more than none."""
    if "${" not in written:
        return False
    match loc:
        case ("mcpServers", _, "env" | "headers", _):
            return missing or not filled
        case ("title" | "model" | "url",) | ("mcpServers", _, "cwd"):
            return not filled
        case _:
            return False


def _parts(text: str, at: int, opened: int | None = None) -> tuple[Template, int]:
    """Parts from a position on; inside a reference, which `opened` says where it began, up to the brace that closes it."""
    parts: list[str | VariableReference] = []
    while special := _SPECIAL.search(text, at):
        _add(parts, text[at : special.start()])
        at = special.end()
        if special[0] == "$${":
            _add(parts, "${")
        elif special[0] == "${":
            reference, at = _reference(text, special.start())
            parts.append(reference)
        elif opened is not None:
            return tuple(parts), at
        else:
            _add(parts, "}")
    if opened is not None:
        raise BadReference("`${` is not closed by `}`", opened)
    _add(parts, text[at:])
    return tuple(parts), len(text)


def _reference(text: str, opened: int) -> tuple[VariableReference, int]:
    name = _NAME.match(text, opened + 2)
    if not name:
        raise BadReference(
            "`${` must be followed by the name of a variable; write `$${` for the characters themselves",
            opened,
        )
    at = name.end()
    if text.startswith("}", at):
        return VariableReference(name[0]), at + 1
    if not text.startswith(":-", at):
        raise BadReference(
            "a variable is written `${NAME}` or `${NAME:-default}`; write `$${` for the characters themselves",
            opened,
        )
    default, at = _parts(text, at + 2, opened)
    return VariableReference(name[0], default), at


def _add(parts: list[str | VariableReference], text: str) -> None:
    """Joins neighbouring plain texts, so that a template has one form."""
    if not text:
        return
    if parts and isinstance(parts[-1], str):
        parts[-1] += text
    else:
        parts.append(text)
