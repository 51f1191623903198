"""Lists of runs as queries. They run in a thread, on a connection of their own."""

from collections.abc import Sequence
from typing import Any

from ai_platform_engineering.core.events import StoredEvent
from ai_platform_engineering.databases.sql_connections import SqlConnection
from ai_platform_engineering.files.sqlite_file import microseconds
from ai_platform_engineering.runtime.log.journal_rows import read_request
from ai_platform_engineering.runtime.log.log_rows import RequestPage, RunFilter, RunPage, RunPosition
from ai_platform_engineering.runtime.log.run_log_rules import PROGRESS_KINDS
from ai_platform_engineering.runtime.log.run_rows import find_run, read_event, read_run

_PROGRESS_KINDS = ", ".join(f"'{kind}'" for kind in sorted(PROGRESS_KINDS))
_OUTLINE = (
    f"SELECT seq, at, body FROM events WHERE run_id = ? AND kind NOT IN ({_PROGRESS_KINDS}) ORDER BY seq"  # noqa: S608
)

# The index is named: the planner would rather begin with the runs, and sort.
_OPEN_REQUESTS = (
    "SELECT pending.rowid AS number, pending.* FROM pending INDEXED BY pending_of_owner"
    " WHERE status = 'pending' AND owner = ?1 AND rowid > ?3 AND (expires_at IS NULL OR expires_at > ?2)"
    " AND EXISTS (SELECT 1 FROM runs WHERE runs.run_id = pending.run_id AND runs.status <> 'ended')"
    " ORDER BY rowid LIMIT ?4"
)

# Conversations in which every run ended before a time, page by page.
_EXPIRED = (
    "SELECT DISTINCT owner, context_id FROM runs old WHERE status = 'ended' AND state_at < ?1"
    " AND (owner, context_id) > (?2, ?3) AND NOT EXISTS ("
    "SELECT 1 FROM runs kept WHERE kept.owner = old.owner AND kept.context_id = old.context_id"
    " AND (kept.status <> 'ended' OR kept.updated >= ?1)) ORDER BY owner, context_id LIMIT ?4"
)


def list_runs(db: SqlConnection, run_filter: RunFilter, after: RunPosition | None, limit: int) -> RunPage:
    """A page of runs; an index has the rows of each filter in the order of the list."""
    conditions = ["owner = ?"]
    values: list[Any] = [run_filter.owner]
    if run_filter.context_id is not None:
        conditions.append("context_id = ?")
        values.append(run_filter.context_id)
    if run_filter.state is not None:
        conditions.append("state = ?")
        values.append(run_filter.state)
    if run_filter.since is not None:
        conditions.append("state_at >= ?")
        values.append(microseconds(run_filter.since))
    [total] = db.execute(_count_query(run_filter, conditions), values).fetchone()
    if after is not None:
        conditions.append("(state_at, run_id) < (?, ?)")
        values += [microseconds(after.state_at), after.run_id]
    rows = db.execute(
        f"SELECT * FROM runs WHERE {' AND '.join(conditions)}"  # noqa: S608
        " ORDER BY state_at DESC, run_id DESC LIMIT ?",
        [*values, limit + 1],
    ).fetchall()
    return RunPage([read_run(row) for row in rows[:limit]], total, has_more=len(rows) > limit)


def _count_query(run_filter: RunFilter, conditions: Sequence[str]) -> str:
    """How many runs a filter has; those of an owner are counted already, however many there are."""
    condition = " AND ".join(conditions)
    if run_filter.context_id is None and run_filter.since is None:
        return f"SELECT coalesce(sum(number), 0) FROM run_counts WHERE {condition}"  # noqa: S608
    return f"SELECT count(*) FROM runs WHERE {condition}"  # noqa: S608


def list_open_requests(db: SqlConnection, owner: str, now: int, after: int, limit: int) -> RequestPage:
    """A page of requests that are pending and not expired, with their runs."""
    rows = db.execute(_OPEN_REQUESTS, (owner, now, after, limit + 1)).fetchall()
    items = [(read_request(row), find_run(db, row["run_id"])) for row in rows[:limit]]
    next_after = None
    if len(rows) > limit:
        next_after = rows[limit - 1]["number"]
    return RequestPage(items, next_after)


def read_outlines(db: SqlConnection, run_ids: Sequence[str]) -> dict[str, list[StoredEvent]]:
    """The events of runs without their texts, tool calls and plans."""
    outlines: dict[str, list[StoredEvent]] = {}
    for run_id in run_ids:
        outlines[run_id] = [read_event(row) for row in db.execute(_OUTLINE, (run_id,))]
    return outlines


def find_expired_conversations(
    db: SqlConnection, older_than: int, after: tuple[str, str], limit: int
) -> list[tuple[str, str]]:
    """Conversations behind a position, by owner and context id."""
    rows = db.execute(_EXPIRED, (older_than, *after, limit))
    return [(row["owner"], row["context_id"]) for row in rows]
