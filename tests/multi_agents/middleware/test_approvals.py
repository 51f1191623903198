"""Tools that need a person's approval: what is asked, what each decision does, and that nothing happens
before one.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.core.call_digest import edit_digest
from ai_platform_engineering.core.events import InputResolved, Paused, ToolFinished, ToolStarted
from tests.support.agent_services import Where
from tests.support.approving_agent import (
    NotesAgent,
    approval_decision,
    events_of_kind,
    everywhere,
    only_request_id,
    request_ids_by_note,
    requests,
    run_in_memory,
)
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import ReceivedStream

DESTRUCTIVE = "Its server says that it can destroy or overwrite something."
UNKNOWN = "Its server does not say whether it changes anything."
LISTED = "Its agent's definition requires approval for it."


def calling(*calls: Call, says: str = "Done: {{tool:drop_note.done}}") -> Script:
    return Script(Turn(*calls), Turn(Say(says)))


DROPPING = calling(Call("drop_note", {"note": "a"}, id="c1"))
THREE = calling(*(Call("drop_note", {"note": note}, id=f"c{note}") for note in "abc"), says="All done.")


def tool_events(stream: ReceivedStream) -> list[tuple[str, str, Any]]:
    """The calls of the agent's tools: begun with arguments, ended with an outcome."""
    begun = [
        event
        for event in stream.events
        if isinstance(event, ToolStarted | ToolFinished) and not event.delegates
    ]
    return [
        (
            tool_event.kind,
            tool_event.tool,
            tool_event.arguments if isinstance(tool_event, ToolStarted) else tool_event.outcome,
        )
        for tool_event in begun
    ]


# --- what is asked --------------------------------------------------------------------------------


@pytest.mark.sample(1)
@everywhere
async def test_the_request_says_everything_and_nothing_has_happened(tmp_path: Path, where: Where) -> None:
    desk = NotesAgent(tmp_path, DROPPING, where, env={"REQUEST_TIMEOUT_SECONDS": "3600"})
    before = datetime.now(UTC)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
    [request] = requests(stream)
    expires_at = datetime.fromisoformat(request.pop("expires_at"))
    assert request.pop("request_id")
    assert len(request.pop("digest")) == 64
    assert request == {
        "approval": True,
        "agent": "desk",
        "tool": "drop_note",
        "arguments": {"note": "a"},
        "reason": DESTRUCTIVE,
        "allowed": ["approve", "edit", "reject"],
    }
    assert before + timedelta(seconds=3600) <= expires_at <= datetime.now(UTC) + timedelta(seconds=3600)
    assert stream.last.state == "input-required"
    summary, _, details = stream.last.status_text.partition("\n\n")
    assert summary == "I need your input to go on: a decision on drop_note."
    assert "desk wants to call drop_note." in details
    assert '- note: "a"' in details
    assert tool_events(stream) == []  # it is not shown as running: it does not run
    assert desk.recorded_calls == []


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("tool", "policy", "reason"),
    [
        ("read_note", {}, None),
        ("add_note", {}, None),
        ("move_note", {}, UNKNOWN),
        ("touch_note", {}, UNKNOWN),
        ("touch_note", {"allow": ("*",)}, None),
        ("touch_note", {"read": ("touch_*",)}, None),
        ("drop_note", {"allow": ("drop_*",)}, None),
        ("read_note", {"ask": ("read_*",)}, LISTED),
        ("add_note", {"allow": ("*",), "ask": ("notes_add_note",)}, LISTED),
    ],
)
async def test_which_tools_ask(tmp_path: Path, tool: str, policy: dict[str, Any], reason: str | None) -> None:
    desk = NotesAgent(tmp_path, calling(Call(tool, {"note": "a"}), says="Done."), policy=policy)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
    assert [request["reason"] for request in requests(stream)] == ([] if reason is None else [reason])
    assert desk.recorded_calls == ([{"tool": tool, "note": "a"}] if reason is None else [])
    assert stream.last.state == ("completed" if reason is None else "input-required")


