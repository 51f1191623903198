"""The bot's database: a SQLite file of one process, or PostgreSQL, which several processes share.

Both take the same statements; `bot_postgres.py` has the other one, whose driver is an optional package.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.databases.sql_connections import Note, SqlConnection, Work
from ai_platform_engineering.files.sqlite_file import Migration, open_database

T = TypeVar("T")

# A file from before the migrations has these tables and no version.
_FIRST: Migration = (
    "CREATE TABLE IF NOT EXISTS seen (key TEXT PRIMARY KEY, at REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS heard (turn_id TEXT PRIMARY KEY, said TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS turns (
        turn_id TEXT PRIMARY KEY, channel TEXT NOT NULL, thread_ts TEXT NOT NULL, state TEXT NOT NULL,
        task_id TEXT, row TEXT NOT NULL, at REAL NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS turns_of_thread ON turns (channel, thread_ts)",
    "CREATE INDEX IF NOT EXISTS turns_of_task ON turns (task_id)",
    """CREATE TABLE IF NOT EXISTS posted (
        channel TEXT NOT NULL, ts TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (channel, ts))""",
    """CREATE TABLE IF NOT EXISTS asked (
        request_id TEXT PRIMARY KEY, turn_id TEXT NOT NULL, ts TEXT, open INTEGER NOT NULL DEFAULT 1)""",
    """CREATE TABLE IF NOT EXISTS threads (
        channel TEXT NOT NULL, thread_ts TEXT NOT NULL, given TEXT NOT NULL, at REAL NOT NULL,
        PRIMARY KEY (channel, thread_ts))""",
)
# A thread with work has a holder, the process that does it; the other tables are what processes must share.
_HOLDERS: Migration = (
    """CREATE TABLE IF NOT EXISTS messages (
        turn_id TEXT PRIMARY KEY, channel TEXT NOT NULL, thread_ts TEXT NOT NULL, message TEXT NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS messages_of_thread ON messages (channel, thread_ts)",
    """INSERT OR IGNORE INTO messages SELECT turn_id, json_extract(said, '$.channel'),
        json_extract(said, '$.thread_ts'), said FROM heard""",
    "DELETE FROM heard",
    """CREATE TABLE IF NOT EXISTS holders (
        channel TEXT NOT NULL, thread_ts TEXT NOT NULL, holder TEXT NOT NULL,
        PRIMARY KEY (channel, thread_ts))""",
    """INSERT OR IGNORE INTO holders SELECT channel, thread_ts, '' FROM turns WHERE state = 'open'
        UNION SELECT channel, thread_ts, '' FROM messages""",
    "CREATE TABLE IF NOT EXISTS processes (process_id TEXT PRIMARY KEY, lease_until INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS timers (name TEXT PRIMARY KEY, next_at INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS stops (turn_id TEXT PRIMARY KEY, principal TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS questions (
        channel TEXT NOT NULL, author TEXT NOT NULL, at REAL NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS questions_of_author ON questions (channel, author, at)",
    "CREATE TABLE IF NOT EXISTS modal_answers (request_id TEXT PRIMARY KEY, at REAL NOT NULL)",
)
# A renamed field of a stored row (`turns.row`, `messages.message`) needs a migration that renames it in the
# JSON.
_MIGRATIONS = (_FIRST, _HOLDERS)
_BUSY_SECONDS = 1.0
_PRAGMAS = ("locking_mode = EXCLUSIVE", "journal_mode = WAL")


class BotDatabase(Protocol):
    """An open database of the bot; `process_id` is this process among those that share it."""

    process_id: str
    is_shared: bool

    async def transact(self, work: Work[T]) -> T:
        """The result of a transaction, once it is committed; the work gets the time in microseconds."""
        ...

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        """The result of queries on committed data."""
        ...

    def listen(self, on_note: Callable[[Note], None], on_change: Callable[[], None]) -> None:
        """Calls `on_note`, in the event loop, with what other processes tell, and `on_change` when notes may
        have been missed."""
        ...

    async def close(self) -> None: ...


class SqliteBotDatabase:
    """A SQLite file that no other process may open."""

    is_shared = False
    process_id = "this"

    def __init__(self, path: Path | None) -> None:
        """Without a path: in memory. Raises ConfigurationError when the file cannot be used, or is used by
        another bot."""
        try:
            self._db = open_database(path, _MIGRATIONS, busy_seconds=_BUSY_SECONDS, pragmas=_PRAGMAS)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(
                f"{path} cannot be used ({error}). Only one bot may use it: stop the other one, "
                "give this one a CAIPE_HOME of its own, or let both share PostgreSQL (DATABASE_URL)."
            ) from None
        self._lock = asyncio.Lock()

    async def transact(self, work: Work[T]) -> T:
        """Runs a transaction in a thread, one at a time."""

        def run() -> T:
            with self._db:
                self._db.execute("BEGIN")
                return work(self._db, time.time_ns() // 1000)

        async with self._lock:
            running = asyncio.ensure_future(asyncio.to_thread(run))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # A thread cannot be cancelled, and no other transaction may run at the same time.
                await asyncio.wait({running})
                raise

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        return await self.transact(lambda db, _: work(db))

    def listen(self, on_note: Callable[[Note], None], on_change: Callable[[], None]) -> None:
        """There is nobody else."""

    async def close(self) -> None:
        async with self._lock:
            await asyncio.to_thread(self._db.close)


def execute_count(db: SqlConnection, statement: str, *values: object) -> int:
    """Executes a statement and returns the number of rows that it changed."""
    return db.execute(statement, values).rowcount
