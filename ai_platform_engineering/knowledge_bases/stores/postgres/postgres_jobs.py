"""Ingest jobs in PostgreSQL: processes claim them with leases by the clock of the database, and their writes
are refused once another one has the claim."""

import json
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any

from psycopg.sql import SQL

from ai_platform_engineering.knowledge_bases.documents import Document
from ai_platform_engineering.knowledge_bases.stores.job_store import (
    ALL_ENDED_JOBS_KEPT,
    CLAIMABLE_LISTED,
    ENDED_JOBS_KEPT,
    ClaimLost,
    IngestJob,
    progress_columns,
)
from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes
from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_tables import Connection

OpenTransaction = Callable[[], AbstractAsyncContextManager[Connection]]

# `lease_until` stays when a job ends or is released: it tells when somebody worked last.
_CLAIMABLE = SQL(
    "j.ended IS NULL AND (j.holder = '' OR j.lease_until < clock_timestamp()) AND NOT EXISTS ("
    "SELECT 1 FROM jobs o WHERE o.datasource = j.datasource AND o.ended IS NULL AND o.number < j.number)"
)
_LIST_CLAIMABLE = SQL("SELECT * FROM jobs j WHERE {} ORDER BY number LIMIT %s").format(_CLAIMABLE)
_CLAIM = SQL(
    "UPDATE jobs SET state = 'running', holder = %s, epoch = epoch + 1, attempts = attempts + 1, "
    "lease_until = clock_timestamp() + make_interval(secs => %s), total = NULL, done = 0, skipped = 0, "
    "removed = 0, failed = '[]', cut = '[]' "
    "WHERE number = (SELECT number FROM jobs j WHERE j.job_id = %s AND {} FOR UPDATE SKIP LOCKED) RETURNING *"
).format(_CLAIMABLE)
# Whoever claims or stops the job waits for the transaction that has passed this fence.
_FENCE = "SELECT 1 FROM jobs WHERE job_id = %s AND epoch = %s AND ended IS NULL FOR SHARE"
_RENEW = (
    "UPDATE jobs SET lease_until = clock_timestamp() + make_interval(secs => %(seconds)s), "
    "total = %(total)s, done = %(done)s, skipped = %(skipped)s, removed = %(removed)s, failed = %(failed)s, "
    "cut = %(cut)s, attempts = CASE WHEN %(has_stored)s THEN 1 ELSE attempts END "
    "WHERE job_id = %(job_id)s AND epoch = %(epoch)s AND ended IS NULL"
)
_END = (
    "UPDATE jobs SET state = %(state)s, ended = clock_timestamp(), holder = '', problem = %(problem)s, "
    "total = %(total)s, done = %(done)s, skipped = %(skipped)s, removed = %(removed)s, failed = %(failed)s, "
    "cut = %(cut)s WHERE job_id = %(job_id)s AND epoch = %(epoch)s AND ended IS NULL RETURNING *"
)
_RELEASE = (
    "UPDATE jobs SET state = 'waiting', holder = '', lease_until = clock_timestamp(), "
    "attempts = attempts - 1, epoch = epoch + 1 WHERE job_id = %s AND epoch = %s AND ended IS NULL"
)
_STOP = (
    "UPDATE jobs SET state = 'stopped', ended = clock_timestamp(), holder = '', epoch = epoch + 1 "
    "WHERE job_id = %s AND ended IS NULL RETURNING *"
)
_GIVE_UP = SQL(
    "UPDATE jobs j SET state = 'failed', problem = %(problem)s, ended = clock_timestamp(), epoch = epoch + 1 "
    "WHERE j.job_id = %(job_id)s AND {} "
    "AND coalesce(j.lease_until, j.created) < clock_timestamp() - make_interval(secs => %(seconds)s) "
    "AND NOT EXISTS (SELECT 1 FROM jobs w WHERE w.job_id <> j.job_id "
    "AND w.lease_until > clock_timestamp() - make_interval(secs => %(seconds)s))"
).format(_CLAIMABLE)
_DROP_EMPTY = (
    "DELETE FROM datasources s WHERE name = %(name)s AND refreshed IS NULL "
    "AND NOT EXISTS (SELECT 1 FROM documents WHERE datasource = s.name) "
    "AND NOT EXISTS (SELECT 1 FROM jobs WHERE datasource = s.name AND ended IS NULL)"
)
_DROP_FILES = (
    "DELETE FROM uploads WHERE datasource = %(name)s "
    "AND NOT EXISTS (SELECT 1 FROM datasources WHERE name = %(name)s)"
)


