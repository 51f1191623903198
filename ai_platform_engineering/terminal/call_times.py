"""How long the tool calls of a run took, as its events are read."""

from ai_platform_engineering.core.events import AnyEvent, ToolFinished, ToolStarted


class CallTimes:
    """The beginnings and durations of calls, in seconds of one clock."""

    def __init__(self) -> None:
        self._started_at: dict[str, float] = {}
        self._durations: dict[str, float] = {}

    def note(self, event: AnyEvent, at: float | None) -> None:
        """Notes when an event happened; None for an event of the past whose time is not known."""
        if at is None:
            return
        if isinstance(event, ToolStarted):
            self._started_at[event.call_id] = at
        elif isinstance(event, ToolFinished) and event.call_id in self._started_at:
            self._durations[event.call_id] = at - self._started_at[event.call_id]

    def duration(self, call_id: str) -> float | None:
        """How long a finished call took."""
        return self._durations.get(call_id)

    def elapsed(self, call_id: str, now: float) -> float | None:
        """How long a call has been running."""
        started_at = self._started_at.get(call_id)
        if started_at is None or started_at > now:  # a run of the past has times of another clock
            return None
        return now - started_at
