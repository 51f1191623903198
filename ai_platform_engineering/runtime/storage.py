"""Where a server keeps its runs and its conversations: the run log, and the graph's checkpointer and store beside it."""

import asyncio
import contextlib
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from ai_platform_engineering.core.settings import StorageSettings
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.runtime.checkpoints.checkpointer import Checkpoints, open_checkpoints
from ai_platform_engineering.runtime.checkpoints.database_choice import choose_checkpoint_database
from ai_platform_engineering.runtime.checkpoints.fenced_saver import FencedSaver
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.runtime.log.run_log import RunLog, make_thread_id
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog

log = logging.getLogger(__name__)

_CLEANING = 3600.0


class Storage:
    """The run log is there from the start; the checkpointer and the store are opened with the server."""

    def __init__(self, run_log: RunLog, settings: StorageSettings, home: Path | None) -> None:
        self.log = run_log
        self._settings = settings
        self._home = home
        self._checkpoints: Checkpoints | None = None
        self._memory: tuple[BaseCheckpointSaver[Any], BaseStore] = (InMemorySaver(), InMemoryStore())
        self._cleaning: asyncio.Task[None] | None = None
        self.saver = FencedSaver(
            lambda: self._checkpoints.saver if self._checkpoints else self._memory[0], run_log
        )

    @classmethod
    def in_memory(cls) -> "Storage":
        return cls(MemoryLog(), StorageSettings(), None)

    @classmethod
    def from_settings(cls, settings: StorageSettings, home: Path, name: str) -> "Storage":
        """The storage of a server; `name` tells the servers apart that share a home. Raises ConfigurationError."""
        if choose_checkpoint_database(settings).backend == "memory":
            return cls(MemoryLog(), settings, home / name)
        place = home / name
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        return cls(SqliteLog.open(place / "runs.db"), settings, place)

    @property
    def durable(self) -> bool:
        """Whether a run can go on after this process: its events and its state are both kept."""
        kept = self._checkpoints is not None and self._checkpoints.backend != "memory"
        return kept and not isinstance(self.log, MemoryLog)

    @property
    def store(self) -> BaseStore:
        if self._checkpoints:
            return self._checkpoints.store
        return self._memory[1]

    def report(self) -> dict[str, Any]:
        """For `/ready`."""
        if self._checkpoints is None:
            return {"status": "ok", "backend": "memory"}
        problem = self._checkpoints.problem
        return {
            "status": "degraded" if problem else "ok",
            "backend": self._checkpoints.backend,
            "message": problem or "",
        }

    async def open(self) -> None:
        if self._home is not None:
            self._checkpoints = await open_checkpoints(self._settings, self._home)
            self._cleaning = asyncio.create_task(self._keep_clean(), name="retention")

    async def prune(self, thread_id: str, run_id: str, *, idle: bool) -> None:
        """After a turn: what the next one does not need goes."""
        if idle:
            self.saver.forget(run_id)
        if self._checkpoints is not None:
            await self._checkpoints.prune(thread_id, idle=idle)

    async def aclose(self) -> None:
        if self._cleaning is not None:
            self._cleaning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._cleaning
        if self._checkpoints is not None:
            await self._checkpoints.aclose()
        await self.log.close()

    async def clean(self) -> int:
        """Forgets the runs that ended before `RETENTION_DAYS`, and conversations of which no run is left; returns how many runs."""
        before = datetime.now(UTC) - timedelta(days=self._settings.retention_days)
        # The threads go first: after a crash in between, the runs still say which ones they were.
        for owner, context_id in await self.log.find_expired_conversations(before):
            if all(
                row.updated < before for row in await self.log.find_runs(owner, context_id)
            ):  # nobody has asked in the meantime
                await self.saver.adelete_thread(make_thread_id(owner, context_id))
        return await self.log.delete_runs(before)

    async def _keep_clean(self) -> None:
        while True:
            try:
                if gone := await self.clean():
                    log.info("%d runs were older than RETENTION_DAYS and are forgotten", gone)
            except Exception as error:  # noqa: BLE001 - it is tried again in an hour
                log.warning("old runs were not removed: %s", format_traceback(error))
            await asyncio.sleep(_CLEANING)
