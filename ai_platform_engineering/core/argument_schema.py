"""Checks a person's arguments against the JSON schema of a tool, in a bounded number of steps.

The schema is the tool server's, so it is not trusted with this process: patterns are matched in linear time,
references are followed inside the schema alone, and no sentence holds a value. Keywords that are not known
here are left to the tool.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.core.schema_values import (
    MAX_NAME_CHARS,
    Schema,
    check_count,
    check_number,
    has_type,
    is_number,
    join_choices,
    join_names,
    join_types,
    list_of,
    map_of,
    missing_names,
    read_types,
    resolve_reference,
)
from ai_platform_engineering.core.text_patterns import LONGEST_TEXT, UnsupportedPattern, finds

_MAX_SCHEMA_CHARS = 20_000
_MAX_STEPS = 10_000
_PATTERN_STEPS = 20  # what it may cost to compile one
_MAX_DEPTH = 100
_MAX_ERRORS = 20
_WHOLE = ""  # the path of the arguments as a whole
_TOO_LARGE = "The arguments are too large to be checked: leave something out."

_VALUE_KEYWORDS = frozenset(
    """
    $ref type enum const required dependentRequired minProperties maxProperties minItems maxItems uniqueItems
    minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern
    """.split()
)
_SCHEMA_KEYWORDS = frozenset({"additionalProperties", "else", "if", "items", "not", "then"})
_SCHEMA_LIST_KEYWORDS = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_SCHEMA_MAP_KEYWORDS = frozenset({"$defs", "definitions", "patternProperties", "properties"})


class _TooComplex(Exception):
    """The work would take more than its limits."""


@dataclass(frozen=True, slots=True)
class _Problem:
    """What is wrong with the value at a path; `text` goes on after its name."""

    path: str
    text: str

    @property
    def sentence(self) -> str:
        return f"{self.path or 'The arguments'} {self.text}."


def reduce_schema(schema: Any) -> dict[str, Any] | None:
    """The part of a schema that is checked, without its descriptions; None when it is too large."""
    try:
        reduced = _reduce(schema, 0)
        chars = len(json.dumps(reduced))
    except (_TooComplex, TypeError, ValueError, RecursionError):
        return None
    if not isinstance(reduced, dict) or chars > _MAX_SCHEMA_CHARS:
        return None
    return reduced


def _reduce(schema: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise _TooComplex
    if not isinstance(schema, Mapping):
        return schema
    reduced: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _SCHEMA_MAP_KEYWORDS and isinstance(value, Mapping):
            reduced[keyword] = {name: _reduce(part, depth + 1) for name, part in value.items()}
        elif keyword in _SCHEMA_LIST_KEYWORDS and isinstance(value, list):
            reduced[keyword] = [_reduce(part, depth + 1) for part in value]
        elif keyword in _SCHEMA_KEYWORDS:
            reduced[keyword] = _reduce(value, depth + 1)
        elif keyword in _VALUE_KEYWORDS:
            reduced[keyword] = value
    return reduced


def check_arguments(schema: Schema, arguments: Mapping[str, Any]) -> dict[str, str]:
    """A sentence for each argument that does not fit the schema, by its path: `labels.team`, `ports[0]`."""
    errors: dict[str, str] = {}
    try:
        for problem in _Checker(schema).check(schema, arguments, _WHOLE, 0):
            errors.setdefault(problem.path, problem.sentence)
            if len(errors) >= _MAX_ERRORS:
                break
    except (_TooComplex, RecursionError):
        return {_WHOLE: _TOO_LARGE}
    return errors


class _Checker:
    """Checks values against the parts of one schema, and counts its steps."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._steps = 0

    def check(self, schema: Any, value: Any, path: str, depth: int) -> Iterator[_Problem]:
        self._charge(1)
        if depth > _MAX_DEPTH:
            raise _TooComplex
        if schema is False:
            yield _Problem(path, "is not allowed")
        if not isinstance(schema, Mapping):
            return
        yield from self._check_parts(schema, value, path, depth + 1)
        for text in self._check_value(schema, value):
            yield _Problem(path, text)
        if isinstance(value, list):
            yield from self._check_items(schema, value, path, depth + 1)
        elif isinstance(value, Mapping):
            yield from self._check_properties(schema, value, path, depth + 1)

    def _charge(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MAX_STEPS:
            raise _TooComplex

    # --- the value itself -----------------------------------------------------------------------------------

    def _check_value(self, schema: Schema, value: Any) -> Iterator[str]:
        if not has_type(schema, value):
            yield f"must be {join_types(read_types(schema))}"
        choices = list_of(schema, "enum")
        if choices and not self._is_among(value, choices):
            yield f"must be one of {join_choices(choices)}"
        if "const" in schema and not self._is_among(value, [schema["const"]]):
            yield f"must be {join_choices([schema['const']])}"
        if isinstance(value, str):
            yield from check_count(schema, len(value), "minLength", "maxLength", "characters")
            pattern = schema.get("pattern")
            if isinstance(pattern, str) and not self._finds(pattern, value):
                yield f"must have the form {pattern[:MAX_NAME_CHARS]}"
        elif is_number(value):
            yield from check_number(schema, value)
        elif isinstance(value, list):
            yield from check_count(schema, len(value), "minItems", "maxItems", "entries")
            if schema.get("uniqueItems") is True and len(set(map(self._identity, value))) < len(value):
                yield "must not hold an entry twice"
        elif isinstance(value, Mapping):
            yield from check_count(schema, len(value), "minProperties", "maxProperties", "entries")

    def _is_among(self, value: Any, choices: Sequence[Any]) -> bool:
        identity = self._identity(value)
        return any(self._identity(choice) == identity for choice in choices)

    def _identity(self, value: Any) -> str:
        """The same text for values that are equal in JSON: 1 is 1.0, and is not true."""
        return json.dumps(self._normalise(value), sort_keys=True, default=str)

    def _normalise(self, value: Any) -> Any:
        self._charge(1)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, list):
            return [self._normalise(item) for item in value]
        if isinstance(value, Mapping):
            return {name: self._normalise(item) for name, item in value.items()}
        return value

    def _finds(self, pattern: str, text: str) -> bool:
        """Whether the pattern occurs in the text; one that cannot be matched here is the tool's to check."""
        self._charge(_PATTERN_STEPS)
        if len(text) > LONGEST_TEXT:
            return True
        try:
            return finds(pattern, text)
        except UnsupportedPattern:
            return True

    # --- other schemas for the same value -------------------------------------------------------------------

    def _check_parts(self, schema: Schema, value: Any, path: str, depth: int) -> Iterator[_Problem]:
        if isinstance(schema.get("$ref"), str):
            yield from self.check(self._follow(schema), value, path, depth)
        for part in list_of(schema, "allOf"):
            yield from self.check(part, value, path, depth)
        choices = list_of(schema, "anyOf")
        if choices and not any(self._fits(choice, value, depth) for choice in choices):
            yield from self._explain_choices(choices, value, path, depth)
        exclusive_choices = list_of(schema, "oneOf")
        if exclusive_choices:
            fitting = sum(self._fits(choice, value, depth) for choice in exclusive_choices)
            if fitting == 0:
                yield from self._explain_choices(exclusive_choices, value, path, depth)
            elif fitting > 1:
                yield _Problem(path, "fits more than one of the forms that it may have")
        if "not" in schema and self._fits(schema["not"], value, depth):
            yield _Problem(path, "has a form that is excluded")
        if "if" in schema:
            branch = "then" if self._fits(schema["if"], value, depth) else "else"
            yield from self.check(schema.get(branch, True), value, path, depth)

    def _fits(self, schema: Any, value: Any, depth: int) -> bool:
        return next(self.check(schema, value, _WHOLE, depth), None) is None

    def _explain_choices(
        self, choices: Sequence[Any], value: Any, path: str, depth: int
    ) -> Iterator[_Problem]:
        """Why a value fits no choice: what the only choice of its type says, or which types there are."""
        same_type = [choice for choice in choices if has_type(self._follow(choice), value)]
        if len(same_type) == 1:
            yield from self.check(same_type[0], value, path, depth)
            return
        type_names: list[str] = []
        for choice in choices:
            type_names += read_types(self._follow(choice))
        if same_type or not type_names:
            yield _Problem(path, "has none of the forms that it may have")
        else:
            yield _Problem(path, f"must be {join_types(type_names)}")

    def _follow(self, schema: Any) -> Any:
        """The schema that a reference names, or the schema itself."""
        if isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
            return resolve_reference(self._root, schema["$ref"])
        return schema

    # --- what is inside the value ---------------------------------------------------------------------------

    def _check_items(self, schema: Schema, items: Sequence[Any], path: str, depth: int) -> Iterator[_Problem]:
        # As drafts before 2020-12 have it, `items` may be a list, too.
        first_schemas = list_of(schema, "prefixItems") or list_of(schema, "items")
        other_schema = schema.get("items", True)
        if isinstance(other_schema, list):
            other_schema = True
        for number, item in enumerate(items):
            item_schema = first_schemas[number] if number < len(first_schemas) else other_schema
            yield from self.check(item_schema, item, f"{path}[{number}]", depth)

    def _check_properties(
        self, schema: Schema, value: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[_Problem]:
        for name in missing_names(schema, value):
            yield _Problem(_join_path(path, name), "is required")
        properties = map_of(schema, "properties")
        patterns = map_of(schema, "patternProperties")
        other_schema = schema.get("additionalProperties", True)
        # In the order of the schema, which people know: a message's own order is lost on the wire.
        names = [name for name in properties if name in value]
        for name in [*names, *sorted(value.keys() - properties.keys())]:
            item = value[name]
            item_path = _join_path(path, name)
            item_schemas = [patterns[pattern] for pattern in patterns if self._finds(pattern, name)]
            if name in properties:
                item_schemas.append(properties[name])
            if not item_schemas and other_schema is False:
                yield _Problem(item_path, f"is no argument here; there are {join_names(list(properties))}")
                continue
            for item_schema in item_schemas or [other_schema]:
                yield from self.check(item_schema, item, item_path, depth)


def _join_path(path: str, name: str) -> str:
    short_name = name[:MAX_NAME_CHARS]
    return f"{path}.{short_name}" if path else short_name
