"""The storage of a server: the run log, and the checkpointer and the store of its graph."""

import asyncio
import logging
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError, DatabaseUnavailable
from ai_platform_engineering.core.storage_settings import REQUIRED, StorageSettings
from ai_platform_engineering.core.task_cancellation import cancel_and_wait
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.databases.database_choice import (
    DatabaseChoice,
    choose_checkpoint_database,
)
from ai_platform_engineering.databases.database_clients import import_optional
from ai_platform_engineering.databases.database_failures import unavailable
from ai_platform_engineering.runtime.checkpoints.checkpointer import (
    Checkpoints,
    check_databases,
    open_checkpoints,
)
from ai_platform_engineering.runtime.checkpoints.fenced_saver import FencedSaver
from ai_platform_engineering.runtime.checkpoints.serializer import CheckpointSerializer
from ai_platform_engineering.runtime.checkpoints.sqlite import check_file
from ai_platform_engineering.runtime.log.log_rows import make_thread_id
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.log.sqlite_database import FolderUnusable
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog
from ai_platform_engineering.runtime.log.tool_server_slots import ToolServerSlots

log = logging.getLogger(__name__)

STORAGE_NAME = "supervisor"  # of the supervisor; an agent service has a folder of its own
_LOG_FILE = "runs.db"
_PAGE = 500  # conversations that are looked at together
_CLEANUP_SECONDS = 3600.0


async def check_storage(settings: StorageSettings, home: Path, name: str) -> str:
    """Tries what a server would open, creates nothing, and returns where conversations would be kept.

    Raises ConfigurationError and DatabaseUnavailable."""
    folder = home / name
    choice = choose_checkpoint_database(settings)
    if choice.backend != "memory" and not choice.holds_runs:
        await asyncio.to_thread(check_file, DatabaseChoice("sqlite", str(folder / _LOG_FILE)))
    return await check_databases(settings, folder)


def make_schema_name(name: str) -> str:
    """The schema of a server's run log in PostgreSQL: agent services may share the supervisor's database."""
    return re.sub("[^a-z0-9]", "_", f"caipe_{name.lower()}")[:63]


def _open_postgres_log(choice: DatabaseChoice, settings: StorageSettings, name: str) -> RunLog:
    """Raises DatabaseUnavailable and ConfigurationError."""
    psycopg = import_optional("psycopg", "postgres", choice)
    from ai_platform_engineering.databases.postgres_check import check_postgres_address
    from ai_platform_engineering.databases.postgres_database import PostgresAddress
    from ai_platform_engineering.runtime.log.postgres_log import PostgresLog

    check_postgres_address(choice.address, choice.variable)
    address = PostgresAddress(choice.address, make_schema_name(name), settings.timeout_seconds)
    try:
        return PostgresLog.open(address, cache_bytes=settings.cache_bytes)
    except (psycopg.Error, OSError) as error:
        raise unavailable(choice.label, error, f"Check {choice.variable}.") from None


