"""The transcript: what a reader sees of a run, however its events were cut, and which texts are an echo."""

from collections.abc import Sequence
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.a2a.snapshot_events import join_deltas
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Approval,
    Cancelled,
    Citation,
    Failed,
    Form,
    InputField,
    InputRequested,
    InputResolved,
    MessageReceived,
    Notice,
    Paused,
    PlanStep,
    PlanUpdated,
    RunStarted,
    StepStatus,
    TextDelta,
    TextDiscarded,
    TextEnded,
    TextPart,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    Usage,
)
from ai_platform_engineering.core.settings import StreamSettings
from ai_platform_engineering.core.transcript import Span, Transcript, fold
from ai_platform_engineering.runtime.log.log_rows import NewRun
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.runtime.runs.closing_events import closing_events
from ai_platform_engineering.runtime.runs.run_writer import RunWriters
from tests.support import strategies as given_by

TRACE = "0" * 32
QUESTION = RunStarted(message_id="q", parts=(TextPart(text="Which version?"),))


def text_delta(text: str, message_id: str = "m", **more: Any) -> TextDelta:
    return TextDelta(message_id=message_id, offset=0, text=text, **more)


def delegation(agent: str = "argocd", call_id: str = "c1", **more: Any) -> list[AnyEvent]:
    call: dict[str, Any] = {"call_id": call_id, "tool": agent, "delegates": True}
    return [ToolStarted(**call), ToolFinished(**call, **more)]


def tool(name: str = "search", call_id: str = "c9", **more: Any) -> list[AnyEvent]:
    call: dict[str, Any] = {"call_id": call_id, "tool": name, **more}
    return [ToolStarted(**call), ToolFinished(**call)]


def plan(*statuses: StepStatus) -> PlanUpdated:
    steps = (
        PlanStep(step_id=f"step-{n}", title=f"Step {n}", agent="argocd", status=status)
        for n, status in enumerate(statuses, 1)
    )
    return PlanUpdated(title="Plan", steps=tuple(steps))


def span_of(events: Sequence[AnyEvent], message_id: str = "m") -> Span:
    [span] = [span for span in fold(events).spans if span.message_id == message_id]
    return span


# --- properties ---------------------------------------------------------------------------------------------


@given_by.examples(60)
@given(data=st.data(), events=given_by.any_events)
def test_the_transcript_is_the_same_however_deltas_are_split_or_joined(
    data: st.DataObject, events: list[AnyEvent]
) -> None:
    assert fold(data.draw(given_by.resplit(events))) == fold(events)


@given_by.examples(40)
@given(data=st.data(), events=given_by.run_events())
def test_a_run_reads_the_same_however_its_deltas_are_split_or_joined(
    data: st.DataObject, events: list[AnyEvent]
) -> None:
    assert fold(data.draw(given_by.resplit(events))) == fold(events)


@given_by.examples(60)
@given(events=given_by.any_events)
def test_joining_each_message_where_it_began_changes_nothing(events: list[AnyEvent]) -> None:
    assert fold(item.event for item in join_deltas(given_by.numbered(events))) == fold(events)


@given_by.examples(25)
@given(events=given_by.run_events(), size=st.integers(1, 30))
async def test_what_the_writer_stores_reads_like_what_was_said(events: list[AnyEvent], size: int) -> None:
    log, started = MemoryLog(), events[0]
    assert isinstance(started, RunStarted)
    row, _ = await log.create(NewRun("run", "context", "me", "q", "digest", started, lasting_id=True))
    writers = RunWriters(log, StreamSettings.model_validate({"every": 3600, "size": size}))
    writer = writers.open(row.run_id, row.epoch)
    for event in events[1:]:
        await writer.write(event)
    await writer.close()
    stored = [item.event for item in await log.read(row.run_id, limit=10_000)]
    assert fold(stored) == fold(events)
    assert len(stored) <= len(events)


@given_by.examples(60)
@given(events=given_by.any_events)
def test_any_events_in_any_order_make_a_transcript(events: list[AnyEvent]) -> None:
    transcript = fold(events)
    assert len({span.message_id for span in transcript.spans}) == len(transcript.spans)
    assert len({call.call_id for call in transcript.calls}) == len(transcript.calls)
    assert len({request.request_id for request in transcript.requests}) == len(transcript.requests)


