"""JSON Schema for single values: types, choices, ranges and lengths, as ends of sentences for people."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

MAX_NAME_CHARS = 100
_MAX_CHOICES = 10
_MAX_FACTOR = 2**53  # above it a float does not hold every whole number
_TYPE_NAMES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def check_number(schema: Schema, number: float) -> Iterator[str]:
    minimum = number_of(schema, "minimum")
    maximum = number_of(schema, "maximum")
    above = number_of(schema, "exclusiveMinimum")
    below = number_of(schema, "exclusiveMaximum")
    factor = number_of(schema, "multipleOf")
    if minimum is not None and number < minimum:
        yield f"must be at least {minimum}"
    if maximum is not None and number > maximum:
        yield f"must be at most {maximum}"
    if above is not None and number <= above:
        yield f"must be more than {above}"
    if below is not None and number >= below:
        yield f"must be less than {below}"
    # Of a fraction only the tool knows how it rounds.
    if isinstance(factor, int) and 0 < factor < _MAX_FACTOR and number % factor:
        yield f"must be a multiple of {factor}"


def check_count(schema: Schema, count: int, least: str, most: str, unit: str) -> Iterator[str]:
    """`least` and `most` are the keywords of the limits."""
    minimum = number_of(schema, least)
    maximum = number_of(schema, most)
    if minimum is not None and count < minimum:
        yield f"must have at least {minimum} {unit}"
    if maximum is not None and count > maximum:
        yield f"must have at most {maximum} {unit}"


def missing_names(schema: Schema, value: Mapping[str, Any]) -> list[str]:
    """The properties that an object lacks."""
    required = [*list_of(schema, "required")]
    for name, others in map_of(schema, "dependentRequired").items():
        if name in value and isinstance(others, list):
            required += others
    return [name for name in dict.fromkeys(map(str, required)) if name not in value]


def resolve_reference(root: Schema, reference: str) -> Any:
    """The part of the schema that a reference names; one that leads elsewhere allows everything."""
    if not reference.startswith("#"):
        return True
    part: Any = root
    for token in reference[1:].split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(part, list) and name.isdecimal() and int(name) < len(part):
            part = part[int(name)]
        elif isinstance(part, Mapping) and name in part:
            part = part[name]
        else:
            return True
    return part


# --- types --------------------------------------------------------------------------------------------------


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_types(schema: Any) -> list[str]:
    """The types that a schema allows; none when it does not say."""
    if not isinstance(schema, Mapping):
        return []
    types = schema.get("type")
    if isinstance(types, str):
        types = [types]
    if not isinstance(types, list) or not all(name in _TYPE_NAMES for name in types):
        return []
    return types


def has_type(schema: Any, value: Any) -> bool:
    types = read_types(schema)
    return not types or any(_is_type(name, value) for name in types)


def _is_type(name: str, value: Any) -> bool:
    match name:
        case "string":
            return isinstance(value, str)
        case "integer":
            return is_number(value) and (isinstance(value, int) or value.is_integer())
        case "number":
            return is_number(value)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, Mapping)
        case _:
            return value is None


# --- keywords: one of the wrong kind counts as absent, since the schema is somebody else's ------------------


def list_of(schema: Schema, keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def map_of(schema: Schema, keyword: str) -> Mapping[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, Mapping) else {}


def number_of(schema: Schema, keyword: str) -> int | float | None:
    value = schema.get(keyword)
    return value if is_number(value) else None


# --- words --------------------------------------------------------------------------------------------------


def join_types(types: Sequence[str]) -> str:
    return " or ".join(dict.fromkeys(_TYPE_NAMES[name] for name in types))


def join_choices(choices: Sequence[Any]) -> str:
    texts = [json.dumps(choice, ensure_ascii=False)[:MAX_NAME_CHARS] for choice in choices[:_MAX_CHOICES]]
    if len(choices) > _MAX_CHOICES:
        texts.append("…")
    return ", ".join(texts)


def join_names(names: Sequence[str]) -> str:
    return ", ".join(name[:MAX_NAME_CHARS] for name in names[:_MAX_CHOICES]) or "none"
