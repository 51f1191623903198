"""The run log on SQLite: survives the process, for one process at a time."""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from ai_platform_engineering.core.errors import RunNotFound
from ai_platform_engineering.core.events import AnyEvent, StoredEvent, clean_json
from ai_platform_engineering.runtime.log import journal_rows, run_rows
from ai_platform_engineering.runtime.log.run_log import (
    Allowance,
    AnswerMessage,
    ConversationRow,
    Feedback,
    FeedbackScore,
    JournalEntry,
    Marker,
    NewRun,
    PendingRequest,
    RunRow,
    StoredMarker,
)
from ai_platform_engineering.runtime.log.run_rows import Batch
from ai_platform_engineering.runtime.log.sqlite_database import TICK, Database, microseconds, moment

_SLICE = 500  # rows or pages at a time, so that removing them delays no run


class SqliteLog:
    """Every write is part of the next commit, in the order of the calls; reads see what is committed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    @classmethod
    def open(cls, path: Path, *, tick: float = TICK) -> "SqliteLog":
        """Raises ConfigurationError when the file cannot be used, or is used by another process."""
        return cls(Database(path, tick=tick))

    async def close(self) -> None:
        await asyncio.to_thread(self._database.close)

    # --- runs -----------------------------------------------------------------------------------------------

    async def create(self, new: NewRun) -> tuple[RunRow, bool]:
        batch = Batch.of([new.started])
        return await self._database.submit(lambda db, now: run_rows.create(db, now, new, batch))

    async def get(self, run_id: str) -> RunRow | None:
        found = self._database.rows("SELECT * FROM runs WHERE run_id = ?", run_id)
        if found:
            return run_rows.run_row(found[0])
        return None

    async def store_answer(self, answer: AnswerMessage) -> None:
        await self._database.submit(lambda db, now: run_rows.remember(db, answer))

    async def find_answer(self, owner: str, context_id: str, message_id: str) -> AnswerMessage | None:
        query = "SELECT run_id, message_id, digest, before FROM answers WHERE owner = ? AND context_id = ? AND message_id = ?"
        found = self._database.rows(query, owner, context_id, message_id)
        if found:
            return AnswerMessage(*found[0])
        return None

    async def find_runs(self, owner: str, context_id: str | None = None) -> list[RunRow]:
        if context_id is None:
            found = self._database.rows("SELECT * FROM runs WHERE owner = ? ORDER BY number DESC", owner)
        else:
            found = self._database.rows(
                "SELECT * FROM runs WHERE owner = ? AND context_id = ? ORDER BY number DESC",
                owner,
                context_id,
            )
        return [run_rows.run_row(row) for row in found]

    async def conversations(self, owner: str) -> list[ConversationRow]:
        query = (
            "SELECT context_id, min(created) AS first, max(created) AS last FROM runs WHERE owner = ?"
            " GROUP BY context_id ORDER BY max(number) DESC"
        )
        found = self._database.rows(query, owner)
        return [
            ConversationRow(owner, row["context_id"], moment(row["first"]), moment(row["last"]))
            for row in found
        ]

    async def find_unfinished(self) -> list[RunRow]:
        found = self._database.rows("SELECT * FROM runs WHERE status <> 'ended' ORDER BY number")
        return [run_rows.run_row(row) for row in found]

    async def advance_epoch(self, run_id: str) -> int:
        return await self._database.submit(lambda db, now: run_rows.claim(db, run_id))

    async def lease(self, run_id: str, holder: str, seconds: float, *, force: bool = False) -> int | None:
        return await self._database.submit(
            lambda db, now: run_rows.lease(db, now, run_id, holder, seconds, force=force)
        )

    # --- events ---------------------------------------------------------------------------------------------

    async def append(
        self, run_id: str, epoch: int, events: Sequence[AnyEvent], markers: Sequence[Marker] = ()
    ) -> int:
        batch, beside = Batch.of(events), tuple(markers)
        return await self._database.submit(
            lambda db, now: run_rows.append(db, now, run_id, epoch, batch, beside),
            stored=lambda: self._wake(run_id),
        )

    async def read(self, run_id: str, after: int = 0, limit: int = 256) -> list[StoredEvent]:
        query = "SELECT seq, at, body FROM events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?"
        found = self._database.rows(query, run_id, after, limit)
        if not found:
            self._last_seq(run_id)
        return [run_rows.numbered(row) for row in found]

    async def wait_for_event(self, run_id: str, after: int) -> None:
        while True:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting = self._waiting.setdefault(run_id, set())
            waiting.add(waiter)  # before the look: an event that is stored in between wakes it
            try:
                if self._last_seq(run_id) > after:
                    return
                await waiter
            finally:
                self._leave(run_id, waiting, waiter)

    async def markers(self, run_id: str) -> list[StoredMarker]:
        return [
            StoredMarker(*row)
            for row in self._of_run(
                "SELECT ns, checkpoint_id, after_seq FROM markers WHERE run_id = ? ORDER BY rowid", run_id
            )
        ]

    # --- what a run does outside ----------------------------------------------------------------------------

    async def find_remote_task(self, run_id: str, key: str) -> str | None:
        self._last_seq(run_id)
        found = self._database.rows("SELECT task_id FROM orders WHERE run_id = ? AND key = ?", run_id, key)
        if found:
            return str(found[0][0])
        return None

    async def list_remote_tasks(self, run_id: str) -> list[tuple[str, str]]:
        return [
            (row[0], row[1])
            for row in self._of_run(
                "SELECT agent, task_id FROM orders WHERE run_id = ? ORDER BY rowid", run_id
            )
        ]

    async def store_remote_task(self, run_id: str, epoch: int, key: str, agent: str, task_id: str) -> None:
        await self._database.submit(
            lambda db, now: journal_rows.ordered(
                db, run_rows.writable(db, run_id, epoch), key, agent, task_id
            )
        )

    async def begin(
        self, run_id: str, epoch: int, key: str, tool: str, arguments: Mapping[str, Any], *, idempotent: bool
    ) -> JournalEntry:
        call = JournalEntry(key, tool, clean_json(arguments), "intent", epoch)
        return await self._database.submit(
            lambda db, now: journal_rows.begin(
                db, run_rows.writable(db, run_id, epoch), call, idempotent=idempotent
            )
        )

    async def finish(
        self, run_id: str, epoch: int, key: str, state: Literal["done", "withdrawn"], outcome: Any = None
    ) -> None:
        plain = clean_json(outcome)
        await self._database.submit(
            lambda db, now: journal_rows.finish(db, run_rows.writable(db, run_id, epoch), key, state, plain)
        )

    async def settle(self, run_id: str, key: str, outcome: Any, by: str) -> bool:
        plain = clean_json(outcome)
        return await self._database.submit(
            lambda db, now: journal_rows.settle(db, run_rows.existing(db, run_id), key, plain, by)
        )

    async def journal(self, run_id: str) -> list[JournalEntry]:
        return [
            journal_rows.call_entry(row)
            for row in self._of_run("SELECT * FROM journal WHERE run_id = ? ORDER BY rowid", run_id)
        ]

    async def find_settled_calls(self, owner: str, context_id: str) -> list[tuple[str, JournalEntry]]:
        query = (
            "SELECT journal.* FROM runs JOIN journal USING (run_id)"
            " WHERE owner = ? AND context_id = ? AND settled_by <> '' ORDER BY number, journal.rowid"
        )
        return [
            (row["run_id"], journal_rows.call_entry(row))
            for row in self._database.rows(query, owner, context_id)
        ]

    # --- what people are asked ------------------------------------------------------------------------------

    async def request(self, request_id: str) -> PendingRequest | None:
        found = self._database.rows("SELECT * FROM pending WHERE request_id = ?", request_id)
        if found:
            return journal_rows.request_row(found[0])
        return None

    async def requests(self, run_id: str) -> list[PendingRequest]:
        return [
            journal_rows.request_row(row)
            for row in self._of_run("SELECT * FROM pending WHERE run_id = ? ORDER BY rowid", run_id)
        ]

    async def claim_requests(self, message: AnswerMessage, values: Mapping[str, Any], by: str) -> list[str]:
        plain = {request_id: clean_json(value) for request_id, value in values.items()}
        return await self._database.submit(
            lambda db, now: run_rows.claim_requests(db, now, message, plain, by)
        )

    async def open_requests(self, owner: str | None = None) -> list[PendingRequest]:
        query = (
            "SELECT pending.* FROM pending JOIN runs USING (run_id)"
            " WHERE pending.status = 'pending' AND (?1 IS NULL OR owner = ?1) ORDER BY pending.rowid"
        )
        return [journal_rows.request_row(row) for row in self._database.rows(query, owner)]

    async def allow(self, run_id: str, epoch: int, tool: str, by: str) -> None:
        await self._database.submit(
            lambda db, now: journal_rows.allow(db, now, run_rows.writable(db, run_id, epoch), tool, by)
        )

    async def list_allowances(self, owner: str, context_id: str) -> list[Allowance]:
        query = (
            "SELECT tool, allowed_by, at FROM allowances WHERE owner = ? AND context_id = ? ORDER BY rowid"
        )
        return [
            Allowance(row[0], row[1], moment(row[2])) for row in self._database.rows(query, owner, context_id)
        ]

    async def disallow(self, owner: str, context_id: str, tool: str) -> bool:
        return await self._database.submit(lambda db, now: journal_rows.disallow(db, owner, context_id, tool))

    async def rate(self, run_id: str, by: str, score: FeedbackScore, reason: str | None = None) -> Feedback:
        return await self._database.submit(
            lambda db, now: journal_rows.rate(
                db, run_rows.existing(db, run_id), Feedback(by, score, reason, moment(now))
            )
        )

    async def feedback(self, run_id: str) -> list[Feedback]:
        return [
            journal_rows.feedback_row(row)
            for row in self._of_run("SELECT * FROM feedback WHERE run_id = ? ORDER BY rowid", run_id)
        ]

    async def unrate(self, run_id: str, by: str) -> bool:
        return await self._database.submit(
            lambda db, now: journal_rows.unrate(db, run_rows.existing(db, run_id), by)
        )

    # --- retention ------------------------------------------------------------------------------------------

    async def find_expired_conversations(self, older_than: datetime) -> list[tuple[str, str]]:
        return [
            (row["owner"], row["context_id"])
            for row in self._database.rows(run_rows.EXPIRED, microseconds(older_than))
        ]

    async def delete_runs(self, older_than: datetime) -> int:
        """In slices: other writes go between them. What a crash leaves over is removed by the next call."""
        count, before = 0, microseconds(older_than)
        while hidden := await self._database.submit(lambda db, now: run_rows.hide_ended(db, before, _SLICE)):
            count += hidden
        while await self._database.submit(lambda db, now: run_rows.remove_hidden(db, _SLICE)):
            pass
        await self._database.submit(lambda db, now: journal_rows.forget_allowances(db))
        while await self._database.submit(lambda db, now: run_rows.give_back(db, _SLICE)):
            pass
        return count

    # --- readers --------------------------------------------------------------------------------------------

    def _of_run(self, query: str, run_id: str) -> list[sqlite3.Row]:
        self._last_seq(run_id)
        return self._database.rows(query, run_id)

    def _last_seq(self, run_id: str) -> int:
        found = self._database.rows("SELECT last_seq FROM runs WHERE run_id = ?", run_id)
        if not found:
            raise RunNotFound(f"There is no run {run_id}.")
        return int(found[0][0])

    def _wake(self, run_id: str) -> None:
        for waiter in self._waiting.pop(run_id, set()):
            if not waiter.done():
                waiter.set_result(None)

    def _leave(self, run_id: str, waiting: set[asyncio.Future[None]], waiter: asyncio.Future[None]) -> None:
        waiting.discard(waiter)
        if not waiting and self._waiting.get(run_id) is waiting:
            del self._waiting[run_id]