# --- decisions ------------------------------------------------------------------------------------


@everywhere
async def test_an_approved_call_is_made_once_as_it_was_shown(tmp_path: Path, where: Where) -> None:
    desk = NotesAgent(tmp_path, DROPPING, where)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
        more = await person.answer(stream, {only_request_id(stream): approval_decision()})
    assert desk.recorded_calls == [{"tool": "drop_note", "note": "a"}]
    assert tool_events(more) == [
        ("tool_started", "drop_note", {"note": "a"}),
        ("tool_finished", "drop_note", "ok"),
    ]
    assert more.answer == "So: Done: drop_note a"
    [resolved] = events_of_kind(more, InputResolved)
    assert (resolved.request_id, resolved.resolution, resolved.agent) == (
        only_request_id(stream),
        "approved",
        "desk",
    )


@everywhere
async def test_edited_arguments_are_called_shown_and_told_to_the_model(tmp_path: Path, where: Where) -> None:
    desk = NotesAgent(tmp_path, DROPPING, where)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
        more = await person.answer(
            stream, {only_request_id(stream): {"type": "edit", "arguments": {"note": "b {x}"}}}
        )
    assert desk.recorded_calls == [{"tool": "drop_note", "note": "b {x}"}]
    assert tool_events(more) == [
        ("tool_started", "drop_note", {"note": "b {x}"}),
        ("tool_finished", "drop_note", "ok"),
    ]
    [tool_result] = desk.tool_results()
    note, _, result = tool_result.partition("\n")
    assert note == '[A person changed the arguments of this call to {"note": "b {x}"}]'
    assert json.loads(result) == {"done": "drop_note b {x}"}
    [resolved] = events_of_kind(more, InputResolved)
    digest = requests(stream)[0]["digest"]
    assert (resolved.resolution, resolved.value) == (
        "edited",
        {
            "type": "edit",
            "arguments": {"note": "b {x}"},
            "digest": digest,
            "edit_digest": edit_digest(digest, {"note": "b {x}"}),
        },
    )
    assert more.last.state == "completed"


@pytest.mark.sample(3)
@everywhere
@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"message": "It is still {needed}."}, ": It is still {needed}."),
        ({"message": "Why now?"}, ": Why now?"),
        ({}, "."),
    ],
    ids=["with a reason", "with a question", "without one"],
)
async def test_a_rejected_call_is_not_made_and_the_model_learns_why(
    tmp_path: Path, where: Where, message: Any, why: str
) -> None:
    desk = NotesAgent(tmp_path, calling(Call("drop_note", {"note": "a"}), says="Then not."), where)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
        more = await person.answer(stream, {only_request_id(stream): {"type": "reject", **message}})
    assert desk.recorded_calls == []
    assert desk.tool_results()[0].startswith(
        f"A person rejected this call of drop_note{why} Nothing was done."
    )
    assert tool_events(more) == [
        ("tool_started", "drop_note", {"note": "a"}),
        ("tool_finished", "drop_note", "error"),
    ]
    [ended] = [event for event in events_of_kind(more, ToolFinished) if not event.delegates]
    assert "A person rejected this call" in (ended.error or "")
    assert more.answer == "So: Then not."


@pytest.mark.sample(5)
@everywhere
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            {"type": "approve", "arguments": {"note": "b"}},
            "An approval of drop_note changes no arguments: to change them, send the type `edit`.",
        ),
        ({"type": "edit"}, "An edit of drop_note needs its `arguments`."),
        ({"type": "perhaps"}, "The decision on drop_note is one of approve, edit, reject."),
        ({"note": "b"}, "The decision on drop_note is one of approve, edit, reject."),
        ("yes", "The decision on drop_note is one of approve, edit, reject, as `type`."),
    ],
)
async def test_what_is_no_decision_is_refused_and_the_request_stays(
    tmp_path: Path, where: Where, answer: Any, sentence: str
) -> None:
    desk = NotesAgent(tmp_path, DROPPING, where)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
        wrong = await person.answer(stream, {only_request_id(stream): answer})
        assert desk.recorded_calls == []
        more = await person.answer(
            stream, {only_request_id(stream): approval_decision(arguments={"note": "a"})}
        )
    [paused] = [event for event in events_of_kind(wrong, Paused) if event.wrong]
    assert paused.requests == (only_request_id(stream),)
    assert list(paused.wrong[only_request_id(stream)].values()) == [sentence]
    assert sentence in wrong.last.status_text
    assert desk.recorded_calls == [{"tool": "drop_note", "note": "a"}]
    assert more.last.state == "completed"


