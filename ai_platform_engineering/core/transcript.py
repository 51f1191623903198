"""The fold: from events to what a reader sees. Pure and total; every surface draws it, none decides."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never

from ai_platform_engineering.core.events import (
    SUPERVISOR,
    Answered,
    AnyEvent,
    Approval,
    Cancelled,
    Citation,
    DataPart,
    Failed,
    FilePart,
    Form,
    InputRequested,
    InputResolved,
    Notice,
    Paused,
    PlanUpdated,
    RunStarted,
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
)
from ai_platform_engineering.core.plan import Plan

TranscriptState = Literal["submitted", "working", "input-required", "completed", "failed", "canceled"]


@dataclass(frozen=True, slots=True)
class Span:
    """One message's text. The role is known at its end; `echo` repeats what a delegate said (Slack hides it)."""

    message_id: str
    text: str = ""
    agent: str = SUPERVISOR
    parent_call: str | None = None
    step_id: str | None = None
    role: TextRole | None = None
    echo: bool = False
    thinking_of: str | None = None  # the intermediate step whose thinking this is


@dataclass(frozen=True, slots=True)
class ToolCallView:
    """A tool call or a delegation; no outcome means that it runs."""

    call_id: str
    tool: str
    agent: str = SUPERVISOR
    parent_call: str | None = None
    delegates: bool = False
    knowledge: bool = False
    arguments: dict[str, object] = field(default_factory=dict)
    step_id: str | None = None
    outcome: ToolOutcome | None = None
    error: str | None = None
    result: str | None = None
    progress: str = ""


