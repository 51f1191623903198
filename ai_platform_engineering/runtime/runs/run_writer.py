"""The one writer of a run: joins text deltas, keeps the order of events, and writes with the run's epoch.

What the writers of all runs hold back is stored together: one timer and one commit for many runs."""

import asyncio
from collections.abc import Sequence
from functools import partial

from ai_platform_engineering.core.events import AnyEvent, TextDelta, TextEnded
from ai_platform_engineering.core.settings import StreamSettings
from ai_platform_engineering.runtime.log.log_rows import EventBatch
from ai_platform_engineering.runtime.log.run_log import RunLog


class RunWriter:
    """Writes the events of one run to the log.

    The first delta of a message is stored at once. Later ones are buffered for a short time or a few hundred
    characters, so that many deltas share one commit. So is the end of a text that the run itself wrote: the
    next event follows at once.
    """

    def __init__(self, writers: "RunWriters", run_id: str, epoch: int) -> None:
        self._writers = writers
        self._run_id = run_id
        self._epoch = epoch
        # By message: the first delta, and all texts.
        self._buffer: dict[str, tuple[TextDelta, list[str]]] = {}
        self._ended: list[TextEnded] = []
        self._lock = asyncio.Lock()
        self._storing: asyncio.Future[list[Exception | None]] | None = None
        self._error: Exception | None = None  # of a write in the background

    async def write(self, event: AnyEvent) -> None:
        async with self._lock:
            self._raise_error()
            if self._writers.settings.every > 0:
                if isinstance(event, TextDelta) and event.offset > 0:
                    await self._add_to_buffer(event)
                    return
                # The texts of delegations are not held back: `FlushRequested` promises that they are stored.
                if isinstance(event, TextEnded) and event.parent_call is None:
                    self._ended.append(event)
                    self._writers.flush_later(self)
                    return
            await self._flush(event)

    async def close(self) -> None:
        """Stores what is buffered; to be called when no more events come."""
        async with self._lock:
            if self._storing is not None and not self._storing.done():
                await asyncio.wait({self._storing})
            self._raise_error()
            await self._flush()

    def take_batch(self) -> EventBatch | None:
        """What is buffered; None when nothing is, or while the writer stores it itself."""
        if self._lock.locked():
            return None
        events = self._take_buffer()
        if not events:
            return None
        return EventBatch(self._run_id, self._epoch, events)

    @property
    def holds_events(self) -> bool:
        return bool(self._buffer or self._ended)

    def store_in_background(self, storing: asyncio.Future[list[Exception | None]]) -> None:
        """Tells the writer that its batch is being stored."""
        self._storing = storing

    def fail(self, error: Exception) -> None:
        """A write that was refused in the background stops the run at its next one."""
        self._error = error

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    async def _add_to_buffer(self, event: TextDelta) -> None:
        first, pieces = self._buffer.setdefault(event.message_id, (event, []))
        pieces.append(event.text)
        if event.offset + len(event.text) - first.offset >= self._writers.settings.size:
            await self._flush()
        else:
            self._writers.flush_later(self)

    async def _flush(self, *events: AnyEvent) -> None:
        """Stores what is buffered, then the events."""
        all_events = [*self._take_buffer(), *events]
        if all_events:
            await self._writers.log.append(self._run_id, self._epoch, all_events)

    def _take_buffer(self) -> list[AnyEvent]:
        """The joined deltas, and the ends of texts behind them."""
        events: list[AnyEvent] = []
        for first, pieces in self._buffer.values():
            if len(pieces) > 1:
                first = first.model_copy(update={"text": "".join(pieces)})
            events.append(first)
        events += self._ended
        self._buffer.clear()
        self._ended.clear()
        return events


class RunWriters:
    """Opens the writers of runs, and stores together what they have buffered for long enough."""

    def __init__(self, log: RunLog, settings: StreamSettings) -> None:
        self.log = log
        self.settings = settings
        self._buffering: dict[RunWriter, None] = {}  # in the order they began
        self._timer: asyncio.TimerHandle | None = None
        self._storing: asyncio.Future[list[Exception | None]] | None = None

    def open(self, run_id: str, epoch: int) -> RunWriter:
        return RunWriter(self, run_id, epoch)

    def flush_later(self, writer: RunWriter) -> None:
        """Stores what the writer has buffered, after the time of the settings.

        The time begins when the flush before is stored: the slower the log or the event loop, the more deltas
        share an event.
        """
        self._buffering[writer] = None
        self._start_timer()

    def _start_timer(self) -> None:
        is_storing = self._storing is not None and not self._storing.done()
        if self._buffering and self._timer is None and not is_storing:
            self._timer = asyncio.get_running_loop().call_later(self.settings.every, self._flush)

    def _flush(self) -> None:
        self._timer = None
        buffering = self._buffering
        self._buffering = {}
        batches: list[EventBatch] = []
        writers: list[RunWriter] = []
        for writer in buffering:
            batch = writer.take_batch()
            if batch is not None:
                batches.append(batch)
                writers.append(writer)
            elif writer.holds_events:
                self._buffering[writer] = None
        if batches:
            self._store(writers, batches)
        self._start_timer()

    def _store(self, writers: Sequence[RunWriter], batches: Sequence[EventBatch]) -> None:
        try:
            storing = self.log.append_all(batches)
        except Exception as error:  # noqa: BLE001 - whoever writes next is told
            for writer in writers:
                writer.fail(error)
            return
        self._storing = storing
        storing.add_done_callback(partial(_report_errors, writers))
        storing.add_done_callback(lambda _: self._start_timer())
        for writer in writers:
            writer.store_in_background(storing)


def _report_errors(writers: Sequence[RunWriter], storing: asyncio.Future[list[Exception | None]]) -> None:
    if storing.cancelled():
        return
    failure = storing.exception()
    if isinstance(failure, Exception):
        for writer in writers:
            writer.fail(failure)
        return
    for writer, error in zip(writers, storing.result(), strict=True):
        if error is not None:
            writer.fail(error)