class PostgresJobs:
    """`JobStore` in a database."""

    def __init__(self, transaction: OpenTransaction) -> None:
        self._transaction = transaction

    async def add(self, datasource: str, *, again: bool = False) -> IngestJob:
        async with self._transaction() as db:
            await lock_datasource(db, datasource)
            return await add_job(db, datasource, again=again)

    async def claim_refresh(self, name: str, due: datetime, next_due: datetime) -> IngestJob | None:
        async with self._transaction() as db:
            await lock_datasource(db, name)
            claimed = await db.execute(
                "UPDATE datasources SET refresh_due = %s WHERE name = %s AND refresh_due = %s",
                (next_due, name, due),
            )
            if not claimed.rowcount:
                return None
            return await add_job(db, name, again=False)

    async def list(self, *, unfinished: bool = False) -> Sequence[IngestJob]:
        async with self._transaction() as db:
            rows = await db.execute(
                "SELECT * FROM jobs WHERE ended IS NULL OR NOT %s ORDER BY number DESC", (unfinished,)
            )
            return [_read_job(row) for row in await rows.fetchall()]

    async def find(self, job_id: str) -> IngestJob | None:
        async with self._transaction() as db:
            row = await (await db.execute("SELECT * FROM jobs WHERE job_id = %s", (job_id,))).fetchone()
        if row is None:
            return None
        return _read_job(row)

    async def list_claimable(self) -> Sequence[IngestJob]:
        async with self._transaction() as db:
            rows = await db.execute(_LIST_CLAIMABLE, (CLAIMABLE_LISTED,))
            return [_read_job(row) for row in await rows.fetchall()]

    async def claim(self, job_id: str, holder: str, seconds: float) -> "PostgresClaim | None":
        async with self._transaction() as db:
            row = await (await db.execute(_CLAIM, (holder, seconds, job_id))).fetchone()
        if row is None:
            return None
        return PostgresClaim(self._transaction, _read_job(row), row["epoch"], row["attempts"], seconds)

    async def stop(self, job_id: str) -> IngestJob | None:
        async with self._transaction() as db:
            row = await (await db.execute(_STOP, (job_id,))).fetchone()
            if row is not None:
                await _drop_old_jobs(db, row["datasource"])
        if row is None:
            return await self.find(job_id)
        return _read_job(row)

    async def give_up(self, job_id: str, problem: str, seconds: float) -> bool:
        async with self._transaction() as db:
            given_up = await db.execute(_GIVE_UP, {"job_id": job_id, "problem": problem, "seconds": seconds})
            return given_up.rowcount > 0


