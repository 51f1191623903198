"""One SQLite file that belongs to one process: a thread that writes, one commit for all who wait, and a connection that reads."""

import asyncio
import contextlib
import fcntl
import itertools
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError
from ai_platform_engineering.runtime.log.sqlite_schema import STEPS, Step, migrate

log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[sqlite3.Connection, int], T]  # in the writer's thread, with the time of the commit

TICK = 0.005
_BUSY = 30.0  # seconds; the graph's checkpoints may be written to the same file
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StorageFailed(CaipeError):
    """Nothing was stored: the disk is full, or the storage is closed."""

    code = "storage"
    retryable = True


class StorageInUse(ConfigurationError):
    """Another process has it."""


def microseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def moment(stored: int) -> datetime:
    return _EPOCH + timedelta(microseconds=stored)


@dataclass(slots=True)
class _Operation:
    work: Work[Any]
    future: asyncio.Future[Any]
    stored: Callable[[], None] | None
    value: Any = None
    error: Exception | None = None


class Database:
    """Open from the start. `commits` counts the transactions that were stored."""

    def __init__(self, path: Path, *, tick: float = TICK, steps: Sequence[Step] = STEPS) -> None:
        self._lock = _locked(path)
        try:
            self._writing, self._reading = _connected(path, steps)
        except BaseException:
            os.close(self._lock)
            raise
        self._tick, self.commits = tick, 0
        self._waiting: list[_Operation] = []
        self._came = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write, name=f"writer of {path.name}", daemon=True)
        self._thread.start()

    def submit(self, work: Work[T], stored: Callable[[], None] | None = None) -> asyncio.Future[T]:
        """What the work returned, once it is stored. `stored` is called in the loop just before, also when nobody waits any more.
        An error of the work undoes the work alone."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._came:
            self._refuse_closed()
            self._waiting.append(_Operation(work, future, stored))
            self._came.notify()
        return future

    def rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        """The rows of a short query on what is stored. All at once: an open cursor would hold its snapshot, and the file would grow."""
        self._refuse_closed()
        return self._reading.execute(query, values).fetchall()

    def close(self) -> None:
        """Stores what was submitted, refuses the rest, and gives the file free."""
        with self._came:
            if self._closing.is_set():
                return
            self._closing.set()
            self._came.notify()
        self._thread.join()
        self._reading.close()
        self._writing.close()
        os.close(self._lock)

    def _refuse_closed(self) -> None:
        if self._closing.is_set():
            raise StorageFailed("The storage is closed.")

    def _write(self) -> None:
        while batch := self._next():
            self._commit(batch)
            for loop, operations in itertools.groupby(
                batch, key=lambda operation: operation.future.get_loop()
            ):
                _tell(loop, list(operations))
            self._closing.wait(
                self._tick
            )  # who comes meanwhile shares the next commit; who comes later does not wait

    def _next(self) -> list[_Operation]:
        """Waits for operations. None is left when the database closes: the end."""
        with self._came:
            self._came.wait_for(lambda: self._waiting or self._closing.is_set())
            batch, self._waiting = self._waiting, []
            return batch

    def _commit(self, batch: list[_Operation]) -> None:
        now = time.time_ns() // 1000
        try:
            self._writing.execute("BEGIN IMMEDIATE")
            for operation in batch:
                self._apply(operation, now)
            self._writing.execute("COMMIT")
            self.commits += 1
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may wait for ever or be told of what is not stored
            log.error("%d operations could not be stored: %s", len(batch), error)
            with contextlib.suppress(sqlite3.Error):  # SQLite itself may have rolled back
                self._writing.execute("ROLLBACK")
            for operation in batch:
                operation.error = StorageFailed(f"Nothing was stored: {error}.")

    def _apply(self, operation: _Operation, now: int) -> None:
        self._writing.execute("SAVEPOINT operation")
        try:
            operation.value = operation.work(self._writing, now)
        except sqlite3.OperationalError:
            raise  # a full disk or the like: SQLite may have undone the whole transaction
        except Exception as error:  # noqa: BLE001 - it goes to whoever submitted the work
            self._writing.execute("ROLLBACK TO operation")
            operation.error = error
        self._writing.execute("RELEASE operation")


def _tell(loop: asyncio.AbstractEventLoop, operations: list[_Operation]) -> None:
    def told() -> None:
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
        loop.call_soon_threadsafe(told)
    except RuntimeError:  # the loop has ended, and with it everyone who waited
        log.debug("nobody waits any more for %d operations", len(operations))


def _locked(path: Path) -> int:
    """The lock beside the file, held as long as the process lives, however it ends."""
    beside = path.with_name(f"{path.name}.lock")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"The folder of the database {path} cannot be used: {error.strerror}. Set CAIPE_HOME to another."
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise StorageInUse(
            f"The database {path} is in use by another process of this program. Stop that one, or set CAIPE_HOME to another folder."
        ) from None
    return lock


def _connected(path: Path, steps: Sequence[Step]) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """The writing and the reading connection, with the schema of today."""
    try:
        os.close(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        )  # what people wrote is nobody else's to read
        writing = _connection(path)
    except (OSError, sqlite3.Error) as error:
        raise ConfigurationError(
            f"The database {path} cannot be opened: {error}. Set CAIPE_HOME to another folder."
        ) from None
    try:
        writing.execute("PRAGMA auto_vacuum = INCREMENTAL")  # counts only before the first table
        writing.execute("PRAGMA journal_mode = WAL")
        writing.execute("PRAGMA synchronous = FULL")
        migrate(writing, steps)
        reading = _connection(path)
        reading.execute("PRAGMA query_only = ON")
    except BaseException as error:
        writing.close()
        if isinstance(error, sqlite3.DatabaseError):
            raise ConfigurationError(
                f"The database {path} cannot be used: {error}. Restore a backup, or move the file away."
            ) from error
        raise
    return writing, reading


def _connection(path: Path) -> sqlite3.Connection:
    found = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
    found.row_factory = sqlite3.Row
    return found
