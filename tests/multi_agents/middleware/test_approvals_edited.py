"""Edited arguments of an approval: checked against the tool's schema before anything is decided, wherever the
agent runs and however the answer is written.
"""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from ai_platform_engineering.core.events import InputResolved, Paused
from tests.support.agent_services import Where
from tests.support.approving_agent import (
    NotesAgent,
    events_of_kind,
    everywhere,
    only_request_id,
    requests,
    run_in_memory,
)
from tests.support.asking_agent import DELEGATING, Repos, ask_until_paused, github, request_ids, send_answers
from tests.support.dialects import V10
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import ReceivedStream, agent, supervisor

DROPPING = Script(Turn(Call("drop_note", {"note": "a"}, id="c1")), Turn(Say("Done: {{tool:drop_note.done}}")))


def by_id(request_id: str, arguments: Any) -> dict[str, Any]:
    return {request_id: {"type": "edit", "arguments": arguments}}


def as_edited_action(request_id: str, arguments: Any) -> dict[str, Any]:
    action = {"name": "drop_note", "args": arguments}
    return {"decisions": [{"type": "edit", "action_name": "drop_note", "edited_action": action}]}


def as_args(request_id: str, arguments: Any) -> dict[str, Any]:
    return {"decisions": [{"type": "edit", "args": arguments}]}


def as_wrapped_args(request_id: str, arguments: Any) -> dict[str, Any]:
    return {"decisions": [{"type": "edit", "args": {"args": arguments}}]}


SHAPES = [by_id, as_edited_action, as_args, as_wrapped_args]


def last_pause(stream: ReceivedStream) -> Paused:
    return events_of_kind(stream, Paused)[-1]


@pytest.mark.sample(1)
@everywhere
async def test_arguments_that_do_not_fit_are_sent_back_in_every_shape_and_the_request_stays(
    tmp_path: Path, where: Where
) -> None:
    desk = NotesAgent(tmp_path, DROPPING, where)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
        request_id = only_request_id(stream)
        for shape in SHAPES:
            wrong = await person.answer(stream, shape(request_id, {"note": 5}))
            pause = last_pause(wrong)
            assert wrong.last.state == "input-required", shape
            assert pause.requests == (request_id,)
            assert pause.wrong == {request_id: {"note": "note must be a text."}}
            assert "note must be a text." in wrong.last.status_text
            assert events_of_kind(wrong, InputResolved) == []
        missing = await person.answer(stream, as_edited_action(request_id, {}))
        url = f"{person.client.url}v1/requests/{request_id}"
        status = (await person.client.http.get(url)).json()["status"]
        assert desk.recorded_calls == []
        done = await person.answer(stream, as_edited_action(request_id, {"note": "b"}))
    assert last_pause(missing).wrong == {request_id: {"note": "note is required."}}
    assert status == "pending"
    assert desk.recorded_calls == [{"tool": "drop_note", "note": "b"}]
    assert done.last.state == "completed"


async def test_each_wrong_argument_is_named_and_no_value_is_repeated() -> None:
    repos = Repos()
    wrong = {"name": ["hunter2"], "private": "hunter2", "stars": 1.5}
    async with supervisor(DELEGATING, agents=[github(repos, {"name": "cai"})]) as client:
        stream = await ask_until_paused(client)
        [request_id] = request_ids(stream)
        reply = await send_answers(client, stream, by_id(request_id, wrong))
        task = (await client.call(V10.get, {"id": stream.task_id}))["result"]
        done = await send_answers(client, stream, by_id(request_id, {"name": "cai", "stars": 3}))
    assert last_pause(reply).wrong[request_id] == {
        "name": "name must be a text.",
        "private": "private must be true or false.",
        "stars": "stars must be a whole number.",
    }
    assert "name must be a text. private must be true or false." in reply.last.status_text
    # The message itself is in the history of its task, as it was sent.
    assert "hunter2" not in reply.last.status_text + str(last_pause(reply)) + str(task["status"])
    assert done.last.state == "completed"
    assert repos.made == [{"name": "cai", "private": False, "stars": 3}]


async def test_whoever_reads_the_request_sees_the_call_and_not_the_schema(tmp_path: Path) -> None:
    async with run_in_memory(NotesAgent(tmp_path, DROPPING)) as person:
        stream = await person.ask()
    [request] = requests(stream)
    assert "arguments_schema" not in request


@pytest.mark.parametrize(
    ("schema", "allowed"),
    [
        ({"type": "object", "properties": {"name": {"type": "string"}}}, ["approve", "edit", "reject"]),
        ({"type": "object", "properties": {"name": {"enum": ["x" * 30_000]}}}, ["approve", "reject"]),
    ],
    ids=["as usual", "too large"],
)
async def test_what_cannot_be_checked_cannot_be_edited(schema: dict[str, Any], allowed: list[str]) -> None:
    async def rename(**arguments: Any) -> str:
        """Renames."""
        raise AssertionError("nobody approved it")

    tool = StructuredTool.from_function(
        coroutine=rename, name="rename", args_schema=schema, metadata={"listed": "ask"}
    )
    script = Script(Turn(Call("rename", {"name": "a"})), Turn(Say("Done.")))
    async with supervisor(DELEGATING, agents=[agent("github", script, tool)]) as client:
        stream = await ask_until_paused(client)
        [request_id] = request_ids(stream)
        reply = await send_answers(client, stream, by_id(request_id, {"name": 1}))
    assert requests(stream)[0]["allowed"] == allowed
    field, sentence = next(iter(last_pause(reply).wrong[request_id].items()))
    if "edit" in allowed:
        assert (field, sentence) == ("name", "name must be a text.")
    else:
        assert (field, sentence) == ("type", "The decision on rename is one of approve, reject.")
