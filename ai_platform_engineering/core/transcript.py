"""The transcript of a run, folded from its events. Pure and total: every client renders it, none decides."""

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
    MessageReceived,
    Notice,
    Paused,
    PlanUpdated,
    RunStarted,
    TerminalEvent,
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
    """The text of one message. Its role is known at its end; an `echo` repeats a sub-agent."""

    message_id: str
    text: str = ""
    agent: str = SUPERVISOR
    parent_call: str | None = None
    step_id: str | None = None
    slot: str | None = None  # the first attempt's message id, if this message replaces a discarded one
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
    """A request that waits for a person."""

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
    )  # errors of the last answer, by request, field
    held: str | None = None  # a text that was sent while the run waited, and was no answer
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
        """The transcript after one more event."""
        match event:
            case TextDelta():
                return self._write(event)
            case TextEnded():
                return self._edit_span(event.message_id, role=event.role)
            case TextDiscarded():
                spans = tuple(span for span in self.spans if span.message_id != event.message_id)
                return replace(self, spans=spans, discarded=self.discarded | {event.message_id})
            case ToolStarted() | ToolProgress() | ToolFinished():
                return self._apply_tool(event)
            case PlanUpdated():
                return replace(self, plan=Plan(title=event.title, steps=event.steps))
            case InputRequested():
                request = PendingInput(event.request_id, event.asked, event.agent)
                return replace(self, requests=(*self._requests_without(event.request_id), request))
            case InputResolved():
                return replace(
                    self,
                    requests=self._requests_without(event.request_id),
                    resolved=(*self.resolved, event),
                    state="working",
                    waiting_for="",
                    wrong={},
                    held=None,
                )
            case Notice():
                return replace(self, notices=(*self.notices, event), state=self._state_after_notice(event))
            case RunStarted():
                state: TranscriptState = "submitted" if event.queued else "working"
                return replace(self, question=event.parts, state=state)
            case MessageReceived():
                return self
            case Paused():
                return replace(
                    self, state="input-required", waiting_for=event.text, wrong=event.wrong, held=event.held
                )
            case Answered() | Failed() | Cancelled():
                return self._end(event)
            case _:
                assert_never(event)

    @property
    def has_ended(self) -> bool:
        """Whether the run is over; otherwise it works or waits for people."""
        return self.state in ("completed", "failed", "canceled")

    @property
    def running(self) -> tuple[ToolCallView, ...]:
        """The tool calls without an outcome."""
        return tuple(call for call in self.calls if call.outcome is None)

    @property
    def is_unanswered(self) -> bool:
        """Whether every tool and agent that was called failed: the answer only accounts for that.

        What people decided on is theirs: a call that they rejected is no failure.
        """
        parents = {call.parent_call for call in self.calls}
        outcomes = [call.outcome for call in self.calls if call.call_id not in parents]
        return not self.resolved and bool(outcomes) and all(outcome == "error" for outcome in outcomes)

    @property
    def text(self) -> str:
        """The supervisor's text so far, one paragraph per message."""
        return "\n\n".join(span.text for span in self.spans if span.parent_call is None and span.text)

    def thinking(self, step_id: str) -> str:
        """The supervisor's text during an intermediate step."""
        return "".join(span.text for span in self.spans if span.thinking_of == step_id)

    def unfinished_text(self) -> str | None:
        """The supervisor's message that has no end yet: the partial answer of a run that ends early."""
        for span in reversed(self.spans):
            if span.parent_call is None and span.role is None and span.text:
                return span.text
        return None

    def _state_after_notice(self, notice: Notice) -> TranscriptState:
        """A run that waits in a queue has not begun; the notice without a position says that it begins."""
        if notice.code != "queue" or self.state not in ("submitted", "working"):
            return self.state
        return "working" if notice.position is None else "submitted"

    def _requests_without(self, request_id: str) -> tuple[PendingInput, ...]:
        return tuple(request for request in self.requests if request.request_id != request_id)

    def _write(self, event: TextDelta) -> "Transcript":
        for index, span in enumerate(self.spans):
            if span.message_id == event.message_id:
                # A delta replaces the text after its offset: a repeated one does no harm.
                span = replace(span, text=span.text[: event.offset] + event.text)
                return replace(self, spans=(*self.spans[:index], span, *self.spans[index + 1 :]))
        span = Span(event.message_id, event.text, event.agent, event.parent_call, event.step_id, event.slot)
        if event.parent_call is not None:
            return replace(self, spans=(*self.spans, span))
        return self._add_supervisor_span(span)

    def _add_supervisor_span(self, span: Span) -> "Transcript":
        """Decides when a supervisor's message begins whether it is an echo, thinking or the answer."""
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
        spans: list[Span] = []
        for span in self.spans:
            if span.message_id == message_id:
                span = replace(span, role=role)
            spans.append(span)
        return replace(self, spans=tuple(spans))

    def _apply_tool(self, event: ToolStarted | ToolProgress | ToolFinished) -> "Transcript":
        calls = {call.call_id: call for call in self.calls}
        call = calls.get(event.call_id)
        if call is None:
            call = ToolCallView(event.call_id, event.tool, event.agent, event.parent_call)
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
        calls[call.call_id] = call
        last_finished = self.last_finished
        if isinstance(event, ToolFinished) and event.parent_call is None:
            last_finished = call
        return replace(self, calls=tuple(calls.values()), last_finished=last_finished)

    def _end(self, event: TerminalEvent) -> "Transcript":
        ended = replace(
            self, trace_id=event.trace_id, usage=event.usage, requests=(), waiting_for="", wrong={}, held=None
        )
        match event:
            case Answered():
                return replace(
                    ended, state="completed", answer=event.text, data=event.data, citations=event.citations
                )
            case Failed():
                return replace(
                    ended,
                    state="failed",
                    error=event.message,
                    retryable=event.retryable,
                    partial=event.partial,
                )
            case Cancelled():
                return replace(ended, state="canceled", partial=event.partial)


def fold(events: Iterable[AnyEvent], start: Transcript | None = None) -> Transcript:
    """The transcript after the events."""
    transcript = start or Transcript()
    for event in events:
        transcript = transcript.apply(event)
    return transcript
