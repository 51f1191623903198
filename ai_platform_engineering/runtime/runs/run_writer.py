"""The one writer of a run: joins deltas, keeps the order of everything else, and carries the run's epoch."""

import asyncio

from ai_platform_engineering.core.events import AnyEvent, TextDelta
from ai_platform_engineering.core.settings import StreamSettings
from ai_platform_engineering.runtime.log.run_log import RunLog


class RunWriter:
    """The first delta of a message is stored at once; later ones wait for each other, a little while or a few hundred characters."""

    def __init__(self, log: RunLog, run_id: str, epoch: int, settings: StreamSettings) -> None:
        self._log = log
        self._run_id = run_id
        self._epoch = epoch
        self._settings = settings
        self._held: dict[str, tuple[TextDelta, list[str]]] = {}
        self._lock = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None

    async def write(self, event: AnyEvent) -> None:
        async with self._lock:
            self._raise_refused()
            if isinstance(event, TextDelta) and event.offset > 0 and self._settings.every > 0:
                await self._hold(event)
            else:
                await self._store(event)

    async def close(self) -> None:
        """Stores what is held; to be called when no more events come."""
        async with self._lock:
            if self._timer is not None:
                self._timer.cancel()  # under the lock: a store that has begun is never cut off
            self._raise_refused()
            await self._store()

    def _raise_refused(self) -> None:
        """A write that was refused in the background stops the run at its next one."""
        if self._timer is not None and self._timer.done() and not self._timer.cancelled():
            self._timer.result()

    async def _hold(self, event: TextDelta) -> None:
        first, pieces = self._held.setdefault(event.message_id, (event, []))
        pieces.append(event.text)
        if event.offset + len(event.text) - first.offset >= self._settings.size:
            await self._store()
        elif self._timer is None or self._timer.done():
            self._timer = asyncio.create_task(self._flush_later())

    async def _flush_later(self) -> None:
        await asyncio.sleep(self._settings.every)
        async with self._lock:
            await self._store()

    async def _store(self, *more: AnyEvent) -> None:
        joined = [first.model_copy(update={"text": "".join(pieces)}) for first, pieces in self._held.values()]
        self._held.clear()
        if joined or more:
            await self._log.append(self._run_id, self._epoch, [*joined, *more])
