"""What has been emitted of a run before this turn, and the one rule that no event is emitted twice.

A pause, a crash and a remote agent that is followed again all lead over the same ground a second time. The
translator gives the same things the same ids, and whatever the run's log already holds is dropped here.
"""

from ai_platform_engineering.core.events import (
    AnyEvent,
    Notice,
    TextDelta,
    TextDiscarded,
    TextEnded,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from ai_platform_engineering.core.plan import Plan
from ai_platform_engineering.core.transcript import Span, ToolCallView, Transcript


class EmittedRun:
    """The run's transcript before this turn, looked up by id."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self.plan = transcript.plan or Plan()
        self.is_empty = not (transcript.spans or transcript.calls or transcript.discarded)
        self._spans = {span.message_id: span for span in transcript.spans}
        self._calls = {call.call_id: call for call in transcript.calls}
        self._notices = list(transcript.notices)

    def span(self, message_id: str) -> Span | None:
        return self._spans.get(message_id)

    def call(self, call_id: str) -> ToolCallView | None:
        return self._calls.get(call_id)

    def message_ids(self) -> set[str]:
        """The ids of all messages, also of those that were discarded: none is used for another text."""
        return {*self.transcript.discarded, *self._spans}

    def ended_call_ids(self) -> set[str]:
        return {call.call_id for call in self.transcript.calls if call.outcome is not None}

    def open_call_ids(self) -> set[str]:
        return {call.call_id for call in self.transcript.calls if call.outcome is None}

    def delegations(self) -> list[ToolCallView]:
        """The supervisor's delegations, in order."""
        return [call for call in self.transcript.calls if call.delegates and call.parent_call is None]

    def unseen(self, event: AnyEvent) -> AnyEvent | None:
        """The part of the event that the log does not hold; None when it holds all of it."""
        if self.is_empty:
            return event
        match event:
            case TextDelta():
                return self._unseen_delta(event)
            case TextEnded() | TextDiscarded():
                is_known = self._is_ended(event)
            case ToolStarted():
                is_known = event.call_id in self._calls
            case ToolFinished():
                call = self.call(event.call_id)
                is_known = call is not None and call.outcome is not None
            case _:
                is_known = False
        if is_known:
            return None
        return event

    def unseen_remote(self, event: AnyEvent) -> AnyEvent | None:
        """The same for an agent that is followed again from its beginning: it repeats progress and notices,
        too."""
        if isinstance(event, ToolProgress) and event.call_id in self._calls:
            return None
        if isinstance(event, Notice) and event in self._notices:
            self._notices.remove(event)  # one repetition for each: the next equal notice is a new one
            return None
        return self.unseen(event)

    def _unseen_delta(self, event: TextDelta) -> TextDelta | None:
        if event.message_id in self.transcript.discarded:
            return None
        span = self.span(event.message_id)
        if span is None:
            return event
        overlap = max(0, len(span.text) - event.offset)
        rest = event.text[overlap:]
        if not rest:
            return None
        return event.model_copy(update={"offset": event.offset + overlap, "text": rest})

    def _is_ended(self, event: TextEnded | TextDiscarded) -> bool:
        if event.message_id in self.transcript.discarded:
            return True
        span = self.span(event.message_id)
        return isinstance(event, TextEnded) and span is not None and span.role is not None
