"""Jobs that bring the documents of datasources into the store. What a process leaves unfinished, the next one finishes."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.knowledge_bases.indexing.ingest_pass import CommitInterval, IngestPass
from ai_platform_engineering.knowledge_bases.results import KnowledgeNotFound
from ai_platform_engineering.knowledge_bases.sources.source_items import DocumentSource
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    Datasource,
    IngestJob,
    KnowledgeStore,
)

log = logging.getLogger(__name__)

ENDED_STATES = ("done", "failed", "stopped")
_READERS = 2
_JOBS_KEPT = 100  # in memory, after their end


class IngestRunner:
    """Runs jobs one after another. `source_of` opens a datasource's source, `committed` is told of every commit."""

    def __init__(
        self,
        store: KnowledgeStore,
        create_source: Callable[[Datasource], DocumentSource],
        *,
        on_commit: Callable[[], None] = lambda: None,
        commit_interval: CommitInterval | None = None,
    ) -> None:
        self._store = store
        self._source_of = create_source
        self._committed = on_commit
        self._pace = commit_interval or CommitInterval()
        self._jobs: dict[str, IngestJob] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._starting, self._turn = asyncio.Lock(), asyncio.Lock()
        self._changed = asyncio.Event()
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="reader of documents")

    async def resume(self) -> None:
        """Goes on with what was left unfinished, the oldest first. Marks make it cheap to come by what was done."""
        for job in reversed(await self._store.list_jobs(unfinished=True)):
            self._begin(replace(job, state="waiting", total=None, done=0, skipped=0, removed=0, failed=()))

    async def start(self, datasource: str) -> IngestJob:
        """A new job for a datasource; the one that waits for its turn or runs, where there is one."""
        async with self._starting:
            if (job := self._of(datasource)) is not None:
                return job
            job = IngestJob(uuid.uuid4().hex[:12], datasource, "waiting", created=datetime.now(UTC))
            await self._store.put_job(job)
            self._begin(job)
            return job

    async def stop(self, job_id: str) -> IngestJob:
        """What it has brought in stays. Raises NotThere."""
        if (task := self._tasks.get(job_id)) is not None:
            task.cancel()
            await asyncio.wait([task])
        job = await self.find_job(job_id)
        if job.state not in ENDED_STATES:
            await self._end(replace(job, state="stopped"))
        return await self.find_job(job_id)

    async def stop_all(self, datasource: str) -> None:
        while (job := self._of(datasource)) is not None:
            await self.stop(job.job_id)

    async def find_job(self, job_id: str) -> IngestJob:
        """Raises NotThere."""
        if (job := self._jobs.get(job_id)) is not None:
            return job
        found = next((one for one in await self._store.list_jobs() if one.job_id == job_id), None)
        if found is None:
            raise KnowledgeNotFound(f"There is no job {job_id}.")
        return found

    async def list_jobs(self) -> list[IngestJob]:
        """Newest first."""
        return [self._jobs.get(job.job_id, job) for job in await self._store.list_jobs()]

    async def follow(self, job_id: str) -> AsyncIterator[IngestJob]:
        """The job whenever it has changed, until its end. Raises NotThere."""
        while True:
            changed = self._changed
            job = await self.find_job(job_id)
            yield job
            if job.state in ENDED_STATES or job_id not in self._tasks:
                return
            await changed.wait()

    async def aclose(self) -> None:
        """Leaves jobs where they are: the next process goes on with them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _of(self, datasource: str) -> IngestJob | None:
        return next(
            (job for job_id in self._tasks if (job := self._jobs[job_id]).datasource == datasource), None
        )

    def _begin(self, job: IngestJob) -> None:
        for ended in [job_id for job_id in self._jobs if job_id not in self._tasks][:-_JOBS_KEPT]:
            del self._jobs[ended]
        self._jobs[job.job_id] = job
        task = asyncio.create_task(self._run(job), name=f"ingest of {job.datasource}")
        self._tasks[job.job_id] = task
        task.add_done_callback(lambda _: self._tell(self._jobs[job.job_id]))

    def _tell(self, job: IngestJob) -> None:
        self._jobs[job.job_id] = job
        if self._tasks.get(job.job_id) is not None and self._tasks[job.job_id].done():
            del self._tasks[job.job_id]
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _run(self, job: IngestJob) -> None:
        try:
            async with self._turn:
                self._tell(replace(job, state="running"))
                await self._passed(job.job_id)
            ended = replace(self._jobs[job.job_id], state="done")
        except CaipeError as error:
            ended = replace(self._jobs[job.job_id], state="failed", problem=str(error))
        except Exception as error:  # noqa: BLE001 - a source or a store that fails in a way nobody thought of must not leave the job hanging
            from ai_platform_engineering.core.tracebacks import (
                format_traceback,  # imported late: it brings the graph's libraries
            )

            log.error("the ingest of %s failed: %s", job.datasource, format_traceback(error))
            ended = replace(
                self._jobs[job.job_id],
                state="failed",
                problem=f"Something went wrong on our side ({type(error).__name__}).",
            )
        await self._end(ended)

    async def _passed(self, job_id: str) -> None:
        """One pass over the source."""
        name = self._jobs[job_id].datasource
        source = self._source_of(await self._datasource(name))
        passing = IngestPass(
            self._store, name, self._pool, self._pace, lambda: self._jobs[job_id], self._tell, self._committed
        )
        await passing.run(source)
        await self._store.put_datasource(replace(await self._datasource(name), refreshed=datetime.now(UTC)))

    async def _datasource(self, name: str) -> Datasource:
        found = next((one for one in await self._store.list_datasources() if one.name == name), None)
        if found is None:
            raise KnowledgeNotFound(f"There is no datasource {name}.")
        return found

    async def _end(self, job: IngestJob) -> None:
        job = replace(job, ended=datetime.now(UTC))
        await self._store.put_job(job)
        await self._store.commit()
        self._committed()
        self._tell(job)
        log.info("ingest of %s: %s, %d read, %d unchanged, %d removed, %d not readable", *_figures(job))


def _figures(job: IngestJob) -> tuple[str, str, int, int, int, int]:
    return job.datasource, job.state, job.done, job.skipped, job.removed, len(job.failed)
