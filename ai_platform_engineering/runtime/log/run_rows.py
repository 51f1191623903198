"""Runs and their events as rows: what the writer does inside its transaction, and how rows are read back."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from ai_platform_engineering.core.errors import Fenced, MessageConflict, Refused, RunNotFound
from ai_platform_engineering.core.events import EVENT_ADAPTER, AnyEvent, StoredEvent
from ai_platform_engineering.runtime.log import journal_rows
from ai_platform_engineering.runtime.log.run_log import (
    AnswerMessage,
    Marker,
    NewRun,
    RunRow,
    changes_requests,
    status_after,
)
from ai_platform_engineering.runtime.log.sqlite_database import microseconds, moment

# What belongs to a run besides its own row.
_REMOVE = (
    "DELETE FROM events WHERE run_id = ?1 AND seq IN (SELECT seq FROM events WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM markers WHERE rowid IN (SELECT rowid FROM markers WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM orders WHERE rowid IN (SELECT rowid FROM orders WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM journal WHERE rowid IN (SELECT rowid FROM journal WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM pending WHERE rowid IN (SELECT rowid FROM pending WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM feedback WHERE rowid IN (SELECT rowid FROM feedback WHERE run_id = ?1 LIMIT ?2)",
    "DELETE FROM answers WHERE rowid IN (SELECT rowid FROM answers WHERE run_id = ?1 LIMIT ?2)",
)

# Conversations in which every run ended before a time.
EXPIRED = (
    "SELECT DISTINCT owner, context_id FROM runs old WHERE status = 'ended' AND updated < ?1 AND NOT EXISTS ("
    "SELECT 1 FROM runs kept WHERE kept.owner = old.owner AND kept.context_id = old.context_id"
    " AND (kept.status <> 'ended' OR kept.updated >= ?1))"
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Events as they will be stored. Encoded before they are submitted: what cannot be encoded must not cost a number."""

    events: Sequence[AnyEvent]
    bodies: Sequence[tuple[str, str]]  # kind and JSON

    @classmethod
    def of(cls, events: Iterable[AnyEvent]) -> "Batch":
        kept = tuple(events)
        return cls(kept, [(event.kind, EVENT_ADAPTER.dump_json(event).decode()) for event in kept])


def run_row(found: sqlite3.Row) -> RunRow:
    return RunRow(
        run_id=found["run_id"],
        context_id=found["context_id"],
        owner=found["owner"],
        principal=found["principal"],
        message_id=found["message_id"],
        status=found["status"],
        last_seq=found["last_seq"],
        epoch=found["epoch"],
        created=moment(found["created"]),
        updated=moment(found["updated"]),
        holder=found["holder"],
        lease_until=None if found["lease_until"] is None else moment(found["lease_until"]),
    )


def numbered(found: sqlite3.Row) -> StoredEvent:
    return StoredEvent(found["seq"], moment(found["at"]), EVENT_ADAPTER.validate_json(found["body"]))


