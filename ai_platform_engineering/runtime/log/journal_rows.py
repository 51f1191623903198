"""The journal, remote tasks, requests, allowances and feedback as rows.

The writes run inside the writer's transaction.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from ai_platform_engineering.core.events import AnyEvent, InputRequested
from ai_platform_engineering.databases.sql_connections import Row, SqlConnection
from ai_platform_engineering.files.sqlite_file import microseconds, moment
from ai_platform_engineering.runtime.log.log_rows import (
    Feedback,
    JournalEntry,
    NextCallState,
    PendingRequest,
    RunRow,
)
from ai_platform_engineering.runtime.log.run_log_rules import (
    begin_entry,
    can_settle,
    requests_after,
    update_entry,
)


def read_entry(row: Row) -> JournalEntry:
    return JournalEntry(
        key=row["key"],
        tool=row["tool"],
        arguments=json.loads(row["arguments"]),
        state=row["state"],
        epoch=row["epoch"],
        outcome=json.loads(row["outcome"]),
        settled_by=row["settled_by"],
    )


def read_request(row: Row) -> PendingRequest:
    answered_at = None
    if row["answered_at"] is not None:
        answered_at = moment(row["answered_at"])
    return PendingRequest(
        request_id=row["request_id"],
        run_id=row["run_id"],
        event=InputRequested.model_validate_json(row["event"]),
        status=row["status"],
        answer=json.loads(row["answer"]),
        by=row["answered_by"],
        at=answered_at,
    )


def begin(db: SqlConnection, row: RunRow, call: JournalEntry, *, idempotent: bool) -> JournalEntry:
    """Stores the intent of a call; see `begin_entry`."""
    stored_entry = _find_entry(db, row.run_id, call.key)
    entry = begin_entry(stored_entry, call, idempotent=idempotent)
    if entry != stored_entry:
        _store_entry(db, row.run_id, entry)
    return entry


def finish(db: SqlConnection, row: RunRow, key: str, state: NextCallState, outcome: Any) -> None:
    """Stores the outcome of a call, or what it waits for."""
    stored_entry = _find_entry(db, row.run_id, key)
    entry = update_entry(stored_entry, state, outcome)
    if entry != stored_entry:
        _store_entry(db, row.run_id, entry)


def settle(db: SqlConnection, row: RunRow, key: str, outcome: Any, by: str) -> bool:
    """Stores the outcome that a person reported for a call."""
    entry = _find_entry(db, row.run_id, key)
    if entry is None or not can_settle(entry, row.status):
        return False
    _store_entry(db, row.run_id, replace(entry, state="done", outcome=outcome, settled_by=by))
    return True


def store_remote_task(db: SqlConnection, row: RunRow, key: str, agent: str, task_id: str) -> None:
    db.execute(
        "INSERT INTO orders(run_id, key, agent, task_id) VALUES (?, ?, ?, ?)"
        " ON CONFLICT(run_id, key) DO UPDATE SET agent = excluded.agent, task_id = excluded.task_id",
        (row.run_id, key, agent, task_id),
    )


def claim_requests(
    db: SqlConnection, now: int, run_id: str, values: Mapping[str, JsonValue], by: str
) -> list[str]:
    """Claims the requests that are pending and not expired; the transaction makes this the first answer."""
    query = "SELECT * FROM pending WHERE run_id = ? AND status = 'pending' ORDER BY rowid"
    claimed: list[str] = []
    for row in db.execute(query, (run_id,)).fetchall():
        request = read_request(row)
        if request.request_id in values and request.waits(moment(now)):
            claimed.append(request.request_id)
    for request_id in claimed:
        db.execute(
            "UPDATE pending SET status = 'claimed', answer = ?, answered_by = ?, answered_at = ?"
            " WHERE request_id = ?",
            (json.dumps(values[request_id]), by, now, request_id),
        )
    return claimed


def store_requests(db: SqlConnection, now: int, run_id: str, events: Sequence[AnyEvent]) -> None:
    """Stores the requests that the events open and resolve."""
    rows = db.execute("SELECT * FROM pending WHERE run_id = ? ORDER BY rowid", (run_id,)).fetchall()
    for request in requests_after(run_id, events, map(read_request, rows), moment(now)):
        answered_at = None
        if request.at is not None:
            answered_at = microseconds(request.at)
        expires_at = None
        if request.event.asked.expires_at is not None:
            expires_at = microseconds(request.event.asked.expires_at)
        answer = (json.dumps(request.answer), request.by, answered_at, expires_at)
        db.execute(
            "INSERT INTO pending(request_id, run_id, event, status, answer, answered_by, answered_at,"
            " expires_at, owner) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8,"
            " (SELECT owner FROM runs WHERE run_id = ?2))"
            " ON CONFLICT(request_id) DO UPDATE SET run_id = excluded.run_id, owner = excluded.owner,"
            " event = excluded.event,"
            " status = excluded.status, answer = excluded.answer, answered_by = excluded.answered_by,"
            " answered_at = excluded.answered_at, expires_at = excluded.expires_at",
            (request.request_id, run_id, request.event.model_dump_json(), request.status, *answer),
        )


def allow(db: SqlConnection, now: int, row: RunRow, tool: str, by: str) -> None:
    values = (row.owner, row.context_id, tool, by, now)
    db.execute(
        "INSERT INTO allowances(owner, context_id, tool, allowed_by, at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        values,
    )


def disallow(db: SqlConnection, owner: str, context_id: str, tool: str) -> bool:
    key = (owner, context_id, tool)
    statement = "DELETE FROM allowances WHERE owner = ? AND context_id = ? AND tool = ?"
    return db.execute(statement, key).rowcount > 0


def remove_old_allowances(db: SqlConnection) -> None:
    """Removes the allowances of conversations that have no run any more."""
    db.execute(
        "DELETE FROM allowances WHERE NOT EXISTS"
        " (SELECT 1 FROM runs WHERE runs.owner = allowances.owner"
        " AND runs.context_id = allowances.context_id)"
    )


def read_feedback(row: Row) -> Feedback:
    return Feedback(row["said_by"], row["score"], row["reason"], moment(row["at"]))


def store_feedback(db: SqlConnection, row: RunRow, feedback: Feedback) -> Feedback:
    db.execute(
        "INSERT INTO feedback(run_id, said_by, score, reason, at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT(run_id, said_by) DO UPDATE SET score = excluded.score, reason = excluded.reason,"
        " at = excluded.at",
        (row.run_id, feedback.by, feedback.score, feedback.reason, microseconds(feedback.at)),
    )
    return feedback


def remove_feedback(db: SqlConnection, row: RunRow, by: str) -> bool:
    return db.execute("DELETE FROM feedback WHERE run_id = ? AND said_by = ?", (row.run_id, by)).rowcount > 0


def _find_entry(db: SqlConnection, run_id: str, key: str) -> JournalEntry | None:
    row = db.execute("SELECT * FROM journal WHERE run_id = ? AND key = ?", (run_id, key)).fetchone()
    if row is None:
        return None
    return read_entry(row)


def _store_entry(db: SqlConnection, run_id: str, entry: JournalEntry) -> None:
    values = (
        entry.key,
        entry.tool,
        json.dumps(entry.arguments),
        entry.state,
        entry.epoch,
        json.dumps(entry.outcome),
        entry.settled_by,
    )
    db.execute(
        "INSERT INTO journal(run_id, key, tool, arguments, state, epoch, outcome, settled_by)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT(run_id, key) DO UPDATE SET tool = excluded.tool, arguments = excluded.arguments,"
        " state = excluded.state, epoch = excluded.epoch, outcome = excluded.outcome,"
        " settled_by = excluded.settled_by",
        (run_id, *values),
    )
