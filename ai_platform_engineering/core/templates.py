"""Texts with placeholders: `{{ step.path[0] or "else" }}` is looked up in what is known, never run."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from pydantic import JsonValue

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import clean_json

OPENING = "{{"
_STRING = r'"(?:[^"\\]|\\.)*"'
_PLACEHOLDER = re.compile(
    rf"""\{{\{{\s*(?:
        (?P<name>[A-Za-z_][\w-]*)(?P<path>(?:\.[\w-]+|\[[0-9]{{1,9}}\])*)(?:\s+or\s+(?P<other>{_STRING}|-?\d+(?:\.\d+)?|true|false|null))?
        |(?P<text>{_STRING})
    )\s*\}}\}}""",
    re.VERBOSE | re.DOTALL,
)
_PART = re.compile(r"\.([\w-]+)|\[([0-9]+)\]")
_DATA = re.compile(r"^[{\[]", re.MULTILINE)


class BadTemplate(ValueError):
    """A placeholder that cannot be read; the text says how one is written."""


class MissingValue(CaipeError):
    """A placeholder for which there is no value; the text names the step and what it was to give."""

    code = "missing_value"


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder: where to look, and what to take when nothing is there."""

    name: str
    path: tuple[str | int, ...] = ()
    other: JsonValue = None
    has_other: bool = False

    def __str__(self) -> str:
        return self.name + self.inside

    @property
    def inside(self) -> str:
        """What is looked for within the value of the name."""
        return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)


@dataclass(frozen=True, slots=True)
class TemplateScope:
    """What placeholders may name: the values so far, and why a name has none ("failed", "was left out")."""

    values: Mapping[str, JsonValue] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)

    def value(self, reference: Placeholder) -> JsonValue:
        """Raises MissingValue; null counts as nothing, and where there is an alternative an empty text does too."""
        found = _within(self.values.get(reference.name), reference.path)
        if reference.has_other and (found is None or found == ""):
            return reference.other
        if found is None:
            self._lacks(reference)
        return found

    def _lacks(self, reference: Placeholder) -> NoReturn:
        if why := self.absent.get(reference.name):
            raise MissingValue(f"The step `{reference.name}` {why}, so there is no `{reference}`.")
        what = f"`{reference.inside.removeprefix('.')}`" if reference.path else "nothing"
        raise MissingValue(f"The step `{reference.name}` gave {'no ' if reference.path else ''}{what}.")


def parse(text: str) -> tuple[str | Placeholder, ...]:
    """The text in pieces. Raises BadTemplate."""
    pieces: list[str | Placeholder] = []
    at = 0
    while (start := text.find(OPENING, at)) >= 0:
        while text.startswith("{", start + len(OPENING)):  # of many braces the last two open it
            start += 1
        match = _PLACEHOLDER.match(text, start)
        if match is None:
            raise BadTemplate(f"{_shown(text[start:])} is no placeholder; {_HELP}")
        pieces += (text[at:start], _piece(match))
        at = match.end()
    return tuple(piece for piece in (*pieces, text[at:]) if piece != "")


_HELP = 'one is written as {{ name.key[0] }} or {{ name or "else" }}, and plain braces as {{ "{{" }}'


def _shown(text: str) -> str:
    first = text.partition("\n")[0]
    return f"`{first[:40]}`"


def _piece(match: re.Match[str]) -> str | Placeholder:
    if match["text"] is not None:
        return str(_literal(match["text"]))
    path = tuple(int(index) if index else key for key, index in _PART.findall(match["path"]))
    if match["other"] is None:
        return Placeholder(match["name"], path)
    return Placeholder(match["name"], path, _literal(match["other"]), has_other=True)


def _literal(text: str) -> JsonValue:
    try:
        return clean_json(json.loads(text, strict=False))
    except ValueError:
        raise BadTemplate(f"{_shown(text)} is no text in quotes or plain value; {_HELP}") from None


def escape_template(text: str) -> str:
    """The text as a template that gives exactly this text."""
    return text.replace(OPENING, '{{ "{{" }}')


def references(text: str) -> tuple[Placeholder, ...]:
    return tuple(piece for piece in parse(text) if isinstance(piece, Placeholder))


def fill(text: str, scope: TemplateScope) -> JsonValue:
    """The text with its placeholders filled in; one that is the whole text keeps the type of its value. Raises MissingValue."""
    pieces = parse(text.strip())
    if len(pieces) == 1 and isinstance(pieces[0], Placeholder):
        return scope.value(pieces[0])
    return fill_text(text, scope)


def fill_text(text: str, scope: TemplateScope) -> str:
    return "".join(piece if isinstance(piece, str) else to_text(scope.value(piece)) for piece in parse(text))


def fill_tree(value: JsonValue, scope: TemplateScope) -> JsonValue:
    """The value with all its texts filled in; keys stay as they are."""
    match value:
        case str():
            return fill(value, scope)
        case dict():
            return {key: fill_tree(item, scope) for key, item in value.items()}
        case list():
            return [fill_tree(item, scope) for item in value]
        case _:
            return value


def texts_in(value: JsonValue, where: str) -> Iterator[tuple[str, str]]:
    """Every text of the value with where it stands."""
    match value:
        case str():
            yield where, value
        case dict():
            for key, item in value.items():
                yield from texts_in(item, f"{where}.{key}")
        case list():
            for at, item in enumerate(value):
                yield from texts_in(item, f"{where}[{at}]")
        case _:
            pass


def to_text(value: JsonValue) -> str:
    """The value inside a text: objects and lists as JSON, nothing as nothing."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def read_value(text: str) -> JsonValue:
    """What a result's text says: the value when it is JSON, else the text."""
    value = _json(text)
    if value is None:
        return text
    return value


def split_data(text: str) -> tuple[str, JsonValue]:
    """A result's words, and the object or list that follows them on a line of its own: tool servers often say both."""
    start = _DATA.search(text)
    data = _json(text[start.start() :]) if start else None
    if start and data is not None:
        return (text[: start.start()].strip(), data)
    return (text, None)


def _json(text: str) -> JsonValue:
    try:
        return clean_json(json.loads(text, parse_constant=str))
    except (ValueError, RecursionError):
        return None


def _within(value: JsonValue, path: tuple[str | int, ...]) -> JsonValue:
    for part in path:
        if isinstance(value, str):
            value = split_data(value)[1]
        match value:
            case dict() if isinstance(part, str):
                value = value.get(part)
            case list() if isinstance(part, int) and part < len(value):
                value = value[part]
            case _:
                return None
    return value