@given_by.examples(40)
@given(events=given_by.run_events(), at=st.integers(0, 40))
def test_a_reader_that_comes_back_goes_on_where_it_was(events: list[AnyEvent], at: int) -> None:
    assert fold(events[at:], fold(events[:at])) == fold(events)


@given_by.examples(40)
@given(events=given_by.run_events(), data=st.data())
def test_a_delta_that_comes_twice_does_no_harm(events: list[AnyEvent], data: st.DataObject) -> None:
    doubled: list[AnyEvent] = []
    for event in events:
        doubled += [event, event] if isinstance(event, TextDelta) and data.draw(st.booleans()) else [event]
    assert fold(doubled) == fold(events)


@given_by.examples(60)
@given(events=given_by.any_events, answered=st.booleans())
def test_closing_leaves_nothing_open(events: list[AnyEvent], answered: bool) -> None:
    transcript = fold(events)
    after = fold(closing_events(transcript, answered=answered), transcript)
    assert after.running == ()
    assert after.requests == ()
    assert after.plan is None or after.plan.open_steps() == ()
    assert list(closing_events(after, answered=answered)) == []


# --- every kind does something ------------------------------------------------------------------------------

EFFECTS: list[tuple[AnyEvent, dict[str, Any]]] = [
    (QUESTION, {"state": "working", "question": QUESTION.parts}),
    (text_delta("Hello"), {"text": "Hello"}),
    (TextEnded(message_id="open", role="answer"), {"unfinished": None}),
    (TextDiscarded(message_id="open"), {"spans": ()}),
    (ToolStarted(call_id="c", tool="x"), {"running": ["running", "c"]}),
    (ToolProgress(call_id="running", tool="x", text="half"), {"progress": "half"}),
    (ToolFinished(call_id="running", tool="x"), {"running": []}),
    (plan("pending"), {"plan": "Plan"}),
    (InputRequested(request_id="r2", asked=Form(response="Which?")), {"pending": ["r1", "r2"]}),
    (
        InputResolved(request_id="r1", resolution="answered"),
        {"pending": [], "state": "working", "waiting_for": ""},
    ),
    (Notice(code="info", text="Hm."), {"notices": ["Hm."]}),
    (
        Paused(text="I need input.", requests=("r1",)),
        {"state": "input-required", "waiting_for": "I need input."},
    ),
    (
        Paused(
            text="I need input.",
            requests=("r1",),
            wrong={"r1": {"repo": "Repository is required."}},
            held="What?",
        ),
        {
            "state": "input-required",
            "waiting_for": "I need input.",
            "wrong": {"r1": {"repo": "Repository is required."}},
            "held": "What?",
        },
    ),
    (
        Answered(
            text="3.2",
            trace_id=TRACE,
            data={"n": 1},
            citations=(Citation(title="Doc"),),
            usage=Usage(input_tokens=1),
        ),
        {
            "state": "completed",
            "answer": "3.2",
            "trace_id": TRACE,
            "data": {"n": 1},
            "citations": (Citation(title="Doc"),),
            "pending": [],
        },
    ),
    (
        Failed(message="It broke.", trace_id=TRACE, retryable=True, partial="So f"),
        {
            "state": "failed",
            "error": "It broke.",
            "retryable": True,
            "partial": "So f",
            "trace_id": TRACE,
            "pending": [],
        },
    ),
    (
        Cancelled(trace_id=TRACE, partial="So f"),
        {"state": "canceled", "partial": "So f", "trace_id": TRACE, "pending": []},
    ),
]

BEFORE: list[AnyEvent] = [
    text_delta("Wri", "open"),
    ToolStarted(call_id="running", tool="x"),
    InputRequested(request_id="r1", asked=Form(response="Sure?")),
]