def existing(db: sqlite3.Connection, run_id: str) -> RunRow:
    found = db.execute("SELECT * FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise RunNotFound(f"There is no run {run_id}.")
    return run_row(found)


def writable(db: sqlite3.Connection, run_id: str, epoch: int) -> RunRow:
    """The run, if this epoch may write it."""
    row = existing(db, run_id)
    if epoch != row.epoch:
        raise Fenced("The run has another owner now.")
    if row.status == "ended":
        raise Fenced("The run has ended.")
    return row


def create(db: sqlite3.Connection, now: int, new: NewRun, batch: Batch) -> tuple[RunRow, bool]:
    known = _run_of_message(db, new)
    if known is not None:
        return known, False
    if db.execute("SELECT 1 FROM runs WHERE run_id = ?", (new.run_id,)).fetchone():
        raise Refused("There is a task with this id already.")
    fixed = (
        new.run_id,
        new.context_id,
        new.owner,
        new.started.principal,
        new.message_id,
        new.digest,
        new.lasting_id,
    )
    db.execute(
        "INSERT INTO runs(run_id, context_id, owner, principal, message_id, digest, lasting_id, status, last_seq, epoch, created, updated)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'running', 0, 1, ?, ?)",
        (*fixed, now, now),
    )
    _store(db, now, existing(db, new.run_id), batch)
    return existing(db, new.run_id), True


def _run_of_message(db: sqlite3.Connection, new: NewRun) -> RunRow | None:
    """The run that this message started before."""
    found = db.execute(
        "SELECT * FROM runs WHERE owner = ?1 AND message_id = ?2 AND lasting_id = ?3 AND (context_id = ?4 OR NOT ?3)"
        " ORDER BY number DESC LIMIT 1",
        (new.owner, new.message_id, new.lasting_id, new.context_id),
    ).fetchone()
    if found is None:
        return None
    row = run_row(found)
    if found["digest"] == new.digest and (new.lasting_id or row.status == "running"):
        return row
    if new.lasting_id:
        raise MessageConflict()
    return None


def append(
    db: sqlite3.Connection, now: int, run_id: str, epoch: int, batch: Batch, markers: Sequence[Marker]
) -> int:
    last = _store(db, now, writable(db, run_id, epoch), batch)
    if markers:
        db.executemany(
            "INSERT OR IGNORE INTO markers(run_id, ns, checkpoint_id, after_seq) VALUES (?, ?, ?, ?)",
            [(run_id, marker.ns, marker.checkpoint_id, last) for marker in markers],
        )
    return last


def _store(db: sqlite3.Connection, now: int, row: RunRow, batch: Batch) -> int:
    at = max(now, microseconds(row.updated))  # the clock of the machine may have been set back
    db.executemany(
        "INSERT INTO events(run_id, seq, at, kind, body) VALUES (?, ?, ?, ?, ?)",
        [
            (row.run_id, seq, at, kind, body)
            for seq, (kind, body) in enumerate(batch.bodies, row.last_seq + 1)
        ],
    )
    last = row.last_seq + len(batch.events)
    db.execute(
        "UPDATE runs SET last_seq = ?, status = ?, updated = ? WHERE run_id = ?",
        (last, status_after(batch.events, row.status), at, row.run_id),
    )
    if changes_requests(batch.events):
        journal_rows.store_requests(db, at, row.run_id, batch.events)
    return last


def remember(db: sqlite3.Connection, answer: AnswerMessage) -> None:
    row = existing(db, answer.run_id)
    db.execute(
        "INSERT OR REPLACE INTO answers(owner, context_id, message_id, run_id, digest, before) VALUES (?, ?, ?, ?, ?, ?)",
        (row.owner, row.context_id, answer.message_id, answer.run_id, answer.digest, answer.before),
    )


def claim_requests(
    db: sqlite3.Connection, now: int, answer: AnswerMessage, values: Mapping[str, JsonValue], by: str
) -> list[str]:
    existing(db, answer.run_id)
    claimed = journal_rows.claim_requests(db, now, answer.run_id, values, by)
    if claimed:
        remember(db, answer)
    return claimed


def claim(db: sqlite3.Connection, run_id: str) -> int:
    existing(db, run_id)
    return int(
        db.execute(
            "UPDATE runs SET epoch = epoch + 1 WHERE run_id = ? RETURNING epoch", (run_id,)
        ).fetchall()[0][0]
    )


def lease(
    db: sqlite3.Connection, now: int, run_id: str, holder: str, seconds: float, *, force: bool
) -> int | None:
    existing(db, run_id)
    given = db.execute(
        "UPDATE runs SET epoch = epoch + 1, holder = ?, lease_until = ?"
        " WHERE run_id = ? AND status <> 'ended' AND (? OR coalesce(lease_until, 0) <= ?) RETURNING epoch",
        (holder, now + round(seconds * 1_000_000), run_id, force, now),
    ).fetchall()
    if given:
        return int(given[0][0])
    return None


def hide_ended(db: sqlite3.Connection, older_than: int, most: int) -> int:
    """Takes ended runs away from the readers, oldest first; returns how many."""
    gone = db.execute(
        "SELECT run_id FROM runs WHERE status = 'ended' AND updated < ? ORDER BY updated LIMIT ?",
        (older_than, most),
    ).fetchall()
    db.executemany("INSERT INTO forgotten(run_id) VALUES (?)", gone)
    db.executemany("DELETE FROM runs WHERE run_id = ?", gone)
    return len(gone)


def remove_hidden(db: sqlite3.Connection, most: int) -> bool:
    """Removes at most so many rows of hidden runs; whether there may be more."""
    left = most
    for (run_id,) in db.execute("SELECT run_id FROM forgotten LIMIT ?", (most,)).fetchall():
        for statement in _REMOVE:
            left -= db.execute(statement, (run_id, left)).rowcount
            if left <= 0:
                return True
        db.execute("DELETE FROM forgotten WHERE run_id = ?", (run_id,))
    return False


def give_back(db: sqlite3.Connection, most: int) -> bool:
    """Shortens the file by at most so many free pages; whether there are more."""
    free: int = db.execute("PRAGMA freelist_count").fetchone()[0]
    for _ in range(min(free, most)):
        db.execute(
            "PRAGMA incremental_vacuum(1)"
        )  # one by one: the driver ends the statement after its first page
    return free > most
