"""The bot's SQLite file: events of Slack that were handled, turns of threads, and the bot's own messages."""

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.events import clean_json
from ai_platform_engineering.files.sqlite_file import Migration, open_database
from ai_platform_engineering.integrations.slack_bot.incoming_messages import SlackMessage
from ai_platform_engineering.integrations.slack_bot.stream_progress import StreamProgress

log = logging.getLogger(__name__)

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
# A renamed field of a stored row (`turns.row`, `heard.said`) needs a migration that renames it in the JSON.
_MIGRATIONS = (_FIRST,)
_BUSY_SECONDS = 1.0
_PRAGMAS = ("locking_mode = EXCLUSIVE", "journal_mode = WAL")
_EVENT_TTL = 24 * 3600.0
_TURN_TTL = 30 * 24 * 3600.0

T = TypeVar("T")
TurnState = Literal["open", "done"]


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A question in a thread: `order` is the message for the supervisor, `drawn` is what Slack has of the
    answer.

    The message is kept so that it can be sent again, the same one each time.
    """

    turn_id: str
    team: str
    channel: str
    thread_ts: str
    user: str
    principal: str
    order: Mapping[str, Any]
    task_id: str | None = None
    state: TurnState = "open"
    drawn: StreamProgress = field(default_factory=StreamProgress)

    @property
    def question_ts(self) -> str:
        return self.turn_id.partition(":")[2].partition(":")[0]

    @property
    def owner(self) -> str:
        return thread_owner(self.team, self.channel, self.thread_ts)


_TURN_ADAPTER: TypeAdapter[TurnRow] = TypeAdapter(TurnRow)
_MESSAGE_ADAPTER: TypeAdapter[SlackMessage] = TypeAdapter(SlackMessage)


def thread_owner(team: str, channel: str, thread_ts: str) -> str:
    """The owner and context id of a thread's conversation; made of the thread's ids, so it is never lost."""
    return f"slack:{team}:{channel}:{thread_ts}"


class BotStore:
    def __init__(self, path: Path | None, now: Callable[[], float]) -> None:
        """Without a path: in memory. Raises ConfigurationError when the file cannot be used, or is used by
        another bot."""
        self._now = now
        try:
            self._db = open_database(path, _MIGRATIONS, busy_seconds=_BUSY_SECONDS, pragmas=_PRAGMAS)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(
                f"{path} cannot be used ({error}). Only one bot may use it: stop the other one, "
                "or give this one a CAIPE_HOME of its own."
            ) from None
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        async with self._lock:
            await asyncio.to_thread(self._db.close)

    async def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs a transaction in a thread, one at a time; it is committed when this returns."""

        def run() -> T:
            with self._db:
                self._db.execute("BEGIN")
                return work(self._db)

        async with self._lock:
            running = asyncio.ensure_future(asyncio.to_thread(run))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # A thread cannot be cancelled, and no other transaction may run at the same time.
                await asyncio.wait({running})
                raise

    async def _execute(self, statement: str, *values: Any) -> None:
        await self._transact(lambda db: db.execute(statement, values))

    async def _fetch_one(self, query: str, *values: Any) -> Sequence[Any] | None:
        return await self._transact(lambda db: db.execute(query, values).fetchone())

    async def _fetch_all(self, query: str, *values: Any) -> list[Sequence[Any]]:
        return await self._transact(lambda db: db.execute(query, values).fetchall())

    # --- events ---------------------------------------------------------------------------------------------

    async def record_if_new(self, *keys: str, message: SlackMessage | None = None) -> bool:
        """Records the keys, and says whether none was recorded before.

        A new message is stored until `mark_handled`.
        """

        def record(db: sqlite3.Connection) -> bool:
            now = self._now()
            is_new = not any(_has_event_key(db, key) for key in keys)
            db.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?)", [(key, now) for key in keys])
            if message is not None and is_new:
                values = (message.turn_id, json.dumps(asdict(message)))
                db.execute("INSERT OR REPLACE INTO heard VALUES (?, ?)", values)
            return is_new

        return await self._transact(record)

    async def mark_handled(self, message: SlackMessage) -> None:
        await self._execute("DELETE FROM heard WHERE turn_id = ?", message.turn_id)

    async def list_unhandled(self) -> list[SlackMessage]:
        """Messages that an earlier process acknowledged and did not finish."""
        rows = await self._fetch_all("SELECT said FROM heard ORDER BY turn_id")
        messages = [_parse_stored(_MESSAGE_ADAPTER, row[0]) for row in rows]
        return [message for message in messages if message is not None]

    async def delete_expired(self) -> None:
        """Deletes rows that are too old to be of use."""

        def delete(db: sqlite3.Connection) -> None:
            now = self._now()
            db.execute("DELETE FROM seen WHERE at < ?", (now - _EVENT_TTL,))
            db.execute("DELETE FROM turns WHERE state = 'done' AND at < ?", (now - _TURN_TTL,))
            db.execute("DELETE FROM posted WHERE at < ?", (now - _TURN_TTL,))
            db.execute("DELETE FROM threads WHERE at < ?", (now - _TURN_TTL,))
            db.execute("DELETE FROM asked WHERE turn_id NOT IN (SELECT turn_id FROM turns)")

        await self._transact(delete)

    # --- turns ----------------------------------------------------------------------------------------------

    async def save_turn(self, row: TurnRow) -> None:
        serialized = json.dumps({**asdict(row), "order": dict(row.order)})
        now = self._now()
        values = (row.turn_id, row.channel, row.thread_ts, row.state, row.task_id, serialized, now)
        posted = [(row.channel, ts, now) for ts in row.drawn.posted]

        def save(db: sqlite3.Connection) -> None:
            db.execute("INSERT OR REPLACE INTO turns VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            db.executemany("INSERT OR IGNORE INTO posted VALUES (?, ?, ?)", posted)

        await self._transact(save)

    async def delete_turn(self, turn_id: str) -> None:
        await self._execute("DELETE FROM turns WHERE turn_id = ?", turn_id)

    async def find_turn(self, turn_id: str) -> TurnRow | None:
        row = await self._fetch_one("SELECT row FROM turns WHERE turn_id = ?", turn_id)
        if row is None:
            return None
        return _parse_turn(row[0])

    async def find_turn_of_task(self, task_id: str) -> TurnRow | None:
        """The turn that shows a task."""
        query = "SELECT row FROM turns WHERE task_id = ? ORDER BY at LIMIT 1"
        row = await self._fetch_one(query, task_id)
        if row is None:
            return None
        return _parse_turn(row[0])

    async def list_open_turns(
        self, channel: str | None = None, thread_ts: str | None = None
    ) -> list[TurnRow]:
        query = "SELECT row FROM turns WHERE state = 'open'"
        values = []
        if channel is not None:
            query += " AND channel = ?"
            values.append(channel)
        if thread_ts is not None:
            query += " AND thread_ts = ?"
            values.append(thread_ts)
        rows = await self._fetch_all(f"{query} ORDER BY turn_id", *values)
        turns = [_parse_turn(row[0]) for row in rows]
        return [turn for turn in turns if turn is not None]

    # --- messages -------------------------------------------------------------------------------------------

    async def record_posted(self, channel: str, ts: str) -> None:
        await self._execute("INSERT OR IGNORE INTO posted VALUES (?, ?, ?)", channel, ts, self._now())

    async def is_posted(self, channel: str, ts: str) -> bool:
        query = "SELECT 1 FROM posted WHERE channel = ? AND ts = ?"
        return await self._fetch_one(query, channel, ts) is not None

    async def record_request(self, request_id: str, turn_id: str) -> str | None:
        """Records that a request is about to be posted, and returns None.

        When it was recorded before: the ts of its message, or "" when there may be one that is not known.
        """

        def record(db: sqlite3.Connection) -> str | None:
            row = db.execute("SELECT ts FROM asked WHERE request_id = ?", (request_id,)).fetchone()
            if row is not None:
                return str(row[0] or "")
            db.execute("INSERT INTO asked (request_id, turn_id) VALUES (?, ?)", (request_id, turn_id))
            return None

        return await self._transact(record)

    async def record_request_message(self, request_id: str, channel: str, ts: str) -> None:
        def record(db: sqlite3.Connection) -> None:
            db.execute("UPDATE asked SET ts = ? WHERE request_id = ?", (ts, request_id))
            db.execute("INSERT OR IGNORE INTO posted VALUES (?, ?, ?)", (channel, ts, self._now()))

        await self._transact(record)

    async def close_request(self, request_id: str) -> str | None:
        """Closes a request, and returns the ts of its message to the first caller."""

        def close(db: sqlite3.Connection) -> str | None:
            query = "SELECT ts FROM asked WHERE request_id = ? AND open = 1"
            row = db.execute(query, (request_id,)).fetchone()
            db.execute("UPDATE asked SET open = 0 WHERE request_id = ?", (request_id,))
            if row is None:
                return None
            ts: str | None = row[0]
            return ts

        return await self._transact(close)

    async def list_open_requests(self, turn_id: str) -> list[str]:
        rows = await self._fetch_all("SELECT request_id FROM asked WHERE turn_id = ? AND open = 1", turn_id)
        return [str(row[0]) for row in rows]

    # --- threads --------------------------------------------------------------------------------------------

    async def last_sent_ts(self, channel: str, thread_ts: str) -> str | None:
        """The ts up to which the supervisor has the thread's messages; None when the bot is not in it."""
        query = "SELECT given FROM threads WHERE channel = ? AND thread_ts = ?"
        row = await self._fetch_one(query, channel, thread_ts)
        if row is None:
            return None
        return str(row[0])

    async def record_sent(self, channel: str, thread_ts: str, ts: str) -> None:
        """Records that the supervisor has the thread's messages up to `ts`; events may come late, so never
        less.
        """
        await self._execute(
            """
            INSERT INTO threads VALUES (?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET given = MAX(given, excluded.given), at = excluded.at
            """,
            channel,
            thread_ts,
            ts,
            self._now(),
        )


def _has_event_key(db: sqlite3.Connection, key: str) -> bool:
    return db.execute("SELECT 1 FROM seen WHERE key = ?", (key,)).fetchone() is not None


def _parse_turn(serialized: str) -> TurnRow | None:
    return _parse_stored(_TURN_ADAPTER, serialized)


def _parse_stored(adapter: TypeAdapter[T], serialized: str) -> T | None:
    """The stored object; fields of other versions are ignored. None when it cannot be read."""
    try:
        return adapter.validate_python(clean_json(json.loads(serialized)))
    except ValidationError as error:
        # One row must not keep the bot from the others; it stays for a version that can read it.
        fields = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
        log.error("a stored row of the bot cannot be read and is skipped: %s", fields)
        return None
