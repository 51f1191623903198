"""Ingest jobs in SQLite. One process writes at a time, and takes the jobs of the one before it when it opens
the file; claims and epochs are those of the store that several processes share."""

import json
import sqlite3
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from ai_platform_engineering.files.sqlite_file import microseconds, moment
from ai_platform_engineering.knowledge_bases.documents import Document
from ai_platform_engineering.knowledge_bases.stores.embedded import sqlite_writes
from ai_platform_engineering.knowledge_bases.stores.job_store import (
    ALL_ENDED_JOBS_KEPT,
    CLAIMABLE_LISTED,
    ENDED_JOBS_KEPT,
    ClaimLost,
    IngestJob,
    progress_columns,
)

T = TypeVar("T")

_CLAIMABLE = (
    "j.ended IS NULL AND (j.holder = '' OR j.lease_until < :now) AND NOT EXISTS ("
    "SELECT 1 FROM jobs o WHERE o.datasource = j.datasource AND o.ended IS NULL AND o.number < j.number)"
)
_LIST_CLAIMABLE = f"SELECT * FROM jobs j WHERE {_CLAIMABLE} ORDER BY number LIMIT :limit"  # noqa: S608
_CLAIM = (
    "UPDATE jobs AS j SET state = 'running', "  # noqa: S608
    "holder = :holder, epoch = epoch + 1, attempts = attempts + 1, lease_until = :lease_until, "
    "total = NULL, done = 0, skipped = 0, removed = 0, failed = '[]', cut = '[]' "
    f"WHERE j.job_id = :job_id AND {_CLAIMABLE} RETURNING *"
)
_RENEW = (
    "UPDATE jobs SET lease_until = :lease_until, total = :total, done = :done, skipped = :skipped, "
    "removed = :removed, failed = :failed, cut = :cut, "
    "attempts = CASE WHEN :has_stored THEN 1 ELSE attempts END "
    "WHERE job_id = :job_id AND epoch = :epoch AND ended IS NULL"
)
_END = (
    "UPDATE jobs SET state = :state, ended = :now, holder = '', problem = :problem, total = :total, "
    "done = :done, skipped = :skipped, removed = :removed, failed = :failed, cut = :cut "
    "WHERE job_id = :job_id AND epoch = :epoch AND ended IS NULL"
)
_RELEASE = (
    "UPDATE jobs SET state = 'waiting', holder = '', lease_until = ?, attempts = attempts - 1, "
    "epoch = epoch + 1 WHERE job_id = ? AND epoch = ? AND ended IS NULL"
)
_STOP = "UPDATE jobs SET state = 'stopped', ended = ?, holder = '', epoch = epoch + 1 WHERE ended IS NULL"
_GIVE_UP = (
    "UPDATE jobs AS j SET state = 'failed', "  # noqa: S608
    "problem = :problem, ended = :now, epoch = epoch + 1 "
    f"WHERE j.job_id = :job_id AND {_CLAIMABLE} AND coalesce(j.lease_until, j.created) < :since "
    "AND NOT EXISTS (SELECT 1 FROM jobs w WHERE w.job_id <> j.job_id AND w.lease_until > :since)"
)
_DROP_EMPTY = (
    "DELETE FROM datasources WHERE name = :name AND refreshed IS NULL "
    "AND NOT EXISTS (SELECT 1 FROM documents WHERE datasource = :name) "
    "AND NOT EXISTS (SELECT 1 FROM jobs WHERE datasource = :name AND ended IS NULL)"
)


class Write(Protocol):
    """Runs something in a transaction of the writer, which `commit` ends."""

    async def __call__(self, work: Callable[[sqlite3.Connection], T], *, commit: bool = False) -> T: ...


class Read(Protocol):
    """Runs something in a transaction that only reads."""

    async def __call__(self, work: Callable[[sqlite3.Connection], T]) -> T: ...


