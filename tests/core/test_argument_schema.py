"""Arguments against the schema of a tool: the sentences for people, the same verdict as the reference
validator, and schemas that mean harm.
"""

import json
import uuid
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from referencing import Registry

from ai_platform_engineering.core.argument_schema import check_arguments, reduce_schema
from ai_platform_engineering.core.text_patterns import LONGEST_TEXT
from tests.support.examples import scale_examples

SERVICE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5},
        "replicas": {"type": "integer", "minimum": 1, "maximum": 9},
        "ratio": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "tier": {"enum": ["gold", "silver", 3]},
        "ports": {"type": "array", "items": {"$ref": "#/$defs/port"}, "maxItems": 2, "uniqueItems": True},
        "owner": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "limits": {"type": "object", "properties": {"cpu": {"type": "integer"}}, "required": ["cpu"]},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "title": {"type": ["string", "null"], "title": "Title", "description": "A property named title."},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"port": {"type": "integer", "minimum": 1}},
}


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, {}),
        ({"name": None}, {"name": "name must be a text."}),
        ({"name": "A"}, {"name": "name must have at least 2 characters."}),
        ({"name": "abcdefg"}, {"name": "name must have at most 5 characters."}),
        ({"name": "ab1"}, {"name": "name must have the form ^[a-z]+$."}),
        ({"replicas": "3"}, {"replicas": "replicas must be a whole number."}),
        ({"replicas": 3.0}, {}),
        ({"replicas": True}, {"replicas": "replicas must be a whole number."}),
        ({"replicas": 10}, {"replicas": "replicas must be at most 9."}),
        ({"ratio": 0}, {"ratio": "ratio must be more than 0."}),
        ({"ratio": 1.0}, {"ratio": "ratio must be less than 1."}),
        ({"tier": "iron"}, {"tier": 'tier must be one of "gold", "silver", 3.'}),
        ({"tier": 3.0}, {}),
        ({"ports": [1, 0]}, {"ports[1]": "ports[1] must be at least 1."}),
        ({"ports": [1, 1]}, {"ports": "ports must not hold an entry twice."}),
        ({"ports": [1, 2, 3]}, {"ports": "ports must have at most 2 entries."}),
        ({"owner": 1}, {"owner": "owner must be a text or null."}),
        ({"limits": {}}, {"limits.cpu": "limits.cpu is required."}),
        ({"labels": {"team": 1}}, {"labels.team": "labels.team must be a text."}),
        ({"title": 1}, {"title": "title must be a text or null."}),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_a_wrong_argument_has_a_sentence(changes: dict[str, Any], errors: dict[str, str]) -> None:
    schema = reduce_schema(SERVICE)
    assert schema is not None
    assert check_arguments(schema, {"name": "web", **changes}) == errors


def test_each_wrong_argument_is_named() -> None:
    errors = check_arguments(SERVICE, {"size": 1, "replicas": 0})
    assert errors.keys() == {"name", "size", "replicas"}
    assert errors["name"] == "name is required."
    assert errors["size"].startswith("size is no argument here; there are name, replicas, ")


def test_descriptions_are_left_out_and_names_are_not() -> None:
    reduced = reduce_schema(SERVICE)
    assert reduced is not None
    assert reduced["properties"]["title"] == {"type": ["string", "null"]}
    assert reduce_schema(reduced) == reduced


# --- the same verdict as the reference validator ------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -2.5, "a", "b", "abc"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"])


def leaf_schemas() -> st.SearchStrategy[Any]:
    numbers = st.integers(-2, 3)
    counts = st.integers(0, 3)
    keywords = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "minimum": numbers,
        "maximum": numbers,
        "exclusiveMinimum": numbers,
        "exclusiveMaximum": numbers,
        "multipleOf": st.integers(1, 3),
        "minLength": counts,
        "maxLength": counts,
        "pattern": st.sampled_from(["^a", "b$", "[bc]", "^a?$"]),
        "minItems": counts,
        "maxItems": counts,
        "uniqueItems": st.booleans(),
        "minProperties": counts,
        "maxProperties": counts,
        "required": st.lists(NAMES, max_size=2, unique=True),
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=1),
        "$ref": st.sampled_from(["#/$defs/x", "#/$defs/y"]),
    }
    picked = st.lists(st.sampled_from(sorted(keywords)), max_size=3, unique=True)
    return picked.flatmap(lambda names: st.fixed_dictionaries({name: keywords[name] for name in names}))


