"""What the bot stores: events of Slack that were handled, turns of threads, and its own messages."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

from ai_platform_engineering.databases.sql_connections import SqlConnection, lock_key
from ai_platform_engineering.integrations.slack_bot.bot_database import BotDatabase, execute_count
from ai_platform_engineering.integrations.slack_bot.incoming_messages import SlackMessage
from ai_platform_engineering.integrations.slack_bot.thread_holders import (
    STOP,
    check_holder,
    claim_thread,
    find_holder,
    lock_thread,
    notify,
)
from ai_platform_engineering.integrations.slack_bot.turn_rows import (
    ThreadKey,
    TurnRow,
    find_thread,
    parse_message_row,
    parse_turn,
    serialize_message,
    serialize_turn,
)

_EVENT_TTL = 24 * 3600.0
_TURN_TTL = 30 * 24 * 3600.0
_MODAL_TTL = 300.0  # seconds; a process that was killed leaves its modals behind
_HOUR = 3600.0

# What becomes of a message: this process handles it, another one does, or nobody has to.
Receipt = Literal["here", "elsewhere", "ignored"]


class BotStore:
    def __init__(self, database: BotDatabase, now: Callable[[], float]) -> None:
        self.database = database
        self._now = now

    async def close(self) -> None:
        await self.database.close()

    async def _execute(self, statement: str, *values: Any) -> None:
        await self.database.transact(lambda db, now: db.execute(statement, values).rowcount)

    async def _fetch_one(self, query: str, *values: Any) -> Sequence[Any] | None:
        row: Sequence[Any] | None = await self.database.read(lambda db: db.execute(query, values).fetchone())
        return row

    async def _fetch_all(self, query: str, *values: Any) -> list[Any]:
        return await self.database.read(lambda db: db.execute(query, values).fetchall())

    # --- events ---------------------------------------------------------------------------------------------

    async def receive(self, message: SlackMessage, *keys: str, follow_up: bool) -> Receipt:
        """Stores a message until `mark_handled`, unless one of its keys was recorded before, and finds who
        handles it.

        A `follow_up` counts only in a thread that the bot takes part in.
        """

        def receive(db: SqlConnection, _: int) -> Receipt:
            thread = find_thread(message)
            if follow_up and not _is_followed(db, thread):
                return "ignored"
            lock_thread(db, thread)
            if not self._record_keys(db, keys):
                return "ignored"
            db.execute(
                "INSERT INTO messages VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (message.turn_id, *thread, serialize_message(message)),
            )
            if claim_thread(db, thread, self.database.process_id):
                return "here"
            return "elsewhere"

        return await self.database.transact(receive)

    async def record_if_new(self, *keys: str) -> bool:
        """Records the keys, and says whether none was recorded before."""
        return await self.database.transact(lambda db, _: self._record_keys(db, keys))

    def _record_keys(self, db: SqlConnection, keys: Sequence[str]) -> bool:
        now = self._now()
        new_keys = [
            key
            for key in keys
            if execute_count(db, "INSERT INTO seen VALUES (?, ?) ON CONFLICT DO NOTHING", key, now)
        ]
        return len(new_keys) == len(keys)

    async def mark_handled(self, message: SlackMessage) -> None:
        await self._execute("DELETE FROM messages WHERE turn_id = ?", message.turn_id)

    async def list_unhandled(self, thread: ThreadKey | None = None) -> list[SlackMessage]:
        """Messages, of a thread or of all, that nobody has handled; the oldest first."""
        query = "SELECT message FROM messages"
        if thread is not None:
            query += " WHERE channel = ? AND thread_ts = ?"
        rows = await self._fetch_all(f"{query} ORDER BY turn_id", *(thread or ()))
        messages = [parse_message_row(row[0]) for row in rows]
        return [message for message in messages if message is not None]

    async def record_question(self, channel: str, author: str, limit: int) -> float | None:
        """Counts a question of the last hour; the time of the oldest one when there are too many already."""

        def record(db: SqlConnection, _: int) -> float | None:
            now = self._now()
            lock_key(db, "questions", channel, author)
            db.execute("DELETE FROM questions WHERE at <= ?", (now - _HOUR,))
            query = "SELECT count(*), min(at) FROM questions WHERE channel = ? AND author = ?"
            count, oldest = db.execute(query, (channel, author)).fetchone()
            if count >= limit:
                return float(oldest if oldest is not None else now)
            db.execute("INSERT INTO questions VALUES (?, ?, ?)", (channel, author, now))
            return None

        return await self.database.transact(record)

    async def delete_expired(self) -> None:
        """Deletes rows that are too old to be of use."""

        def delete(db: SqlConnection, _: int) -> None:
            now = self._now()
            db.execute("DELETE FROM seen WHERE at < ?", (now - _EVENT_TTL,))
            db.execute("DELETE FROM turns WHERE state = 'done' AND at < ?", (now - _TURN_TTL,))
            db.execute("DELETE FROM posted WHERE at < ?", (now - _TURN_TTL,))
            db.execute("DELETE FROM threads WHERE at < ?", (now - _TURN_TTL,))
            db.execute("DELETE FROM asked WHERE turn_id NOT IN (SELECT turn_id FROM turns)")
            db.execute("DELETE FROM stops WHERE turn_id NOT IN (SELECT turn_id FROM turns)")
            db.execute("DELETE FROM modal_answers WHERE at < ?", (now - _MODAL_TTL,))

        await self.database.transact(delete)

    # --- turns ----------------------------------------------------------------------------------------------

    async def add_turn(self, row: TurnRow) -> bool:
        """Stores a new turn, and says whether this process runs it: the holder of its thread does.

        A turn that is there already stays as it is.
        """

        def add(db: SqlConnection, _: int) -> bool:
            lock_thread(db, row.thread)
            db.execute(
                "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (*_turn_values(row), self._now()),
            )
            return claim_thread(db, row.thread, self.database.process_id)

        return await self.database.transact(add)

    async def save_turn(self, row: TurnRow) -> None:
        """Stores a turn of this process. Raises ThreadTaken when another process works on the thread."""

        def save(db: SqlConnection, _: int) -> None:
            check_holder(db, row.thread, self.database.process_id)
            now = self._now()
            db.execute(
                """
                INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (turn_id) DO UPDATE
                SET state = excluded.state, task_id = excluded.task_id, "row" = excluded."row",
                at = excluded.at
                """,
                (*_turn_values(row), now),
            )
            posted = [(row.channel, ts, now) for ts in row.drawn.posted]
            db.executemany("INSERT INTO posted VALUES (?, ?, ?) ON CONFLICT DO NOTHING", posted)

        await self.database.transact(save)

    async def delete_turn(self, turn_id: str) -> None:
        await self._execute("DELETE FROM turns WHERE turn_id = ?", turn_id)

    async def find_turn(self, turn_id: str) -> TurnRow | None:
        row = await self._fetch_one('SELECT "row" FROM turns WHERE turn_id = ?', turn_id)
        if row is None:
            return None
        return parse_turn(row[0])

    async def find_turn_of_task(self, task_id: str) -> TurnRow | None:
        """The turn that shows a task."""
        query = 'SELECT "row" FROM turns WHERE task_id = ? ORDER BY at LIMIT 1'
        row = await self._fetch_one(query, task_id)
        if row is None:
            return None
        return parse_turn(row[0])

    async def list_open_turns(
        self, channel: str | None = None, thread_ts: str | None = None
    ) -> list[TurnRow]:
        query = """SELECT "row" FROM turns WHERE state = 'open'"""
        values = []
        if channel is not None:
            query += " AND channel = ?"
            values.append(channel)
        if thread_ts is not None:
            query += " AND thread_ts = ?"
            values.append(thread_ts)
        rows = await self._fetch_all(f"{query} ORDER BY turn_id", *values)
        turns = [parse_turn(row[0]) for row in rows]
        return [turn for turn in turns if turn is not None]

    async def record_stop(self, turn_id: str, principal: str) -> None:
        """Records who stops a turn, and tells the process that draws it."""

        def record(db: SqlConnection, _: int) -> None:
            db.execute("INSERT INTO stops VALUES (?, ?) ON CONFLICT DO NOTHING", (turn_id, principal))
            notify(db, STOP, turn_id, principal)

        await self.database.transact(record)

    async def find_stops(self, turn_ids: Collection[str]) -> dict[str, str]:
        """Those of the turns that are to be stopped, and who stops them."""
        if not turn_ids:
            return {}
        placeholders = ", ".join("?" * len(turn_ids))
        query = f"SELECT turn_id, principal FROM stops WHERE turn_id IN ({placeholders})"  # noqa: S608
        rows = await self._fetch_all(query, *turn_ids)
        return {str(row[0]): str(row[1]) for row in rows}

    # --- messages -------------------------------------------------------------------------------------------

    async def record_posted(self, channel: str, ts: str) -> None:
        await self._execute(
            "INSERT INTO posted VALUES (?, ?, ?) ON CONFLICT DO NOTHING", channel, ts, self._now()
        )

    async def is_posted(self, channel: str, ts: str) -> bool:
        query = "SELECT 1 FROM posted WHERE channel = ? AND ts = ?"
        return await self._fetch_one(query, channel, ts) is not None

    async def record_request(self, request_id: str, turn_id: str) -> str | None:
        """Records that a request is about to be posted, and returns None.

        When it was recorded before: the ts of its message, or "" when there may be one that is not known.
        """

        def record(db: SqlConnection, _: int) -> str | None:
            statement = "INSERT INTO asked (request_id, turn_id) VALUES (?, ?) ON CONFLICT DO NOTHING"
            if execute_count(db, statement, request_id, turn_id):
                return None
            row = db.execute("SELECT ts FROM asked WHERE request_id = ?", (request_id,)).fetchone()
            return str(row[0] or "")

        return await self.database.transact(record)

    async def record_request_message(self, request_id: str, channel: str, ts: str) -> None:
        def record(db: SqlConnection, _: int) -> None:
            db.execute("UPDATE asked SET ts = ? WHERE request_id = ?", (ts, request_id))
            statement = "INSERT INTO posted VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
            db.execute(statement, (channel, ts, self._now()))

        await self.database.transact(record)

    async def close_request(self, request_id: str) -> str | None:
        """Closes a request, and returns the ts of its message to the first caller."""
        statement = "UPDATE asked SET open = 0 WHERE request_id = ? AND open = 1 RETURNING ts"

        def close(db: SqlConnection, _: int) -> str | None:
            row = db.execute(statement, (request_id,)).fetchone()
            if row is None:
                return None
            ts: str | None = row[0]
            return ts

        return await self.database.transact(close)

    async def list_open_requests(self, turn_id: str) -> list[str]:
        rows = await self._fetch_all("SELECT request_id FROM asked WHERE turn_id = ? AND open = 1", turn_id)
        return [str(row[0]) for row in rows]

    # --- modals ---------------------------------------------------------------------------------------------

    async def begin_modal_answer(self, request_id: str) -> None:
        """Records that a modal sends an answer to a request: it shows the errors of it."""
        await self._execute(
            "INSERT INTO modal_answers VALUES (?, ?) ON CONFLICT (request_id) DO UPDATE SET at = excluded.at",
            request_id,
            self._now(),
        )

    async def end_modal_answer(self, request_id: str) -> None:
        await self._execute("DELETE FROM modal_answers WHERE request_id = ?", request_id)

    async def take_modal_answers(self, request_ids: Collection[str]) -> bool:
        """Whether modals show the errors of all these requests, this once."""

        def take(db: SqlConnection, _: int) -> bool:
            since = self._now() - _MODAL_TTL
            statement = "DELETE FROM modal_answers WHERE request_id = ? AND at >= ?"
            counts = [execute_count(db, statement, request_id, since) for request_id in sorted(request_ids)]
            return bool(counts) and all(counts)

        return await self.database.transact(take)

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
            INSERT INTO threads VALUES (?, ?, ?, ?) ON CONFLICT (channel, thread_ts) DO UPDATE
            SET given = CASE WHEN excluded.given > threads.given THEN excluded.given ELSE threads.given END,
            at = excluded.at
            """,
            channel,
            thread_ts,
            ts,
            self._now(),
        )


def _is_followed(db: SqlConnection, thread: ThreadKey) -> bool:
    """Whether the bot takes part in a thread, or is about to."""
    query = "SELECT 1 FROM threads WHERE channel = ? AND thread_ts = ?"
    return db.execute(query, thread).fetchone() is not None or find_holder(db, thread) is not None


def _turn_values(row: TurnRow) -> tuple[Any, ...]:
    return row.turn_id, row.channel, row.thread_ts, row.state, row.task_id, serialize_turn(row)
