"""Calls, remote orders, pending requests and feedback as rows: what the writer does inside its transaction, and how rows are read back."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import JsonValue

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.core.events import AnyEvent, InputRequested
from ai_platform_engineering.runtime.log.run_log import (
    Feedback,
    JournalEntry,
    PendingRequest,
    RunRow,
    begun,
    can_settle,
    requests_after,
)
from ai_platform_engineering.runtime.log.sqlite_database import microseconds, moment


def call_entry(found: sqlite3.Row) -> JournalEntry:
    return JournalEntry(
        key=found["key"],
        tool=found["tool"],
        arguments=json.loads(found["arguments"]),
        state=found["state"],
        epoch=found["epoch"],
        outcome=json.loads(found["outcome"]),
        settled_by=found["settled_by"],
    )


def request_row(found: sqlite3.Row) -> PendingRequest:
    return PendingRequest(
        request_id=found["request_id"],
        run_id=found["run_id"],
        event=InputRequested.model_validate_json(found["event"]),
        status=found["status"],
        answer=json.loads(found["answer"]),
        by=found["answered_by"],
        at=None if found["answered_at"] is None else moment(found["answered_at"]),
    )


def begin(db: sqlite3.Connection, row: RunRow, call: JournalEntry, *, idempotent: bool) -> JournalEntry:
    known = _call(db, row.run_id, call.key)
    entry = begun(known, call, idempotent=idempotent)
    if entry != known:
        _store_call(db, row.run_id, entry)
    return entry


def finish(
    db: sqlite3.Connection, row: RunRow, key: str, state: Literal["done", "withdrawn"], outcome: Any
) -> None:
    known = _call(db, row.run_id, key)
    if known is None:
        raise Refused("The call was never begun.")
    if known.state in ("intent", "unknown"):
        _store_call(db, row.run_id, replace(known, state=state, outcome=outcome))


def settle(db: sqlite3.Connection, row: RunRow, key: str, outcome: Any, by: str) -> bool:
    known = _call(db, row.run_id, key)
    if known is None or not can_settle(known, row.status):
        return False
    _store_call(db, row.run_id, replace(known, state="done", outcome=outcome, settled_by=by))
    return True


def ordered(db: sqlite3.Connection, row: RunRow, key: str, agent: str, task_id: str) -> None:
    db.execute(
        "INSERT INTO orders(run_id, key, agent, task_id) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET agent = excluded.agent, task_id = excluded.task_id",
        (row.run_id, key, agent, task_id),
    )


def claim_requests(
    db: sqlite3.Connection, now: int, run_id: str, values: Mapping[str, JsonValue], by: str
) -> list[str]:
    """Only what still waits, and in time; the writer's transaction makes it the first answer."""
    found = db.execute(
        "SELECT * FROM pending WHERE run_id = ? AND status = 'pending' ORDER BY rowid", (run_id,)
    ).fetchall()
    waiting = [
        request.request_id
        for request in map(request_row, found)
        if request.request_id in values and request.waits(moment(now))
    ]
    for request_id in waiting:
        db.execute(
            "UPDATE pending SET status = 'claimed', answer = ?, answered_by = ?, answered_at = ? WHERE request_id = ?",
            (json.dumps(values[request_id]), by, now, request_id),
        )
    return waiting


def store_requests(db: sqlite3.Connection, now: int, run_id: str, events: Sequence[AnyEvent]) -> None:
    """What the events ask and resolve."""
    known = db.execute("SELECT * FROM pending WHERE run_id = ? ORDER BY rowid", (run_id,)).fetchall()
    for request in requests_after(run_id, events, [request_row(found) for found in known], moment(now)):
        answered = (
            json.dumps(request.answer),
            request.by,
            None if request.at is None else microseconds(request.at),
        )
        db.execute(
            "INSERT INTO pending(request_id, run_id, event, status, answer, answered_by, answered_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET run_id = excluded.run_id, event = excluded.event, status = excluded.status,"
            " answer = excluded.answer, answered_by = excluded.answered_by, answered_at = excluded.answered_at",
            (request.request_id, run_id, request.event.model_dump_json(), request.status, *answered),
        )


def allow(db: sqlite3.Connection, now: int, row: RunRow, tool: str, by: str) -> None:
    db.execute(
        "INSERT OR IGNORE INTO allowances VALUES (?, ?, ?, ?, ?)", (row.owner, row.context_id, tool, by, now)
    )


def disallow(db: sqlite3.Connection, owner: str, context_id: str, tool: str) -> bool:
    which = (owner, context_id, tool)
    return (
        db.execute("DELETE FROM allowances WHERE owner = ? AND context_id = ? AND tool = ?", which).rowcount
        > 0
    )


def forget_allowances(db: sqlite3.Connection) -> None:
    """Those of conversations that are gone."""
    db.execute(
        "DELETE FROM allowances WHERE NOT EXISTS"
        " (SELECT 1 FROM runs WHERE runs.owner = allowances.owner AND runs.context_id = allowances.context_id)"
    )


def feedback_row(found: sqlite3.Row) -> Feedback:
    return Feedback(found["said_by"], found["score"], found["reason"], moment(found["at"]))


def rate(db: sqlite3.Connection, row: RunRow, said: Feedback) -> Feedback:
    db.execute(
        "INSERT INTO feedback(run_id, said_by, score, reason, at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET score = excluded.score, reason = excluded.reason, at = excluded.at",
        (row.run_id, said.by, said.score, said.reason, microseconds(said.at)),
    )
    return said


def unrate(db: sqlite3.Connection, row: RunRow, by: str) -> bool:
    return db.execute("DELETE FROM feedback WHERE run_id = ? AND said_by = ?", (row.run_id, by)).rowcount > 0


def _call(db: sqlite3.Connection, run_id: str, key: str) -> JournalEntry | None:
    found = db.execute("SELECT * FROM journal WHERE run_id = ? AND key = ?", (run_id, key)).fetchone()
    if found is None:
        return None
    return call_entry(found)


def _store_call(db: sqlite3.Connection, run_id: str, entry: JournalEntry) -> None:
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
        "INSERT INTO journal(run_id, key, tool, arguments, state, epoch, outcome, settled_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET tool = excluded.tool, arguments = excluded.arguments, state = excluded.state,"
        " epoch = excluded.epoch, outcome = excluded.outcome, settled_by = excluded.settled_by",
        (run_id, *values),
    )
