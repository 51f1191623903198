"""SQLite in one process: a writer thread with group commit, and a connection for readers."""

import asyncio
import contextlib
import itertools
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError
from ai_platform_engineering.core.failure_text import describe_storage_failure, is_disk_full
from ai_platform_engineering.files import sqlite_file
from ai_platform_engineering.files.sqlite_file import Migration
from ai_platform_engineering.runtime.log.sqlite_schema import MIGRATIONS

log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[sqlite3.Connection, int], T]  # runs in the writer thread, with the time of the commit

TICK = 0.005  # seconds
BUSY_BATCH = 4  # so many operations in one commit: more are on their way
_REMEDY = "Free some space on the server's disk, then ask again."
_BUSY_SECONDS = 30.0  # the graph's checkpoints may be written to the same file
_WRITER_PRAGMAS = (
    "auto_vacuum = INCREMENTAL",  # counts only before the first table
    "journal_mode = WAL",
    "synchronous = FULL",
)


class StorageFailed(CaipeError):
    """Nothing was stored: the disk is full, or the storage is closed."""

    code = "storage"
    retryable = True


class StorageInUse(ConfigurationError):
    """Another process uses the database."""


class FolderUnusable(ConfigurationError):
    """The folder of the database cannot be written."""


@dataclass(slots=True)
class _Operation:
    """A submitted write, and its result."""

    work: Work[Any]
    future: asyncio.Future[Any]
    stored: Callable[[], None] | None
    value: Any = None
    error: Exception | None = None


class GroupCommitWriter:
    """A thread that writes through one connection; operations that are submitted together share a commit.

    `commits` counts the committed transactions, `problem` says why the last one failed.
    """

    def __init__(
        self, connection: sqlite3.Connection, name: str, *, tick: float = TICK, busy_batch: int = BUSY_BATCH
    ) -> None:
        """`tick`: how many seconds the writer collects operations after a commit of at least `busy_batch`."""
        self._connection = connection
        self._tick = tick
        self._busy_batch = busy_batch
        self.commits = 0
        self.problem: str | None = None  # why the last commit failed
        self._submitted: list[_Operation] = []
        self._is_due = False  # whether the writer has been woken for what is submitted
        self._wake = queue.SimpleQueue[None]()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(
        self, work: Work[T], stored: Callable[[], None] | None = None, *, within: float = 0
    ) -> asyncio.Future[T]:
        """The result of the work, once it is committed; an error of the work rolls back the work alone.

        `stored` is called in the event loop just before, even when the future was cancelled. Work that may
        be committed `within` so many seconds waits for other work, and shares its commit. The order is always
        that of the calls.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            self.check_open()
            self._submitted.append(_Operation(work, future, stored))
            if not within:
                self._make_due()
        if within:
            loop.call_later(within, self._commit_soon, future)
        return future

    def commit_soon(self) -> None:
        """Commits what was submitted, without waiting for other work."""
        with self._lock:
            if self._submitted:
                self._make_due()

    def close(self) -> bool:
        """Commits what was submitted, and refuses anything new; false when it was closed before."""
        with self._lock:
            if self._closing.is_set():
                return False
            self._closing.set()
            self._make_due()
        self._thread.join()
        return True

    def check_open(self) -> None:
        if self._closing.is_set():
            raise StorageFailed("The storage is closed.")

    def _commit_soon(self, awaited: asyncio.Future[Any]) -> None:
        if not awaited.done():
            self.commit_soon()

    def _make_due(self) -> None:
        """Wakes the writer, once for each batch; with the lock held."""
        if not self._is_due:
            self._is_due = True
            self._wake.put(None)

    def _run(self) -> None:
        while batch := self._next_batch():
            self._commit(batch)
            for loop, operations in itertools.groupby(batch, key=_loop_of):
                _deliver(loop, list(operations))
            # While many write, what comes meanwhile shares the next commit; a single writer does not wait.
            if len(batch) >= self._busy_batch:
                self._closing.wait(self._tick)

    def _next_batch(self) -> list[_Operation]:
        """Waits for operations; an empty batch means that the writer is closed."""
        if not self._closing.is_set():
            self._wake.get()
        with self._lock:
            batch = self._submitted
            self._submitted = []
            self._is_due = False
            return batch

    def _commit(self, batch: list[_Operation]) -> None:
        now = time.time_ns() // 1000
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            if len(batch) == 1:
                self._apply(batch[0], now)
            else:
                for operation in batch:
                    self._apply_in_savepoint(operation, now)
            if len(batch) == 1 and batch[0].error is not None:
                self._connection.execute("ROLLBACK")
                return
            self._connection.execute("COMMIT")
            self.commits += 1
            self.problem = None
        except Exception as error:  # noqa: BLE001 - no caller may wait for ever
            self.problem = describe_storage_failure(error)
            log.error("%d operations could not be stored: %s", len(batch), self.problem)
            with contextlib.suppress(sqlite3.Error):  # SQLite itself may have rolled back
                self._connection.execute("ROLLBACK")
            for operation in batch:
                operation.error = StorageFailed(f"Nothing could be stored: {self.problem}. {_REMEDY}")

    def _apply_in_savepoint(self, operation: _Operation, now: int) -> None:
        self._connection.execute("SAVEPOINT operation")
        self._apply(operation, now)
        if operation.error is not None:
            self._connection.execute("ROLLBACK TO operation")
        self._connection.execute("RELEASE operation")

    def _apply(self, operation: _Operation, now: int) -> None:
        try:
            operation.value = operation.work(self._connection, now)
        except sqlite3.OperationalError:
            raise  # a full disk or the like: SQLite may have undone the whole transaction
        except Exception as error:  # noqa: BLE001 - it goes to whoever submitted the work
            operation.error = error


class Database:
    """An open SQLite database of this process alone: one writer, and a connection for readers."""

    def __init__(
        self,
        path: Path,
        *,
        tick: float = TICK,
        busy_batch: int = BUSY_BATCH,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> None:
        """`tick` and `busy_batch`: when the writer collects operations (`GroupCommitWriter`)."""
        self._lock_file = _acquire_lock(path)
        try:
            self._connection, self._reader = _open_connections(path, migrations)
        except BaseException:
            os.close(self._lock_file)
            raise
        self._path = path
        self._list_reader: sqlite3.Connection | None = None
        self._list_thread = ThreadPoolExecutor(1, thread_name_prefix=f"lists of {path.name}")
        self._writer = GroupCommitWriter(
            self._connection, f"writer of {path.name}", tick=tick, busy_batch=busy_batch
        )

    @property
    def commits(self) -> int:
        return self._writer.commits

    def submit(
        self, work: Work[T], stored: Callable[[], None] | None = None, *, within: float = 0
    ) -> asyncio.Future[T]:
        """The result of the work, once it is committed (`GroupCommitWriter.submit`)."""
        return self._writer.submit(work, stored, within=within)

    async def check_writable(self) -> str | None:
        """Why nothing can be stored; None if it can. After a failed commit it is tried again."""
        if self._writer.problem is None:
            return None
        try:
            await self._writer.submit(_write_probe)
        except StorageFailed:
            return self._writer.problem
        return None

    def rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        """The rows of a short query on committed data.

        They are fetched at once: an open cursor would hold its snapshot, and the file would grow.
        """
        self._writer.check_open()
        return self._reader.execute(query, values).fetchall()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a query that may take long: it runs in a thread, on a connection of its own."""
        self._writer.check_open()
        return await asyncio.get_running_loop().run_in_executor(self._list_thread, self._read, work)

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._list_reader is None:
            self._list_reader = _connect_reader(self._path)
        return work(self._list_reader)

    def close(self) -> None:
        """Commits what was submitted, refuses anything new, and releases the file."""
        if not self._writer.close():
            return
        self._list_thread.shutdown()
        if self._list_reader is not None:
            self._list_reader.close()
        self._reader.close()
        self._connection.close()
        os.close(self._lock_file)