@dataclass(frozen=True, slots=True)
class PendingInput:
    request_id: str
    asked: Form | Approval
    agent: str = SUPERVISOR


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a reader of one run sees."""

    state: TranscriptState = "submitted"
    question: tuple[TextPart | DataPart | FilePart, ...] = ()
    spans: tuple[Span, ...] = ()
    discarded: frozenset[str] = frozenset()  # the ids of messages that are void; they are not used again
    plan: Plan | None = None
    calls: tuple[ToolCallView, ...] = ()
    requests: tuple[PendingInput, ...] = ()
    resolved: tuple[InputResolved, ...] = ()
    notices: tuple[Notice, ...] = ()
    waiting_for: str = ""
    wrong: dict[str, dict[str, str]] = field(
        default_factory=dict
    )  # what could not be taken of the last answer, by request and field
    held: str | None = None  # what was said while the run waited, and was no answer
    answer: str | None = None
    data: object = None
    citations: tuple[Citation, ...] = ()
    partial: str | None = None
    error: str | None = None
    retryable: bool = False
    trace_id: str | None = None
    usage: Usage | None = None
    answering: bool = False  # the final answer has begun; from here on nothing is an echo
    last_finished: ToolCallView | None = None

    def apply(self, event: AnyEvent) -> "Transcript":
        match event:
            case TextDelta():
                return self._write(event)
            case TextEnded():
                return self._edit_span(event.message_id, role=event.role)
            case TextDiscarded():
                kept_spans = tuple(span for span in self.spans if span.message_id != event.message_id)
                return replace(self, spans=kept_spans, discarded=self.discarded | {event.message_id})
            case ToolStarted() | ToolProgress() | ToolFinished():
                return self._apply_tool(event)
            case PlanUpdated():
                return replace(self, plan=Plan(title=event.title, steps=event.steps))
            case InputRequested():
                kept = tuple(request for request in self.requests if request.request_id != event.request_id)
                return replace(
                    self, requests=(*kept, PendingInput(event.request_id, event.asked, event.agent))
                )
            case InputResolved():
                kept = tuple(request for request in self.requests if request.request_id != event.request_id)
                return replace(
                    self,
                    requests=kept,
                    resolved=(*self.resolved, event),
                    state="working",
                    waiting_for="",
                    wrong={},
                    held=None,
                )
            case Notice():
                return replace(self, notices=(*self.notices, event))
            case RunStarted():
                return replace(self, question=event.parts, state="working")
            case Paused():
                return replace(
                    self, state="input-required", waiting_for=event.text, wrong=event.wrong, held=event.held
                )
            case Answered() | Failed() | Cancelled():
                return self._end(event)
            case _:
                assert_never(event)

    @property
    def running(self) -> tuple[ToolCallView, ...]:
        """What runs now."""
        return tuple(call for call in self.calls if call.outcome is None)

    @property
    def text(self) -> str:
        """The supervisor's words so far, one paragraph per message."""
        return "\n\n".join(span.text for span in self.spans if span.parent_call is None and span.text)

    def thinking(self, step_id: str) -> str:
        """What the supervisor said during an intermediate step."""
        return "".join(span.text for span in self.spans if span.thinking_of == step_id)

    def unfinished_text(self) -> str | None:
        """The supervisor's message that was being written; what remains of an answer when a run ends early."""
        open_spans = [
            span for span in self.spans if span.parent_call is None and span.role is None and span.text
        ]
        if open_spans:
            return open_spans[-1].text
        return None

    def _write(self, event: TextDelta) -> "Transcript":
        for index, span in enumerate(self.spans):
            if span.message_id == event.message_id:
                # An offset inside what is there replaces the rest: a repeated delta does no harm.
                text = (
                    span.text + event.text
                    if event.offset >= len(span.text)
                    else span.text[: event.offset] + event.text
                )
                return replace(
                    self, spans=(*self.spans[:index], replace(span, text=text), *self.spans[index + 1 :])
                )
        span = Span(event.message_id, event.text, event.agent, event.parent_call, event.step_id)
        if event.parent_call is not None:
            return replace(self, spans=(*self.spans, span))
        return self._label(span)

    def _label(self, span: Span) -> "Transcript":
        """The echo rule, decided when a message of the supervisor begins; the first case that matches counts."""
        if self.answering:
            return replace(self, spans=(*self.spans, span))
        if self.plan is not None and self.plan.steps:
            open_steps = self.plan.open_steps()
            if len(open_steps) <= 1:
                return replace(self, spans=(*self.spans, span), answering=True)
            thinking_of = span.step_id or self.plan.current_step() or open_steps[0].step_id
            return replace(self, spans=(*self.spans, replace(span, thinking_of=thinking_of)))
        last = self.last_finished
        return replace(self, spans=(*self.spans, replace(span, echo=last is not None and last.delegates)))

    def _edit_span(self, message_id: str, *, role: TextRole) -> "Transcript":
        spans = tuple(
            replace(span, role=role) if span.message_id == message_id else span for span in self.spans
        )
        return replace(self, spans=spans)

    def _apply_tool(self, event: ToolStarted | ToolProgress | ToolFinished) -> "Transcript":
        known = next((call for call in self.calls if call.call_id == event.call_id), None)
        call = known or ToolCallView(event.call_id, event.tool, event.agent, event.parent_call)
        match event:
            case ToolStarted():
                call = replace(
                    call,
                    delegates=event.delegates,
                    knowledge=event.knowledge,
                    arguments=dict(event.arguments),
                    step_id=event.step_id,
                )
            case ToolProgress():
                call = replace(call, progress=event.text)
            case ToolFinished():
                call = replace(
                    call,
                    delegates=event.delegates,
                    knowledge=event.knowledge,
                    step_id=event.step_id or call.step_id,
                    outcome=event.outcome,
                    error=event.error,
                    result=event.result,
                )
        calls = tuple(call if old is known else old for old in self.calls) if known else (*self.calls, call)
        ended = isinstance(event, ToolFinished) and event.parent_call is None
        return replace(self, calls=calls, last_finished=call if ended else self.last_finished)

    def _end(self, event: Answered | Failed | Cancelled) -> "Transcript":
        over = replace(
            self, trace_id=event.trace_id, usage=event.usage, requests=(), waiting_for="", wrong={}, held=None
        )
        match event:
            case Answered():
                return replace(
                    over, state="completed", answer=event.text, data=event.data, citations=event.citations
                )
            case Failed():
                return replace(
                    over,
                    state="failed",
                    error=event.message,
                    retryable=event.retryable,
                    partial=event.partial,
                )
            case Cancelled():
                return replace(over, state="canceled", partial=event.partial)


def fold(events: Iterable[AnyEvent], start: Transcript | None = None) -> Transcript:
    """What a reader sees after the events."""
    transcript = Transcript() if start is None else start
    for event in events:
        transcript = transcript.apply(event)
    return transcript
