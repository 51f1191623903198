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

CUT_OFF = "The agent ended before the result arrived."


@dataclass(slots=True)
class _Open:
    """What an agent has begun and not ended."""

    texts: dict[str, TextDelta] = field(default_factory=dict)
    calls: dict[str, ToolStarted] = field(default_factory=dict)


class RemoteEvents:
    """One per run."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def forward(self, event: AnyEvent, *, call_id: str, agent: str, step_id: str | None) -> Iterator[AnyEvent]:
        """The event under its delegation. The agent's plan, its requests and its end are not events of this run."""
        here = self._open.setdefault(call_id, _Open())
        by: dict[str, Any] = {"parent_call": f"{call_id}/{event.parent_call}" if event.parent_call else call_id}
        if event.parent_call is None:
            by["agent"] = agent  # whatever it calls itself
        match event:
            case TextDelta():
                slot = f"{call_id}/{event.slot}" if event.slot else None
                mine = event.model_copy(update={**by, "message_id": f"{call_id}/{event.message_id}", "slot": slot, "step_id": step_id})
                here.texts[mine.message_id] = mine
                yield mine
            case TextEnded():
                message_id = f"{call_id}/{event.message_id}"
                here.texts.pop(message_id, None)
                yield event.model_copy(update={**by, "message_id": message_id, "role": "delegated"})
            case TextDiscarded():
                message_id, slot = f"{call_id}/{event.message_id}", f"{call_id}/{event.slot}" if event.slot else None
                here.texts.pop(message_id, None)
                yield event.model_copy(update={**by, "message_id": message_id, "slot": slot})
            case ToolStarted():
                begun = event.model_copy(update={**by, "call_id": f"{call_id}/{event.call_id}", "step_id": step_id, "knowledge": False})
                here.calls[begun.call_id] = begun
                yield begun
            case ToolProgress():
                yield event.model_copy(update={**by, "call_id": f"{call_id}/{event.call_id}"})
            case ToolFinished():
                ended = event.model_copy(update={**by, "call_id": f"{call_id}/{event.call_id}", "step_id": step_id, "knowledge": False})
                here.calls.pop(ended.call_id, None)
                yield ended
            case Notice():
                yield event.model_copy(update=by)
            case _:
                pass

    def close(self, call_id: str) -> Iterator[AnyEvent]:
        """Ends what the agent left open when the delegation ends."""
        left = self._open.pop(call_id, _Open())
        for call in reversed(left.calls.values()):
            yield cut_off(call)
        for text in left.texts.values():
            yield TextEnded(message_id=text.message_id, role="delegated", agent=text.agent, parent_call=text.parent_call)


def cut_off(call: ToolStarted) -> ToolFinished:
    """The end of a call whose result never came."""
    same = call.model_dump(exclude={"kind", "arguments"})
    return ToolFinished(**same, outcome="unknown", error=CUT_OFF)
