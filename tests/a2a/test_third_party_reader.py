"""Frames of agents that are not ours, as a reader of the run sees them: each text once, one answer, no
exception."""

from typing import Any

import pytest
from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.a2a.third_party_reader import ThirdPartyReader
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Cancelled,
    Failed,
    InputRequested,
    Paused,
    TextDelta,
    TextDiscarded,
    TextEnded,
    ToolFinished,
    ToolStarted,
    clean_json,
    ends_turn,
)
from ai_platform_engineering.core.transcript import Transcript, fold
from tests.support.strategies import awkward_text, examples, json_value, plain_text

STATES = {
    name: TaskState.Value(f"TASK_STATE_{name.upper().replace('-', '_')}")
    for name in (
        "submitted",
        "working",
        "completed",
        "failed",
        "canceled",
        "rejected",
        "input-required",
        "auth-required",
    )
}


def data(value: Any) -> Part:
    return Part(data=ParseDict(value, Value()))


def parts_of(said: Any) -> list[Part]:
    parts = said if isinstance(said, list) else [] if said is None else [said]
    return [Part(text=one) if isinstance(one, str) else one for one in parts]


def status(state: str, said: Any = None, message_id: str = "") -> TaskStatus:
    found = TaskStatus(state=STATES[state])
    if said is not None:
        found.message.CopyFrom(Message(message_id=message_id, role=Role.ROLE_AGENT, parts=parts_of(said)))
    return found


def told(state: str, said: Any = None, message_id: str = "") -> StreamResponse:
    return StreamResponse(
        status_update=TaskStatusUpdateEvent(
            task_id="t", context_id="c", status=status(state, said, message_id)
        )
    )


def says(said: Any, message_id: str = "") -> StreamResponse:
    return told("working", said, message_id)


def made(artifact_id: str, said: Any, name: str = "", **metadata: str) -> Artifact:
    artifact = Artifact(artifact_id=artifact_id, name=name, parts=parts_of(said))
    artifact.metadata.update(metadata)
    return artifact


def chunk(
    artifact_id: str, said: Any, name: str = "", *, append: bool = False, last: bool = False, **metadata: str
) -> StreamResponse:
    artifact = made(artifact_id, said, name, **metadata)
    return StreamResponse(
        artifact_update=TaskArtifactUpdateEvent(
            task_id="t", context_id="c", artifact=artifact, append=append, last_chunk=last
        )
    )


def task(
    state: str, *artifacts: Artifact, said: Any = None, history: tuple[Message, ...] = ()
) -> StreamResponse:
    return StreamResponse(
        task=Task(id="t", context_id="c", status=status(state, said), artifacts=artifacts, history=history)
    )


def message(said: Any, role: Role = Role.ROLE_AGENT, message_id: str = "m") -> Message:
    return Message(message_id=message_id, role=role, parts=parts_of(said))


def lone(said: Any) -> StreamResponse:
    return StreamResponse(message=message(said))


def read(*frames: StreamResponse) -> list[AnyEvent]:
    reader = ThirdPartyReader("argocd")
    events = [event for frame in frames for event in reader.read(frame)]
    return [*events, *reader.closing_events()]


def seen(*frames: StreamResponse) -> Transcript:
    return fold(read(*frames))


def spans(transcript: Transcript) -> list[tuple[str, str | None]]:
    return [(span.text, span.role) for span in transcript.spans]


DONE = told("completed")
ASKED, FINISHED = message("Which?", Role.ROLE_USER), message("✅ Tool x completed")
LOOK, ANSWER, DATA = "Let me look.", "Version 2.9 runs.", '{"a": null, "b": [1, 2.5], "c": 1, "d": 2, "e": 3}'
START, END, PLAN = "tool_notification_start", "tool_notification_end", "execution_plan_update"