def view(transcript: Transcript) -> dict[str, Any]:
    """What a surface would draw."""
    fields = {
        name: getattr(transcript, name)
        for name in ("state", "question", "spans", "waiting_for", "answer", "data", "citations", "partial")
    }
    return fields | {
        "wrong": transcript.wrong,
        "held": transcript.held,
        "error": transcript.error,
        "retryable": transcript.retryable,
        "trace_id": transcript.trace_id,
        "text": transcript.text.removeprefix("Wri").strip(),
        "unfinished": transcript.unfinished_text(),
        "running": [call.call_id for call in transcript.running],
        "progress": transcript.calls[0].progress,
        "plan": transcript.plan and transcript.plan.title,
        "pending": [request.request_id for request in transcript.requests],
        "notices": [notice.text for notice in transcript.notices],
    }


def test_the_table_of_effects_covers_every_kind() -> None:
    without_effect = {MessageReceived}  # people see what became of their answer, not the answer again
    assert {type(event) for event, _ in EFFECTS} == set(get_args(AnyEvent)) - without_effect
    before = fold(BEFORE)
    assert before.apply(MessageReceived(message_id="u", parts=QUESTION.parts)) == before


@pytest.mark.parametrize(("event", "effect"), EFFECTS, ids=[event.kind for event, _ in EFFECTS])
def test_a_reader_sees_of_an_event(event: AnyEvent, effect: dict[str, Any]) -> None:
    before = fold(BEFORE)
    after_event = view(before.apply(event))
    assert {name: after_event[name] for name in effect} == effect
    assert {name: view(before)[name] for name in effect} != effect


def test_a_transcript_is_never_changed_in_place() -> None:
    before = fold(BEFORE)
    again = fold(BEFORE)
    for event, _ in EFFECTS:
        before.apply(event)
    assert before == again


# --- the echo rule ------------------------------------------------------------------------------------------


def test_without_a_plan_text_after_a_delegation_is_an_echo() -> None:
    assert span_of([QUESTION, *delegation(), text_delta("Argo CD says 3.2.")]).echo


def test_without_a_plan_text_before_any_tool_shows() -> None:
    assert not span_of([QUESTION, text_delta("I look first.")]).echo


def test_without_a_plan_text_while_a_delegation_runs_shows() -> None:
    assert not span_of([QUESTION, delegation()[0], text_delta("Meanwhile.")]).echo


def test_a_failed_delegation_is_a_delegation() -> None:
    assert span_of([QUESTION, *delegation(outcome="error"), text_delta("Argo CD failed.")]).echo


@pytest.mark.parametrize("name", ["search", "fetch_document", "list_datasources", "fetch_url"])
def test_text_after_a_knowledge_tool_shows(name: str) -> None:
    assert not span_of([QUESTION, *tool(name, knowledge=True), text_delta("The documents say 3.2.")]).echo


def test_text_after_a_knowledge_tool_shows_also_after_an_earlier_delegation() -> None:
    events = [
        QUESTION,
        *delegation(),
        text_delta("Argo CD says 3.2.", "m1"),
        *tool(knowledge=True),
        text_delta("The documents agree.", "m2"),
    ]
    assert span_of(events, "m1").echo
    assert not span_of(events, "m2").echo


def test_text_after_an_own_tool_that_is_not_of_the_knowledge_base_shows() -> None:
    assert not span_of([QUESTION, *delegation(), *tool("clock"), text_delta("It is noon.")]).echo


def test_a_tool_inside_the_delegation_is_not_the_tool_that_finished_last() -> None:
    inner = tool("version", "c1/c2", agent="argocd", parent_call="c1")
    start, end = delegation()
    assert span_of([QUESTION, start, *inner, end, text_delta("3.2.")]).echo
    late = [start, end, *tool("version", "c1/c3", agent="argocd", parent_call="c1"), text_delta("3.2.")]
    assert span_of([QUESTION, *late]).echo


def test_writing_a_plan_is_not_the_tool_that_finished_last() -> None:
    """`write_todos` gives no tool event: an empty plan between the delegation and the text is ignored."""
    assert span_of([QUESTION, *delegation(), plan(), text_delta("3.2.")]).echo


def test_a_sub_agents_own_text_is_never_an_echo() -> None:
    assert not span_of([QUESTION, *delegation(), text_delta("3.2.", agent="jira", parent_call="c2")]).echo


