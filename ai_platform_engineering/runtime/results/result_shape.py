"""What a long tool result is made of: its JSON values if it has any, their shape in words, and its lines."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MAX_SHAPE_CHARS = 1_200
_MAX_DEPTH = 3
_MAX_KEYS = 25  # of an object
_SAMPLED_ITEMS = 50  # of an array, for the keys of its items
_MAX_KEY_CHARS = 60
_LINE_CHARS = 1_000  # a longer line is looked at in pieces
_OVERLAP_CHARS = 200  # of two pieces, so that a match between them is found
_DECODER = json.JSONDecoder()


class ResultNotJson(ValueError):
    """The result is no JSON."""


@dataclass(frozen=True, slots=True)
class ResultLine:
    """A line of a result, with the place where it is: a line number, or the path of a JSON value."""

    place: str
    text: str


def parse_json(text: str) -> Any:
    """The value of a result; that of several values, one after the other, is an array of them.

    Servers give each item of a list as a text of its own. Raises ResultNotJson, also for a lone number.
    """
    values: list[Any] = []
    position = _skip_space(text, 0)
    try:
        while position < len(text):
            value, position = _DECODER.raw_decode(text, position)
            values.append(value)
            position = _skip_space(text, position)
    except (ValueError, RecursionError):
        raise ResultNotJson from None
    if len(values) == 1 and isinstance(values[0], dict | list):
        return values[0]
    if len(values) > 1 and all(isinstance(value, dict | list) for value in values):
        return values
    raise ResultNotJson


def describe_shape(text: str) -> str:
    """The shape of a result in words."""
    try:
        shape = f"JSON, {_describe(parse_json(text), 0)}"
    except ResultNotJson:
        shape = f"text, {text.count(chr(10)) + 1:,} lines"
    if len(shape) > _MAX_SHAPE_CHARS:
        return f"{shape[:_MAX_SHAPE_CHARS]}…"
    return shape


def list_lines(text: str) -> Iterator[ResultLine]:
    """The lines of a text, and of a JSON result each value with its path."""
    try:
        value = parse_json(text)
    except ResultNotJson:
        yield from _split_lines("", text)
        return
    yield from _list_values("", value)


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _describe(value: Any, depth: int) -> str:
    if isinstance(value, Mapping):
        return f"object {_describe_keys([value], depth)}"
    if isinstance(value, list):
        return _describe_array(value, depth)
    return _name_type(value)


def _describe_array(items: Sequence[Any], depth: int) -> str:
    sample = items[:_SAMPLED_ITEMS]
    objects = [item for item in sample if isinstance(item, Mapping)]
    if objects and len(objects) == len(sample):
        return f"array of {len(items):,} objects {_describe_keys(objects, depth)}"
    types = sorted({_name_type(item) for item in sample})
    if not types:
        return "empty array"
    return f"array of {len(items):,} ({', '.join(types)})"


def _describe_keys(objects: Sequence[Mapping[str, Any]], depth: int) -> str:
    """The keys of all of these objects, each with the shape of its first value."""
    values: dict[str, Any] = {}
    for item in objects:
        for key, value in item.items():
            if values.get(key) is None:
                values[key] = value
    parts: list[str] = []
    for key, value in list(values.items())[:_MAX_KEYS]:
        shape = _name_type(value) if depth + 1 >= _MAX_DEPTH else _describe(value, depth + 1)
        parts.append(f"{key[:_MAX_KEY_CHARS]}: {shape}")
    if len(values) > _MAX_KEYS:
        parts.append(f"{len(values) - _MAX_KEYS} more")
    return f"{{{', '.join(parts)}}}"


def _name_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return f"array of {len(value):,}"
        case _:
            return "object"


def _list_values(path: str, value: Any) -> Iterator[ResultLine]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            name = key if key.isidentifier() else json.dumps(key, ensure_ascii=False)
            yield from _list_values(f"{path}.{name}" if path else name, item)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _list_values(f"{path}[{index}]", item)
    elif isinstance(value, str):
        yield from _split_lines(path, value)
    else:
        yield ResultLine(path, json.dumps(value))


def _split_lines(path: str, text: str) -> Iterator[ResultLine]:
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        place = path
        if not path or len(lines) > 1:
            place = f"{path} line {number}".strip()
        yield from _cut_line(place, line)


def _cut_line(place: str, line: str) -> Iterator[ResultLine]:
    if len(line) <= _LINE_CHARS:
        yield ResultLine(place, line)
        return
    for start in range(0, len(line), _LINE_CHARS - _OVERLAP_CHARS):
        yield ResultLine(f"{place} character {start:,}", line[start : start + _LINE_CHARS])
