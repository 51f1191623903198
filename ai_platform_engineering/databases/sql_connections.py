"""Connections to SQLite and PostgreSQL as rows need them, for SQL that both understand."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError

T = TypeVar("T")


class StorageFailed(CaipeError):
    """Nothing was stored: the disk is full, the database is away, or the storage is closed."""

    code = "storage"
    retryable = True


class StorageInUse(ConfigurationError):
    """Another process uses the database."""


class Row(Protocol):
    """A row of a result; its columns are found by name and by position."""

    def __getitem__(self, column: Any, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


class ResultCursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """A connection as SQLite's driver has it. Statements are in the SQL that both databases understand, with
    SQLite's placeholders."""

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ..., /) -> ResultCursor: ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object: ...


@runtime_checkable
class NotifyingConnection(SqlConnection, Protocol):
    """A connection to a database that several processes share."""

    def note(self, kind: str, *details: str | int) -> None:
        """Tells the other processes something, if this is committed."""
        ...


Note = Sequence[str | int]  # what a process tells others: a kind, and details
Work = Callable[[SqlConnection, int], T]  # a write inside a transaction, with the time of the commit


def row_lock(db: SqlConnection) -> str:
    """The end of a SELECT whose rows nobody else may change before the commit.

    A transaction of SQLite is alone in any case."""
    if isinstance(db, sqlite3.Connection):
        return ""
    return " FOR UPDATE"


def lock_key(db: SqlConnection, *key: str) -> None:
    """Lets one transaction at a time pass with this key, until its commit: for rows that do not exist yet."""
    if not isinstance(db, sqlite3.Connection):
        db.execute("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (json.dumps(key),))
