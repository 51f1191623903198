"""What people have decided holds as long as it should: over a restart, for a conversation when they say
so, and never twice.
"""

import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ai_platform_engineering.core.events import Notice, Paused, ToolFinished
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog
from tests.support.agent_services import Where, connect_remote_agent
from tests.support.approving_agent import (
    NotesAgent,
    Person,
    approval_decision,
    events_of_kind,
    everywhere,
    only_request_id,
    request_ids_by_note,
    requests,
    run_in_memory,
    run_on_disk,
    run_supervisor_with,
)
from tests.support.dialects import V10
from tests.support.fakes.mcp_servers import open_sessions, until
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import Frame, ReceivedStream
from tests.support.server_starts import is_server_start
from tests.support.storages import in_folder

ALL_ALIKE = {"ASK_ON_UNTRUSTED_CONTENT": "false"}  # calls after results ask no more than others
ALWAYS = {"type": "approve", "always": True}


def _delegates(request: Request) -> Turn:
    agent, *_ = request.last_user.split()
    return Turn(Call("task", {"description": "{{user}}", "subagent_type": agent}))


def _calls(request: Request) -> Turn:
    """What the question says: an agent, a tool, and notes for one call each."""
    _, tool, *notes = request.last_user.split()
    return Turn(*(Call(tool, {"note": note}) for note in notes))


OUTER = Script(_delegates, Turn(Say("So.")))
DOING = Script(_calls, Turn(Say("Done.")))


def noted(stream: ReceivedStream) -> list[str]:
    return [event.text for event in events_of_kind(stream, Notice) if not is_server_start(event)]


async def kept(desk: NotesAgent, person: Person, stream: ReceivedStream) -> tuple[RunLog, RunRow]:
    """The log of whoever decides whether the agent's tools ask, and the agent's run in it."""
    log, task_id = person.storage.log, stream.task_id
    if desk.where == "remote":
        [(_, task_id)] = await log.list_remote_tasks(task_id)
        assert desk.kept is not None
        log = desk.kept.log
    row = await log.get(task_id)
    assert row is not None
    return log, row


# --- always ---------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@everywhere
async def test_always_holds_for_this_tool_of_this_agent_in_this_conversation(
    tmp_path: Path, where: Where
) -> None:
    desk = NotesAgent(tmp_path, DOING, where, outer=OUTER, env=ALL_ALIKE)
    shelf = NotesAgent(tmp_path, DOING, where, name="shelf", env=ALL_ALIKE)
    async with run_in_memory(desk, shelf) as person:
        stream = await person.ask("desk drop_note a")
        first = await person.answer(stream, {only_request_id(stream): ALWAYS})
        again = await person.ask("desk drop_note b c", contextId=stream.context_id)
        assert (again.last.state, requests(again)) == ("completed", [])
        assert [call["note"] for call in desk.recorded_calls] == ["a", "b", "c"]
        others = [
            await person.ask("shelf drop_note d", contextId=stream.context_id),
            await person.ask("desk drop_note d"),
        ]
        await person.client.call(V10.cancel, {"id": others[0].task_id})
        others.append(await person.ask("desk move_note d", contextId=stream.context_id))
    assert noted(first) == [
        "drop_note of desk runs without asking in this conversation from now on. "
        "After results of tools or agents it asks once more."
    ]
    assert noted(again) == []
    assert [other.last.state for other in others] == ["input-required"] * 3
    assert [(call["tool"], call["note"]) for call in desk.recorded_calls] == [
        ("drop_note", note) for note in "abc"
    ]
    assert shelf.recorded_calls == []


@pytest.mark.sample(3)
@everywhere
@pytest.mark.parametrize("always", ["a", "b", "c"])
async def test_what_was_asked_before_always_still_waits_for_its_own_decision(
    tmp_path: Path, where: Where, always: str
) -> None:
    drops = [Turn(*(Call("drop_note", {"note": note}) for note in notes)) for notes in ("abc", always)]
    desk = NotesAgent(tmp_path, Script(*drops, Turn(Say("Done."))), where, env=ALL_ALIKE)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
        ids = request_ids_by_note(stream)
        first = await person.answer(stream, {ids.pop(always): ALWAYS})
        assert (first.last.state, set(events_of_kind(first, Paused)[-1].requests)) == (
            "input-required",
            set(ids.values()),
        )
        rest = await person.answer(stream, {request_id: {"type": "reject"} for request_id in ids.values()})
    assert (rest.last.state, requests(rest)) == ("completed", [])
    assert [call["note"] for call in desk.recorded_calls] == [
        always,
        always,
    ]  # with the same arguments it is another call


@pytest.mark.sample(1)
@everywhere
async def test_only_an_approval_can_be_for_always(tmp_path: Path, where: Where) -> None:
    desk = NotesAgent(tmp_path, DOING, where, outer=OUTER)
    async with run_in_memory(desk) as person:
        stream = await person.ask("desk drop_note a")
        await person.answer(
            stream, {only_request_id(stream): {"type": "edit", "arguments": {"note": "z"}, "always": True}}
        )
        edited = await person.ask("desk drop_note b", contextId=stream.context_id)
        await person.answer(edited, {only_request_id(edited): {"type": "approve", "always": "yes"}})
        unclear = await person.ask("desk drop_note c", contextId=stream.context_id)
    assert (edited.last.state, unclear.last.state) == ("input-required", "input-required")
    assert [call["note"] for call in desk.recorded_calls] == ["z", "b"]


