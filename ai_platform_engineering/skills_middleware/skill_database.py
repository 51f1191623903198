"""The database of the skill catalogue: a file of SQLite, or a PostgreSQL that several servers share."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.core.failure_text import describe_storage_failure
from ai_platform_engineering.databases.sql_connections import SqlConnection
from ai_platform_engineering.files.sqlite_file import Migration, open_database

_FIRST: Migration = (
    """CREATE TABLE skills(
        id INTEGER PRIMARY KEY, origin TEXT NOT NULL, origin_id TEXT NOT NULL, place TEXT NOT NULL,
        folder TEXT NOT NULL, mark TEXT NOT NULL, problems TEXT NOT NULL,
        UNIQUE(origin, origin_id, place))""",
    """CREATE TABLE files(
        skill INTEGER NOT NULL REFERENCES skills(id) ON DELETE CASCADE, path TEXT NOT NULL,
        content BLOB NOT NULL, PRIMARY KEY(skill, path))""",
    """CREATE TABLE switches(
        origin TEXT NOT NULL, origin_id TEXT NOT NULL, name TEXT NOT NULL, enabled INTEGER NOT NULL,
        PRIMARY KEY(origin, origin_id, name)) WITHOUT ROWID""",
    """CREATE TABLE hubs(
        id TEXT PRIMARY KEY, url TEXT NOT NULL, ref TEXT NOT NULL, path TEXT NOT NULL, pin TEXT NOT NULL,
        configured INTEGER NOT NULL)""",
)
# Who fetches a hub, until when (0: nobody), and why the last fetch failed.
_FETCHES: Migration = (
    """CREATE TABLE fetches(
        hub TEXT PRIMARY KEY, epoch INTEGER NOT NULL, lease_until INTEGER NOT NULL,
        problem TEXT NOT NULL DEFAULT '') WITHOUT ROWID""",
)
_MIGRATIONS = (_FIRST, _FETCHES)

_BUSY_SECONDS = 10.0
_PRAGMAS = (
    "journal_mode = WAL",  # the terminal's commands may have it open beside a server
    "foreign_keys = ON",
)


class SkillDatabase(Protocol):
    """Connections for the statements of the store, which both databases understand. Opened at the first use;
    it blocks, and may be used from any thread. Errors are SourceUnavailable."""

    def reading(self) -> AbstractContextManager[SqlConnection]:
        """A connection that reads; each statement sees what is stored then."""
        ...

    def writing(self) -> AbstractContextManager[SqlConnection]:
        """A connection in a transaction, beside which nobody else writes."""
        ...

    def read_clock(self, db: SqlConnection) -> int:
        """The time by which leases are kept, in microseconds."""
        ...

    def close(self) -> None: ...


class SqliteSkillDatabase:
    """`SkillDatabase` in a file; without a path in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @contextmanager
    def reading(self) -> Iterator[SqlConnection]:
        with self._lock, _explain_errors():
            yield self._connect()

    @contextmanager
    def writing(self) -> Iterator[SqlConnection]:
        with self._lock, _explain_errors():
            db = self._connect()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    def read_clock(self, db: SqlConnection) -> int:
        return time.time_ns() // 1000

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_database(
                self._path, _MIGRATIONS, busy_seconds=_BUSY_SECONDS, pragmas=_PRAGMAS
            )
        return self._connection


@contextmanager
def _explain_errors() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = describe_storage_failure(error)
        raise SourceUnavailable(
            f"The database of skills (skills.db in CAIPE_HOME) cannot be used: {reason}."
        ) from None
