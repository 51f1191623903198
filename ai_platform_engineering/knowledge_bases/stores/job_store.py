"""The interface of stored ingest jobs: one process at a time claims a job, and writes under its claim."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from ai_platform_engineering.databases.sql_connections import StorageFailed
from ai_platform_engineering.knowledge_bases.documents import Document

JobState = Literal["waiting", "running", "done", "failed", "stopped"]

# Jobs that have ended: the latest of each datasource, and of all, with those whose location gave nothing.
ENDED_JOBS_KEPT = 100
ALL_ENDED_JOBS_KEPT = 2_000
CLAIMABLE_LISTED = 100  # jobs that are looked at together


@dataclass(frozen=True, slots=True)
class IngestJob:
    """An ingest job. When its process dies, another one goes on with it."""

    job_id: str
    datasource: str
    state: JobState
    total: int | None = None
    done: int = 0
    skipped: int = 0  # unchanged
    removed: int = 0
    failed: Sequence[tuple[str, str]] = ()  # address and why; the first hundred
    problem: str = ""
    created: datetime | None = None
    ended: datetime | None = None
    cut: Sequence[tuple[str, str]] = ()  # not in `done`: address and what is missing; the first hundred

    @property
    def brought_documents(self) -> bool:
        """Whether there are documents of what it read."""
        return bool(self.done or self.cut or self.skipped)

    @property
    def has_stored(self) -> bool:
        """Whether it has changed what is stored."""
        return bool(self.done or self.cut or self.removed)


class ClaimLost(Exception):
    """Another process works on the job, or somebody stopped it: nothing was written."""


class StoreUnavailable(StorageFailed):
    """The database is away, or ended the transaction: the same may succeed later."""


class ClaimedJob(Protocol):
    """A job that this process works on, with a lease, and what it writes for it.

    Every method raises ClaimLost, and writes nothing, when the job is not this process's any more."""

    @property
    def job(self) -> IngestJob:
        """As it was claimed, with nothing done yet."""
        ...

    @property
    def attempts(self) -> int:
        """How often it was claimed since it last stored something."""
        ...

    async def put_document(self, document: Document, mark: str = "") -> None:
        """Adds a document, or replaces the one with its id; chunks that stay the same keep their vectors."""
        ...

    async def update_mark(self, document_id: str, mark: str) -> None:
        """Replaces the source's change mark of a document that has not changed."""
        ...

    async def delete_documents(self, document_ids: Collection[str]) -> None: ...

    async def put_group(self, name: str, members: Collection[str]) -> None:
        """Adds a group of people, or replaces its members."""
        ...

    async def note_pass(self, options: Mapping[str, str], cursor: str, next_cursor: str) -> None:
        """Notes that the datasource was refreshed. Its source goes on at `next_cursor`, unless somebody has
        changed the options or the cursor with which the pass began."""
        ...

    async def renew(self, job: IngestJob) -> None:
        """Stores the progress, and renews the lease."""
        ...

    async def release(self) -> None:
        """Gives the job up: the next process that looks goes on with it."""
        ...

    async def end(self, job: IngestJob, *, drop_empty: bool = False) -> IngestJob:
        """Ends the job, and drops the oldest ended ones; returns it. `drop_empty`: also the datasource, if it
        was never refreshed, has no documents and no other job."""
        ...


class JobStore(Protocol):
    """Ingest jobs. Leases are by the clock of the database."""

    async def add(self, datasource: str, *, again: bool = False) -> IngestJob:
        """A new job for a datasource, or the one that waits or runs already. `again`: one that runs may have
        passed what has changed, so that only a waiting one counts."""
        ...

    async def claim_refresh(self, name: str, due: datetime, next_due: datetime) -> IngestJob | None:
        """Moves the next refresh of a datasource from `due`, and adds its job; None when another process has
        done it."""
        ...

    async def list(self, *, unfinished: bool = False) -> Sequence[IngestJob]:
        """Jobs, newest first."""
        ...

    async def find(self, job_id: str) -> IngestJob | None: ...

    async def list_claimable(self) -> Sequence[IngestJob]:
        """Jobs that nobody works on, oldest first; of each datasource the oldest that has not ended."""
        ...

    async def claim(self, job_id: str, holder: str, seconds: float) -> ClaimedJob | None:
        """Makes this process the holder of a job, with a lease; None when another one was faster."""
        ...

    async def stop(self, job_id: str) -> IngestJob | None:
        """Ends a job, whoever works on it, and returns it; one that has ended stays as it is. None when there
        is none."""
        ...

    async def give_up(self, job_id: str, problem: str, seconds: float) -> bool:
        """Fails a job that nobody has taken for so long, although nobody worked on another one; whether it
        was so."""
        ...


def progress_columns(job: IngestJob) -> dict[str, Any]:
    """What a job has done so far, by the columns in which both databases store it."""
    return {
        "total": job.total,
        "done": job.done,
        "skipped": job.skipped,
        "removed": job.removed,
        "failed": json.dumps(list(job.failed)),
        "cut": json.dumps(list(job.cut)),
    }