@pytest.mark.parametrize(
    ("statuses", "thinking_of", "answering"),
    [
        (("in_progress", "pending"), "step-1", False),
        (("completed", "in_progress", "pending"), "step-2", False),
        (("pending", "pending"), "step-1", False),
        (("in_progress", "in_progress"), "step-1", False),
        (("completed", "in_progress"), None, True),
        (("completed", "pending"), None, True),
        (("completed", "completed"), None, True),
        (("failed", "skipped"), None, True),
    ],
)
def test_with_a_plan_text_shows_and_an_intermediate_steps_text_is_its_thinking(
    statuses: tuple[StepStatus, ...], thinking_of: str | None, answering: bool
) -> None:
    events = [QUESTION, *delegation(), plan(*statuses), text_delta("Next.")]
    span = span_of(events)
    assert not span.echo
    assert span.thinking_of == thinking_of
    transcript = fold(events)
    assert transcript.answering is answering
    assert transcript.thinking(thinking_of or "step-1") == ("Next." if thinking_of else "")


def test_a_text_that_names_its_step_is_that_steps_thinking() -> None:
    transcript = fold(
        [QUESTION, plan("in_progress", "in_progress", "pending"), text_delta("B.", step_id="step-2")]
    )
    assert (transcript.thinking("step-1"), transcript.thinking("step-2")) == ("", "B.")


def test_once_the_answer_has_begun_nothing_is_an_echo() -> None:
    begun = [QUESTION, plan("completed", "in_progress"), text_delta("Now the answer.", "m1")]
    more_work = [*delegation(call_id="c5"), plan(), text_delta("It is 3.2.", "m2")]
    assert not span_of([*begun, *more_work], "m2").echo
    assert span_of([QUESTION, *more_work], "m2").echo


def test_once_the_answer_has_begun_text_is_no_steps_thinking() -> None:
    transcript = fold(
        [
            QUESTION,
            plan("in_progress"),
            text_delta("Answer.", "m1"),
            plan("in_progress", "pending"),
            text_delta("More.", "m2"),
        ]
    )
    assert [span.thinking_of for span in transcript.spans] == [None, None]


def test_the_label_is_given_when_a_message_begins() -> None:
    events = [
        QUESTION,
        text_delta("I ask ", "m"),
        *delegation(),
        TextDelta(message_id="m", offset=6, text="Argo CD."),
    ]
    assert span_of(events) == Span("m", "I ask Argo CD.", echo=False)


# --- calls, requests, texts ---------------------------------------------------------------------------------


def test_running_calls_are_those_without_an_end_inner_ones_included() -> None:
    inner = ToolStarted(call_id="c1/c2", tool="version", agent="argocd", parent_call="c1")
    transcript = fold(
        [
            delegation()[0],
            inner,
            ToolStarted(call_id="c3", tool="search"),
            ToolFinished(call_id="c3", tool="search"),
        ]
    )
    assert [(call.call_id, call.agent, call.delegates) for call in transcript.running] == [
        ("c1", "supervisor", True),
        ("c1/c2", "argocd", False),
    ]


def test_an_end_without_a_start_is_a_call_that_ended() -> None:
    [call] = fold([ToolFinished(call_id="c", tool="search", outcome="error", error="boom")]).calls
    assert (call.tool, call.outcome, call.error) == ("search", "error", "boom")


def test_the_end_of_a_call_keeps_its_arguments_and_step() -> None:
    events = [
        ToolStarted(call_id="c", tool="x", arguments={"b": 1, "a": 2}, step_id="step-1"),
        ToolFinished(call_id="c", tool="x"),
    ]
    [call] = fold(events).calls
    assert (list(call.arguments), call.step_id) == (["b", "a"], "step-1")


def test_several_requests_can_be_pending_and_each_is_resolved_alone() -> None:
    form = Form(response="Name?", fields=(InputField(field_name="name"),))
    events: list[AnyEvent] = [
        InputRequested(request_id="r1", asked=form),
        InputRequested(request_id="r2", asked=Approval(tool="delete", arguments={"n": 1}), agent="k8s"),
        Paused(text="I need input.", requests=("r1", "r2")),
    ]
    assert [(request.request_id, request.agent, request.asked) for request in fold(events).requests] == [
        ("r1", "supervisor", form),
        ("r2", "k8s", Approval(tool="delete", arguments={"n": 1})),
    ]
    resolved = InputResolved(request_id="r1", resolution="answered", by="ann", value={"name": "x"})
    transcript = fold([*events, resolved])
    assert [request.request_id for request in transcript.requests] == ["r2"]
    assert transcript.resolved == (resolved,)