def _write_probe(connection: sqlite3.Connection, _: int) -> None:
    """Writes as much as a page, and leaves nothing behind."""
    connection.execute("CREATE TABLE write_probe (content BLOB)")
    connection.execute("INSERT INTO write_probe VALUES (zeroblob(16384))")
    connection.execute("DROP TABLE write_probe")


def _loop_of(operation: _Operation) -> asyncio.AbstractEventLoop:
    return operation.future.get_loop()


def _deliver(loop: asyncio.AbstractEventLoop, operations: list[_Operation]) -> None:
    """Completes the futures of committed operations, in their event loop."""

    def complete() -> None:
        for operation in operations:
            if operation.error is None and operation.stored is not None:
                operation.stored()
        for operation in operations:
            if operation.future.done():
                continue  # cancelled while it was stored
            if operation.error is not None:
                operation.future.set_exception(operation.error)
            else:
                operation.future.set_result(operation.value)

    try:
        loop.call_soon_threadsafe(complete)
    except RuntimeError:  # the loop has ended, and with it everyone who waited
        log.debug("%d operations were abandoned: nobody is waiting for them", len(operations))


def _acquire_lock(path: Path) -> int:
    """Locks a file next to the database: one process uses it."""
    try:
        lock = sqlite_file.acquire_lock(path.with_name(f"{path.name}.lock"))
    except OSError as error:
        raise FolderUnusable(
            f"The folder of the database {path} cannot be used: {error.strerror}. Set CAIPE_HOME to another."
        ) from None
    if lock is None:
        raise StorageInUse(
            f"The database {path} is in use by another process of this program. "
            "Stop that one, or set CAIPE_HOME to another folder."
        )
    return lock


def _open_connections(
    path: Path, migrations: Sequence[Migration]
) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """The connections of the writer and the readers, after all migrations."""
    try:
        writer = sqlite_file.open_database(
            path, migrations, busy_seconds=_BUSY_SECONDS, pragmas=_WRITER_PRAGMAS
        )
        try:
            reader = _connect_reader(path)
        except BaseException:
            writer.close()
            raise
    except OSError as error:
        raise FolderUnusable(
            f"The database {path} cannot be opened: {error.strerror}. Set CAIPE_HOME to another folder."
        ) from None
    except sqlite3.Error as error:
        if is_disk_full(error):
            reason = describe_storage_failure(error)
            raise FolderUnusable(f"The database {path} cannot be written: {reason}.") from None
        raise ConfigurationError(
            f"The database {path} cannot be used: {error}. Restore a backup, or move the file away."
        ) from error
    return writer, reader


def _connect_reader(path: Path) -> sqlite3.Connection:
    return sqlite_file.connect(path, busy_seconds=_BUSY_SECONDS, pragmas=["query_only = ON"])