def nested_schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, min_size=1, max_size=3)
    keywords = {
        "allOf": lists,
        "anyOf": lists,
        "oneOf": lists,
        "not": inner,
        "items": inner,
        "prefixItems": lists,
        "properties": st.dictionaries(NAMES, inner, max_size=2),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "[bc]"]), inner, max_size=1),
        "additionalProperties": inner,
    }
    picked = st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=3, unique=True)
    parts = picked.flatmap(lambda names: st.fixed_dictionaries({name: keywords[name] for name in names}))
    branches = st.fixed_dictionaries({"if": inner, "then": inner, "else": inner})
    return st.builds(lambda leaf, part: {**leaf, **part}, leaf_schemas(), parts | branches)


SCHEMAS = st.recursive(leaf_schemas() | st.booleans(), nested_schemas, max_leaves=6)


@given(SCHEMAS, leaf_schemas(), st.dictionaries(NAMES, VALUES, max_size=3))
@settings(max_examples=scale_examples(300))
def test_the_verdict_is_that_of_the_reference_validator(
    schema: Any, definition: dict[str, Any], arguments: dict[str, Any]
) -> None:
    definition.pop("$ref", None)  # references in a circle have no verdict
    whole = {"properties": {"a": schema, "b": schema}, "$defs": {"x": definition, "y": {"type": "string"}}}
    reduced = reduce_schema(whole)
    assert reduced is not None
    validator = jsonschema.Draft202012Validator(whole, registry=Registry())
    assert (not check_arguments(reduced, arguments)) == validator.is_valid(arguments)


# --- schemas that mean harm ---------------------------------------------------------------------------------

TOO_LARGE = {"": "The arguments are too large to be checked: leave something out."}
DOUBLING = {f"s{n}": {"anyOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2} for n in range(60)}


@pytest.mark.parametrize(
    ("schema", "errors"),
    [
        ({"$ref": "#"}, TOO_LARGE),
        ({"properties": {"x": {"$ref": "#/$defs/s0"}}, "$defs": DOUBLING | {"s60": False}}, TOO_LARGE),
        ({"properties": {"x": {"$ref": "http://203.0.113.1/schema.json"}}}, {}),
        ({"properties": {"x": {"pattern": "^(a+)+$"}}}, {"x": "x must have the form ^(a+)+$."}),
        ({"properties": {"x": {"pattern": "(?=a)a"}}}, {}),
        ({"properties": [], "required": "x", "type": 7, "enum": {}, "anyOf": 3, "minimum": "1"}, {}),
        ({"patternProperties": {f"{n}?": True for n in range(900)}}, TOO_LARGE),
    ],
    ids=["circle", "doubling", "elsewhere", "backtracking", "look-ahead", "nonsense", "many patterns"],
)
def test_a_hostile_schema_takes_no_time_and_reaches_nothing(
    schema: dict[str, Any], errors: dict[str, str]
) -> None:
    reduced = reduce_schema(schema)
    assert reduced is not None
    assert check_arguments(reduced, {"x": "a" * 5_000 + "!"}) == errors


def test_a_schema_that_is_too_large_or_none_is_not_used() -> None:
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"items": deep}
    assert reduce_schema({"enum": ["x" * 30_000]}) is None
    assert reduce_schema(deep) is None
    assert reduce_schema("string") is None


def test_large_arguments_end_the_check() -> None:
    schema = {"properties": {"x": {"uniqueItems": True}}}
    assert check_arguments(schema, {"x": [[n] for n in range(20_000)]}) == TOO_LARGE


def test_a_text_is_held_to_its_pattern_up_to_the_longest_that_is_matched() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}}}
    assert check_arguments(schema, {"name": "A" * LONGEST_TEXT}) == {
        "name": "name must have the form ^[a-z]+$."
    }
    assert check_arguments(schema, {"name": "A" * (LONGEST_TEXT + 1)}) == {}  # that is the tool's to check


def test_no_sentence_holds_a_value() -> None:
    secret = uuid.uuid4().hex
    wrong: dict[str, Any] = dict.fromkeys(SERVICE["properties"], secret) | {"labels": {"a": [secret]}}
    errors = check_arguments(SERVICE, wrong)
    assert len(errors) == len(wrong) - 2  # an owner and a title may be any text
    assert secret not in json.dumps(errors)
