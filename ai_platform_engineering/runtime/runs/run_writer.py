"""The one writer of a run: joins text deltas, keeps the order of events, and writes with the run's epoch."""

import asyncio

from ai_platform_engineering.core.events import AnyEvent, TextDelta
from ai_platform_engineering.core.settings import StreamSettings
from ai_platform_engineering.runtime.log.run_log import RunLog


class RunWriter:
    """Writes the events of one run to the log.

    The first delta of a message is stored at once. Later ones are buffered for a short time or a few hundred
    characters, so that many deltas share one commit.
    """

    def __init__(self, log: RunLog, run_id: str, epoch: int, settings: StreamSettings) -> None:
        self._log = log
        self._run_id = run_id
        self._epoch = epoch
        self._settings = settings
        self._buffer: dict[
            str, tuple[TextDelta, list[str]]
        ] = {}  # by message: the first delta, and all texts
        self._lock = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None

    async def write(self, event: AnyEvent) -> None:
        async with self._lock:
            self._raise_flush_error()
            if isinstance(event, TextDelta) and event.offset > 0 and self._settings.every > 0:
                await self._add_to_buffer(event)
            else:
                await self._flush(event)

    async def close(self) -> None:
        """Stores what is buffered; to be called when no more events come."""
        async with self._lock:
            if self._timer is not None:
                self._timer.cancel()  # under the lock: a store that has begun is never cut off
            self._raise_flush_error()
            await self._flush()

    def _raise_flush_error(self) -> None:
        """A write that was refused in the background stops the run at its next one."""
        if self._timer is not None and self._timer.done() and not self._timer.cancelled():
            self._timer.result()

    async def _add_to_buffer(self, event: TextDelta) -> None:
        first, pieces = self._buffer.setdefault(event.message_id, (event, []))
        pieces.append(event.text)
        if event.offset + len(event.text) - first.offset >= self._settings.size:
            await self._flush()
        elif self._timer is None or self._timer.done():
            self._timer = asyncio.create_task(self._flush_later())

    async def _flush_later(self) -> None:
        await asyncio.sleep(self._settings.every)
        async with self._lock:
            await self._flush()

    async def _flush(self, *events: AnyEvent) -> None:
        """Stores the buffered deltas, then the events."""
        deltas = [
            first.model_copy(update={"text": "".join(pieces)}) for first, pieces in self._buffer.values()
        ]
        self._buffer.clear()
        if deltas or events:
            await self._log.append(self._run_id, self._epoch, [*deltas, *events])
