"""Ingest jobs: they bring the documents of datasources into the store. What a process leaves unfinished,
another one finishes."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from ai_platform_engineering.core.errors import CaipeError, SourceUnavailable
from ai_platform_engineering.core.task_cancellation import cancel_and_wait
from ai_platform_engineering.databases.sql_connections import StorageFailed
from ai_platform_engineering.knowledge_bases.access import OPERATOR
from ai_platform_engineering.knowledge_bases.indexing.ingest_pass import (
    CommitInterval,
    IngestPass,
    check_pass,
)
from ai_platform_engineering.knowledge_bases.reading.document_readers import DocumentReaders
from ai_platform_engineering.knowledge_bases.results import KnowledgeNotFound
from ai_platform_engineering.knowledge_bases.sources.source_items import DocumentSource
from ai_platform_engineering.knowledge_bases.stores.job_store import (
    ClaimedJob,
    ClaimLost,
    IngestJob,
    StoreUnavailable,
)
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Datasource, KnowledgeStore
from ai_platform_engineering.knowledge_bases.workers.worker_errors import WorkerFailed
from ai_platform_engineering.net.url_policy import FetchRefused

log = logging.getLogger(__name__)

ENDED_STATES = ("done", "failed", "stopped")
MAX_ATTEMPTS = 5  # of processes that died or lost the database, one after the other without storing anything
_NO_PROGRESS = (
    f"It was begun {MAX_ATTEMPTS} times, and each time its server ended or lost the database before anything "
    "was stored. Look at the servers' memory limits and logs, then refresh the datasource."
)
_NOBODY_CAN_READ = (
    "No server that runs can read {location}. Start the one that has it, or make it available to all of "
    "them, then refresh the datasource."
)


@dataclass(frozen=True, slots=True)
class JobTiming:
    """Seconds: of a lease, between two renewals, between two looks for jobs and for their progress, and until
    a job is failed that no process can do."""

    lease: float = 15.0
    renew: float = 5.0
    look: float = 5.0
    follow: float = 1.0
    give_up: float = 300.0


@dataclass(slots=True)
class _RunningJob:
    """The job that this process works on, and how far it is."""

    claim: ClaimedJob
    job: IngestJob
    task: "asyncio.Task[None] | None" = None
    is_left: bool = False  # to whoever looks when the lease has ended


class IngestRunner:
    """Runs ingest jobs one after another, of those that nobody else works on.

    `create_source` gives a datasource's source, `can_read` says whether this process has what it reads (it
    blocks), `readers` read its documents, `on_commit` is called after every commit."""

    def __init__(
        self,
        store: KnowledgeStore,
        create_source: Callable[[Datasource], DocumentSource],
        readers: DocumentReaders,
        *,
        can_read: Callable[[Datasource], bool] = lambda _: True,
        on_commit: Callable[[], None] = lambda: None,
        commit_interval: CommitInterval | None = None,
        timing: JobTiming | None = None,
    ) -> None:
        self._store = store
        self._create_source = create_source
        self._can_read = can_read
        self._readers = readers
        self._on_commit = on_commit
        self._commit_interval = commit_interval or CommitInterval()
        self._timing = timing or JobTiming()
        self._holder = uuid.uuid4().hex
        self._takes_all = False
        self._own_ids: set[str] = set()  # jobs asked for here, while it does not take all
        self._running: _RunningJob | None = None
        self._worker: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._closed = False

    def resume(self) -> None:
        """Takes all jobs that nobody works on from now on, the oldest first. Documents that were stored are
        skipped by their change marks."""
        self._takes_all = True
        self._wake_worker()

    async def start(self, datasource: str, *, again: bool = False) -> IngestJob:
        """A new job for a datasource, or the one that waits or runs already. `again`: one that runs may have
        passed what has changed, so that only a waiting one counts."""
        job = await self._store.jobs.add(datasource, again=again)
        self.take(job)
        return self._with_progress(job)

    def take(self, job: IngestJob) -> None:
        """Looks at once whether this process can do a job."""
        if not self._takes_all:
            self._own_ids.add(job.job_id)
        self._wake_worker()

    async def stop(self, job_id: str) -> IngestJob:
        """Stops a job, whichever process works on it; documents that it stored stay. Raises
        KnowledgeNotFound."""
        running = self._running
        if running is not None and running.job.job_id == job_id and running.task is not None:
            await cancel_and_wait(running.task)
            with suppress(ClaimLost):
                await running.claim.renew(running.job)
        job = await self._store.jobs.stop(job_id)
        if job is None:
            raise KnowledgeNotFound(f"There is no job {job_id}.")
        await self._commit()
        self._note_change()
        self._wake.set()  # another job of the datasource may wait for this one
        return job

    async def stop_all(self, datasource: str) -> None:
        for job in await self._store.jobs.list(unfinished=True):
            if job.datasource == datasource:
                await self.stop(job.job_id)

    async def find_job(self, job_id: str) -> IngestJob:
        """Raises KnowledgeNotFound."""
        job = await self._store.jobs.find(job_id)
        if job is None:
            raise KnowledgeNotFound(f"There is no job {job_id}.")
        return self._with_progress(job)

    async def list_jobs(self) -> list[IngestJob]:
        """All jobs, newest first."""
        return [self._with_progress(job) for job in await self._store.jobs.list()]

    async def follow(self, job_id: str) -> AsyncIterator[IngestJob]:
        """Yields the job whenever it has changed, until its end. Raises KnowledgeNotFound."""
        last_yielded: IngestJob | None = None
        while True:
            changed = self._changed
            running = self._running
            if running is not None and running.job.job_id == job_id:
                job = running.job
            else:
                job = await self.find_job(job_id)
            if job != last_yielded:
                yield job
            last_yielded = job
            if job.state in ENDED_STATES or self._closed:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timing.follow):
                    await changed.wait()

    async def aclose(self) -> None:
        """Stops to work, and gives up its job: the next process goes on with it."""
        self._closed = True
        if self._worker is not None:
            await cancel_and_wait(self._worker)
        self._note_change()

    # --- inside

    def _with_progress(self, job: IngestJob) -> IngestJob:
        """The job with the progress that is not stored yet, if it runs here."""
        running = self._running
        if running is None or running.job.job_id != job.job_id or job.ended is not None:
            return job
        return running.job

    def _note_change(self) -> None:
        """Wakes those who follow jobs."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _wake_worker(self) -> None:
        if self._worker is None and not self._closed:
            self._worker = asyncio.create_task(self._work(), name="ingest jobs")
        self._wake.set()

    async def _work(self) -> None:
        looks_again = self._store.is_shared
        while True:
            self._wake.clear()
            try:
                claim = await self._claim_next()
                if claim is not None:
                    is_left = await self._run(claim)
                    looks_again = looks_again or is_left
                    continue
            # A database that is away may be back later, and whatever else fails must not end all other jobs.
            except Exception as error:  # noqa: BLE001
                log.warning("ingest jobs could not be looked at: %s", type(error).__name__)
                looks_again = True
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timing.look if looks_again else None):
                    await self._wake.wait()

    async def _claim_next(self) -> ClaimedJob | None:
        for job in await self._store.jobs.list_claimable():
            if not self._takes_all and job.job_id not in self._own_ids:
                continue
            if self._store.is_shared and not await self._can_do(job):
                continue
            claim = await self._store.jobs.claim(job.job_id, self._holder, self._timing.lease)
            if claim is not None:
                return claim
        return None

    async def _can_do(self, job: IngestJob) -> bool:
        """Whether this process has what the job reads, which may be a folder of another machine."""
        try:
            datasource = await self._find_datasource(job.datasource)
            if await asyncio.to_thread(self._can_read, datasource):
                return True
        except (KnowledgeNotFound, SourceUnavailable, FetchRefused):
            return True  # the job ends, and says so
        problem = _NOBODY_CAN_READ.format(location=datasource.location)
        if await self._store.jobs.give_up(job.job_id, problem, self._timing.give_up):
            log.warning("the ingest of %s was given up: no server can read it", job.datasource)
        return False

    async def _run(self, claim: ClaimedJob) -> bool:
        """Works on a job until its end, or until the claim is lost; gives it up when this is cancelled.

        True when it is left to whoever looks once its lease has ended."""
        running = _RunningJob(claim, claim.job)
        running.task = asyncio.create_task(
            self._run_to_end(running), name=f"ingest of {claim.job.datasource}"
        )
        renewal = asyncio.create_task(self._renew(running, running.task), name="lease of an ingest job")
        self._running = running
        self._note_change()
        try:
            await asyncio.wait([running.task])
        except asyncio.CancelledError:
            await cancel_and_wait(running.task)
            with suppress(ClaimLost, StorageFailed):
                await claim.release()
            raise
        finally:
            await cancel_and_wait(renewal)
            self._running = None
            self._note_change()
        if not running.is_left:
            self._own_ids.discard(claim.job.job_id)
        return running.is_left

    async def _renew(self, running: _RunningJob, task: "asyncio.Task[None]") -> None:
        while True:
            await asyncio.sleep(self._timing.renew)
            try:
                await running.claim.renew(running.job)
            except ClaimLost:
                log.warning("the ingest of %s is not ours any more", running.job.datasource)
                task.cancel()
                return
            except StorageFailed as error:  # the lease may end meanwhile, and then somebody else goes on
                log.warning("the lease of an ingest job could not be renewed: %s", error)

    async def _run_to_end(self, running: _RunningJob) -> None:
        try:
            await self._end(running, await self._run_to_outcome(running))
        except ClaimLost:
            log.warning("the ingest of %s is not ours any more", running.job.datasource)
        except StorageFailed as error:
            log.warning(
                "the ingest of %s goes on when its lease has ended: %s", running.job.datasource, error
            )

    async def _run_to_outcome(self, running: _RunningJob) -> IngestJob:
        """The job with the state that it ends in. Raises ClaimLost, and StoreUnavailable: somebody goes on
        then."""
        try:
            if running.claim.attempts > MAX_ATTEMPTS:
                raise SourceUnavailable(_NO_PROGRESS)
            await self._run_pass(running)
            return replace(running.job, state="done")
        except (ClaimLost, StoreUnavailable):
            raise
        except CaipeError as error:
            return replace(running.job, state="failed", problem=str(error))
        # A source or a store that fails in a way nobody thought of must not leave the job hanging.
        except Exception as error:  # noqa: BLE001
            # Imported late: it brings the graph's libraries.
            from ai_platform_engineering.core.tracebacks import format_traceback

            log.error("the ingest of %s failed: %s", running.job.datasource, format_traceback(error))
            problem = f"Something went wrong on our side ({type(error).__name__})."
            return replace(running.job, state="failed", problem=problem)

    async def _run_pass(self, running: _RunningJob) -> None:
        def update(job: IngestJob) -> None:
            running.job = job
            self._note_change()

        datasource = await self._find_datasource(running.job.datasource)
        source = self._create_source(datasource)
        ingest_pass = IngestPass(
            self._store,
            running.claim,
            readers=self._readers,
            commit_interval=self._commit_interval,
            get_job=lambda: running.job,
            update_job=update,
            on_commit=self._on_commit,
        )
        await ingest_pass.run(source, datasource.cursor)
        if not datasource.cursor:  # a pass over changes alone may have nothing but one that cannot be read
            check_pass(running.job)
        await running.claim.note_pass(datasource.options, datasource.cursor, source.next_cursor)

    async def _find_datasource(self, name: str) -> Datasource:
        for datasource in await self._store.list_datasources(OPERATOR):
            if datasource.name == name:
                return datasource
        raise KnowledgeNotFound(f"There is no datasource {name}.")

    async def _end(self, running: _RunningJob, job: IngestJob) -> None:
        """A datasource whose first pass failed is removed: there is nothing to keep, and its location may be
        mistyped."""
        try:
            await self._commit()
        except WorkerFailed as error:  # the rows are stored, and the index takes them in later
            log.warning("the index of the knowledge base lacks some documents for now: %s", error)
        drop_empty = job.state == "failed" and not job.brought_documents
        job = await running.claim.end(job, drop_empty=drop_empty)
        log.info(
            "ingest of %s: %s, %d read, %d cut, %d unchanged, %d removed, %d not readable",
            job.datasource,
            job.state,
            job.done,
            len(job.cut),
            job.skipped,
            job.removed,
            len(job.failed),
        )

    async def _commit(self) -> None:
        await self._store.commit()
        self._on_commit()
