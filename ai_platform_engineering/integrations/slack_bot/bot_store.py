"""What the bot must not forget: which events it has seen, which turns it draws, and which messages are its own. A SQLite file."""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.integrations.slack_bot.blocks import TaskCard
from ai_platform_engineering.integrations.slack_bot.incoming_messages import SlackMessage
from ai_platform_engineering.integrations.slack_bot.slack_stream import OpenMessage, StreamProgress

_SCHEMA = """
CREATE TABLE IF NOT EXISTS seen (key TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS heard (turn_id TEXT PRIMARY KEY, said TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS turns (turn_id TEXT PRIMARY KEY, channel TEXT NOT NULL, thread_ts TEXT NOT NULL, state TEXT NOT NULL,
  task_id TEXT, row TEXT NOT NULL, at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS turns_of_thread ON turns (channel, thread_ts);
CREATE INDEX IF NOT EXISTS turns_of_task ON turns (task_id);
CREATE TABLE IF NOT EXISTS posted (channel TEXT NOT NULL, ts TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (channel, ts));
CREATE TABLE IF NOT EXISTS asked (request_id TEXT PRIMARY KEY, turn_id TEXT NOT NULL, ts TEXT, open INTEGER NOT NULL DEFAULT 1);
CREATE TABLE IF NOT EXISTS threads (channel TEXT NOT NULL, thread_ts TEXT NOT NULL, given TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (channel, thread_ts));
"""
_KEPT_EVENTS = 24 * 3600.0
_KEPT_TURNS = 30 * 24 * 3600.0

