"""The newest stored events of runs, in memory: readers that keep up with a run need no query."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ai_platform_engineering.core.events import StoredEvent

EVENTS_PER_RUN = 64


@dataclass(slots=True)
class _Tail:
    """The newest events of one run without a gap, and the size of each."""

    events: deque[StoredEvent] = field(default_factory=deque)
    sizes: deque[int] = field(default_factory=deque)


class RecentEvents:
    """A bounded cache of committed events; the runs that were written longest ago are dropped first.

    It belongs to the process that alone writes the database, so an entry is never out of date.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._tails: OrderedDict[str, _Tail] = OrderedDict()

    def add(self, run_id: str, events: Sequence[StoredEvent], sizes: Sequence[int]) -> None:
        """Adds events that were just committed; `sizes` are those of their JSON."""
        if not events:
            return
        tail = self._tails.get(run_id)
        if tail is None or tail.events[-1].seq + 1 != events[0].seq:
            self._drop(run_id)
            tail = self._tails[run_id] = _Tail()
        self._tails.move_to_end(run_id)
        tail.events.extend(events)
        tail.sizes.extend(sizes)
        self._size += sum(sizes)
        while len(tail.events) > EVENTS_PER_RUN:
            tail.events.popleft()
            self._size -= tail.sizes.popleft()
        while self._size > self._max_bytes:
            self._drop(next(iter(self._tails)))

    def read(self, run_id: str, after: int, limit: int) -> list[StoredEvent] | None:
        """The events above a number, at most so many; None when they are not all here."""
        tail = self._tails.get(run_id)
        if tail is None:
            return None
        skipped = after + 1 - tail.events[0].seq
        if skipped < 0:
            return None
        return list(tail.events)[skipped : skipped + limit]

    def clear(self) -> None:
        self._tails.clear()
        self._size = 0

    def _drop(self, run_id: str) -> None:
        tail = self._tails.pop(run_id, None)
        if tail is not None:
            self._size -= sum(tail.sizes)
