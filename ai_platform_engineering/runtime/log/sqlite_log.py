"""The run log on SQLite: survives the process, for one process at a time."""

import asyncio
from pathlib import Path

from ai_platform_engineering.core.events import StoredEvent
from ai_platform_engineering.databases.group_commit import BUSY_BATCH, TICK
from ai_platform_engineering.runtime.log.database_log import CACHE_BYTES, DatabaseLog
from ai_platform_engineering.runtime.log.database_push import DatabasePush
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.recent_runs import RecentRuns
from ai_platform_engineering.runtime.log.run_rows import Batch
from ai_platform_engineering.runtime.log.sqlite_database import Database


class SqliteLog(DatabaseLog):
    """A run log in one SQLite file.

    The newest rows and events of runs are kept in memory: most readers follow a run that works, and nobody
    else writes the file.
    """

    def __init__(self, database: Database, *, cache_bytes: int = CACHE_BYTES) -> None:
        has_configs = bool(database.rows("SELECT 1 FROM push_configs LIMIT 1"))
        super().__init__(database, DatabasePush(database, has_configs=has_configs), cache_bytes)
        self._recent_runs = RecentRuns()
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}  # by run

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        tick: float = TICK,
        busy_batch: int = BUSY_BATCH,
        cache_bytes: int = CACHE_BYTES,
    ) -> "SqliteLog":
        """Raises ConfigurationError when the file cannot be used, or is used by another process."""
        return cls(Database(path, tick=tick, busy_batch=busy_batch), cache_bytes=cache_bytes)

    async def get(self, run_id: str) -> RunRow | None:
        recent = self._recent_runs.get(run_id)
        if recent is not None:
            return recent
        return await super().get(run_id)

    async def read(self, run_id: str, after: int = 0, limit: int = 256) -> list[StoredEvent]:
        recent = self._recent.read(run_id, after, limit)
        if recent is not None:
            return recent
        return await super().read(run_id, after, limit)

    async def wait_for_event(self, run_id: str, after: int) -> None:
        while True:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiters = self._waiters.setdefault(run_id, set())
            waiters.add(waiter)  # before the check: an event that is stored in between wakes it
            try:
                if await self._last_seq(run_id) > after:
                    return
                await waiter
            finally:
                self._remove_waiter(run_id, waiters, waiter)

    async def _last_seq(self, run_id: str) -> int:
        recent = self._recent_runs.get(run_id)
        if recent is not None:
            return recent.last_seq
        return await super()._last_seq(run_id)

    def _publish(self, run: RunRow, batch: Batch) -> None:
        self._recent_runs.add(run)
        super()._publish(run, batch)

    def _clear_recent(self) -> None:
        super()._clear_recent()
        self._recent_runs.clear()

    def _wake(self, run: RunRow) -> None:
        for waiter in self._waiters.pop(run.run_id, set()):
            if not waiter.done():
                waiter.set_result(None)

    def _remove_waiter(
        self, run_id: str, waiters: set[asyncio.Future[None]], waiter: asyncio.Future[None]
    ) -> None:
        waiters.discard(waiter)
        if not waiters and self._waiters.get(run_id) is waiters:
            del self._waiters[run_id]