@pytest.mark.parametrize(
    "event",
    [
        InputResolved(request_id="r1", resolution="answered"),
        Paused(text="Again."),
        Answered(text="Done.", trace_id=TRACE),
        Failed(message="No.", trace_id=TRACE),
        Cancelled(trace_id=TRACE),
    ],
    ids=lambda event: event.kind,
)
def test_what_was_wrong_with_an_answer_is_shown_until_something_else_happens(event: AnyEvent) -> None:
    request = InputRequested(request_id="r1", asked=Form(response="Name?"))
    transcript = fold(
        [
            request,
            Paused(text="?", requests=("r1",), wrong={"r1": {"name": "Name is required."}}, held="What?"),
        ]
    )
    assert (transcript.wrong, transcript.held) == ({"r1": {"name": "Name is required."}}, "What?")
    after = transcript.apply(Notice(code="info", text="Hm.")).apply(event)
    assert (after.wrong, after.held) == ({}, None)


def test_a_discarded_message_is_gone_and_what_replaces_it_stands_alone() -> None:
    events: list[AnyEvent] = [
        text_delta("I lo", "first"),
        TextDiscarded(message_id="first"),
        text_delta("I look.", "second", slot="first"),
        TextEnded(message_id="second", role="narration"),
    ]
    transcript = fold(events)
    assert transcript.text == "I look."
    assert transcript.unfinished_text() is None


def test_what_was_being_written_is_the_unfinished_text() -> None:
    inner = text_delta("Inner", "m9", agent="argocd", parent_call="c1")
    transcript = fold(
        [
            text_delta("Done.", "m1"),
            TextEnded(message_id="m1", role="narration"),
            text_delta("The answ", "m2"),
            inner,
        ]
    )
    assert transcript.unfinished_text() == "The answ"


# --- closing ------------------------------------------------------------------------------------------------


def test_closing_ends_inner_calls_before_the_delegation_around_them() -> None:
    inner = ToolStarted(call_id="c1/c2", tool="version", agent="argocd", parent_call="c1", step_id="step-1")
    ends = list(closing_events(fold([delegation()[0], inner]), answered=False))
    assert [end.call_id for end in ends if isinstance(end, ToolFinished)] == ["c1/c2", "c1"]
    first = ends[0]
    assert isinstance(first, ToolFinished)
    assert (first.agent, first.parent_call, first.step_id, first.outcome) == (
        "argocd",
        "c1",
        "step-1",
        "unknown",
    )


def test_closing_withdraws_what_was_asked() -> None:
    ends = list(
        closing_events(fold([InputRequested(request_id="r1", asked=Form(), agent="k8s")]), answered=False)
    )
    assert ends == [InputResolved(request_id="r1", resolution="withdrawn", agent="k8s")]


@pytest.mark.parametrize(("answered", "status"), [(True, "completed"), (False, "failed")])
def test_closing_settles_the_plan(answered: bool, status: StepStatus) -> None:
    search = [
        ToolStarted(call_id="s", tool="search", step_id="step-3"),
        ToolFinished(call_id="s", tool="search", step_id="step-3"),
    ]
    events = [*search, plan("completed", "failed", "in_progress", "pending")]
    ends = list(closing_events(fold(events), answered=answered))
    assert ends == [plan("completed", "failed", status, "skipped")]


def test_closing_fails_the_step_of_a_delegation_that_it_ends() -> None:
    started = ToolStarted(call_id="d", tool="argocd", delegates=True, step_id="step-1")
    ends = list(closing_events(fold([plan("in_progress"), started]), answered=True))
    assert ends[1:] == [plan("failed")]


def test_closing_says_nothing_when_nothing_is_open() -> None:
    events = [
        QUESTION,
        plan("completed", "failed"),
        *delegation(),
        text_delta("3.2."),
        TextEnded(message_id="m", role="answer"),
    ]
    assert list(closing_events(fold(events), answered=True)) == []