class PostgresClaim:
    """`ClaimedJob` in a database. Each write looks at the epoch of the job in its own transaction."""

    def __init__(
        self, transaction: OpenTransaction, job: IngestJob, epoch: int, attempts: int, seconds: float
    ) -> None:
        self.job = job
        self.attempts = attempts
        self._transaction = transaction
        self._epoch = epoch
        self._seconds = seconds

    async def put_document(self, document: Document, mark: str = "") -> None:
        async with self._fenced() as db:
            await postgres_writes.put_document(db, document, mark)

    async def update_mark(self, document_id: str, mark: str) -> None:
        async with self._fenced() as db:
            await postgres_writes.update_mark(db, document_id, mark)

    async def delete_documents(self, document_ids: Collection[str]) -> None:
        async with self._fenced() as db:
            await postgres_writes.delete_documents(db, document_ids)

    async def put_group(self, name: str, members: Collection[str]) -> None:
        async with self._fenced() as db:
            await postgres_writes.put_group(db, name, members)

    async def note_pass(self, options: Mapping[str, str], cursor: str, next_cursor: str) -> None:
        async with self._fenced() as db:
            await db.execute(
                "UPDATE datasources SET refreshed = clock_timestamp(), "
                "cursor = CASE WHEN options = %s::jsonb AND cursor = %s THEN %s ELSE cursor END "
                "WHERE name = %s",
                (json.dumps(dict(options)), cursor, next_cursor, self.job.datasource),
            )

    async def renew(self, job: IngestJob) -> None:
        values = {
            "job_id": self.job.job_id,
            "epoch": self._epoch,
            **progress_columns(job),
            "seconds": self._seconds,
            "has_stored": job.has_stored,
        }
        async with self._transaction() as db:
            renewed = await db.execute(_RENEW, values)
            self._check(renewed.rowcount)

    async def release(self) -> None:
        async with self._transaction() as db:
            released = await db.execute(_RELEASE, (self.job.job_id, self._epoch))
            self._check(released.rowcount)

    async def end(self, job: IngestJob, *, drop_empty: bool = False) -> IngestJob:
        values = {
            "job_id": self.job.job_id,
            "epoch": self._epoch,
            **progress_columns(job),
            "state": job.state,
            "problem": job.problem,
        }
        async with self._transaction() as db:
            await lock_datasource(db, job.datasource)
            row = await (await db.execute(_END, values)).fetchone()
            if row is None:
                raise self._lost()
            if drop_empty:
                await db.execute(_DROP_EMPTY, {"name": job.datasource})
                await db.execute(_DROP_FILES, {"name": job.datasource})
            await _drop_old_jobs(db, job.datasource)
        return _read_job(row)

    @asynccontextmanager
    async def _fenced(self) -> AsyncIterator[Connection]:
        """A transaction in which nobody else claims or stops the job."""
        async with self._transaction() as db:
            row = await (await db.execute(_FENCE, (self.job.job_id, self._epoch))).fetchone()
            if row is None:
                raise self._lost()
            yield db

    def _check(self, row_count: int) -> None:
        if not row_count:
            raise self._lost()

    def _lost(self) -> ClaimLost:
        return ClaimLost(self.job.job_id)


async def lock_datasource(db: Connection, name: str) -> None:
    """Lets one transaction at a time add jobs of a datasource or remove it, until its end."""
    await db.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"caipe_kb {name}",))


async def stop_jobs(db: Connection, datasource: str) -> None:
    """Stops the jobs of a datasource, whoever works on them."""
    await db.execute(
        "UPDATE jobs SET state = 'stopped', ended = clock_timestamp(), holder = '', epoch = epoch + 1 "
        "WHERE datasource = %s AND ended IS NULL",
        (datasource,),
    )
    await _drop_old_jobs(db, datasource)


async def add_job(db: Connection, datasource: str, *, again: bool) -> IngestJob:
    """Adds a job as `JobStore.add` does; the datasource is locked."""
    rows = await db.execute(
        "SELECT * FROM jobs WHERE datasource = %s AND ended IS NULL AND (state = 'waiting' OR NOT %s) "
        "ORDER BY number LIMIT 1",
        (datasource, again),
    )
    row = await rows.fetchone()
    if row is None:
        rows = await db.execute(
            "INSERT INTO jobs(job_id, datasource, state, done, skipped, removed, failed, problem, created) "
            "VALUES (%s, %s, 'waiting', 0, 0, 0, '[]', '', clock_timestamp()) RETURNING *",
            (uuid.uuid4().hex[:12], datasource),
        )
        row = await rows.fetchone()
        assert row is not None, "an insert gives its row"
    return _read_job(row)


async def _drop_old_jobs(db: Connection, datasource: str) -> None:
    await db.execute(
        "DELETE FROM jobs WHERE ended IS NOT NULL AND datasource = %s AND number <= ("
        "SELECT number FROM jobs WHERE ended IS NOT NULL AND datasource = %s "
        "ORDER BY number DESC LIMIT 1 OFFSET %s)",
        (datasource, datasource, ENDED_JOBS_KEPT),
    )
    await db.execute(
        "DELETE FROM jobs WHERE ended IS NOT NULL AND number <= ("
        "SELECT number FROM jobs WHERE ended IS NOT NULL ORDER BY number DESC LIMIT 1 OFFSET %s)",
        (ALL_ENDED_JOBS_KEPT,),
    )


def _read_job(row: Mapping[str, Any]) -> IngestJob:
    return IngestJob(
        job_id=row["job_id"],
        datasource=row["datasource"],
        state=row["state"],
        total=row["total"],
        done=row["done"],
        skipped=row["skipped"],
        removed=row["removed"],
        failed=tuple((address, reason) for address, reason in row["failed"]),
        cut=tuple((address, missing) for address, missing in row["cut"]),
        problem=row["problem"],
        created=row["created"],
        ended=row["ended"],
    )
