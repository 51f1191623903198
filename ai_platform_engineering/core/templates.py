"""Templates: texts with placeholders such as `{{ step.path[0] or "else" }}`, looked up and never executed."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import clean_json

PLACEHOLDER_START = "{{"
_STRING = r'"(?:[^"\\]|\\.)*"'
_PLACEHOLDER = re.compile(
    rf"""\{{\{{\s*(?:
        (?P<name>[A-Za-z_][\w-]*)
        (?P<path>(?:\.[\w-]+|\[[0-9]{{1,9}}\])*)
        (?:\s+or\s+(?P<default>{_STRING}|-?\d+(?:\.\d+)?|true|false|null))?
        |(?P<text>{_STRING})
    )\s*\}}\}}""",
    re.VERBOSE | re.DOTALL,
)
_PART = re.compile(r"\.([\w-]+)|\[([0-9]+)\]")
_DATA = re.compile(r"^[{\[]", re.MULTILINE)


def literal_text(template: str) -> str:
    """What a template says itself: its text, and the defaults in place of the placeholders."""
    return _PLACEHOLDER.sub(_literal_of, template)


def _literal_of(match: re.Match[str]) -> str:
    """The text that a placeholder holds itself; a default that is no text (null, a number) says nothing."""
    default = match["default"] or ""
    if not default.startswith('"'):
        default = ""
    return f" {default or match['text'] or ''} "


class BadTemplate(ValueError):
    """A placeholder that cannot be read; the text says how one is written."""


class MissingValue(CaipeError):
    """A placeholder has no value; the text names the step and the key that is missing."""

    code = "missing_value"


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder: the name and path of a value, and a default for when there is none."""

    name: str
    path: tuple[str | int, ...] = ()
    default: JsonValue = None
    has_default: bool = False

    def __str__(self) -> str:
        return self.name + self.path_text

    @property
    def path_text(self) -> str:
        """The path inside the named value, as it is written in a template."""
        text = ""
        for part in self.path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}"
        return text


@dataclass(frozen=True, slots=True)
class TemplateScope:
    """The values that placeholders may name, and why a name has none ("failed", "was left out")."""

    values: Mapping[str, JsonValue] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)

    def resolve(self, placeholder: Placeholder) -> JsonValue:
        """The value of a placeholder. Raises MissingValue.

        Null counts as no value; where there is a default, an empty text does too.
        """
        value = _find_value(self.values.get(placeholder.name), placeholder.path)
        if placeholder.has_default and (value is None or value == ""):
            return placeholder.default
        if value is None:
            raise MissingValue(self._explain_missing(placeholder))
        return value

    def _explain_missing(self, placeholder: Placeholder) -> str:
        name = placeholder.name
        reason = self.absent.get(name)
        if reason:
            return f"The step `{name}` {reason}, so there is no `{placeholder}`."
        if placeholder.path:
            return f"The step `{name}` gave no `{placeholder.path_text.removeprefix('.')}`."
        return f"The step `{name}` gave nothing."


def parse_template(text: str) -> tuple[str | Placeholder, ...]:
    """The text as plain pieces and placeholders. Raises BadTemplate."""
    pieces: list[str | Placeholder] = []
    end = 0
    while (start := text.find(PLACEHOLDER_START, end)) >= 0:
        while text.startswith("{", start + len(PLACEHOLDER_START)):  # of many braces the last two open it
            start += 1
        match = _PLACEHOLDER.match(text, start)
        if match is None:
            raise BadTemplate(f"{_quote(text[start:])} is no placeholder; {_HELP}")
        pieces += (text[end:start], _read_placeholder(match))
        end = match.end()
    pieces.append(text[end:])
    return tuple(piece for piece in pieces if piece != "")


_HELP = 'one is written as {{ name.key[0] }} or {{ name or "else" }}, and plain braces as {{ "{{" }}'


def _quote(text: str) -> str:
    first_line = text.partition("\n")[0]
    return f"`{first_line[:40]}`"


def _read_placeholder(match: re.Match[str]) -> str | Placeholder:
    if match["text"] is not None:
        return str(_read_literal(match["text"]))
    path: list[str | int] = []
    for key, index in _PART.findall(match["path"]):
        path.append(int(index) if index else key)
    if match["default"] is None:
        return Placeholder(match["name"], tuple(path))
    return Placeholder(match["name"], tuple(path), _read_literal(match["default"]), has_default=True)


def _read_literal(text: str) -> JsonValue:
    try:
        return clean_json(json.loads(text, strict=False))
    except (ValueError, RecursionError):
        raise BadTemplate(f"{_quote(text)} is no text in quotes or plain value; {_HELP}") from None


def escape_template(text: str) -> str:
    """The text as a template that gives exactly this text."""
    return text.replace(PLACEHOLDER_START, '{{ "{{" }}')


def find_placeholders(text: str) -> tuple[Placeholder, ...]:
    return tuple(piece for piece in parse_template(text) if isinstance(piece, Placeholder))


def fill(text: str, scope: TemplateScope) -> JsonValue:
    """The text with its placeholders filled in. Raises MissingValue.

    A placeholder that is the whole text keeps the type of its value.
    """
    pieces = parse_template(text.strip())
    if len(pieces) == 1 and isinstance(pieces[0], Placeholder):
        return scope.resolve(pieces[0])
    return fill_text(text, scope)


def fill_text(text: str, scope: TemplateScope) -> str:
    return "".join(
        piece if isinstance(piece, str) else to_text(scope.resolve(piece)) for piece in parse_template(text)
    )


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


def iter_texts(value: JsonValue, where: str) -> Iterator[tuple[str, str]]:
    """Every text inside the value, with its path."""
    match value:
        case str():
            yield where, value
        case dict():
            for key, item in value.items():
                yield from iter_texts(item, f"{where}.{key}")
        case list():
            for index, item in enumerate(value):
                yield from iter_texts(item, f"{where}[{index}]")
        case _:
            pass


def to_text(value: JsonValue) -> str:
    """The value as a text: objects and lists as JSON, null as an empty text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def parse_value(text: str) -> JsonValue:
    """A result's text as a value: parsed when it is JSON, else the text."""
    value = _parse_json(text)
    if value is None:
        return text
    return value


def split_data(text: str) -> tuple[str, JsonValue]:
    """A result's text, and the JSON object or list that follows it on a new line: many tools send both."""
    match = _DATA.search(text)
    if match is None:
        return text, None
    data = _parse_json(text[match.start() :])
    if data is None:
        return text, None
    return text[: match.start()].strip(), data


def _parse_json(text: str) -> JsonValue:
    try:
        return clean_json(json.loads(text, parse_constant=str))
    except (ValueError, RecursionError):
        return None


def _find_value(value: JsonValue, path: tuple[str | int, ...]) -> JsonValue:
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