class SqliteJobs:
    """`JobStore` in a file. `removed_vectors`: numbers of vectors that were removed with documents."""

    def __init__(self, write: Write, read: Read, removed_vectors: list[int]) -> None:
        self._write = write
        self._read = read
        self._removed_vectors = removed_vectors

    async def add(self, datasource: str, *, again: bool = False) -> IngestJob:
        return await self._write(lambda db: _add(db, datasource, again=again), commit=True)

    async def claim_refresh(self, name: str, due: datetime, next_due: datetime) -> IngestJob | None:
        def claim(db: sqlite3.Connection) -> IngestJob | None:
            claimed = db.execute(
                "UPDATE datasources SET refresh_due = ? WHERE name = ? AND refresh_due = ?",
                (microseconds(next_due), name, microseconds(due)),
            )
            if not claimed.rowcount:
                return None
            return _add(db, name, again=False)

        return await self._write(claim, commit=True)

    async def list(self, *, unfinished: bool = False) -> Sequence[IngestJob]:
        query = "SELECT * FROM jobs WHERE ended IS NULL OR NOT ? ORDER BY number DESC"
        return await self._read(lambda db: [_read_job(row) for row in db.execute(query, (unfinished,))])

    async def find(self, job_id: str) -> IngestJob | None:
        return await self._read(lambda db: _find(db, job_id))

    async def list_claimable(self) -> Sequence[IngestJob]:
        values = {"now": _now(), "limit": CLAIMABLE_LISTED}
        return await self._read(lambda db: [_read_job(row) for row in db.execute(_LIST_CLAIMABLE, values)])

    async def claim(self, job_id: str, holder: str, seconds: float) -> "SqliteClaim | None":
        now = _now()
        values = {"job_id": job_id, "holder": holder, "now": now, "lease_until": _after(now, seconds)}
        row = await self._write(lambda db: db.execute(_CLAIM, values).fetchone(), commit=True)
        if row is None:
            return None
        return SqliteClaim(self._write, self._removed_vectors, row, seconds)

    async def stop(self, job_id: str) -> IngestJob | None:
        def stop(db: sqlite3.Connection) -> IngestJob | None:
            stopped = db.execute(f"{_STOP} AND job_id = ?", (_now(), job_id))
            job = _find(db, job_id)
            if job is not None and stopped.rowcount:
                _drop_old_jobs(db, job.datasource)
            return job

        return await self._write(stop, commit=True)

    async def give_up(self, job_id: str, problem: str, seconds: float) -> bool:
        now = _now()
        values = {"job_id": job_id, "problem": problem, "now": now, "since": _after(now, -seconds)}
        return await self._write(lambda db: db.execute(_GIVE_UP, values).rowcount > 0, commit=True)


class SqliteClaim:
    """`ClaimedJob` in a file."""

    def __init__(self, write: Write, removed_vectors: "list[int]", row: sqlite3.Row, seconds: float) -> None:
        self.job = _read_job(row)
        self.attempts: int = row["attempts"]
        self._epoch: int = row["epoch"]
        self._write = write
        self._removed_vectors = removed_vectors
        self._seconds = seconds

    async def put_document(self, document: Document, mark: str = "") -> None:
        def put(db: sqlite3.Connection) -> None:
            self._removed_vectors.extend(sqlite_writes.put_document(db, document, mark))

        await self._write_fenced(put)

    async def update_mark(self, document_id: str, mark: str) -> None:
        await self._write_fenced(lambda db: sqlite_writes.update_mark(db, document_id, mark))

    async def delete_documents(self, document_ids: Collection[str]) -> None:
        def delete(db: sqlite3.Connection) -> None:
            self._removed_vectors.extend(sqlite_writes.delete_documents(db, document_ids))

        await self._write_fenced(delete)

    async def put_group(self, name: str, members: Collection[str]) -> None:
        await self._write_fenced(lambda db: sqlite_writes.put_group(db, name, members), commit=True)

    async def note_pass(self, options: Mapping[str, str], cursor: str, next_cursor: str) -> None:
        def note(db: sqlite3.Connection) -> None:
            db.execute(
                "UPDATE datasources SET refreshed = ?, "
                "cursor = CASE WHEN options = ? AND cursor = ? THEN ? ELSE cursor END WHERE name = ?",
                (_now(), json.dumps(dict(options)), cursor, next_cursor, self.job.datasource),
            )

        await self._write_fenced(note, commit=True)

    async def renew(self, job: IngestJob) -> None:
        values = {
            "job_id": self.job.job_id,
            "epoch": self._epoch,
            **progress_columns(job),
            "lease_until": _after(_now(), self._seconds),
            "has_stored": job.has_stored,
        }
        await self._update(_RENEW, values)

    async def release(self) -> None:
        await self._update(_RELEASE, (_now(), self.job.job_id, self._epoch))

    async def end(self, job: IngestJob, *, drop_empty: bool = False) -> IngestJob:
        now = _now()
        values = {
            "job_id": self.job.job_id,
            "epoch": self._epoch,
            **progress_columns(job),
            "state": job.state,
            "problem": job.problem,
            "now": now,
        }

        def end(db: sqlite3.Connection) -> None:
            self._check(db.execute(_END, values).rowcount)
            if drop_empty:
                db.execute(_DROP_EMPTY, {"name": job.datasource})
            _drop_old_jobs(db, job.datasource)

        await self._write(end, commit=True)
        return replace(job, ended=moment(now))

    async def _update(self, statement: str, values: Any) -> None:
        def update(db: sqlite3.Connection) -> None:
            self._check(db.execute(statement, values).rowcount)

        await self._write(update, commit=True)

    async def _write_fenced(
        self, work: Callable[[sqlite3.Connection], None], *, commit: bool = False
    ) -> None:
        fence = "SELECT count(*) FROM jobs WHERE job_id = ? AND epoch = ? AND ended IS NULL"

        def write(db: sqlite3.Connection) -> None:
            self._check(db.execute(fence, (self.job.job_id, self._epoch)).fetchone()[0])
            work(db)

        await self._write(write, commit=commit)

    def _check(self, row_count: int) -> None:
        if not row_count:
            raise ClaimLost(self.job.job_id)


