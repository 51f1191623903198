"""Hypothesis strategies: every kind of event, event lists in any order, and event lists as a run has them."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ai_platform_engineering.core.events import (
    SUPERVISOR,
    Answered,
    AnyEvent,
    Approval,
    Cancelled,
    Citation,
    DataPart,
    Decision,
    Failed,
    FieldType,
    FilePart,
    Form,
    InputField,
    InputRequested,
    InputResolved,
    MessageReceived,
    Notice,
    NoticeCode,
    Paused,
    PlanStep,
    PlanUpdated,
    Resolution,
    RunStarted,
    StepStatus,
    StoredEvent,
    TextDelta,
    TextDiscarded,
    TextEnded,
    TextPart,
    TextRole,
    ToolFinished,
    ToolOutcome,
    ToolProgress,
    ToolStarted,
    Usage,
    clean_text,
)
from tests.support.examples import scale_examples

Strategy = st.SearchStrategy[Any]


def examples(count: int) -> settings:
    """So many examples, scaled to the run."""
    return settings(
        max_examples=scale_examples(count), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


# What breaks line splitters, databases, protobuf and templates, next to what people write.
AWKWARD = [
    "\u2028",
    "\u2029",
    "\u0085",
    "\x00",
    "\x01text\x01",
    "\ud800",
    "\udc00",
    "\ud83d\ude00",
    "😀",
    "👩‍🚀",
    "\ufeff",
    '"',
    "\\",
    "\n",
    "é",
]

plain_text: Strategy = st.text(max_size=12)
awkward_text: Strategy = st.lists(
    st.sampled_from([*AWKWARD, "a", " word ", "918273645546372"]), max_size=6
).map("".join)
text: Strategy = plain_text | awkward_text
some_text: Strategy = st.builds(str.__add__, st.sampled_from(["a", "B ", "é", "😀"]), text)

finite: Strategy = st.floats(allow_nan=False, allow_infinity=False)
any_int: Strategy = st.integers() | st.sampled_from(
    [0, -1, 2**53, 2**53 + 1, 2**63, 2**64 + 1, -(2**70), 10**30]
)
scalar: Strategy = st.none() | st.booleans() | any_int | finite | text
json_value: Strategy = st.recursive(
    scalar,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=10,
)
json_object: Strategy = st.dictionaries(text, json_value, max_size=5)

optional_text: Strategy = st.none() | text
message_ids: Strategy = st.sampled_from(["m1", "m2", "m3"]) | text
call_ids: Strategy = st.sampled_from(["c1", "c2", "c1/c3"]) | text
request_ids: Strategy = st.sampled_from(["r1", "r2"]) | text
step_ids: Strategy = st.none() | st.sampled_from(["step-1", "step-2"]) | text
agents: Strategy = st.sampled_from([SUPERVISOR, "argocd", "jira"]) | text
parents: Strategy = st.none() | st.sampled_from(["c1", "c2"])
by: dict[str, Strategy] = {"agent": agents, "parent_call": parents}

part: Strategy = st.one_of(
    st.builds(TextPart, text=text),
    st.builds(DataPart, data=json_value),
    st.builds(FilePart, name=text, media_type=text, text=text),
)
plan_step: Strategy = st.builds(
    PlanStep,
    step_id=st.sampled_from(["step-1", "step-2", "step-3"]) | text,
    title=text,
    agent=agents,
    status=st.sampled_from(get_args(StepStatus)),
)
citation: Strategy = st.builds(Citation, title=text, url=optional_text, document_id=optional_text)
usage: Strategy = st.none() | st.builds(
    Usage, input_tokens=st.integers(0, 2**60), output_tokens=st.integers(0, 2**60)
)
input_field: Strategy = st.builds(
    InputField,
    field_name=text,
    field_label=optional_text,
    field_description=optional_text,
    field_type=st.sampled_from(get_args(FieldType)),
    field_values=st.none() | st.lists(text, max_size=3).map(tuple),
    default_value=json_value,
    required=st.booleans(),
    value=json_value,
    placeholder=optional_text,
    pattern=optional_text,
    minimum=st.none() | finite,
    maximum=st.none() | finite,
    min_length=st.none() | st.integers(0, 2**53),
    max_length=st.none() | st.integers(0, 2**53),
)
some_time: Strategy = st.none() | st.datetimes(timezones=st.just(UTC))
form: Strategy = st.builds(
    Form,
    title=optional_text,
    description=optional_text,
    response=text,
    fields=st.lists(input_field, max_size=3).map(tuple),
    expires_at=some_time,
)
approval: Strategy = st.builds(
    Approval,
    tool=text,
    arguments=json_object,
    arguments_schema=st.none() | json_object,
    reason=text,
    allowed=st.lists(st.sampled_from(get_args(Decision)), max_size=3).map(tuple),
    expires_at=some_time,
)

EVENTS: dict[str, Strategy] = {
    "run_started": st.builds(
        RunStarted,
        message_id=text,
        parts=st.lists(part, max_size=3).map(tuple),
        owner=text,
        principal=text,
        queued=st.booleans(),
        **by,
    ),
    "message_received": st.builds(
        MessageReceived,
        message_id=message_ids,
        parts=st.lists(part, max_size=3).map(tuple),
        principal=text,
        **by,
    ),
    "text_delta": st.builds(
        TextDelta,
        message_id=message_ids,
        offset=st.integers(0, 30),
        text=text,
        step_id=step_ids,
        slot=st.none() | message_ids,
        **by,
    ),
    "text_ended": st.builds(
        TextEnded,
        message_id=message_ids,
        role=st.sampled_from(get_args(TextRole)),
        slot=st.none() | message_ids,
        **by,
    ),
    "text_discarded": st.builds(
        TextDiscarded, message_id=message_ids, reason=text, slot=st.none() | message_ids, **by
    ),
    "tool_started": st.builds(
        ToolStarted,
        call_id=call_ids,
        tool=text,
        delegates=st.booleans(),
        knowledge=st.booleans(),
        arguments=json_object,
        step_id=step_ids,
        **by,
    ),
    "tool_progress": st.builds(
        ToolProgress,
        call_id=call_ids,
        tool=text,
        text=text,
        done=st.none() | finite,
        total=st.none() | finite,
        **by,
    ),
    "tool_finished": st.builds(
        ToolFinished,
        call_id=call_ids,
        tool=text,
        delegates=st.booleans(),
        knowledge=st.booleans(),
        outcome=st.sampled_from(get_args(ToolOutcome)),
        error=optional_text,
        result=optional_text,
        step_id=step_ids,
        **by,
    ),
    "plan_updated": st.builds(
        PlanUpdated, title=text, steps=st.lists(plan_step, max_size=4).map(tuple), **by
    ),
    "input_requested": st.builds(InputRequested, request_id=request_ids, asked=form | approval, **by),
    "input_resolved": st.builds(
        InputResolved,
        request_id=request_ids,
        resolution=st.sampled_from(get_args(Resolution)),
        by=text,
        value=json_value,
        **by,
    ),
    "notice": st.builds(
        Notice,
        code=st.sampled_from(get_args(NoticeCode)),
        text=text,
        position=st.none() | st.integers(0, 2**40),
        **by,
    ),
    "paused": st.builds(
        Paused,
        text=text,
        requests=st.lists(request_ids, max_size=2).map(tuple),
        wrong=st.dictionaries(
            request_ids.map(clean_text), st.dictionaries(text.map(clean_text), text, max_size=2), max_size=2
        ),
        held=optional_text,
        **by,
    ),
    "answered": st.builds(
        Answered,
        text=text,
        trace_id=text,
        data=json_value,
        citations=st.lists(citation, max_size=2).map(tuple),
        usage=usage,
        message_id=st.none() | message_ids,
        slot=st.none() | message_ids,
        **by,
    ),
    "failed": st.builds(
        Failed,
        message=text,
        trace_id=text,
        code=text,
        retryable=st.booleans(),
        partial=optional_text,
        usage=usage,
        **by,
    ),
    "cancelled": st.builds(Cancelled, trace_id=text, by=text, partial=optional_text, usage=usage, **by),
}

any_event: Strategy = st.one_of(*EVENTS.values())
any_events: Strategy = st.lists(any_event, max_size=9)

_START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def numbered(events: Sequence[AnyEvent], first: int = 1) -> list[StoredEvent]:
    """The events as a log would have stored them."""
    return [
        StoredEvent(first + index, _START + timedelta(milliseconds=index), event)
        for index, event in enumerate(events)
    ]


# --- lists as a run writes them -----------------------------------------------------------------------------


class _Writer:
    """Draws a run: every message has one owner, calls end inside their delegation, and ids are used once."""

    def __init__(self, draw: Callable[[Strategy], Any]) -> None:
        self._draw, self._ids = draw, 0
        self._steps: tuple[PlanStep, ...] = ()

    def run(self) -> list[AnyEvent]:
        parts = self._draw(st.lists(part, min_size=1, max_size=2).map(tuple))
        events: list[AnyEvent] = [RunStarted(message_id="question", parts=parts, owner="me", principal="me")]
        for _ in range(self._draw(st.integers(0, 4))):
            events += self._block()
        return events + self._end()

    def _next(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}{self._ids}"

    def _block(self) -> list[AnyEvent]:
        return self._draw(
            st.sampled_from(
                [
                    self._message,
                    self._retried,
                    self._tool,
                    self._parallel,
                    self._plan,
                    self._notice,
                    self._asked,
                ]
            )
        )()

    def _message(
        self, agent: str = SUPERVISOR, parent: str | None = None, slot: str | None = None
    ) -> list[AnyEvent]:
        message_id = self._next("m")
        role: TextRole = "delegated" if parent else self._draw(st.sampled_from(["narration", "answer"]))
        ended = TextEnded(message_id=message_id, role=role, slot=slot, agent=agent, parent_call=parent)
        return [*self._deltas(message_id, agent, parent, slot), ended]

    def _deltas(self, message_id: str, agent: str, parent: str | None, slot: str | None) -> list[AnyEvent]:
        step = self._draw(st.sampled_from([None, *(step.step_id for step in self._steps)]))
        deltas: list[AnyEvent] = []
        offset = 0
        for piece in self._draw(st.lists(some_text, min_size=1, max_size=4)):
            delta = TextDelta(
                message_id=message_id,
                offset=offset,
                text=piece,
                step_id=step,
                slot=slot,
                agent=agent,
                parent_call=parent,
            )
            deltas.append(delta)
            offset += len(delta.text)
        return deltas

    def _retried(self, agent: str = SUPERVISOR, parent: str | None = None) -> list[AnyEvent]:
        first = self._next("m")
        void = TextDiscarded(message_id=first, reason="ConnectionError", agent=agent, parent_call=parent)
        again = self._message(agent, parent, slot=first) if self._draw(st.booleans()) else []
        return [*self._deltas(first, agent, parent, None), void, *again]

    def _tool(self, agent: str = SUPERVISOR, parent: str | None = None) -> list[AnyEvent]:
        call: dict[str, Any] = {
            "call_id": self._next("c"),
            "tool": "version_service__version",
            "agent": agent,
            "parent_call": parent,
        }
        knowledge = parent is None and self._draw(st.booleans())
        outcome = self._draw(st.sampled_from(get_args(ToolOutcome)))
        progress = [
            ToolProgress(**call, text=progress_text)
            for progress_text in self._draw(st.lists(text, max_size=1))
        ]
        return [
            ToolStarted(**call, knowledge=knowledge, arguments=self._draw(json_object)),
            *progress,
            ToolFinished(**call, knowledge=knowledge, outcome=outcome, result=self._draw(optional_text)),
        ]

    def _parallel(self) -> list[AnyEvent]:
        """One or more delegations at once: each keeps its order, what they do is mixed."""
        queues = [self._delegation() for _ in range(self._draw(st.integers(1, 3)))]
        mixed: list[AnyEvent] = []
        while queues:
            queue = queues[self._draw(st.integers(0, len(queues) - 1))]
            mixed.append(queue.pop(0))
            queues = [queue for queue in queues if queue]
        return mixed

    def _delegation(self) -> list[AnyEvent]:
        call_id, agent = self._next("c"), self._draw(st.sampled_from(["argocd", "jira"]))
        step = next((step.step_id for step in self._steps if step.agent == agent), None)
        call: dict[str, Any] = {"call_id": call_id, "tool": agent, "delegates": True, "step_id": step}
        inner: list[AnyEvent] = []
        for _ in range(self._draw(st.integers(0, 2))):
            inner += self._draw(st.sampled_from([self._message, self._retried, self._tool]))(agent, call_id)
        outcome = self._draw(st.sampled_from(get_args(ToolOutcome)))
        return [
            ToolStarted(**call, arguments={"subagent_type": agent}),
            *inner,
            ToolFinished(**call, outcome=outcome),
        ]

    def _plan(self) -> list[AnyEvent]:
        titles = self._draw(st.lists(some_text, max_size=3))
        self._steps = tuple(
            PlanStep(
                step_id=f"step-{number}",
                title=title,
                agent=self._draw(st.sampled_from([SUPERVISOR, "argocd", "jira"])),
                status=self._draw(st.sampled_from(get_args(StepStatus))),
            )
            for number, title in enumerate(titles, 1)
        )
        return [PlanUpdated(title=self._draw(text), steps=self._steps)]

    def _notice(self) -> list[AnyEvent]:
        return [Notice(code="info", text=self._draw(some_text))]

    def _asked(self) -> list[AnyEvent]:
        request_id = self._next("r")
        return [
            InputRequested(request_id=request_id, asked=self._draw(form | approval)),
            Paused(text="I need your input to go on.", requests=(request_id,)),
            MessageReceived(message_id=self._next("a"), parts=(TextPart(text="Here."),), principal="me"),
            InputResolved(request_id=request_id, resolution="answered", value=self._draw(json_value)),
        ]

    def _streamed_answer(self, trace: str) -> list[AnyEvent]:
        """An answer that was streamed, perhaps after a discarded attempt."""
        slot = self._next("m") if self._draw(st.booleans()) else None
        void: list[AnyEvent] = []
        if slot is not None:
            void = [*self._deltas(slot, SUPERVISOR, None, None), TextDiscarded(message_id=slot, reason="x")]
        message_id = self._next("m")
        deltas = self._deltas(message_id, SUPERVISOR, None, slot)
        answer = Answered(
            text="".join(delta.text for delta in deltas if isinstance(delta, TextDelta)),
            trace_id=trace,
            data=self._draw(st.none() | json_object),
            message_id=message_id,
            slot=slot,
        )
        ended = TextEnded(message_id=message_id, role="answer", slot=slot)
        return [*void, *deltas, ended, answer]

    def _end(self) -> list[AnyEvent]:
        trace = "0" * 32
        ends: list[list[AnyEvent]] = [
            [],
            self._streamed_answer(trace),
            [*self._deltas(self._next("m"), SUPERVISOR, None, None)],
            [
                Answered(
                    text=self._draw(some_text),
                    trace_id=trace,
                    data=self._draw(st.none() | json_object),
                    usage=Usage(),
                )
            ],
            [Failed(message="It broke.", trace_id=trace, partial=self._draw(optional_text))],
            [Cancelled(by="me", trace_id=trace, partial=self._draw(optional_text))],
            [
                InputRequested(request_id="last", asked=self._draw(form)),
                Paused(text="And now?", requests=("last",)),
            ],
        ]
        return self._draw(st.sampled_from(ends))


@st.composite
def run_events(draw: Callable[[Strategy], Any]) -> list[AnyEvent]:
    """The events of one run, whole or broken off, as a translator and a log give them."""
    return _Writer(draw).run()


# --- the same words in other pieces -------------------------------------------------------------------------


@st.composite
def resplit(draw: Callable[[Strategy], Any], events: Sequence[AnyEvent]) -> list[AnyEvent]:
    """The events with each delta cut in pieces, or joined with the one before, at random."""
    out: list[AnyEvent] = []
    for event in events:
        if not isinstance(event, TextDelta):
            out.append(event)
            continue
        last = out[-1] if out else None
        if isinstance(last, TextDelta) and _continues(last, event) and draw(st.booleans()):
            out[-1] = last.model_copy(update={"text": last.text + event.text})
            continue
        cuts = sorted(draw(st.lists(st.integers(0, len(event.text)), max_size=3)))
        for start, end in zip([0, *cuts], [*cuts, len(event.text)], strict=True):
            out.append(
                event.model_copy(update={"offset": event.offset + start, "text": event.text[start:end]})
            )
    return out


def _continues(last: TextDelta, event: TextDelta) -> bool:
    return last.message_id == event.message_id and event.offset == last.offset + len(last.text)
