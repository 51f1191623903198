"""Servers that ask people during a call, in both generations of the protocol, on stdio and on HTTP."""

import asyncio
import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.forms import check_form
from ai_platform_engineering.mcp_client.elicitation import (
    CallPaused,
    ResumableCall,
    read_answer,
    read_question,
    resumable_call,
)
from ai_platform_engineering.mcp_client.mcp_errors import McpCallLost
from ai_platform_engineering.mcp_client.secret_redactor import SecretRedactor
from tests.support.asking_servers import (
    GENERATIONS,
    TRANSPORTS,
    Generation,
    Transport,
    asking_server,
    list_calls,
    list_orders,
)
from tests.support.clocks import advance_clock
from tests.support.fakes.mcp_servers import LONG, by_name, open_sessions, raw_stdio_server

FIRST = ResumableCall(key="run-1/call-1", run_id="run-1", is_repeatable=False)


async def call_as(resumable: ResumableCall | None, tool: BaseTool, **arguments: Any) -> str:
    token = resumable_call.set(resumable)
    try:
        return str(await tool.ainvoke(arguments))
    finally:
        resumable_call.reset(token)


async def ask(tool: BaseTool, **arguments: Any) -> CallPaused:
    with pytest.raises(CallPaused) as paused:
        await call_as(FIRST, tool, **arguments)
    return paused.value


async def answer(paused: CallPaused, tool: BaseTool, values: dict[str, Any], **arguments: Any) -> str:
    questions = paused.pause.questions
    answers = tuple(read_answer(question, values) for question in questions)
    resumed = replace(FIRST, asked_count=len(questions), pause=paused.pause, answers=answers)
    return await call_as(resumed, tool, **arguments)


@pytest.mark.sample(2)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("generation", GENERATIONS)
async def test_a_question_becomes_a_form_and_its_answer_reaches_the_call(
    tmp_path: Path, generation: Generation, transport: Transport
) -> None:
    item = uuid.uuid4().hex
    async with (
        asking_server(generation, transport, tmp_path) as server,
        open_sessions(tmp_path) as sessions,
    ):
        tools = by_name(await sessions.tools("shop", server))
        paused = await ask(tools["order"], item=item)
        [question] = paused.pause.questions
        assert question.form.title == "shop asks, for order"
        assert question.form.response == f"Details of {item}?"
        fields = {field.field_name: field for field in question.form.fields}
        assert [*fields] == ["size", "count", "gift"]
        assert (fields["size"].field_type, fields["size"].field_values) == ("select", ("Small", "Large"))
        assert (fields["count"].field_type, fields["count"].minimum, fields["count"].maximum) == (
            "integer",
            1,
            9,
        )
        assert (fields["gift"].required, fields["gift"].value) == (False, False)
        assert list_orders(tmp_path) == []
        result = await answer(paused, tools["order"], {"size": "Large", "count": 3}, item=item)
        assert result == f"ordered {item}: " + json.dumps({"count": 3, "size": "l"})
        assert list_orders(tmp_path) == [item]
        # The older protocol keeps the call open; the newer one has it made again, with the answers.
        assert len(list_calls(tmp_path)) == (1 if generation == "before 2.0" else 2)

        for refusal, action in (("reject", "decline"), ("cancel", "cancel")):
            paused = await ask(tools["order"], item=item)
            assert (
                await answer(paused, tools["order"], {"type": refusal}, item=item) == f"not ordered: {action}"
            )
        assert list_orders(tmp_path) == [item]

        paused = await ask(tools["sign_in"])
        [question] = paused.pause.questions
        assert question.is_link
        assert "https://sign-in.example/start?state=1" in question.form.response
        assert "at sign-in.example yourself" in question.form.response
        assert await answer(paused, tools["sign_in"], {"done": True}) == "signed in: accept"


@pytest.mark.parametrize("generation", GENERATIONS)
async def test_without_anybody_to_ask_the_server_is_told_so(tmp_path: Path, generation: Generation) -> None:
    async with asking_server(generation, "stdio", tmp_path) as server, open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("shop", server))
        assert await call_as(None, tools["order"], item="tea") == "not ordered: cancel"


