"""Tool calls that third-party agents tell of in data parts: shown under the agent, and never part of an
answer."""

from typing import Any

import pytest
from a2a.types import Part

from ai_platform_engineering.core.events import ToolFinished, ToolStarted
from ai_platform_engineering.core.transcript import fold
from tests.a2a.test_third_party_reader import DONE, chunk, data, message, read, says, seen, spans, task, told

ANSWER = "Version 2.9 runs."


def tool_part(kind: str, value: Any, key: str = "adk_type") -> Part:
    part = data(value)
    part.metadata.update({key: kind})
    return part


def call(name: str = "lookup", call_id: str = "c1", key: str = "adk_type", **arguments: Any) -> Part:
    return tool_part("function_call", {"id": call_id, "name": name, "args": arguments}, key)


def response(value: Any, name: str = "lookup", call_id: str = "c1", key: str = "adk_type") -> Part:
    return tool_part("function_response", {"id": call_id, "name": name, "response": value}, key)


def calls_of(*frames: Any) -> list[tuple[str, str | None]]:
    return [(call.tool, call.outcome) for call in seen(*frames, chunk("a", ANSWER), DONE).calls]


@pytest.mark.parametrize("key", ["adk_type", "kagent_type", "type"])
def test_a_call_and_its_result(key: str) -> None:
    frames = [
        says(["Let me look.", call(app="shop", replicas=3, key=key)], "1"),
        says(response({"version": "2.9"}, key=key), "2"),
    ]
    events = read(*frames, chunk("a", ANSWER), DONE)
    (started,) = [event for event in events if isinstance(event, ToolStarted)]
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (started.agent, started.tool, started.arguments) == (
        "argocd",
        "lookup",
        {"app": "shop", "replicas": 3},
    )
    assert (finished.call_id, finished.outcome, finished.result) == (
        started.call_id,
        "ok",
        '{"version": "2.9"}',
    )
    assert spans(fold(events)) == [("Let me look.", "narration"), (ANSWER, "answer")]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"error": "The registry is away."}, "The registry is away."),
        ({"isError": True, "content": [{"text": "No."}]}, '[{"text": "No."}]'),
        ({"isError": True}, "It failed."),
    ],
)
def test_a_result_that_is_an_error(value: Any, error: str) -> None:
    events = read(says(call(), "1"), says(response(value), "2"), DONE)
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (finished.outcome, finished.error) == ("error", error)


@pytest.mark.parametrize(
    ("value", "result"),
    [({"result": "2.9"}, "2.9"), ({"result": [1]}, "[1]"), (None, ""), ("x" * 5000, "x" * 4000 + "…")],
)
def test_a_result_in_words(value: Any, result: str) -> None:
    events = read(says(call(), "1"), says(response(value), "2"), DONE)
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert finished.result == result


def test_what_is_told_again_is_shown_once() -> None:
    frames = [
        says(["Let", call()], "1"),
        says(["Let me look.", call()], "2"),
        says(response({"ok": 1}), "3"),
        says(response({"ok": 1}), "4"),
        task("working", history=(message(["Let me look.", call()], message_id="2"),)),
    ]
    assert calls_of(*frames) == [("lookup", "ok")]


def test_two_calls_of_one_tool_at_once_end_by_their_ids() -> None:
    frames = [
        says([call(call_id="c1"), call(call_id="c2")], "1"),
        says([response({"error": "No."}, call_id="c2"), response({"ok": 1}, call_id="c1")], "2"),
    ]
    assert calls_of(*frames) == [("lookup", "ok"), ("lookup", "error")]


def test_a_call_without_an_id_ends_by_its_name() -> None:
    assert calls_of(says(call(call_id=""), "1"), says(response({}, call_id=""), "2")) == [("lookup", "ok")]


def test_a_result_without_a_call_and_a_call_without_a_result() -> None:
    assert calls_of(says(response({}), "1"), says(call(call_id="c2"), "2")) == [
        ("lookup", "ok"),
        ("lookup", "unknown"),
    ]


def test_artifacts_that_hold_calls_are_no_answer() -> None:
    frames = [
        chunk("1", ["Let me look.", call()], last=True),
        chunk("2", response({"version": "2.9"}), last=True),
        chunk("3", ANSWER, last=True),
    ]
    transcript = seen(*frames, DONE)
    assert transcript.answer == ANSWER
    assert spans(transcript) == [("Let me look.", "narration"), (ANSWER, "answer")]


def test_a_result_alone_is_no_answer() -> None:
    transcript = seen(chunk("1", call()), chunk("2", response({"version": "2.9"})), DONE)
    assert transcript.state == "failed"


def test_calls_in_the_history_of_a_polled_task() -> None:
    history = (message(["Let me look.", call()], message_id="1"), message(response({}), message_id="2"))
    transcript = seen(task("working"), task("completed", said=ANSWER, history=history))
    assert [(call.tool, call.outcome) for call in transcript.calls] == [("lookup", "ok")]


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"name": 7},
        "lookup",
        None,
        {"name": "x", "args": "none"},
        {"name": "y", "args": {"a": "b" * 30_000}},
    ],
)
def test_calls_that_are_none_or_too_long(value: Any) -> None:
    transcript = seen(says(tool_part("function_call", value), "1"), chunk("a", ANSWER), DONE)
    assert transcript.answer == ANSWER
    assert all(not call.arguments for call in transcript.calls)


def test_a_call_that_waits_for_a_person_is_a_question() -> None:
    *_, paused = read(says("Let me look.", "1"), told("input-required", call("ask", cluster="prod?"), "2"))
    assert paused.text == 'ask {"cluster": "prod?"}'


def test_only_so_many_calls_are_shown() -> None:
    frames = [says(call(call_id=f"c{number}"), f"m{number}") for number in range(1200)]
    assert len(calls_of(*frames)) == 1000


@pytest.mark.parametrize("mark", [{"adk_thought": True}, {"type": "thinking"}])
def test_what_a_model_thought_is_not_shown(mark: dict[str, Any]) -> None:
    thought = Part(text="The user wants a version.")
    thought.metadata.update(mark)
    transcript = seen(says(thought, "1"), chunk("a", [thought, ANSWER]), DONE)
    assert spans(transcript) == [(ANSWER, "answer")]
