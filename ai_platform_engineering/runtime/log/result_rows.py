"""Stored tool results as rows: the writes inside a transaction, and how rows are read back."""

from collections.abc import Sequence
from dataclasses import dataclass

from ai_platform_engineering.databases.sql_connections import Row, SqlConnection
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.result_store import PackedResult, ResultLimits

# Runs of the same conversation may read a result; the newest one counts where several stored the same.
_FIND = (
    "SELECT results.run_id, results.chars FROM results JOIN runs AS stored ON stored.run_id = results.run_id"
    " JOIN runs AS reader ON reader.owner = stored.owner AND reader.context_id = stored.context_id"
    " WHERE results.result_id = ?1 AND reader.run_id = ?2 ORDER BY results.at DESC LIMIT 1"
)


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A stored result: the run that stored it, and its number of characters."""

    run_id: str
    chars: int


def find(db: SqlConnection, run_id: str, result_id: str) -> ResultRow | None:
    """The result that this run may read."""
    row = db.execute(_FIND, (result_id, run_id)).fetchone()
    if row is None:
        return None
    return ResultRow(row["run_id"], row["chars"])


def read_chunks(db: SqlConnection, row: ResultRow, result_id: str, first: int, last: int) -> list[bytes]:
    """The compressed chunks with these numbers, both included."""
    rows = db.execute(
        "SELECT body FROM result_chunks WHERE run_id = ? AND result_id = ? AND number BETWEEN ? AND ?"
        " ORDER BY number",
        (row.run_id, result_id, first, last),
    )
    return [row["body"] for row in rows]


def touch(db: SqlConnection, now: int, run: RunRow, result_id: str) -> bool:
    """Marks a result as new; whether the run has stored it already."""
    cursor = db.execute(
        "UPDATE results SET at = ? WHERE run_id = ? AND result_id = ?", (now, run.run_id, result_id)
    )
    return cursor.rowcount > 0


def store_chunks(db: SqlConnection, run: RunRow, result_id: str, first: int, chunks: Sequence[bytes]) -> None:
    """Stores chunks; readers do not see them before `store` has been called."""
    db.executemany(
        "INSERT INTO result_chunks(run_id, result_id, number, body) VALUES (?, ?, ?, ?)"
        " ON CONFLICT(run_id, result_id, number) DO UPDATE SET body = excluded.body",
        [(run.run_id, result_id, number, chunk) for number, chunk in enumerate(chunks, first)],
    )


def store(db: SqlConnection, now: int, run: RunRow, result: PackedResult, limits: ResultLimits) -> None:
    """Shows a result whose chunks are stored to readers, and removes older ones that do not fit beside it."""
    db.execute("DELETE FROM results WHERE run_id = ? AND result_id = ?", (run.run_id, result.result_id))
    _make_room_in_run(db, run, limits.run_bytes - result.bytes)
    _make_room(db, limits.total_bytes - result.bytes)
    db.execute(
        "INSERT INTO results(run_id, result_id, chars, bytes, at) VALUES (?, ?, ?, ?, ?)",
        (run.run_id, result.result_id, result.chars, result.bytes, now),
    )


def _make_room_in_run(db: SqlConnection, run: RunRow, most: int) -> None:
    """Removes the oldest results of a run until at most so many bytes are left."""
    query = "SELECT run_id, result_id, bytes FROM results WHERE run_id = ? ORDER BY at"
    rows = db.execute(query, (run.run_id,)).fetchall()
    _remove_until(db, rows, sum(row["bytes"] for row in rows), most)


def _make_room(db: SqlConnection, most: int) -> None:
    """Removes the oldest results of all runs until at most so many bytes are left."""
    [stored_bytes] = db.execute("SELECT coalesce(sum(bytes), 0) FROM result_total").fetchone()
    total = int(stored_bytes)
    while total > most:
        rows = db.execute("SELECT run_id, result_id, bytes FROM results ORDER BY at LIMIT 100").fetchall()
        if not rows:
            break
        total = _remove_until(db, rows, total, most)


def _remove_until(db: SqlConnection, rows: Sequence[Row], total: int, most: int) -> int:
    for row in rows:
        if total <= most:
            break
        key = (row["run_id"], row["result_id"])
        db.execute("DELETE FROM result_chunks WHERE run_id = ? AND result_id = ?", key)
        db.execute("DELETE FROM results WHERE run_id = ? AND result_id = ?", key)
        total -= row["bytes"]
    return total