async def test_a_question_that_nobody_answers_in_time_is_cancelled_and_the_result_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        asking_server("before 2.0", "stdio", tmp_path) as server,
        open_sessions(tmp_path, question=10 * LONG) as sessions,
    ):
        tools = by_name(await sessions.tools("shop", server))
        paused = await ask(tools["order"], item="tea")
        advance_clock(monkeypatch, 10 * LONG)
        for _ in range(10):  # turns of the loop, in which the time limit is noticed
            await asyncio.sleep(0)
        late = {"size": "Small", "count": 1}
        assert await answer(paused, tools["order"], late, item="tea") == "not ordered: cancel"
        assert list_orders(tmp_path) == []


async def test_a_call_that_was_lost_while_it_waited_has_an_unknown_outcome(tmp_path: Path) -> None:
    async with asking_server("before 2.0", "stdio", tmp_path) as server:
        async with open_sessions(tmp_path) as sessions:
            paused = await ask(by_name(await sessions.tools("shop", server))["order"], item="tea")
        values = {"size": "Small", "count": 1}
        async with open_sessions(tmp_path) as sessions:  # another process, in effect
            tool = by_name(await sessions.tools("shop", server))["order"]
            with pytest.raises(McpCallLost, match="Whether it took effect is unknown"):
                await answer(paused, tool, values, item="tea")
            assert list_calls(tmp_path) == ["tea"]


async def test_on_stdio_a_question_is_not_shown_to_the_people_of_another_run(tmp_path: Path) -> None:
    async with (
        asking_server("before 2.0", "stdio", tmp_path) as server,
        open_sessions(tmp_path) as sessions,
    ):
        tool = by_name(await sessions.tools("shop", server))["order"]
        await ask(tool, item="tea")  # stays open
        other = replace(FIRST, key="run-2/call-1", run_id="run-2")
        assert await call_as(other, tool, item="coffee") == "not ordered: cancel"


# --- forms ----------------------------------------------------------------------------------------


def question_of(**params: Any) -> Any:
    return read_question("shop", "order", params, SecretRedactor(raw_stdio_server()))


def test_every_kind_of_field_has_its_type_and_its_value_goes_back_as_the_server_defined_it() -> None:
    properties = {
        "mail": {"type": "string", "format": "email"},
        "page": {"type": "string", "format": "uri"},
        "day": {"type": "string", "format": "date"},
        "code": {"type": "string", "pattern": "^[a-z]{2}$", "minLength": 2, "maxLength": 2},
        "price": {"type": "number", "minimum": 0.5},
        "color": {"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0"}]},
        "extras": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "Extra"}]}, "default": ["x"]},
    }
    question = question_of(message="?", requestedSchema={"type": "object", "properties": properties})
    types = {field.field_name: field.field_type for field in question.form.fields}
    assert types == {
        "mail": "email", "page": "url", "day": "date", "code": "text", "price": "number", "color": "select",
        "extras": "multiselect",
    }  # fmt: skip
    values = {"mail": "a@b.example", "code": "ab", "price": 2, "color": "Red", "extras": ["Extra"]}
    valid, errors = check_form(question.form, values)
    assert errors == {}
    content = {"mail": "a@b.example", "code": "ab", "price": 2.0, "color": "#f00", "extras": ["x"]}
    assert read_answer(question, valid).content == content
    assert check_form(question.form, {"code": "abc"})[1]


@pytest.mark.parametrize(
    "params",
    [
        {"mode": "url", "message": "Go", "url": "javascript:alert(1)"},
        {"mode": "url", "message": "Go", "url": "file:///etc/passwd"},
        {"message": "Fill in", "requestedSchema": {"properties": {"nested": "no schema"}}},
        {"message": "Fill in", "requestedSchema": {"properties": {f"f{number}": {} for number in range(51)}}},
        {"message": "Fill in"},
    ],
)
def test_what_cannot_be_asked_is_not(params: dict[str, Any]) -> None:
    assert question_of(**params) is None
