"""The events of a remote agent as events of this run: under its delegation, with ids that are unique here."""

from collections.abc import Iterator
from dataclasses import dataclass, field

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
from ai_platform_engineering.graph.emitted_run import EmittedRun
from ai_platform_engineering.graph.tool_calls import TrackedCall

CUT_OFF = "The agent ended before the result arrived."


@dataclass(slots=True)
class _OpenEvents:
    """Texts and calls that an agent has begun and not ended."""

    texts: dict[str, TextDelta] = field(default_factory=dict)
    calls: dict[str, ToolStarted] = field(default_factory=dict)

    def track(self, event: AnyEvent) -> None:
        match event:
            case TextDelta():
                self.texts[event.message_id] = event
            case TextEnded() | TextDiscarded():
                self.texts.pop(event.message_id, None)
            case ToolStarted():
                self.calls[event.call_id] = event
            case ToolFinished():
                self.calls.pop(event.call_id, None)
            case _:
                pass


class RemoteEvents:
    """One per turn of a run.

    A service that is asked again after a crash repeats its events: those in the log are dropped.
    """

    def __init__(self, emitted: EmittedRun) -> None:
        self._emitted = emitted
        self._open: dict[str, _OpenEvents] = {}

    def forward(self, event: AnyEvent, delegation: TrackedCall) -> Iterator[AnyEvent]:
        """The event under its delegation.

        The agent's plan, its requests and its end are not events of this run.
        """
        moved = _move(event, delegation)
        if moved is None:
            return
        self._open.setdefault(delegation.call_id, _OpenEvents()).track(moved)
        unseen = self._emitted.unseen_remote(moved)
        if unseen is not None:
            yield unseen

    def close(self, call_id: str) -> Iterator[AnyEvent]:
        """Ends what the agent left open when the delegation ends."""
        left_open = self._open.pop(call_id, _OpenEvents())
        for call in reversed(left_open.calls.values()):
            yield unknown_outcome(call)
        for text in left_open.texts.values():
            yield TextEnded(
                message_id=text.message_id, role="delegated", agent=text.agent, parent_call=text.parent_call
            )


def unknown_outcome(call: ToolStarted) -> ToolFinished:
    """The end of a call whose result never came."""
    return ToolFinished(
        call_id=call.call_id,
        tool=call.tool,
        agent=call.agent,
        parent_call=call.parent_call,
        delegates=call.delegates,
        knowledge=call.knowledge,
        step_id=call.step_id,
        outcome="unknown",
        error=CUT_OFF,
    )


def _move(event: AnyEvent, delegation: TrackedCall) -> AnyEvent | None:
    """A copy of the event with ids under the delegation's; None for kinds that stay with the remote run."""
    prefix = f"{delegation.call_id}/"
    moved: dict[str, object] = {"parent_call": delegation.call_id}
    if event.parent_call:
        moved["parent_call"] = prefix + event.parent_call
    else:
        moved["agent"] = delegation.tool  # whatever it calls itself
    match event:
        case TextDelta():
            moved["message_id"] = prefix + event.message_id
            moved["slot"] = _prefixed(prefix, event.slot)
            moved["step_id"] = delegation.step_id
        case TextEnded():
            moved["message_id"] = prefix + event.message_id
            moved["slot"] = _prefixed(prefix, event.slot)
            moved["role"] = "delegated"
        case TextDiscarded():
            moved["message_id"] = prefix + event.message_id
            moved["slot"] = _prefixed(prefix, event.slot)
        case ToolStarted() | ToolFinished():
            moved["call_id"] = prefix + event.call_id
            moved["step_id"] = delegation.step_id
            moved["knowledge"] = False
        case ToolProgress():
            moved["call_id"] = prefix + event.call_id
        case Notice():
            moved["position"] = None  # in the agent's queue, not in that of this run
        case _:
            return None
    return event.model_copy(update=moved)


def _prefixed(prefix: str, slot: str | None) -> str | None:
    if not slot:
        return None
    return prefix + slot
