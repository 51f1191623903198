"""Appends of many runs in two statements: most events are pieces of text and change nothing but numbers."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ai_platform_engineering.core.errors import Fenced, RunNotFound
from ai_platform_engineering.core.events import AnyEvent
from ai_platform_engineering.databases.postgres_database import PostgresDatabase
from ai_platform_engineering.databases.sql_connections import SqlConnection
from ai_platform_engineering.files.sqlite_file import microseconds
from ai_platform_engineering.runtime.log import run_rows
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.run_details import changes_details
from ai_platform_engineering.runtime.log.run_log_rules import changes_requests, check_epoch, state_after
from ai_platform_engineering.runtime.log.run_rows import Batch

_ADVANCE = (
    "UPDATE runs SET last_seq = last_seq + added.count, updated = greatest(updated, ?1)"
    " FROM unnest(?2::text[], ?3::bigint[], ?4::bigint[]) AS added(run_id, epoch, count)"
    " WHERE runs.run_id = added.run_id AND runs.epoch = added.epoch AND status <> 'ended' RETURNING runs.*"
)
_INSERT = (
    "INSERT INTO events(run_id, seq, at, kind, body)"
    " SELECT * FROM unnest(?::text[], ?::bigint[], ?::bigint[], ?::text[], ?::text[])"
)

AppendError = Fenced | RunNotFound


@dataclass(frozen=True, slots=True)
class ProgressAppend:
    """Events of a run that change neither its state, nor requests, nor what lists show of it."""

    run_id: str
    epoch: int
    batch: Batch


def is_progress(events: Sequence[AnyEvent]) -> bool:
    if not events or state_after(events) is not None:
        return False
    return not changes_requests(events) and not changes_details(events)


def append_progress(
    db: SqlConnection, now: int, appends: Sequence[ProgressAppend]
) -> list[RunRow | AppendError]:
    """Stores events of runs, each of which is named once: the run after them, or why they were refused."""
    run_ids = [append.run_id for append in appends]
    epochs = [append.epoch for append in appends]
    counts = [len(append.batch.events) for append in appends]
    rows = db.execute(_ADVANCE, (now, run_ids, epochs, counts)).fetchall()
    runs = {row["run_id"]: run_rows.read_run(row) for row in rows}
    _insert_events(db, [(runs[append.run_id], append.batch) for append in appends if append.run_id in runs])
    results: list[RunRow | AppendError] = []
    for append in appends:
        if append.run_id in runs:
            results.append(runs[append.run_id])
        else:
            results.append(_find_error(db, append))
    return results


def _insert_events(db: SqlConnection, stored: Sequence[tuple[RunRow, Batch]]) -> None:
    values: list[tuple[str, int, int, str, str]] = []
    for run, batch in stored:
        at = microseconds(run.updated)
        first_seq = run.last_seq - len(batch.bodies) + 1
        for seq, (kind, body) in enumerate(batch.bodies, first_seq):
            values.append((run.run_id, seq, at, kind, body))
    if values:
        db.execute(_INSERT, [list(column) for column in zip(*values, strict=True)])


def _find_error(db: SqlConnection, append: ProgressAppend) -> AppendError:
    try:
        check_epoch(run_rows.find_run(db, append.run_id), append.epoch)
    except (Fenced, RunNotFound) as error:
        return error
    raise AssertionError("a run that may be written was not")


@dataclass(slots=True)
class _OpenOperation:
    """Appends that share an operation, until the writer begins with it."""

    items: list[tuple[ProgressAppend, asyncio.Future[RunRow]]] = field(default_factory=list)
    results: list[RunRow | AppendError] = field(default_factory=list)
    submissions: int = 0  # of the database, after this operation
    begun: bool = False


class AppendQueue:
    """Joins the appends of different runs that wait for the same commit to one operation."""

    def __init__(
        self,
        database: PostgresDatabase,
        store: Callable[[SqlConnection, int, Sequence[ProgressAppend]], list[RunRow | AppendError]],
        publish: Callable[[RunRow, Batch], None],
    ) -> None:
        self._database = database
        self._store = store
        self._publish = publish
        self._lock = threading.Lock()
        self._open: _OpenOperation | None = None

    def submit(self, append: ProgressAppend) -> asyncio.Future[RunRow]:
        """The run after the append, once it is committed."""
        future: asyncio.Future[RunRow] = asyncio.get_running_loop().create_future()
        with self._lock:
            operation = self._open
            if operation is not None and self._may_join(operation, append):
                operation.items.append((append, future))
                return future
        operation = _OpenOperation([(append, future)])
        submitted = self._database.submit(
            lambda db, now: self._work(operation, db, now), stored=lambda: self._deliver(operation)
        )
        submitted.add_done_callback(lambda done: _deliver_failure(operation, done))
        operation.submissions = self._database.submissions
        self._open = operation
        return future

    def _may_join(self, operation: _OpenOperation, append: ProgressAppend) -> bool:
        """Whether the order of the calls stays: nothing else was submitted since, nor this run."""
        if operation.begun or operation.submissions != self._database.submissions:
            return False
        return all(item.run_id != append.run_id for item, _ in operation.items)

    def _work(self, operation: _OpenOperation, db: SqlConnection, now: int) -> None:
        with self._lock:
            operation.begun = True
        operation.results = self._store(db, now, [item for item, _ in operation.items])

    def _deliver(self, operation: _OpenOperation) -> None:
        for (item, future), result in zip(operation.items, operation.results, strict=True):
            if isinstance(result, RunRow):
                self._publish(result, item.batch)
            if future.done():
                continue  # cancelled while it was stored
            if isinstance(result, RunRow):
                future.set_result(result)
            else:
                future.set_exception(result)


def _deliver_failure(operation: _OpenOperation, submitted: asyncio.Future[None]) -> None:
    error = submitted.exception()
    if error is None:
        return
    for _, future in operation.items:
        if not future.done():
            future.set_exception(error)