class Storage:
    """The run log, open from the start, and the checkpointer and the store, which the server opens."""

    def __init__(
        self,
        run_log: RunLog,
        settings: StorageSettings,
        home: Path | None,
        *,
        log_problem: str = "",
        runs_schema: str | None = None,
    ) -> None:
        """`log_problem`: why the run log is in memory although it was not configured so. `runs_schema`: the
        schema of the run log in the database of the checkpoints."""
        self.log = run_log
        self._settings = settings
        self._home = home
        self._log_problem = log_problem
        self._runs_schema = runs_schema
        self._checkpoints: Checkpoints | None = None
        self._memory_saver = InMemorySaver(serde=CheckpointSerializer())
        self._memory_store = InMemoryStore()
        self._background_tasks: list[asyncio.Task[None]] = []
        self.saver = FencedSaver(self._current_saver, run_log)

    @classmethod
    def in_memory(cls) -> "Storage":
        return cls(MemoryLog(), StorageSettings(), None)

    @classmethod
    def from_settings(cls, settings: StorageSettings, home: Path, name: str) -> "Storage":
        """The storage of a server in `home`, below its `name`. Raises ConfigurationError."""
        folder = home / name
        choice = choose_checkpoint_database(settings)
        if choice.backend == "memory":
            return cls(MemoryLog(), settings, folder)
        if choice.holds_runs:
            return cls._on_postgres(choice, settings, folder)
        try:
            run_log = SqliteLog.open(folder / _LOG_FILE, cache_bytes=settings.cache_bytes)
            return cls(run_log, settings, folder)
        except FolderUnusable as error:
            if settings.required:
                raise ConfigurationError(f"{error} {REQUIRED}") from None
            problem = f"{error} Runs are kept in memory and are lost when the server stops."
            log.warning("%s", problem)
            return cls(MemoryLog(), settings, folder, log_problem=problem)

    @classmethod
    def _on_postgres(cls, choice: DatabaseChoice, settings: StorageSettings, folder: Path) -> "Storage":
        """Everything in one PostgreSQL database; never in a local file, which other replicas do not see."""
        try:
            run_log = _open_postgres_log(choice, settings, folder.name)
        except DatabaseUnavailable as error:
            if settings.required:
                raise ConfigurationError(error.describe(REQUIRED)) from None
            problem = error.describe("Everything is kept in memory and is lost when the server stops.")
            log.warning("%s", problem)
            in_memory = settings.model_copy(update={"checkpoint_type": "memory", "store_type": "memory"})
            return cls(MemoryLog(), in_memory, folder, log_problem=problem)
        return cls(run_log, settings, folder, runs_schema=make_schema_name(folder.name))

    @property
    def durable(self) -> bool:
        """Whether a run can go on after this process: its events and its checkpoints are both stored."""
        if self._checkpoints is None or self._checkpoints.backend == "memory":
            return False
        return not isinstance(self.log, MemoryLog)

    @property
    def store(self) -> BaseStore:
        if self._checkpoints:
            return self._checkpoints.store
        return self._memory_store

    @property
    def tool_server_slots(self) -> ToolServerSlots | None:
        """The slots of tool servers of all replicas; none where there is one process."""
        replicas = self.log.replicas
        if replicas is None:
            return None
        return ToolServerSlots(replicas.database, replicas.replica_id)

    @property
    def folder(self) -> Path | None:
        """Where this server keeps its files; none for a storage in memory alone."""
        return self._home

    def _current_saver(self) -> BaseCheckpointSaver[Any]:
        if self._checkpoints:
            return self._checkpoints.saver
        return self._memory_saver

    async def report(self) -> dict[str, Any]:
        """The state of the storage, for `/ready`. While nothing can be stored, no question is taken."""
        if self._checkpoints is None:
            return {"status": "ok", "backend": "memory"}
        write_problem = await self.log.check_writable()
        if write_problem:
            message = f"Nothing can be stored: {write_problem}."
            return {"status": "unavailable", "backend": self._checkpoints.backend, "message": message}
        problems = [problem for problem in (self._log_problem, self._checkpoints.problem) if problem]
        return {
            "status": "degraded" if problems else "ok",
            "backend": self._checkpoints.backend,
            "message": " ".join(problems),
        }

    async def open(self) -> None:
        if self._home is not None:
            self._checkpoints = await open_checkpoints(self._settings, self._home, self._runs_schema)
            if self._checkpoints.problem:
                log.warning("%s", self._checkpoints.problem)
            details = self._add_missing_details()
            self._background_tasks.append(asyncio.create_task(details, name="details of older runs"))
            cleanup = self._clean_periodically()
            self._background_tasks.append(asyncio.create_task(cleanup, name="retention"))

    async def prune(self, thread_id: str, run_id: str, *, idle: bool) -> None:
        """Removes the checkpoints that the next turn does not need."""
        if idle:
            self.saver.forget(run_id)
        if self._checkpoints is not None:
            await self._checkpoints.prune(thread_id, idle=idle)

    async def aclose(self) -> None:
        await cancel_and_wait(*self._background_tasks)
        if self._checkpoints is not None:
            await self._checkpoints.aclose()
        await self.log.close()

    async def clean(self) -> int:
        """Deletes runs older than `RETENTION_DAYS`, and conversations without runs; returns how many runs."""
        before = datetime.now(UTC) - timedelta(days=self._settings.retention_days)
        # Threads are deleted first: after a crash in between, the runs still say which ones they were.
        position = ("", "")
        while page := await self.log.find_expired_conversations(before, after=position, limit=_PAGE):
            for owner, context_id in page:
                if not await self.log.has_run_since(
                    owner, context_id, before
                ):  # a new question may have come
                    await self.saver.adelete_thread(make_thread_id(owner, context_id))
            position = page[-1]
        return await self.log.delete_runs(before)

    async def _add_missing_details(self) -> None:
        try:
            await self.log.add_missing_details()
        except CaipeError as error:
            log.warning("lists of runs lack details of older ones until the next start: %s", error)

    async def _is_due_to_clean(self) -> bool:
        """Whether no other replica has cleaned lately."""
        replicas = self.log.replicas
        return replicas is None or await replicas.claim_timer("retention", _CLEANUP_SECONDS / 2)

    async def _clean_periodically(self) -> None:
        while True:
            try:
                count = 0
                if await self._is_due_to_clean():
                    count = await self.clean()
                if count:
                    log.info("%d runs older than RETENTION_DAYS were deleted", count)
            except Exception as error:  # noqa: BLE001 - it is tried again in an hour
                log.warning("old runs were not removed: %s", format_traceback(error))
            await asyncio.sleep(_CLEANUP_SECONDS)
