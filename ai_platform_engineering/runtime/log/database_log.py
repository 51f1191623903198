"""The run log on a database: its writes, and what it reads of one run."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from ai_platform_engineering.core.errors import Fenced, RunNotFound
from ai_platform_engineering.core.events import AnyEvent, StoredEvent, clean_json
from ai_platform_engineering.databases.sql_connections import Row, SqlConnection, Work
from ai_platform_engineering.files.sqlite_file import microseconds, moment
from ai_platform_engineering.runtime.log import conversation_rows, journal_rows, run_details, run_rows, shares
from ai_platform_engineering.runtime.log.database_push import DatabasePush
from ai_platform_engineering.runtime.log.database_queries import DatabaseQueries
from ai_platform_engineering.runtime.log.database_results import DatabaseResults
from ai_platform_engineering.runtime.log.database_shares import DatabaseShares
from ai_platform_engineering.runtime.log.log_database import LogDatabase
from ai_platform_engineering.runtime.log.log_rows import (
    MAX_PERSON_INPUT,
    Allowance,
    AnswerMessage,
    EventBatch,
    Feedback,
    FeedbackScore,
    JournalEntry,
    Marker,
    NewRun,
    NextCallState,
    PendingRequest,
    PersonInput,
    RunRow,
    StoredMarker,
)
from ai_platform_engineering.runtime.log.recent_events import RecentEvents
from ai_platform_engineering.runtime.log.replica_store import ReplicaStore
from ai_platform_engineering.runtime.log.run_rows import Batch

CACHE_BYTES = 8_000_000
_NO_EVENTS = Batch.encode(())
_LAST_NUMBER = 2**62  # behind every run
_DETAILS_SLICE = 5  # runs whose events are read at a time
_SLICE = 500  # rows at a time, so that removing them delays no run


class DatabaseLog(DatabaseQueries, DatabaseShares, ABC):
    """A run log on SQLite or PostgreSQL.

    Every write is part of the next commit, in the order of the calls; reads see what is committed.
    """

    replicas: ReplicaStore | None = None

    def __init__(self, database: LogDatabase, push: DatabasePush, cache_bytes: int) -> None:
        """`cache_bytes`: how much of the newest events is kept in memory for readers."""
        super().__init__(database)
        self._recent = RecentEvents(cache_bytes)
        self.push = push
        self.results = DatabaseResults(database)

    async def check_writable(self) -> str | None:
        return await self._database.check_writable()

    async def close(self) -> None:
        await asyncio.to_thread(self._database.close)
        self._clear_recent()  # nothing is read from a closed log

    # --- runs -----------------------------------------------------------------------------------------------

    async def create(self, new: NewRun) -> tuple[RunRow, bool]:
        batch = Batch.encode([new.started])
        created: tuple[RunRow, bool]

        def create(db: SqlConnection, now: int) -> tuple[RunRow, bool]:
            nonlocal created
            created = run_rows.create(db, now, new, batch)
            run, is_new = created
            if is_new:
                self.push.create(db, now, run, new)
                run_details.store_started(db, run, new.started)
                self._tell_others(db, run)
            return created

        def publish() -> None:
            run, is_new = created
            if is_new:
                self._publish(run, batch)

        return await self._database.submit(create, stored=publish)

    async def get(self, run_id: str) -> RunRow | None:
        return await self._first_run("SELECT * FROM runs WHERE run_id = ?", run_id)

    async def store_answer(self, answer: AnswerMessage) -> None:
        await self._database.submit(lambda db, now: run_rows.store_answer(db, answer))

    async def find_answer(self, owner: str, context_id: str, message_id: str) -> AnswerMessage | None:
        query = (
            "SELECT run_id, message_id, digest, before FROM answers"
            " WHERE owner = ? AND context_id = ? AND message_id = ?"
        )
        row = await self._first_row(query, owner, context_id, message_id)
        if row is None:
            return None
        return AnswerMessage(*row)

    async def rename_conversation(self, owner: str, context_id: str, title: str) -> bool:
        return await self._database.submit(
            lambda db, now: conversation_rows.rename(db, owner, context_id, title)
        )

    async def delete_conversation(self, owner: str, context_id: str) -> int:
        count = await self._database.submit(
            lambda db, now: _delete_conversation(db, owner, context_id), stored=self._clear_recent
        )
        while await self._database.submit(lambda db, now: run_rows.remove_hidden(db, _SLICE)):
            pass
        return count

    async def advance_epoch(self, run_id: str) -> int:
        run = await self._submit_change(lambda db, now: run_rows.advance_epoch(db, run_id))
        return run.epoch

    async def take_over(self, run_id: str) -> RunRow:
        return await self._submit_change(lambda db, now: run_rows.take_over(db, run_id))

    async def mark_attempt(self, run_id: str, attempt: Literal["waiting", "working", "handed_over"]) -> None:
        await self._database.submit(lambda db, now: run_rows.mark_attempt(db, run_id, attempt))

    async def mark_unfollowed(self, run_id: str, since: datetime | None) -> None:
        stored_since = None if since is None else microseconds(since)
        await self._database.submit(lambda db, now: run_rows.mark_unfollowed(db, run_id, stored_since))

    async def find_unfollowed_since(self, run_id: str) -> datetime | None:
        row = await self._first_row("SELECT unfollowed_since FROM runs WHERE run_id = ?", run_id)
        return run_rows.read_unfollowed_since(row, run_id)

    # --- events ---------------------------------------------------------------------------------------------

    async def append(
        self, run_id: str, epoch: int, events: Sequence[AnyEvent], markers: Sequence[Marker] = ()
    ) -> int:
        batch = Batch.encode(events)
        batch_markers = tuple(markers)
        run = await self._submit_change(
            lambda db, now: self._append(db, now, run_id, epoch, batch, batch_markers), batch
        )
        return run.last_seq

    def append_all(self, batches: Sequence[EventBatch]) -> asyncio.Future[list[Exception | None]]:
        encoded = [Batch.encode(batch.events) for batch in batches]
        stored: list[tuple[RunRow, Batch]] = []

        def store(db: SqlConnection, now: int) -> list[Exception | None]:
            stored.clear()  # the transaction may be run again
            errors: list[Exception | None] = []
            for result, encoded_batch in zip(
                self._append_batches(db, now, batches, encoded), encoded, strict=True
            ):
                if isinstance(result, RunRow):
                    stored.append((result, encoded_batch))
                    errors.append(None)
                else:
                    errors.append(result)
            return errors

        def publish() -> None:
            for run, encoded_batch in stored:
                self._publish(run, encoded_batch)

        return self._database.submit(store, stored=publish)

    def _append_batches(
        self, db: SqlConnection, now: int, batches: Sequence[EventBatch], encoded: Sequence[Batch]
    ) -> list[RunRow | Fenced | RunNotFound]:
        """Each run after its events, or why they were refused."""
        results: list[RunRow | Fenced | RunNotFound] = []
        for batch, encoded_batch in zip(batches, encoded, strict=True):
            try:
                results.append(self._append(db, now, batch.run_id, batch.epoch, encoded_batch))
            except (Fenced, RunNotFound) as error:  # before anything of this run was written
                results.append(error)
        return results

    def _append(
        self,
        db: SqlConnection,
        now: int,
        run_id: str,
        epoch: int,
        batch: Batch,
        markers: Sequence[Marker] = (),
    ) -> RunRow:
        """Stores events, what lists show of them, and notifications. Raises RunNotFound and Fenced, and has
        written nothing then."""
        run = run_rows.append(db, now, run_id, epoch, batch, markers)
        if run_details.changes_details(batch.events):
            run_details.store_progress(db, run_id, batch.events)
        self.push.queue_state(db, now, run)
        if batch.events:
            self._tell_others(db, run)
        return run

    async def read(self, run_id: str, after: int = 0, limit: int = 256) -> list[StoredEvent]:
        query = "SELECT seq, at, body FROM events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?"
        rows = await self._database.query(query, run_id, after, limit)
        if not rows:
            await self._last_seq(run_id)  # raises when there is no such run
        return list(map(run_rows.read_event, rows))

    async def markers(self, run_id: str) -> list[StoredMarker]:
        query = "SELECT ns, checkpoint_id, after_seq FROM markers WHERE run_id = ? ORDER BY rowid"
        return [StoredMarker(*row) for row in await self._rows_of_run(query, run_id)]

    # --- remote tasks and the journal -----------------------------------------------------------------------

    async def find_remote_task(self, run_id: str, key: str) -> str | None:
        await self._last_seq(run_id)  # raises when there is no such run
        row = await self._first_row("SELECT task_id FROM orders WHERE run_id = ? AND key = ?", run_id, key)
        if row is None:
            return None
        return str(row[0])

    async def list_remote_tasks(self, run_id: str) -> list[tuple[str, str]]:
        query = "SELECT agent, task_id FROM orders WHERE run_id = ? ORDER BY rowid"
        return [(row[0], row[1]) for row in await self._rows_of_run(query, run_id)]

    async def store_remote_task(self, run_id: str, epoch: int, key: str, agent: str, task_id: str) -> None:
        def store(db: SqlConnection, now: int) -> None:
            run = run_rows.find_writable_run(db, run_id, epoch)
            journal_rows.store_remote_task(db, run, key, agent, task_id)

        await self._database.submit(store)

    async def begin(
        self, run_id: str, epoch: int, key: str, tool: str, arguments: Mapping[str, Any], *, idempotent: bool
    ) -> JournalEntry:
        call = JournalEntry(key, tool, clean_json(arguments), "intent", epoch)

        def begin(db: SqlConnection, now: int) -> JournalEntry:
            run = run_rows.find_writable_run(db, run_id, epoch)
            return journal_rows.begin(db, run, call, idempotent=idempotent)

        return await self._database.submit(begin)

    async def finish(
        self, run_id: str, epoch: int, key: str, state: NextCallState, outcome: Any = None
    ) -> None:
        json_outcome = clean_json(outcome)

        def finish(db: SqlConnection, now: int) -> None:
            run = run_rows.find_writable_run(db, run_id, epoch)
            journal_rows.finish(db, run, key, state, json_outcome)

        await self._database.submit(finish)

    async def settle(self, run_id: str, key: str, outcome: Any, by: str) -> bool:
        json_outcome = clean_json(outcome)
        return await self._database.submit(
            lambda db, now: journal_rows.settle(db, run_rows.lock_run(db, run_id), key, json_outcome, by)
        )

    async def journal(self, run_id: str) -> list[JournalEntry]:
        rows = await self._rows_of_run("SELECT * FROM journal WHERE run_id = ? ORDER BY rowid", run_id)
        return list(map(journal_rows.read_entry, rows))

    async def find_settled_calls(self, owner: str, context_id: str) -> list[tuple[str, JournalEntry]]:
        query = (
            "SELECT journal.* FROM runs JOIN journal USING (run_id)"
            " WHERE owner = ? AND context_id = ? AND settled_by <> '' ORDER BY number, journal.rowid"
        )
        rows = await self._database.query(query, owner, context_id)
        return [(row["run_id"], journal_rows.read_entry(row)) for row in rows]

    # --- requests, allowances and feedback ------------------------------------------------------------------

    async def request(self, request_id: str) -> PendingRequest | None:
        row = await self._first_row("SELECT * FROM pending WHERE request_id = ?", request_id)
        if row is None:
            return None
        return journal_rows.read_request(row)

    async def requests(self, run_id: str) -> list[PendingRequest]:
        rows = await self._rows_of_run("SELECT * FROM pending WHERE run_id = ? ORDER BY rowid", run_id)
        return list(map(journal_rows.read_request, rows))

    async def claim_requests(self, message: AnswerMessage, values: Mapping[str, Any], by: str) -> list[str]:
        json_values = {request_id: clean_json(value) for request_id, value in values.items()}
        return await self._database.submit(
            lambda db, now: run_rows.claim_requests(db, now, message, json_values, by)
        )

    async def list_person_input(self, owner: str, context_id: str, limit: int) -> list[PersonInput]:
        query = (
            "SELECT runs.run_id, body FROM runs JOIN events ON events.run_id = runs.run_id AND seq = 1"
            " WHERE owner = ? AND context_id = ? AND length(body) <= ? ORDER BY number DESC LIMIT ?"
        )
        rows = await self._database.query(query, owner, context_id, MAX_PERSON_INPUT, limit)
        # Large messages take long to parse: not on the event loop.
        started_events = await asyncio.to_thread(lambda: [run_rows.read_started(row) for row in rows])
        inputs: list[PersonInput] = []
        for row, started in zip(rows, started_events, strict=True):
            inputs.append(
                PersonInput(row["run_id"], started.parts, tuple(await self.requests(row["run_id"])))
            )
        return inputs

    async def allow(self, run_id: str, epoch: int, tool: str, by: str) -> None:
        def allow(db: SqlConnection, now: int) -> None:
            journal_rows.allow(db, now, run_rows.find_writable_run(db, run_id, epoch), tool, by)

        await self._database.submit(allow)

    async def list_allowances(self, owner: str, context_id: str) -> list[Allowance]:
        query = (
            "SELECT tool, allowed_by, at FROM allowances WHERE owner = ? AND context_id = ? ORDER BY rowid"
        )
        rows = await self._database.query(query, owner, context_id)
        return [Allowance(row["tool"], row["allowed_by"], moment(row["at"])) for row in rows]

    async def disallow(self, owner: str, context_id: str, tool: str) -> bool:
        return await self._database.submit(lambda db, now: journal_rows.disallow(db, owner, context_id, tool))

    async def rate(self, run_id: str, by: str, score: FeedbackScore, reason: str | None = None) -> Feedback:
        def store(db: SqlConnection, now: int) -> Feedback:
            feedback = Feedback(by, score, reason, moment(now))
            return journal_rows.store_feedback(db, run_rows.lock_run(db, run_id), feedback)

        return await self._database.submit(store)

    async def feedback(self, run_id: str) -> list[Feedback]:
        rows = await self._rows_of_run("SELECT * FROM feedback WHERE run_id = ? ORDER BY rowid", run_id)
        return list(map(journal_rows.read_feedback, rows))

    async def unrate(self, run_id: str, by: str) -> bool:
        return await self._database.submit(
            lambda db, now: journal_rows.remove_feedback(db, run_rows.lock_run(db, run_id), by)
        )

    # --- what older versions stored -------------------------------------------------------------------------

    async def add_missing_details(self) -> None:
        """In small slices, with other writes between them."""
        number = _LAST_NUMBER
        while number:
            before = number
            number = await self._database.submit(
                lambda db, now, before=before: run_details.add_missing(db, before, _DETAILS_SLICE)  # type: ignore[misc]
            )

    # --- retention ------------------------------------------------------------------------------------------

    async def delete_runs(self, older_than: datetime) -> int:
        """Deletes in slices, with other writes between them.

        The next call removes what a crash leaves over.
        """
        count = 0
        before = microseconds(older_than)
        while hidden := await self._database.submit(
            lambda db, now: run_rows.hide_ended(db, before, _SLICE), stored=self._clear_recent
        ):
            count += hidden
        while await self._database.submit(lambda db, now: run_rows.remove_hidden(db, _SLICE)):
            pass
        await self._database.submit(lambda db, now: journal_rows.remove_old_allowances(db))
        await self._database.submit(lambda db, now: conversation_rows.remove_all_empty(db))
        await self._database.submit(shares.remove_ended)
        await self._database.release_space()
        return count

    # --- readers --------------------------------------------------------------------------------------------

    async def _rows_of_run(self, query: str, run_id: str) -> list[Row]:
        """Raises RunNotFound."""
        await self._last_seq(run_id)
        return await self._database.query(query, run_id)

    async def _last_seq(self, run_id: str) -> int:
        """Raises RunNotFound."""
        row = await self._first_row("SELECT last_seq FROM runs WHERE run_id = ?", run_id)
        if row is None:
            raise RunNotFound(f"There is no run {run_id}.")
        return int(row[0])

    # --- what was committed ---------------------------------------------------------------------------------

    async def _submit_change(self, change: Work[RunRow], batch: Batch = _NO_EVENTS) -> RunRow:
        """Submits a change of a run, which may store events; the result is the run after it."""
        run: RunRow

        def store(db: SqlConnection, now: int) -> RunRow:
            nonlocal run
            run = change(db, now)
            return run

        return await self._database.submit(store, stored=lambda: self._publish(run, batch))

    def _publish(self, run: RunRow, batch: Batch) -> None:
        """Shows readers a run, and its last events, as they were just committed."""
        if batch.events:
            self._recent.add(run.run_id, batch.numbered(run), batch.sizes())
            self._wake(run)
            self.push.note_change(run)

    def _tell_others(self, db: SqlConnection, run: RunRow) -> None:
        """Tells other processes, in the transaction, that the run has events."""

    @abstractmethod
    def _wake(self, run: RunRow) -> None:
        """Wakes whoever waits for events of the run."""

    def _clear_recent(self) -> None:
        self._recent.clear()


def _delete_conversation(db: SqlConnection, owner: str, context_id: str) -> int:
    """Deletes the ended runs of a conversation, and ends what is shared of it."""
    shares.remove_of_conversation(db, owner, context_id)
    return conversation_rows.delete(db, owner, context_id)