@everywhere
async def test_words_are_no_decision(tmp_path: Path, where: Where) -> None:
    desk = NotesAgent(tmp_path, DROPPING, where)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
        more = await person.ask("yes, approve it", taskId=stream.task_id)
        assert desk.recorded_calls == []
    assert more.last.state == "input-required"
    assert [event.held for event in events_of_kind(more, Paused)][-1] == "yes, approve it"


# --- several at once ------------------------------------------------------------------------------


@pytest.mark.sample(1)
@everywhere
async def test_three_calls_are_decided_one_by_one_in_any_order(tmp_path: Path, where: Where) -> None:
    desk = NotesAgent(tmp_path, THREE, where)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
        ids = request_ids_by_note(stream)
        assert sorted(ids) == ["a", "b", "c"]
        first = await person.answer(stream, {ids["b"]: approval_decision()})
        assert desk.recorded_calls == [{"tool": "drop_note", "note": "b"}]
        two = await person.answer(stream, {ids["c"]: {"type": "edit", "arguments": {"note": "see"}}})
        assert desk.recorded_calls[1:] == [{"tool": "drop_note", "note": "see"}]
        rest = await person.answer(stream, {ids["a"]: {"type": "reject", "message": "Not this one."}})
    assert [part.last.state for part in (first, two, rest)] == [
        "input-required",
        "input-required",
        "completed",
    ]
    assert [set(events_of_kind(part, Paused)[-1].requests) for part in (first, two)] == [
        {ids["a"], ids["c"]},
        {ids["a"]},
    ]
    assert [requests(part) for part in (first, two, rest)] == [[], [], []]  # nothing is asked a second time
    assert desk.recorded_calls == [{"tool": "drop_note", "note": "b"}, {"tool": "drop_note", "note": "see"}]
    results = desk.tool_results()
    assert [text.split()[0] for text in results] == ["A", '{"done":', "[A"]  # in the order of the calls
    assert "Not this one." in results[0]
    assert len(desk.model.requests) == 2  # the model was asked once before and once after all of them
    notes = [arguments["note"] for kind, _, arguments in tool_events(rest) if kind == "tool_started"]
    assert notes == ["b", "see", "a"]  # each once, when it was decided


@pytest.mark.sample(1)
@everywhere
async def test_three_calls_are_decided_at_once(tmp_path: Path, where: Where) -> None:
    desk = NotesAgent(tmp_path, THREE, where)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
        more = await person.answer(
            stream,
            {
                request_id: approval_decision()
                for request_id in reversed(request_ids_by_note(stream).values())
            },
        )
    assert sorted(call["note"] for call in desk.recorded_calls) == ["a", "b", "c"]
    assert more.answer == "So: All done."


@pytest.mark.sample(1)
@everywhere
async def test_a_decision_is_taken_once(tmp_path: Path, where: Where) -> None:
    desk = NotesAgent(tmp_path, THREE, where)
    async with run_in_memory(desk) as person:
        stream = await person.ask()
        ids = request_ids_by_note(stream)
        await person.answer(stream, {ids["a"]: approval_decision()})
        again = await person.refused(stream, {ids["a"]: {"type": "edit", "arguments": {"note": "z"}}})
        nobody = await person.refused(stream, {"0" * 20: approval_decision()})
    assert desk.recorded_calls == [{"tool": "drop_note", "note": "a"}]
    assert again.startswith("A decision on drop_note was already answered by ")
    assert nobody == "There is no such request in this task."
