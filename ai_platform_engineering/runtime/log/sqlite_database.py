"""SQLite in one process: a writer thread with group commit, and a connection for readers."""

import asyncio
import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.failure_text import describe_storage_failure, is_disk_full
from ai_platform_engineering.databases.group_commit import BUSY_BATCH, TICK, GroupCommitWriter, Operation
from ai_platform_engineering.databases.sql_connections import SqlConnection, StorageFailed, StorageInUse, Work
from ai_platform_engineering.files import sqlite_file
from ai_platform_engineering.files.sqlite_file import Migration
from ai_platform_engineering.runtime.log.sqlite_schema import MIGRATIONS

log = logging.getLogger(__name__)

T = TypeVar("T")

_REMEDY = "Free some space on the server's disk, then ask again."
_BUSY_SECONDS = 30.0  # the graph's checkpoints may be written to the same file
_PAGES_AT_ONCE = 500  # so that releasing them delays no run
_WRITER_PRAGMAS = (
    "auto_vacuum = INCREMENTAL",  # counts only before the first table
    "journal_mode = WAL",
    "synchronous = FULL",
)


class FolderUnusable(ConfigurationError):
    """The folder of the database cannot be written."""


class SqliteWriter(GroupCommitWriter):
    """The thread that writes through one connection to SQLite."""

    def __init__(
        self, connection: sqlite3.Connection, name: str, *, tick: float = TICK, busy_batch: int = BUSY_BATCH
    ) -> None:
        self._connection = connection
        super().__init__(name, tick=tick, busy_batch=busy_batch)

    def _commit(self, batch: list[Operation]) -> None:
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

    def _apply_in_savepoint(self, operation: Operation, now: int) -> None:
        self._connection.execute("SAVEPOINT operation")
        self._apply(operation, now)
        if operation.error is not None:
            self._connection.execute("ROLLBACK TO operation")
        self._connection.execute("RELEASE operation")

    def _apply(self, operation: Operation, now: int) -> None:
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
        self._writer = SqliteWriter(
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

    async def query(self, query: str, *values: Any) -> list[Any]:
        return self.rows(query, *values)

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        """The result of a query that may take long: it runs in a thread, on a connection of its own."""
        self._writer.check_open()
        return await asyncio.get_running_loop().run_in_executor(self._list_thread, self._read, work)

    def _read(self, work: Callable[[SqlConnection], T]) -> T:
        if self._list_reader is None:
            self._list_reader = _connect_reader(self._path)
        return work(self._list_reader)

    async def release_space(self) -> None:
        """Shortens the file, in slices with other writes between them."""
        while await self.submit(_release_pages):
            pass

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


def _write_probe(connection: SqlConnection, _: int) -> None:
    """Writes as much as a page, and leaves nothing behind."""
    connection.execute("CREATE TABLE write_probe (content BLOB)")
    connection.execute("INSERT INTO write_probe VALUES (zeroblob(16384))")
    connection.execute("DROP TABLE write_probe")


def _release_pages(connection: SqlConnection, _: int) -> bool:
    assert isinstance(connection, sqlite3.Connection)
    return sqlite_file.release_pages(connection, _PAGES_AT_ONCE)


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
