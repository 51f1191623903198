"""The events of a remote agent as events of this run: under the delegation that ordered them, with ids that are unique here."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

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
from ai_platform_engineering.core.transcript import Transcript

CUT_OFF = "The agent ended before the result arrived."


@dataclass(slots=True)
class _Open:
    """What an agent has begun and not ended."""

    texts: dict[str, TextDelta] = field(default_factory=dict)
    calls: dict[str, ToolStarted] = field(default_factory=dict)


class RemoteEvents:
    """One per turn of a run. An agent that is asked again after a crash tells everything again: what was `seen` is not repeated."""

    def __init__(self, seen: Transcript | None = None) -> None:
        seen = seen or Transcript()
        self._open: dict[str, _Open] = {}
        self._spans = {span.message_id: span for span in seen.spans}
        self._calls = {call.call_id: call for call in seen.calls}
        self._discarded, self._notices = seen.discarded, list(seen.notices)

    def forward(
        self, event: AnyEvent, *, call_id: str, agent: str, step_id: str | None
    ) -> Iterator[AnyEvent]:
        """The event under its delegation. The agent's plan, its requests and its end are not events of this run."""
        here, mine = self._open.setdefault(call_id, _Open()), _placed(event, call_id, agent, step_id)
        if isinstance(mine, TextDelta):
            here.texts[mine.message_id] = mine
        elif isinstance(mine, TextEnded | TextDiscarded):
            here.texts.pop(mine.message_id, None)
        elif isinstance(mine, ToolStarted):
            here.calls[mine.call_id] = mine
        elif isinstance(mine, ToolFinished):
            here.calls.pop(mine.call_id, None)
        if mine is not None and (new := self._unseen(mine)) is not None:
            yield new

    def _unseen(self, event: AnyEvent) -> AnyEvent | None:
        """The event as far as it has not been told."""
        match event:
            case TextDelta() | TextEnded() | TextDiscarded() if event.message_id in self._discarded:
                return None
            case TextDelta() if (span := self._spans.get(event.message_id)) is not None:
                known = max(0, len(span.text) - event.offset)
                rest = event.text[known:]
                if rest:
                    return event.model_copy(update={"offset": event.offset + known, "text": rest})
                return None
            case TextEnded() if (
                span := self._spans.get(event.message_id)
            ) is not None and span.role is not None:
                return None
            case ToolStarted() | ToolProgress() if event.call_id in self._calls:
                return None
            case ToolFinished() if (
                call := self._calls.get(event.call_id)
            ) is not None and call.outcome is not None:
                return None
            case Notice() if event in self._notices:
                self._notices.remove(event)
                return None
            case _:
                return event

    def close(self, call_id: str) -> Iterator[AnyEvent]:
        """Ends what the agent left open when the delegation ends."""
        left = self._open.pop(call_id, _Open())
        for call in reversed(left.calls.values()):
            yield unknown_outcome(call)
        for text in left.texts.values():
            yield TextEnded(
                message_id=text.message_id, role="delegated", agent=text.agent, parent_call=text.parent_call
            )


def unknown_outcome(call: ToolStarted) -> ToolFinished:
    """The end of a call whose result never came."""
    same = call.model_dump(exclude={"kind", "arguments"})
    return ToolFinished(**same, outcome="unknown", error=CUT_OFF)


def _placed(event: AnyEvent, call_id: str, agent: str, step_id: str | None) -> AnyEvent | None:
    by: dict[str, Any] = {"parent_call": f"{call_id}/{event.parent_call}" if event.parent_call else call_id}
    if event.parent_call is None:
        by["agent"] = agent  # whatever it calls itself
    match event:
        case TextDelta():
            by |= {"message_id": f"{call_id}/{event.message_id}", "step_id": step_id}
            return event.model_copy(update={**by, "slot": f"{call_id}/{event.slot}" if event.slot else None})
        case TextEnded():
            return event.model_copy(
                update={**by, "message_id": f"{call_id}/{event.message_id}", "role": "delegated"}
            )
        case TextDiscarded():
            by["slot"] = f"{call_id}/{event.slot}" if event.slot else None
            return event.model_copy(update={**by, "message_id": f"{call_id}/{event.message_id}"})
        case ToolStarted() | ToolFinished():
            return event.model_copy(
                update={**by, "call_id": f"{call_id}/{event.call_id}", "step_id": step_id, "knowledge": False}
            )
        case ToolProgress():
            return event.model_copy(update={**by, "call_id": f"{call_id}/{event.call_id}"})
        case Notice():
            return event.model_copy(update=by)
        case _:
            return None