@pytest.mark.sample(1)
@everywhere
async def test_always_can_be_taken_back(tmp_path: Path, where: Where) -> None:
    desk = NotesAgent(tmp_path, DOING, where, outer=OUTER)
    async with run_in_memory(desk) as person:
        stream = await person.ask("desk drop_note a")
        await person.answer(stream, {only_request_id(stream): ALWAYS})
        log, row = await kept(desk, person, stream)
        assert [allowance.tool for allowance in await log.list_allowances(row.owner, row.context_id)] == [
            "desk/drop_note"
        ]
        assert await log.disallow(row.owner, row.context_id, "desk/drop_note")
        again = await person.ask("desk drop_note b", contextId=stream.context_id)
    assert again.last.state == "input-required"
    assert [call["note"] for call in desk.recorded_calls] == ["a"]


@pytest.mark.sample(1)
@everywhere
async def test_always_outlives_the_server(tmp_path: Path, where: Where) -> None:
    desk = NotesAgent(tmp_path, DOING, where, outer=OUTER, env=ALL_ALIKE)
    async with open_sessions(tmp_path) as sessions:
        async with run_on_disk(desk, sessions) as person:
            stream = await person.ask("desk drop_note a")
            await person.answer(stream, {only_request_id(stream): ALWAYS})
        async with run_on_disk(desk, sessions) as person:
            again = await person.ask("desk drop_note b", contextId=stream.context_id)
            other = await person.ask("desk drop_note c")
    assert (again.last.state, other.last.state) == ("completed", "input-required")
    assert [call["note"] for call in desk.recorded_calls] == ["a", "b"]


# --- a restart between the question and the decision ----------------------------------------------


@pytest.mark.sample(3)
@everywhere
@pytest.mark.parametrize("decision", ["approve", "edit", "reject"])
async def test_a_decision_after_a_restart_of_the_supervisor(
    tmp_path: Path, where: Where, decision: str
) -> None:
    desk = NotesAgent(tmp_path, DOING, where, outer=OUTER)
    answer = {"type": decision, **({"arguments": {"note": "z"}} if decision == "edit" else {})}
    async with open_sessions(tmp_path) as sessions, desk.placed(sessions) as agent:
        async with run_supervisor_with(desk, [agent], in_folder(tmp_path)) as person:
            stream = await person.ask("desk drop_note a b")
            ids = {request["arguments"]["note"]: request["request_id"] for request in requests(stream)}
            await person.answer(stream, {ids["b"]: approval_decision()})
        async with run_supervisor_with(desk, [agent], in_folder(tmp_path)) as person:
            assert [call["note"] for call in desk.recorded_calls] == ["b"]
            repeated = await person.refused(stream, {ids["b"]: approval_decision()})
            more = await person.answer(stream, {ids["a"]: answer})
    assert "was already answered by" in repeated
    assert more.last.state == "completed"
    assert [call["note"] for call in desk.recorded_calls] == {
        "approve": ["b", "a"],
        "edit": ["b", "z"],
        "reject": ["b"],
    }[decision]


def check_cut_off(desk: NotesAgent, more: ReceivedStream) -> None:
    """The call was approved and begun, and nobody knows what became of it."""
    assert desk.recorded_calls == [{"tool": "hold_note", "note": "a"}]
    assert [event.outcome for event in events_of_kind(more, ToolFinished) if event.tool == "hold_note"] == [
        "unknown"
    ]
    assert desk.tool_results()[0].startswith("The outcome of hold_note is unknown")
    assert requests(more) == []  # and nobody is asked a second time
    assert more.last.state == "completed"


async def approving(person: Person, desk: NotesAgent, stream: ReceivedStream) -> AsyncIterator[Frame]:
    """What follows the approval; returns when the tool has been called."""
    message = V10.message(
        V10.data({"resume": {only_request_id(stream): approval_decision()}}), taskId=stream.task_id
    )
    frames = person.client.open(V10.stream, message)
    await anext(frames)
    await until(lambda: desk.recorded_calls, "the call")
    return frames


async def test_an_approved_call_that_a_stop_of_the_supervisor_cut_off_is_not_made_twice(
    tmp_path: Path,
) -> None:
    desk = NotesAgent(tmp_path, DOING, outer=OUTER)
    async with open_sessions(tmp_path) as sessions:
        async with run_on_disk(desk, sessions) as person:
            stream = await person.ask("desk hold_note a")
            frames = await approving(person, desk, stream)
        with contextlib.suppress(Exception):
            await frames.aclose()  # type: ignore[attr-defined]
        async with run_on_disk(desk, sessions) as person:
            last_id = stream.last.id or ""  # the end of the first turn: the run may have ended by now
            follow = person.client.open(V10.subscribe, {"id": stream.task_id}, last_event_id=last_id)
            more = ReceivedStream([frame async for frame in follow])
    check_cut_off(desk, more)


async def test_an_approved_call_that_a_stop_of_the_agents_service_cut_off_is_not_made_twice(
    tmp_path: Path,
) -> None:
    desk = NotesAgent(tmp_path, DOING, "remote", outer=OUTER)
    first = socket.create_server(("127.0.0.1", 0))
    port = first.getsockname()[1]
    async with (
        open_sessions(tmp_path) as sessions,
        connect_remote_agent(desk.agent(sessions), f"http://127.0.0.1:{port}/") as far,
        run_supervisor_with(desk, [far]) as person,
    ):
        async with desk.served(sessions, in_folder(tmp_path), first):
            stream = await person.ask("desk hold_note a")
            frames = await approving(person, desk, stream)
        async with desk.served(sessions, in_folder(tmp_path), socket.create_server(("127.0.0.1", port))):
            more = ReceivedStream([frame async for frame in frames])
    check_cut_off(desk, more)
