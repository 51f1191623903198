"""Ingest jobs: they bring the documents of datasources into the store. What a process leaves unfinished, the
next one finishes."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime

from ai_platform_engineering.core.errors import CaipeError, SourceUnavailable
from ai_platform_engineering.knowledge_bases.access import OPERATOR
from ai_platform_engineering.knowledge_bases.indexing.ingest_pass import CommitInterval, IngestPass
from ai_platform_engineering.knowledge_bases.reading.document_readers import DocumentReaders
from ai_platform_engineering.knowledge_bases.results import KnowledgeNotFound
from ai_platform_engineering.knowledge_bases.sources.source_items import DocumentSource
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    Datasource,
    IngestJob,
    KnowledgeStore,
)

log = logging.getLogger(__name__)

ENDED_STATES = ("done", "failed", "stopped")
_MAX_ENDED_JOBS = 100  # in memory; the store has them all


class IngestRunner:
    """Runs ingest jobs one after another. `create_source` gives a datasource's source, `readers` read its
    documents, `on_commit` is called after every commit."""

    def __init__(
        self,
        store: KnowledgeStore,
        create_source: Callable[[Datasource], DocumentSource],
        readers: DocumentReaders,
        *,
        on_commit: Callable[[], None] = lambda: None,
        commit_interval: CommitInterval | None = None,
    ) -> None:
        self._store = store
        self._create_source = create_source
        self._readers = readers
        self._on_commit = on_commit
        self._commit_interval = commit_interval or CommitInterval()
        self._jobs: dict[str, IngestJob] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._start_lock = asyncio.Lock()
        self._run_lock = asyncio.Lock()  # one job runs at a time
        self._changed = asyncio.Event()

    async def resume(self) -> None:
        """Restarts unfinished jobs, the oldest first. Documents that were stored are skipped by their change
        marks."""
        for job in reversed(await self._store.list_jobs(unfinished=True)):
            self._begin(
                replace(job, state="waiting", total=None, done=0, skipped=0, removed=0, failed=(), cut=())
            )

    async def start(self, datasource: str, *, again: bool = False) -> IngestJob:
        """A new job for a datasource, or the one that waits or runs already. `again`: one that runs may have
        passed what has changed, so that only a waiting one counts."""
        async with self._start_lock:
            job = self._find_active(datasource, waiting=again)
            if job is not None:
                return job
            job = IngestJob(uuid.uuid4().hex[:12], datasource, "waiting", created=datetime.now(UTC))
            await self._store.put_job(job)
            self._begin(job)
            return job

    async def stop(self, job_id: str) -> IngestJob:
        """Stops a job; documents that it stored stay. Raises KnowledgeNotFound."""
        task = self._tasks.get(job_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        job = await self.find_job(job_id)
        if job.state not in ENDED_STATES:
            await self._end(replace(job, state="stopped"))
        return await self.find_job(job_id)

    async def stop_all(self, datasource: str) -> None:
        while (job := self._find_active(datasource)) is not None:
            await self.stop(job.job_id)

    async def find_job(self, job_id: str) -> IngestJob:
        """Raises KnowledgeNotFound."""
        if job_id in self._jobs:
            return self._jobs[job_id]
        for job in await self._store.list_jobs():
            if job.job_id == job_id:
                return job
        raise KnowledgeNotFound(f"There is no job {job_id}.")

    async def list_jobs(self) -> list[IngestJob]:
        """All jobs, newest first."""
        return [self._jobs.get(job.job_id, job) for job in await self._store.list_jobs()]

    async def follow(self, job_id: str) -> AsyncIterator[IngestJob]:
        """Yields the job whenever it has changed, until its end. Raises KnowledgeNotFound."""
        while True:
            changed = self._changed
            job = await self.find_job(job_id)
            yield job
            if job.state in ENDED_STATES or job_id not in self._tasks:
                return
            await changed.wait()

    async def aclose(self) -> None:
        """Cancels running jobs without ending them: the next process goes on with them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _find_active(self, datasource: str, *, waiting: bool = False) -> IngestJob | None:
        """The job of a datasource that waits or runs, or one that waits."""
        for job_id in self._tasks:
            job = self._jobs[job_id]
            if job.datasource == datasource and (job.state == "waiting" or not waiting):
                return job
        return None

    def _begin(self, job: IngestJob) -> None:
        ended_ids = [job_id for job_id in self._jobs if job_id not in self._tasks]
        for job_id in ended_ids[:-_MAX_ENDED_JOBS]:
            del self._jobs[job_id]
        self._jobs[job.job_id] = job
        task = asyncio.create_task(self._run(job), name=f"ingest of {job.datasource}")
        self._tasks[job.job_id] = task
        task.add_done_callback(lambda _: self._update(self._jobs[job.job_id]))

    def _update(self, job: IngestJob) -> None:
        """Replaces a job by its new state and wakes those who follow jobs."""
        self._jobs[job.job_id] = job
        task = self._tasks.get(job.job_id)
        if task is not None and task.done():
            del self._tasks[job.job_id]
        self._changed.set()
        self._changed = asyncio.Event()

    async def _run(self, job: IngestJob) -> None:
        try:
            async with self._run_lock:
                self._update(replace(job, state="running"))
                await self._run_pass(job.job_id)
            ended = replace(self._jobs[job.job_id], state="done")
        except CaipeError as error:
            ended = replace(self._jobs[job.job_id], state="failed", problem=str(error))
        # A source or a store that fails in a way nobody thought of must not leave the job hanging.
        except Exception as error:  # noqa: BLE001
            # Imported late: it brings the graph's libraries.
            from ai_platform_engineering.core.tracebacks import format_traceback

            log.error("the ingest of %s failed: %s", job.datasource, format_traceback(error))
            ended = replace(
                self._jobs[job.job_id],
                state="failed",
                problem=f"Something went wrong on our side ({type(error).__name__}).",
            )
        if ended.state == "failed" and not _brought_documents(ended):
            await self._remove_empty(ended.datasource)
        await self._end(ended)

    async def _remove_empty(self, name: str) -> None:
        """Removes a datasource whose first pass failed: there is nothing to keep, and its location may be
        mistyped."""
        for datasource in await self._store.list_datasources(OPERATOR):
            if datasource.name == name and datasource.refreshed is None and not datasource.documents:
                await self._store.remove_datasource(name)

    async def _run_pass(self, job_id: str) -> None:
        name = self._jobs[job_id].datasource
        begun = await self._find_datasource(name)
        source = self._create_source(begun)
        ingest_pass = IngestPass(
            self._store,
            name,
            readers=self._readers,
            commit_interval=self._commit_interval,
            get_job=lambda: self._jobs[job_id],
            update_job=self._update,
            on_commit=self._on_commit,
        )
        await ingest_pass.run(source, begun.cursor)
        if not begun.cursor:  # a pass over changes alone may have nothing but one that cannot be read
            _check_pass(self._jobs[job_id])
        datasource = await self._find_datasource(name)
        cursor = datasource.cursor
        if (datasource.options, cursor) == (begun.options, begun.cursor):  # else somebody wants all of it
            cursor = source.next_cursor
        await self._store.put_datasource(replace(datasource, refreshed=datetime.now(UTC), cursor=cursor))

    async def _find_datasource(self, name: str) -> Datasource:
        for datasource in await self._store.list_datasources(OPERATOR):
            if datasource.name == name:
                return datasource
        raise KnowledgeNotFound(f"There is no datasource {name}.")

    async def _end(self, job: IngestJob) -> None:
        job = replace(job, ended=datetime.now(UTC))
        await self._store.put_job(job)
        await self._store.commit()
        self._on_commit()
        self._update(job)
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


def _check_pass(job: IngestJob) -> None:
    """Raises SourceUnavailable when there was something at the location, and none of it could be read.

    Documents of earlier passes stay. Those that are gone for good were removed, which is a result, too.
    """
    if job.failed and not job.removed and not _brought_documents(job):
        raise SourceUnavailable("Nothing at this location can be read.")


def _brought_documents(job: IngestJob) -> bool:
    return bool(job.done or job.cut or job.skipped)
