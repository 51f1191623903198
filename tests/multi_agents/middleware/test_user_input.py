"""`CAIPEAgentResponse`: a model asks the person it works for with a form, wherever its agent runs, and
goes on with the values.
"""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest

from ai_platform_engineering.core.events import InputRequested, InputResolved, ToolFinished, ToolStarted
from tests.support.approving_agent import (
    DELEGATING,
    NotesAgent,
    Person,
    events_of_kind,
    only_request_id,
    requests,
    run_in_memory,
)
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.health_witness import health_witness

ASKING = "CAIPEAgentResponse"
By = Literal["supervisor", "in-process", "remote"]
by_anybody = pytest.mark.parametrize("by", ["supervisor", "in-process", "remote"])

FIELDS: list[dict[str, Any]] = [
    {"field_name": "repo", "field_label": "Repository", "pattern": "[a-z-]+"},
    {"field_name": "stars", "field_type": "integer", "minimum": 0, "required": False},
    {
        "field_name": "visibility",
        "field_type": "select",
        "field_values": ["public", "private"],
        "default_value": "private",
    },
    {"field_name": "topics", "field_type": "multiselect", "field_values": ["a", "b"], "required": False},
    {"field_name": "issues", "field_type": "boolean"},
]


def asking(**question: Any) -> Script:
    return Script(
        Turn(Say("One moment."), Call(ASKING, question)), Turn(Say("Got {{tool:CAIPEAgentResponse}}"))
    )


@contextlib.asynccontextmanager
async def asked_by(by: By, script: Script, folder: Path) -> AsyncIterator[tuple[Person, ScriptedChatModel]]:
    """The supervisor, and the model of whoever asks."""
    own = by == "supervisor"
    desk = NotesAgent(
        folder, script, "in-process" if by == "supervisor" else by, outer=script if own else DELEGATING
    )
    async with run_in_memory(desk) as person:
        yield person, desk.supervisor if own else desk.model


def told(model: ScriptedChatModel) -> list[str]:
    return [message.text for message in model.requests[-1].since_user if message.role == "tool"]


@by_anybody
async def test_a_model_asks_with_a_form_and_gets_the_values(tmp_path: Path, by: By) -> None:
    script = asking(
        response="I need a few details.",
        input_title="New repository",
        input_description="For the team.",
        input_fields=FIELDS,
    )
    async with asked_by(by, script, tmp_path) as (person, model):
        stream = await person.ask()
        values = {"repo": "cai", "stars": "3", "topics": ["b"], "issues": "no"}
        more = await person.answer(stream, {only_request_id(stream): values})
    [form] = requests(stream)
    assert (form["user_input"], form["input_title"], form["input_description"]) == (
        True,
        "New repository",
        "For the team.",
    )
    assert form["response"] == "I need a few details."
    expected = [
        {key: field[key] for key in written}
        for field, written in zip(form["input_fields"], FIELDS, strict=True)
    ]
    assert expected == FIELDS
    assert [field["field_type"] for field in form["input_fields"]] == [
        "text",
        "integer",
        "select",
        "multiselect",
        "boolean",
    ]
    assert [field["required"] for field in form["input_fields"]] == [True, False, True, False, True]
    [result] = told(model)
    assert json.loads(result) == {
        "repo": "cai",
        "stars": 3,
        "visibility": "private",
        "topics": ["b"],
        "issues": False,
    }
    assert more.last.state == "completed"
    assert f"Got {result}" in more.answer
    assert events_of_kind(stream, InputRequested)[0].agent == ("supervisor" if by == "supervisor" else "desk")


@by_anybody
async def test_that_a_model_asks_is_not_shown_as_a_tool(tmp_path: Path, by: By) -> None:
    async with asked_by(by, asking(response="Which?"), tmp_path) as (person, _):
        stream = await person.ask()
        more = await person.answer(stream, {only_request_id(stream): {"answer": "that"}})
    tools = [
        event
        for part in (stream, more)
        for event in part.events
        if isinstance(event, ToolStarted | ToolFinished)
    ]
    assert [event.tool for event in tools if not event.delegates] == []
    assert not any(
        ASKING in frame.text
        for part in (stream, more)
        for frame in part.named("tool_notification_start", "tool_notification_end")
    )


@by_anybody
async def test_without_fields_it_asks_in_plain_words_and_a_text_answers(tmp_path: Path, by: By) -> None:
    async with asked_by(by, asking(response="Which cluster?"), tmp_path) as (person, model):
        stream = await person.ask()
        more = await person.ask("The blue one.", taskId=stream.task_id)
    [form] = requests(stream)
    assert (form["response"], [field["field_type"] for field in form["input_fields"]]) == (
        "Which cluster?",
        ["textarea"],
    )
    assert [json.loads(result) for result in told(model)] == [{"answer": "The blue one."}]
    assert more.last.state == "completed"


@pytest.mark.sample(3)
@by_anybody
@pytest.mark.parametrize(
    ("message", "declined"),
    [({"message": "Ask somebody else."}, "Ask somebody else."), ({}, "The person does not want to answer.")],
    ids=["with words", "without"],
)
async def test_a_declined_form_reaches_the_model(
    tmp_path: Path, by: By, message: dict[str, str], declined: str
) -> None:
    async with asked_by(by, asking(response="Which?", input_fields=FIELDS), tmp_path) as (person, model):
        stream = await person.ask()
        more = await person.answer(stream, {only_request_id(stream): {"type": "reject", **message}})
    assert [json.loads(result) for result in told(model)] == [{"declined": declined}]
    assert [event.resolution for event in events_of_kind(more, InputResolved)] == ["rejected"]
    assert more.last.state == "completed"