CASES: dict[str, tuple[list[StreamResponse], list[tuple[str, str]], str]] = {
    "a lone message": ([lone(ANSWER)], [(ANSWER, "answer")], ANSWER),
    "a lone message of data": ([lone(data({"pods": 3}))], [('{"pods": 3}', "answer")], '{"pods": 3}'),
    "one artifact": ([task("submitted"), chunk("a", ANSWER, last=True), DONE], [(ANSWER, "answer")], ANSWER),
    "chunks": (
        [chunk("a", "Version "), chunk("a", "2.9 runs.", append=True), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "an appended chunk without a first": (
        [chunk("a", ANSWER, append=True), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "parts are joined": ([chunk("a", ["Version ", "2.9 runs."]), DONE], [(ANSWER, "answer")], ANSWER),
    "two artifacts": (
        [chunk("a", "One."), chunk("b", "Two."), DONE],
        [("One.", "narration"), ("Two.", "narration")],
        "One.\n\nTwo.",
    ),
    "a whole text that grew": (
        [chunk("a", "Version"), chunk("a", ANSWER), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "a replaced text": ([chunk("a", "Wrong."), chunk("a", ANSWER), DONE], [(ANSWER, "answer")], ANSWER),
    "a text that was taken back": (
        [chunk("b", "Wrong."), chunk("b", ""), chunk("a", ANSWER), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "an empty last chunk": (
        [chunk("a", ANSWER), chunk("a", "", last=True), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "an empty current_result": (
        [chunk("a", ANSWER, "current_result"), chunk("a", "", "current_result"), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "narration and an artifact": (
        [says(LOOK), chunk("a", ANSWER), DONE],
        [(LOOK, "narration"), (ANSWER, "answer")],
        ANSWER,
    ),
    "narration that is repeated": (
        [says(LOOK, "1"), says(LOOK, "2"), chunk("a", ANSWER), says(LOOK, "1"), DONE],
        [(LOOK, "narration"), (ANSWER, "answer")],
        ANSWER,
    ),
    "the older form": (
        [says(ANSWER), chunk("r", "", "current_result", last=True), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "the older form, then the end again": (
        [says(ANSWER), told("completed", ANSWER)],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "the last narration before a tool": (
        [says(ANSWER), says("🔧 Calling tool: log"), says("✅ Tool log completed"), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "a status and the same as an artifact": (
        [says(ANSWER), chunk("a", ANSWER), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "the last status": (
        [says(LOOK), told("completed", ANSWER)],
        [(LOOK, "narration"), (ANSWER, "answer")],
        ANSWER,
    ),
    "a last status that repeats": (
        [chunk("a", ANSWER), told("completed", ANSWER)],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "a last status with news": (
        [chunk("a", ANSWER), told("completed", "Done.")],
        [(ANSWER, "answer"), ("Done.", "narration")],
        ANSWER,
    ),
    "a last status that goes on": (
        [chunk("a", "Version"), told("completed", ANSWER)],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "a final result": ([chunk("f", ANSWER, "final_result", last=True), DONE], [(ANSWER, "answer")], ANSWER),
    "a final result in chunks": (
        [chunk("f", "Version ", "final_result"), chunk("f", "2.9 runs.", "final_result", append=True), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "a final result in a snapshot that lags behind": (
        [chunk("f", ANSWER, "final_result"), task("working", made("f", "Version", "final_result")), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "a final result that was streamed": (
        [chunk("s", LOOK), chunk("t", ANSWER), chunk("f", ANSWER, "final_result"), DONE],
        [(LOOK, "narration"), (ANSWER, "answer")],
        ANSWER,
    ),
    "a final result at the end of one stream": (
        [chunk("s", f"{LOOK}\n{ANSWER}"), chunk("f", ANSWER, "final_result"), DONE],
        [(f"{LOOK}\n{ANSWER}", "narration")],
        ANSWER,
    ),
    "a final result of several messages": (
        [chunk("s", "Version "), chunk("t", "2.9 runs."), chunk("f", ANSWER, "complete_result"), DONE],
        [("Version ", "narration"), ("2.9 runs.", "narration")],
        ANSWER,
    ),
    "a final result that goes on": (
        [chunk("s", "Version"), chunk("f", ANSWER, "final_result"), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "a final result that differs": (
        [chunk("s", LOOK), chunk("f", ANSWER, "final_result"), told("completed", "Done.")],
        [(LOOK, "narration"), (ANSWER, "answer"), ("Done.", "narration")],
        ANSWER,
    ),
    "a final result before a partial one": (
        [chunk("p", "Version", "partial_result"), chunk("f", ANSWER, "final_result"), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "a partial result": (
        [chunk("s", LOOK), chunk("p", ANSWER, "partial_result"), DONE],
        [(LOOK, "narration"), (ANSWER, "answer")],
        ANSWER,
    ),
    "a plan is left out": (
        [chunk("p", "⟦🎯 Execution Plan: x⟧", PLAN), chunk("a", ANSWER), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "data": (
        [chunk("d", data({"e": 3, "b": [1, 2.5], "d": 2, "a": None, "c": 1})), DONE],
        [(DATA, "answer")],
        DATA,
    ),
    "data that is replaced": (
        [chunk("d", data(1)), chunk("d", data(2)), chunk("d", data(3), append=True), DONE],
        [("2\n3", "answer")],
        "2\n3",
    ),
    "data beside text": ([chunk("d", [data({"a": 1}), ANSWER]), DONE], [(ANSWER, "answer")], ANSWER),
    "a file": (
        [
            chunk(
                "a",
                [
                    ANSWER,
                    Part(url="https://x/report.pdf", filename="report.pdf", media_type="application/pdf"),
                ],
            ),
            DONE,
        ],
        [(f"{ANSWER}\n(file report.pdf, application/pdf)\n", "answer")],
        f"{ANSWER}\n(file report.pdf, application/pdf)\n",
    ),
    "a file and a word": (
        [chunk("a", Part(raw=b"x", filename="r.bin")), told("completed", "Here it is.")],
        [("(file r.bin)\n", "narration"), ("Here it is.", "narration")],
        "Here it is.\n\n(file r.bin)\n",
    ),
    "a message inside a task": (
        [task("working"), lone(LOOK), task("completed", made("a", ANSWER))],
        [(LOOK, "narration"), (ANSWER, "answer")],
        ANSWER,
    ),
    "a snapshot after nothing": ([task("completed", made("a", ANSWER))], [(ANSWER, "answer")], ANSWER),
    "a snapshot that has more": (
        [chunk("a", "Version"), task("completed", made("a", ["Version ", "2.9 runs."]))],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "a snapshot that differs": (
        [chunk("a", "Versiom"), task("completed", made("a", ANSWER))],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "a snapshot that lags behind": (
        [chunk("a", ANSWER), task("working", made("a", "Version")), DONE],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "a snapshot without a text": (
        [chunk("b", "Wrong."), task("completed", made("a", ANSWER))],
        [(ANSWER, "answer")],
        ANSWER,
    ),
    "an early snapshot without a text": (
        [chunk("a", ANSWER), task("working", made("b", "Two.")), DONE],
        [(ANSWER, "narration"), ("Two.", "narration")],
        f"{ANSWER}\n\nTwo.",
    ),
    "a snapshot without artifacts": ([chunk("a", ANSWER), task("completed")], [(ANSWER, "answer")], ANSWER),
    "snapshots with the same status": (
        [task("working", said=LOOK), task("working", said=LOOK), task("completed", made("a", ANSWER))],
        [(LOOK, "narration"), (ANSWER, "answer")],
        ANSWER,
    ),
    "an answer that only the history has": (
        [
            says(LOOK),
            task("completed", history=(message("Old."), ASKED, message(LOOK), message(ANSWER), FINISHED)),
        ],
        [(LOOK, "narration"), (ANSWER, "answer")],
        ANSWER,
    ),
    "nothing follows the end": (
        [chunk("a", ANSWER), DONE, chunk("b", "Late."), told("failed", "No.")],
        [(ANSWER, "answer")],
        ANSWER,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_answer_is_seen_once(case: str) -> None:
    frames, texts, answer = CASES[case]
    events = read(*frames)
    transcript = fold(events)
    assert spans(transcript) == texts
    assert (transcript.state, transcript.answer) == ("completed", answer)
    ended = [event.message_id for event in events if isinstance(event, TextEnded)]
    assert set(ended) == {span.message_id for span in transcript.spans}
    assert all(event.agent == "argocd" and event.parent_call is None for event in events)


def test_a_replaced_message_takes_the_slot_of_the_first() -> None:
    events = read(chunk("a", "One."), chunk("a", "Two."), chunk("a", "Three."), DONE)
    discarded = [event for event in events if isinstance(event, TextDiscarded)]
    deltas = [event for event in events if isinstance(event, TextDelta)]
    first = deltas[0].message_id
    assert [event.message_id for event in discarded] == [event.message_id for event in deltas[:2]]
    assert [event.slot for event in deltas] == [None, first, first]
    assert len({event.message_id for event in deltas}) == 3


def test_a_text_that_goes_on_from_an_earlier_turn_is_a_message_of_its_own() -> None:
    first, again, later = (
        read(chunk("a", "x", append=append))[0].message_id for append in (False, False, True)
    )
    assert first == again
    assert later != first


def test_ids_come_from_the_server_and_are_known_at_once() -> None:
    reader = ThirdPartyReader("argocd")
    assert (reader.task_id, reader.context_id, reader.state, reader.ended) == (None, None, None, False)
    assert reader.closing_events() == []
    reader.read(chunk("a", "x"))
    assert (reader.task_id, reader.context_id, reader.state) == ("t", "c", None)
    reader.read(told("working"))
    assert reader.state == TaskState.TASK_STATE_WORKING
    reader.read(DONE)
    assert (reader.ended, reader.state) == (True, TaskState.TASK_STATE_COMPLETED)
    assert isinstance(reader.closing_events()[-1], Answered)
    assert reader.closing_events() == []


TOOLS: dict[str, tuple[list[StreamResponse], list[tuple[str, str]]]] = {
    "with markdown": (
        [says("🔧 Calling tool: **get_app**\n"), says("✅ Tool **get_app** completed\n")],
        [("get_app", "ok")],
    ),
    "with a prefix": (
        [says("🔧 Argocd: Calling tool: Get_App"), says("✅ Argocd: Tool Get_App completed")],
        [("Get_App", "ok")],
    ),
    "an agent": (
        [says("🔧 Supervisor: Calling Agent Jira..."), says("✅ Supervisor: Jira completed")],
        [("Jira", "ok")],
    ),
    "short": ([says("\n🔧 Calling argocd...\n"), says("✅ argocd completed")], [("argocd", "ok")]),
    "another case": (
        [says("🔧 Calling tool: get_app"), says("✅ Tool Get_App completed")],
        [("get_app", "ok")],
    ),
    "a failure": ([says("🔧 Calling tool: x"), says("❌ Tool x failed: timeout")], [("x", "error")]),
    "a failure in a word": ([says("🔧 Calling tool: x"), says("✅ Tool x failed")], [("x", "error")]),
    "an end alone": ([says("✅ Tool x completed")], [("x", "ok")]),
    "no end": ([says("🔧 Calling tool: x")], [("x", "unknown")]),
    "two ends in one text": (
        [says("🔧 Calling argocd..."), says("✅ Tool x completed\n✅ argocd completed")],
        [("argocd", "ok"), ("x", "ok")],
    ),
    "two at once": (
        [
            says("🔧 Calling tool: x\n🔧 Calling tool: x"),
            says("❌ Tool x failed"),
            says("✅ Tool x completed"),
        ],
        [("x", "error"), ("x", "ok")],
    ),
    "artifacts": (
        [chunk("1", "🔧 Calling argocd...", START), chunk("2", "✅ argocd completed", END)],
        [("argocd", "ok")],
    ),
    "artifacts without words": (
        [
            chunk("1", "Looking", START, tool_name="get_app"),
            chunk("2", "No", END, tool_name="get_app", status="failed"),
        ],
        [("get_app", "error")],
    ),
    "artifacts again in a snapshot": (
        [
            chunk("1", "🔧 Calling argocd...", START),
            task("working", made("1", "🔧 Calling argocd...", START), made("2", "✅ argocd completed", END)),
        ],
        [("argocd", "ok")],
    ),
    "a status again in a snapshot": (
        [says("🔧 Calling tool: x"), task("working", said="🔧 Calling tool: x")],
        [("x", "unknown")],
    ),
}


@pytest.mark.parametrize("case", TOOLS)
def test_tools_in_words_are_tools(case: str) -> None:
    frames, calls = TOOLS[case]
    events = read(*frames, chunk("a", ANSWER), DONE)
    transcript = fold(events)
    assert [(call.tool, call.outcome) for call in transcript.calls] == calls
    assert spans(transcript) == [(ANSWER, "answer")]
    assert len([event for event in events if isinstance(event, ToolStarted)]) == len(calls)
    assert len([event for event in events if isinstance(event, ToolFinished)]) == len(calls)


@pytest.mark.parametrize(
    "text",
    [
        "✅ Sync completed",
        "🔧 Fixing it now",
        "✅ All good",
        "🔧 Calling tool: x\nand more",
        "✅ Tool x completed\n✅ Sync completed",
        "Calling tool: x",
    ],
)
def test_plain_speech_is_no_tool(text: str) -> None:
    transcript = seen(says(text), DONE)
    assert (transcript.calls, transcript.answer) == ((), text)


def test_a_failed_tool_says_why() -> None:
    (call,) = seen(says("❌ Tool x failed: timeout after 3 s"), DONE).calls
    assert call.error == "timeout after 3 s"


@pytest.mark.parametrize(
    ("frame", "text", "retryable"),
    [
        (told("failed", "No such cluster."), "No such cluster.", True),
        (told("failed"), "The agent argocd failed and did not say why.", True),
        (told("rejected", "Not mine."), "Not mine.", False),
        (told("rejected"), "The agent argocd refused the request.", False),
        (told("auth-required"), "The agent argocd wants credentials that it was not given.", False),
        (told("completed"), "The agent argocd finished without a result.", True),
        (told("completed", " \n"), "The agent argocd finished without a result.", True),
        (lone(""), "The agent argocd finished without a result.", True),
        (
            task("completed", history=(message("Old."), ASKED)),
            "The agent argocd finished without a result.",
            True,
        ),
    ],
)
def test_failures(frame: StreamResponse, text: str, retryable: bool) -> None:
    *_, last = read(frame)
    assert last == Failed(agent="argocd", message=text, trace_id="", code="agent_failed", retryable=retryable)


def test_what_was_said_before_a_failure_stays() -> None:
    events = read(
        chunk("a", "Half an"), chunk("p", "Half an answer", "partial_result"), told("failed", "Lost it.")
    )
    assert isinstance(events[-1], Failed)
    assert events[-1].partial == "Half an answer"
    assert spans(fold(events)) == [("Half an answer", "narration")]


def test_a_cancel() -> None:
    events = read(says(LOOK), told("canceled"))
    assert isinstance(events[-1], Cancelled)
    assert spans(fold(events)) == [(LOOK, "narration")]


def test_a_question() -> None:
    frames = [says(LOOK), told("input-required", "Which cluster?", "m1")]
    *_, requested, paused = read(*frames)
    assert isinstance(requested, InputRequested)
    assert isinstance(paused, Paused)
    assert (requested.asked.response, paused.text, paused.requests) == (
        "Which cluster?",
        "Which cluster?",
        (requested.request_id,),
    )
    assert [(field.field_name, field.field_type) for field in requested.asked.fields] == [
        ("answer", "textarea")
    ]
    assert read(*frames)[-2].request_id == requested.request_id
    assert read(told("input-required", "Which cluster?", "m2"))[-2].request_id != requested.request_id


def test_a_question_that_is_also_a_result_is_not_shown_twice() -> None:
    frames = [
        chunk("f", "Which cluster?", "final_result"),
        chunk("a", "Two are there."),
        told("input-required", "Which cluster?"),
    ]
    assert spans(seen(*frames)) == [("Two are there.", "narration")]
    assert ("Three.", "narration") in spans(
        seen(chunk("f", "Three.", "final_result"), told("input-required", "Which cluster?"))
    )


def test_a_question_that_was_said_before() -> None:
    *_, requested, _ = read(says("Which cluster?"), told("input-required"))
    assert requested.asked.response == "Which cluster?"


def test_a_flood_is_cut() -> None:
    frames = [chunk("a", "x" * 300_000, append=number > 0) for number in range(5)]
    transcript = seen(*frames, chunk("b", "more"), chunk("a", "other"), DONE)
    (span,) = transcript.spans
    assert len(span.text) == 1_000_000 + len("\n[Output truncated]")
    assert span.text.endswith("x\n[Output truncated]")
    assert transcript.answer == span.text


def test_a_flood_in_a_result_is_cut() -> None:
    frames = [chunk("f", "x" * 300_000, "final_result", append=number > 0) for number in range(5)]
    transcript = seen(*frames, DONE)
    assert transcript.answer is not None
    assert len(transcript.answer) == 1_000_000 + len("\n[Output truncated]")
    assert sum(len(span.text) for span in transcript.spans) <= 1_000_000 + len("\n[Output truncated]")


# --- whatever comes -----------------------------------------------------------------------------------------

ODD = [
    "",
    " ",
    "\n",
    "🔧",
    "✅",
    "🔧 Calling tool: x",
    "✅ Tool x completed",
    "❌ Tool x failed",
    "✅ x completed",
    "x",
    "xx",
    "x y",
    "yes",
]
NAMES = ["", "final_result", "complete_result", "partial_result", "current_result", PLAN, START, END]

clean = (plain_text | awkward_text).map(lambda text: text.encode("utf-8", "replace").decode())
texts = st.sampled_from(ODD) | clean
ids = st.sampled_from(["", "1", "2", "3"])
any_part = st.one_of(
    texts.map(lambda text: Part(text=text)),
    json_value.map(lambda value: data(clean_json(value))),
    st.sampled_from(
        [
            Part(),
            Part(data=Value(number_value=float("nan"))),
            Part(data=Value()),
            Part(raw=b"\xff", filename="f"),
            Part(url="u"),
        ]
    ),
)
some_parts = st.lists(any_part, max_size=3)
any_status = st.builds(
    lambda state, parts, number: TaskStatus(state=state, message=Message(message_id=number, parts=parts)),
    st.sampled_from([0, *STATES.values(), 99]),
    some_parts,
    ids,
)
any_artifact = st.builds(
    lambda number, parts, name: Artifact(artifact_id=number, parts=parts, name=name),
    ids,
    some_parts,
    st.sampled_from(NAMES),
)
any_frame = st.one_of(
    st.just(StreamResponse()),
    st.builds(lambda parts: StreamResponse(message=Message(parts=parts)), some_parts),
    st.builds(
        lambda found: StreamResponse(status_update=TaskStatusUpdateEvent(task_id="t", status=found)),
        any_status,
    ),
    st.builds(
        lambda found, append, last: StreamResponse(
            artifact_update=TaskArtifactUpdateEvent(
                task_id="t", artifact=found, append=append, last_chunk=last
            )
        ),
        any_artifact,
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        lambda found, artifacts, history: StreamResponse(
            task=Task(id="t", status=found, artifacts=artifacts, history=history)
        ),
        any_status,
        st.lists(any_artifact, max_size=3),
        st.lists(
            st.builds(
                lambda parts, role: Message(role=role, parts=parts), some_parts, st.sampled_from([0, 1, 2])
            ),
            max_size=3,
        ),
    ),
)


@examples(120)
@given(st.lists(any_frame, max_size=12))
def test_whatever_comes_is_read_in_order_and_ends_once(frames: list[StreamResponse]) -> None:
    reader = ThirdPartyReader("argocd")
    events = [event for frame in frames for event in reader.read(frame)]
    assert not any(ends_turn(event) for event in events)
    closing = reader.closing_events()
    assert [ends_turn(event) for event in closing] == [False] * (len(closing) - 1) + [True] * reader.ended
    lengths: dict[str, int] = {}
    for event in [*events, *closing]:
        if isinstance(event, TextDelta):
            assert event.offset == lengths.get(event.message_id, 0)
            assert event.text
            lengths[event.message_id] = event.offset + len(event.text)
        elif isinstance(event, TextDiscarded):
            assert lengths.pop(event.message_id)
        elif isinstance(event, TextEnded):
            assert event.message_id in lengths
    transcript = fold([*events, *closing])
    if reader.ended:
        assert not transcript.running
        assert all(span.role for span in transcript.spans)
    assert [span.role for span in transcript.spans].count("answer") <= 1


distinct = st.lists(
    st.sampled_from(["Alpha.", "Beta.", "Gamma.", "Delta."]), unique=True, min_size=1, max_size=4
)


@examples(300)
@given(
    distinct,
    st.lists(st.integers(1, 5), max_size=4),
    st.sampled_from(["", "final_result", "partial_result"]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
)
def test_no_text_is_seen_twice(
    said: list[str], cuts: list[int], result: str, repeated: bool, snapshots: bool, lost: int
) -> None:
    """An agent that narrates, streams its answer, repeats it as a result and in its last status, over a line
    that breaks."""
    *narration, answer = said
    frames = [says(text, text) for text in narration]
    pieces, rest = [], answer
    for cut in cuts:
        pieces, rest = [*pieces, rest[:cut]], rest[cut:]
    frames += [chunk("a", piece, append=number > 0) for number, piece in enumerate([*pieces, rest]) if piece]
    full_artifacts = [made("a", answer)]
    if result:
        frames.append(chunk("r", answer, result, last=True))
        full_artifacts.append(made("r", answer, result))
    last = answer if repeated else None
    end = task("completed", *full_artifacts, said=last) if snapshots or lost else told("completed", last)
    received = frames[: len(frames) - lost] if lost else frames
    transcript = seen(*received, end)
    assert transcript.answer == answer
    texts = [span.text for span in transcript.spans]
    assert texts.count(answer) == 1
    assert len(texts) == len(set(texts))
    assert "".join(texts).count(answer) == 1