T = TypeVar("T")
TurnState = Literal["open", "done"]


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A question in a thread, and how far it has been drawn. `order` is the message for the supervisor, so that it can be sent again."""

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


def thread_owner(team: str, channel: str, thread_ts: str) -> str:
    """A thread is one conversation, and owns it. Its name can always be made again, so the mapping cannot be lost."""
    return f"slack:{team}:{channel}:{thread_ts}"


class BotStore:
    def __init__(self, path: Path | str, now: Callable[[], float]) -> None:
        """Raises ConfigurationError when the file cannot be used, or is used by another bot."""
        self._now = now
        try:
            if isinstance(path, Path):
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(str(path), check_same_thread=False, timeout=1.0)
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(
                f"{path} cannot be used ({error}). Only one bot may use it: stop the other one, or give this one a CAIPE_HOME of its own."
            ) from None
        if isinstance(path, Path):
            path.chmod(0o600)
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        async with self._lock:
            await asyncio.to_thread(self._db.close)

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """In a thread, one at a time, committed before it returns."""

        def done() -> T:
            with self._db:
                return work(self._db)

        async with self._lock:
            working = asyncio.ensure_future(asyncio.to_thread(done))
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                await asyncio.wait(
                    {working}
                )  # a thread cannot be cancelled, and the next one must not come beside it
                raise

    # --- events -------------------------------------------------------------------------------------------------------

    async def record_if_new(self, *keys: str, message: SlackMessage | None = None) -> bool:
        """Whether none of the keys was seen before. They are seen from now on, and what was heard is kept until it is `worked_on`."""

        def look(db: sqlite3.Connection) -> bool:
            now = self._now()
            known = any(db.execute("SELECT 1 FROM seen WHERE key = ?", (key,)).fetchone() for key in keys)
            db.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?)", [(key, now) for key in keys])
            if message is not None and not known:
                db.execute(
                    "INSERT OR REPLACE INTO heard VALUES (?, ?)",
                    (message.turn_id, json.dumps(asdict(message))),
                )
            return not known

        return await self._do(look)

    async def mark_handled(self, heard: SlackMessage) -> None:
        await self._do(lambda db: db.execute("DELETE FROM heard WHERE turn_id = ?", (heard.turn_id,)))

    async def list_unhandled(self) -> list[SlackMessage]:
        """What an earlier process has heard, told Slack so, and come no further."""
        found = await self._do(lambda db: db.execute("SELECT said FROM heard ORDER BY turn_id").fetchall())
        read = [json.loads(one[0]) for one in found]
        return [SlackMessage(**{**one, "files": tuple(one["files"])}) for one in read]

    async def delete_expired(self) -> None:
        """Forgets what is of no use any more."""

        def forget(db: sqlite3.Connection) -> None:
            now = self._now()
            db.execute("DELETE FROM seen WHERE at < ?", (now - _KEPT_EVENTS,))
            db.execute("DELETE FROM turns WHERE state = 'done' AND at < ?", (now - _KEPT_TURNS,))
            db.execute("DELETE FROM posted WHERE at < ?", (now - _KEPT_TURNS,))
            db.execute("DELETE FROM threads WHERE at < ?", (now - _KEPT_TURNS,))
            db.execute("DELETE FROM asked WHERE turn_id NOT IN (SELECT turn_id FROM turns)")

        await self._do(forget)

    # --- turns --------------------------------------------------------------------------------------------------------

    async def save_turn(self, row: TurnRow) -> None:
        written = json.dumps({**asdict(row), "order": dict(row.order)})
        posted = [(row.channel, ts, self._now()) for ts in row.drawn.posted]
        fields = (row.turn_id, row.channel, row.thread_ts, row.state, row.task_id, written, self._now())

        def write(db: sqlite3.Connection) -> None:
            db.execute("INSERT OR REPLACE INTO turns VALUES (?, ?, ?, ?, ?, ?, ?)", fields)
            db.executemany("INSERT OR IGNORE INTO posted VALUES (?, ?, ?)", posted)

        await self._do(write)

    async def delete_turn(self, turn_id: str) -> None:
        await self._do(lambda db: db.execute("DELETE FROM turns WHERE turn_id = ?", (turn_id,)))

    async def find_turn(self, turn_id: str) -> TurnRow | None:
        found = await self._do(
            lambda db: db.execute("SELECT row FROM turns WHERE turn_id = ?", (turn_id,)).fetchone()
        )
        if found:
            return _row(found[0])
        return None

    async def find_turn_of_task(self, task_id: str) -> TurnRow | None:
        """The turn that shows a task."""
        ordered = "SELECT row FROM turns WHERE task_id = ? ORDER BY at LIMIT 1"
        found = await self._do(lambda db: db.execute(ordered, (task_id,)).fetchone())
        if found:
            return _row(found[0])
        return None

    async def list_open_turns(
        self, channel: str | None = None, thread_ts: str | None = None
    ) -> list[TurnRow]:
        named = {
            name: value
            for name, value in (("channel", channel), ("thread_ts", thread_ts))
            if value is not None
        }
        where = "".join(f" AND {name} = ?" for name in named)
        asked = f"SELECT row FROM turns WHERE state = 'open'{where} ORDER BY turn_id"  # noqa: S608 - two names of ours
        return [
            _row(one[0])
            for one in await self._do(lambda db: db.execute(asked, tuple(named.values())).fetchall())
        ]

    # --- messages -----------------------------------------------------------------------------------------------------

    async def record_posted(self, channel: str, ts: str) -> None:
        await self._do(
            lambda db: db.execute("INSERT OR IGNORE INTO posted VALUES (?, ?, ?)", (channel, ts, self._now()))
        )

    async def is_posted(self, channel: str, ts: str) -> bool:
        asked = "SELECT 1 FROM posted WHERE channel = ? AND ts = ?"
        return await self._do(lambda db: db.execute(asked, (channel, ts)).fetchone() is not None)

    async def record_request(self, request_id: str, turn_id: str) -> str | None:
        """Notes that a request is about to be shown; the message that shows it, when there is one already, and "" when there may be one."""

        def note(db: sqlite3.Connection) -> str | None:
            found = db.execute("SELECT ts FROM asked WHERE request_id = ?", (request_id,)).fetchone()
            if found is not None:
                return str(found[0] or "")
            db.execute("INSERT INTO asked (request_id, turn_id) VALUES (?, ?)", (request_id, turn_id))
            return None

        return await self._do(note)

    async def record_request_message(self, request_id: str, channel: str, ts: str) -> None:
        def note(db: sqlite3.Connection) -> None:
            db.execute("UPDATE asked SET ts = ? WHERE request_id = ?", (ts, request_id))
            db.execute("INSERT OR IGNORE INTO posted VALUES (?, ?, ?)", (channel, ts, self._now()))

        await self._do(note)

    async def close_request(self, request_id: str) -> str | None:
        """The message of a request that is over, for whoever asks first."""

        def take(db: sqlite3.Connection) -> str | None:
            found = db.execute(
                "SELECT ts FROM asked WHERE request_id = ? AND open = 1", (request_id,)
            ).fetchone()
            db.execute("UPDATE asked SET open = 0 WHERE request_id = ?", (request_id,))
            if found:
                return str(found[0])
            return None

        return await self._do(take)

    async def list_open_requests(self, turn_id: str) -> list[str]:
        asked = "SELECT request_id FROM asked WHERE turn_id = ? AND open = 1"
        return [str(one[0]) for one in await self._do(lambda db: db.execute(asked, (turn_id,)).fetchall())]

    # --- threads ------------------------------------------------------------------------------------------------------

    async def last_sent_ts(self, channel: str, thread_ts: str) -> str | None:
        """Up to which message the thread was given to the supervisor; None when the bot takes no part in it."""
        asked = "SELECT given FROM threads WHERE channel = ? AND thread_ts = ?"
        found = await self._do(lambda db: db.execute(asked, (channel, thread_ts)).fetchone())
        if found:
            return str(found[0])
        return None

    async def record_sent(self, channel: str, thread_ts: str, ts: str) -> None:
        fields = (channel, thread_ts, ts, self._now())
        # Events may come late: what was given stays so.
        later = "INSERT INTO threads VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET given = MAX(given, excluded.given), at = excluded.at"
        await self._do(lambda db: db.execute(later, fields))


def _row(written: str) -> TurnRow:
    read = json.loads(written)
    drawn = read.pop("drawn")
    part, known = drawn.pop("part"), drawn.pop("known")
    again = StreamProgress(
        part=OpenMessage(**part) if part else None, known=tuple(TaskCard(**card) for card in known), **drawn
    )
    return TurnRow(**read, drawn=replace(again, posted=tuple(again.posted), starts=tuple(again.starts)))