@by_anybody
async def test_a_wrong_value_is_sent_back_and_the_model_does_not_see_it(tmp_path: Path, by: By) -> None:
    async with asked_by(by, asking(input_fields=FIELDS[:2]), tmp_path) as (person, model):
        stream = await person.ask()
        wrong = await person.answer(stream, {only_request_id(stream): {"repo": "Not This", "stars": -1}})
        assert len(model.requests) == 1
        await person.answer(stream, {only_request_id(stream): {"repo": "this"}})
    assert wrong.last.state == "input-required"
    assert (
        "Repository must consist of lowercase letters and hyphens. stars must be at least 0."
        in wrong.last.status_text
    )
    assert [json.loads(result) for result in told(model)] == [{"repo": "this"}]


@pytest.mark.sample(4)
@by_anybody
@pytest.mark.parametrize(
    "question",
    [
        {"input_fields": "repo"},
        {"input_fields": [{"field_label": "It has no name"}]},
        {"input_fields": [{"field_name": "a", "field_values": {"not": "a list"}}]},
        {"response": {"not": "a text"}},
    ],
    ids=["no list", "no name", "no choices", "no text"],
)
async def test_a_form_that_makes_no_sense_is_told_to_the_model(
    tmp_path: Path, by: By, question: dict[str, Any]
) -> None:
    async with asked_by(by, Script(Turn(Call(ASKING, question)), Turn(Say("Never mind."))), tmp_path) as (
        person,
        model,
    ):
        stream = await person.ask()
    assert requests(stream) == []
    [problem] = told(model)
    assert next(iter(question)) in problem  # it can find what was wrong
    assert "Never mind." in stream.answer
    assert not any(
        ASKING in frame.text for frame in stream.named("tool_notification_start", "tool_notification_end")
    )


async def test_fields_that_nobody_could_fill_in_take_a_text(tmp_path: Path) -> None:
    odd = [
        {"field_name": "a", "field_type": "colour"},
        {"field_name": "b", "field_type": "select", "field_values": []},
    ]
    async with asked_by("in-process", asking(input_fields=odd), tmp_path) as (person, model):
        stream = await person.ask()
        await person.answer(stream, {only_request_id(stream): {"a": "red", "b": "blue"}})
    assert [json.loads(result) for result in told(model)] == [{"a": "red", "b": "blue"}]


@by_anybody
async def test_an_agent_asks_a_second_time(tmp_path: Path, by: By) -> None:
    script = Script(
        Turn(Call(ASKING, {"response": "First?"})),
        Turn(Call(ASKING, {"response": "Second?"})),
        Turn(Say("Thanks.")),
    )
    async with asked_by(by, script, tmp_path) as (person, model):
        stream = await person.ask()
        again = await person.answer(stream, {only_request_id(stream): {"answer": "one"}})
        assert only_request_id(again) != only_request_id(stream)
        late = await person.refused(stream, {only_request_id(stream): {"answer": "three"}})
        more = await person.answer(stream, {only_request_id(again): {"answer": "two"}})
    assert late.startswith("“First?” was already answered by ")
    assert [json.loads(result) for result in told(model)] == [{"answer": "one"}, {"answer": "two"}]
    assert more.last.state == "completed"


async def test_a_pattern_that_cannot_be_matched_is_refused_when_the_form_is_made(tmp_path: Path) -> None:
    script = asking(input_fields=[{"field_name": "repo", "pattern": "(?=a)b"}])
    async with asked_by("supervisor", script, tmp_path) as (person, model):
        stream = await person.ask()
    assert requests(stream) == []
    [result] = told(model)
    assert "look-around" in result


async def test_a_pattern_that_tries_every_way_freezes_nothing(tmp_path: Path) -> None:
    script = asking(input_fields=[{"field_name": "repo", "pattern": "(a+)+b", "max_length": 10_000}])
    async with asked_by("supervisor", script, tmp_path) as (person, _):
        stream = await person.ask()
        async with health_witness(person.client.url):
            wrong = await person.answer(stream, {only_request_id(stream): {"repo": "a" * 10_000}})
            right = await person.answer(stream, {only_request_id(stream): {"repo": "aaab"}})
    assert "must look like ab" in wrong.last.status_text
    assert right.last.state == "completed"


# --- the question itself --------------------------------------------------------------------------


@by_anybody
async def test_a_question_keeps_its_mark_in_every_sentence_about_it(tmp_path: Path, by: By) -> None:
    script = asking(response="Which region?", input_fields=[{"field_name": "region"}, {"field_name": "zone"}])
    async with asked_by(by, script, tmp_path) as (person, _):
        stream = await person.ask()
        still_open = await person.ask("Hm.", taskId=stream.task_id)
        values = {only_request_id(stream): {"region": "eu", "zone": "a"}}
        answered = await person.answer(stream, values)
        late = await person.refused(stream, values)
    assert stream.last.status_text.startswith("I need your input to go on: Which region?\n\n")
    assert still_open.last.status_text.startswith(
        "I still need your input: Which region? Answer it, or send "
    )
    assert answered.last.state == "completed"
    assert late.startswith("“Which region?” was already answered by ")
