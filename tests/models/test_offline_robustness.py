"""The offline model with unknown servers: whatever their schemas and results are, there is an answer."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from ai_platform_engineering.models.offline.clauses import split_clauses
from ai_platform_engineering.models.offline_model import OfflineModel, reply
from tests.support.examples import scale_examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=12), inner, max_size=6),
    max_leaves=25,
)


def function(name: str, parameters: Any, description: Any = "") -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


CHECK = function(
    "check_port",
    {
        "type": "object",
        "properties": {"host": {"type": "string"}, "port": {"type": "integer"}},
        "required": ["host", "port"],
    },
    "Check a port.",
)


def after(result: str, *, failed: bool = False) -> str:
    """The answer once `check_port` has returned this."""
    call = {"name": "check_port", "args": {"host": "localhost", "port": 1}, "id": "one"}
    messages = [
        HumanMessage("is port 1 open on localhost?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage(result, tool_call_id="one", status="error" if failed else "success"),
    ]
    return str(OfflineModel().invoke(messages, tools=[CHECK]).text)


@given(JSON)
@settings(max_examples=scale_examples(60))
def test_any_result_becomes_an_answer(value: Any) -> None:
    assert after(json.dumps(value)).strip()


@given(st.text(max_size=400), st.booleans())
@settings(max_examples=scale_examples(30))
def test_any_text_of_a_tool_becomes_an_answer(text: str, failed: bool) -> None:
    assert after(text, failed=failed).strip()


@pytest.mark.parametrize(
    "result",
    [
        "[" * 100_000,
        '{"a":' * 50_000,
        json.dumps([{"name": f"item {number}", "text": "x" * 50} for number in range(5000)]),
        json.dumps({f"key {number}": number for number in range(5000)}),
        "9" * 200_000,
        json.dumps("word " * 50_000),
        '{"a": ' + "9" * 5000 + "}",
        "".join(json.dumps({"name": f"item {number}"}) for number in range(2000)),
    ],
    ids=["brackets", "nested", "many rows", "many keys", "digits", "long text", "huge number", "many blocks"],
)
def test_an_endless_result_becomes_a_bounded_answer(result: str) -> None:
    assert 0 < len(after(result)) < 15_000


def test_a_list_that_comes_as_one_text_per_item_is_one_table() -> None:
    answer = after('{"name": "a", "up": true}\n{"name": "b", "up": false}')

    assert "| a | yes |" in answer
    assert "| b | no |" in answer


def test_an_error_in_the_result_is_a_failure() -> None:
    assert (
        after('{"error": "no route to host"}')
        == "`check_port` failed for host `localhost`, port `1`: no route to host."
    )


CIRCLE = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/a"}},
    "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
}
ODD: list[Any] = [
    None,
    {},
    {"type": "object", "properties": None},
    {"type": "object", "properties": {"host": None, "port": True}},
    {
        "type": "object",
        "properties": {"host": {"type": ["string", "null"]}, "port": {"type": ["null", "integer"]}},
        "required": ["host"],
    },
    {"type": "object", "properties": {"port": {"enum": [1, 2, None]}}, "required": ["port"]},
    {"type": "object", "properties": {"port": {"anyOf": [{"type": "null"}]}}, "required": ["port"]},
    {"type": "object", "properties": {"host": {"allOf": [{"$ref": "#/$defs/none"}]}}},
    {
        "type": "object",
        "properties": {"port": {"type": "integer", "minimum": "low", "exclusiveMaximum": True}},
    },
    {
        "type": "object",
        "properties": {"filter": {"type": "object", "properties": {"host": {"type": "string"}}}},
        "required": ["filter"],
    },
    {
        "type": "object",
        "properties": {"ports": {"type": "array", "items": {"type": "integer"}}, "hosts": {"type": "array"}},
    },
    CIRCLE,
]


@pytest.mark.sample(12)
@pytest.mark.parametrize("schema", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("question", ["is port 1 open on localhost?", "check port=x host=", "check_port"])
def test_any_schema_leads_to_a_call_or_to_words(schema: Any, question: str) -> None:
    model_reply = reply([HumanMessage(question)], [function("check_port", schema, None)])

    assert model_reply.text or model_reply.calls


def test_a_list_argument_takes_all_values_and_references_are_followed() -> None:
    schema = {
        "type": "object",
        "properties": {
            "hosts": {"type": "array", "items": {"type": "string"}, "description": "Host names."},
            "level": {"$ref": "#/$defs/Level"},
            "verbose": {"type": "boolean"},
        },
        "required": ["hosts", "level"],
        "$defs": {"Level": {"type": "string", "enum": ["low", "high"]}},
    }
    model_reply = reply(
        [HumanMessage("scan a.example and b.example at high level, verbose")],
        [function("scan_hosts", schema, "Scan hosts.")],
    )

    assert [dict(call.arguments) for call in model_reply.calls] == [
        {"hosts": ["a.example", "b.example"], "level": "high", "verbose": True}
    ]


@pytest.mark.parametrize(
    "description",
    ["", "no agents here", "- ", "- x", "- a: \n- b: Tools: Examples: \n", "- a: " + "word " * 100_000],
)
def test_any_list_of_agents_can_be_read(description: str) -> None:
    model_reply = reply(
        [HumanMessage("is port 1 open on localhost?")],
        [function("task", {}, description), function("write_todos", {})],
    )

    assert model_reply.text or model_reply.calls


@pytest.mark.parametrize("mark", [".", "?", "?!", "!"])
def test_a_long_run_of_marks_takes_no_time_that_grows_faster_than_it_does(mark: str) -> None:
    """Runs into the time limit of the tests when every mark of the run is tried anew."""
    assert split_clauses(mark * 500_000 + "x") == [(mark * 500_000 + "x")]
