"""Runs and their events as rows: the writes inside a transaction, and how rows are read back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue

from ai_platform_engineering.core.errors import MessageConflict, Refused, RunNotFound, WrongState
from ai_platform_engineering.core.events import EVENT_ADAPTER, AnyEvent, RunStarted, StoredEvent
from ai_platform_engineering.databases.sql_connections import Row, SqlConnection, lock_key, row_lock
from ai_platform_engineering.files.sqlite_file import microseconds, moment
from ai_platform_engineering.runtime.log import conversation_rows, journal_rows
from ai_platform_engineering.runtime.log.log_rows import AnswerMessage, Attempt, Marker, NewRun, RunRow
from ai_platform_engineering.runtime.log.run_log_rules import (
    CONVERSATION_BUSY,
    changes_requests,
    check_epoch,
    died_at_work,
    state_after,
    status_of,
)

# Removes what belongs to a run besides its own row, at most so many rows.
_REMOVALS = (
    "DELETE FROM events WHERE run_id = ?1 AND seq IN (SELECT seq FROM events WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM markers WHERE rowid IN (SELECT rowid FROM markers WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM orders WHERE rowid IN (SELECT rowid FROM orders WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM journal WHERE rowid IN (SELECT rowid FROM journal WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM pending WHERE rowid IN (SELECT rowid FROM pending WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM feedback WHERE rowid IN (SELECT rowid FROM feedback WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM run_details WHERE run_id = ?1 AND ?2 > 0",
    "DELETE FROM run_agents WHERE run_id = ?1 AND agent IN"
    " (SELECT agent FROM run_agents WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM answers WHERE rowid IN (SELECT rowid FROM answers WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM results WHERE run_id = ?1 AND result_id IN"
    " (SELECT result_id FROM results WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM result_chunks WHERE rowid IN (SELECT rowid FROM result_chunks WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM push_queue WHERE (config, seq) IN (SELECT config, seq FROM push_configs"
    " JOIN push_queue ON config = number WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM push_configs WHERE number IN (SELECT number FROM push_configs WHERE run_id = ?1 LIMIT ?2)",
)

# Fence and numbers in one statement. The clock of the machine may have been set back, the log's never is.
# Without a new state the columns are not named: indexes depend on them.
_LATER = "CASE WHEN updated > ?2 THEN updated ELSE ?2 END"
_ADVANCE = (
    f"UPDATE runs SET last_seq = last_seq + ?1, updated = {_LATER}"  # noqa: S608
    " WHERE run_id = ?3 AND epoch = ?4 AND status <> 'ended' RETURNING *"
)
_ADVANCE_WITH_STATE = (
    f"UPDATE runs SET last_seq = last_seq + ?1, updated = {_LATER}, status = ?5, state = ?6,"  # noqa: S608
    f" state_at = {_LATER} WHERE run_id = ?3 AND epoch = ?4 AND status <> 'ended' RETURNING *"
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Encoded events. They are encoded before the write is submitted, so that an error costs no number."""

    events: Sequence[AnyEvent]
    bodies: Sequence[tuple[str, str]]  # kind and JSON

    @classmethod
    def encode(cls, events: Iterable[AnyEvent]) -> "Batch":
        batch = tuple(events)
        bodies = [(event.kind, EVENT_ADAPTER.dump_json(event).decode()) for event in batch]
        return cls(batch, bodies)

    def numbered(self, run: RunRow) -> list[StoredEvent]:
        """The events as they are stored: the last ones of the run."""
        first_seq = run.last_seq - len(self.events) + 1
        return [StoredEvent(seq, run.updated, event) for seq, event in enumerate(self.events, first_seq)]

    def sizes(self) -> list[int]:
        return [len(body) for _, body in self.bodies]


def read_run(row: Row) -> RunRow:
    return RunRow(
        run_id=row["run_id"],
        context_id=row["context_id"],
        owner=row["owner"],
        principal=row["principal"],
        message_id=row["message_id"],
        status=row["status"],
        last_seq=row["last_seq"],
        epoch=row["epoch"],
        created=moment(row["created"]),
        updated=moment(row["updated"]),
        state=row["state"],
        state_at=moment(row["state_at"]),
        crashes=row["crashes"],
        holder=row["holder"],
    )


def read_event(row: Row) -> StoredEvent:
    return StoredEvent(row["seq"], moment(row["at"]), EVENT_ADAPTER.validate_json(row["body"]))