def release_all(db: sqlite3.Connection) -> None:
    """Gives up the jobs of the process before: the lock of the folder says that it is gone."""
    db.execute("UPDATE jobs SET holder = '' WHERE ended IS NULL")


def stop_jobs(db: sqlite3.Connection, datasource: str) -> None:
    """Stops the jobs of a datasource."""
    db.execute(f"{_STOP} AND datasource = ?", (_now(), datasource))
    _drop_old_jobs(db, datasource)


def _add(db: sqlite3.Connection, datasource: str, *, again: bool) -> IngestJob:
    row = db.execute(
        "SELECT * FROM jobs WHERE datasource = ? AND ended IS NULL AND (state = 'waiting' OR NOT ?) "
        "ORDER BY number LIMIT 1",
        (datasource, again),
    ).fetchone()
    if row is None:
        row = db.execute(
            "INSERT INTO jobs(job_id, datasource, state, done, skipped, removed, failed, problem, created) "
            "VALUES (?, ?, 'waiting', 0, 0, 0, '[]', '', ?) RETURNING *",
            (uuid.uuid4().hex[:12], datasource, _now()),
        ).fetchone()
    return _read_job(row)


def _find(db: sqlite3.Connection, job_id: str) -> IngestJob | None:
    row = db.execute("SELECT * FROM jobs WHERE job_id = ?", (job_id,)).fetchone()
    if row is None:
        return None
    return _read_job(row)


def _drop_old_jobs(db: sqlite3.Connection, datasource: str) -> None:
    db.execute(
        "DELETE FROM jobs WHERE ended IS NOT NULL AND datasource = ? AND number <= ("
        "SELECT number FROM jobs WHERE ended IS NOT NULL AND datasource = ? "
        "ORDER BY number DESC LIMIT 1 OFFSET ?)",
        (datasource, datasource, ENDED_JOBS_KEPT),
    )
    db.execute(
        "DELETE FROM jobs WHERE ended IS NOT NULL AND number <= ("
        "SELECT number FROM jobs WHERE ended IS NOT NULL ORDER BY number DESC LIMIT 1 OFFSET ?)",
        (ALL_ENDED_JOBS_KEPT,),
    )


def _read_job(row: sqlite3.Row) -> IngestJob:
    return IngestJob(
        job_id=row["job_id"],
        datasource=row["datasource"],
        state=row["state"],
        total=row["total"],
        done=row["done"],
        skipped=row["skipped"],
        removed=row["removed"],
        failed=tuple((address, reason) for address, reason in json.loads(row["failed"])),
        cut=tuple((address, missing) for address, missing in json.loads(row["cut"])),
        problem=row["problem"],
        created=_read_time(row["created"]),
        ended=_read_time(row["ended"]),
    )


def _read_time(stored: int | None) -> datetime | None:
    if stored is None:
        return None
    return moment(stored)


def _now() -> int:
    return microseconds(datetime.now(UTC))


def _after(now: int, seconds: float) -> int:
    return now + round(seconds * 1_000_000)