def read_started(row: Row) -> RunStarted:
    """The first event of a run."""
    started = EVENT_ADAPTER.validate_json(row["body"])
    assert isinstance(started, RunStarted)
    return started


def find_run(db: SqlConnection, run_id: str) -> RunRow:
    """Raises RunNotFound."""
    row = db.execute("SELECT * FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if row is None:
        raise RunNotFound(f"There is no run {run_id}.")
    return read_run(row)


def lock_run(db: SqlConnection, run_id: str) -> RunRow:
    """The run, which nobody else changes before the commit. Raises RunNotFound."""
    row = db.execute(f"SELECT * FROM runs WHERE run_id = ?{row_lock(db)}", (run_id,)).fetchone()  # noqa: S608
    if row is None:
        raise RunNotFound(f"There is no run {run_id}.")
    return read_run(row)


def find_writable_run(db: SqlConnection, run_id: str, epoch: int) -> RunRow:
    """The run, if this epoch may write it. Raises RunNotFound and Fenced."""
    run = lock_run(db, run_id)
    check_epoch(run, epoch)
    return run


def create(db: SqlConnection, now: int, new: NewRun, batch: Batch) -> tuple[RunRow, bool]:
    """The run of the message, and whether it is new."""
    lock_key(db, "message", new.owner, new.message_id)
    lock_key(db, "conversation", new.owner, new.context_id)  # numbers are in the order of commits
    existing_run = _find_run_of_message(db, new)
    if existing_run is not None:
        return existing_run, False
    if db.execute("SELECT 1 FROM runs WHERE run_id = ?", (new.run_id,)).fetchone():
        raise Refused("A task with this id already exists.")
    if new.only_if_idle and _is_busy(db, new):
        raise WrongState(CONVERSATION_BUSY)
    values = (
        new.run_id,
        new.context_id,
        new.owner,
        new.started.principal,
        new.message_id,
        new.digest,
        new.lasting_id,
        new.attempt,
        new.holder,
    )
    [row] = db.execute(
        "INSERT INTO runs(run_id, context_id, owner, principal, message_id, digest, lasting_id, attempt,"
        " holder, status, last_seq, epoch, created, updated, state_at, state)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', ?, 1, ?, ?, ?, ?) RETURNING *",
        (*values, len(batch.events), now, now, now, state_after([new.started])),
    ).fetchall()
    run = read_run(row)
    _insert_events(db, run, batch)
    conversation_rows.store_question(db, now, new.owner, new.context_id, new.started)
    return run, True


def _is_busy(db: SqlConnection, new: NewRun) -> bool:
    query = "SELECT 1 FROM runs WHERE owner = ? AND context_id = ? AND status = 'running' LIMIT 1"
    return db.execute(query, (new.owner, new.context_id)).fetchone() is not None


def _find_run_of_message(db: SqlConnection, new: NewRun) -> RunRow | None:
    """The run that this message started before."""
    row = db.execute(
        "SELECT * FROM runs WHERE owner = ?1 AND message_id = ?2 AND lasting_id = ?3"
        " AND (context_id = ?4 OR NOT ?3) ORDER BY number DESC LIMIT 1",
        (new.owner, new.message_id, new.lasting_id, new.context_id),
    ).fetchone()
    if row is None:
        return None
    run = read_run(row)
    if row["digest"] == new.digest and (new.lasting_id or run.status == "running"):
        return run
    if new.lasting_id:
        raise MessageConflict()
    return None


def append(
    db: SqlConnection, now: int, run_id: str, epoch: int, batch: Batch, markers: Sequence[Marker] = ()
) -> RunRow:
    """Stores events and checkpoint markers; returns the run after them, whose `updated` is their time.

    Raises RunNotFound and Fenced, and has written nothing then.
    """
    run = _advance(db, now, run_id, epoch, batch)
    _insert_events(db, run, batch)
    if changes_requests(batch.events):
        journal_rows.store_requests(db, microseconds(run.updated), run_id, batch.events)
    if markers:
        db.executemany(
            "INSERT INTO markers(run_id, ns, checkpoint_id, after_seq) VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            [(run_id, marker.ns, marker.checkpoint_id, run.last_seq) for marker in markers],
        )
    return run


def _advance(db: SqlConnection, now: int, run_id: str, epoch: int, batch: Batch) -> RunRow:
    """Gives the events their numbers, if this epoch may write. Raises RunNotFound and Fenced."""
    values: tuple[object, ...] = (len(batch.events), now, run_id, epoch)
    statement = _ADVANCE
    state = state_after(batch.events)
    if state is not None:
        values += (status_of(state), state)
        statement = _ADVANCE_WITH_STATE
    rows = db.execute(statement, values).fetchall()
    if not rows:
        check_epoch(find_run(db, run_id), epoch)
        raise AssertionError("a run that may be written was not")
    return read_run(rows[0])


def _insert_events(db: SqlConnection, run: RunRow, batch: Batch) -> None:
    """Inserts the last events of the run."""
    at = microseconds(run.updated)
    numbered_bodies = enumerate(batch.bodies, run.last_seq - len(batch.bodies) + 1)
    db.executemany(
        "INSERT INTO events(run_id, seq, at, kind, body) VALUES (?, ?, ?, ?, ?)",
        [(run.run_id, seq, at, kind, body) for seq, (kind, body) in numbered_bodies],
    )


def store_answer(db: SqlConnection, answer: AnswerMessage) -> None:
    run = lock_run(db, answer.run_id)
    db.execute(
        "INSERT INTO answers(owner, context_id, message_id, run_id, digest, before)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT(owner, context_id, message_id) DO UPDATE"
        " SET run_id = excluded.run_id, digest = excluded.digest, before = excluded.before",
        (run.owner, run.context_id, answer.message_id, answer.run_id, answer.digest, answer.before),
    )


def claim_requests(
    db: SqlConnection, now: int, answer: AnswerMessage, values: Mapping[str, JsonValue], by: str
) -> list[str]:
    """Claims requests, and stores the message when it claimed any."""
    lock_run(db, answer.run_id)
    claimed = journal_rows.claim_requests(db, now, answer.run_id, values, by)
    if claimed:
        store_answer(db, answer)
    return claimed


def advance_epoch(db: SqlConnection, run_id: str) -> RunRow:
    find_run(db, run_id)
    [row] = db.execute("UPDATE runs SET epoch = epoch + 1 WHERE run_id = ? RETURNING *", (run_id,)).fetchall()
    return read_run(row)


def take_over(db: SqlConnection, run_id: str) -> RunRow:
    run = lock_run(db, run_id)
    [attempt] = db.execute("SELECT attempt FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    has_checkpoint = db.execute("SELECT 1 FROM markers WHERE run_id = ? LIMIT 1", (run_id,)).fetchone()
    crashed = died_at_work(run.status, attempt, has_checkpoint=has_checkpoint is not None)
    db.execute(
        "UPDATE runs SET epoch = epoch + 1, crashes = crashes + ?, attempt = 'waiting' WHERE run_id = ?",
        (int(crashed), run_id),
    )
    return find_run(db, run_id)


def mark_attempt(db: SqlConnection, run_id: str, attempt: Attempt) -> None:
    find_run(db, run_id)
    db.execute("UPDATE runs SET attempt = ? WHERE run_id = ?", (attempt, run_id))


def mark_unfollowed(db: SqlConnection, run_id: str, since: int | None) -> None:
    find_run(db, run_id)
    db.execute("UPDATE runs SET unfollowed_since = ? WHERE run_id = ?", (since, run_id))


def read_unfollowed_since(row: Row | None, run_id: str) -> datetime | None:
    """Raises RunNotFound."""
    if row is None:
        raise RunNotFound(f"There is no run {run_id}.")
    if row["unfollowed_since"] is None:
        return None
    return moment(row["unfollowed_since"])


def hide_ended(db: SqlConnection, older_than: int, most: int) -> int:
    """Hides ended runs from readers, oldest first; returns how many."""
    run_ids = db.execute(
        "SELECT run_id FROM runs WHERE status = 'ended' AND state_at < ? ORDER BY state_at LIMIT ?",
        (older_than, most),
    ).fetchall()
    db.executemany("INSERT INTO forgotten(run_id) VALUES (?) ON CONFLICT DO NOTHING", run_ids)
    db.executemany("DELETE FROM runs WHERE run_id = ?", run_ids)
    return len(run_ids)


def remove_hidden(db: SqlConnection, most: int) -> bool:
    """Removes at most so many rows of hidden runs; whether there may be more."""
    remaining = most
    for (run_id,) in db.execute("SELECT run_id FROM forgotten LIMIT ?", (most,)).fetchall():
        for statement in _REMOVALS:
            remaining -= db.execute(statement, (run_id, remaining)).rowcount
            if remaining <= 0:
                return True
        db.execute("DELETE FROM forgotten WHERE run_id = ?", (run_id,))
    return False
