"""One pass over a source: new and changed documents are read, chunked and stored; removed ones are deleted at
its end."""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.knowledge_bases.documents import Document, RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.reading.document_readers import DocumentReaders
from ai_platform_engineering.knowledge_bases.reading.read_documents import ReadDocument
from ai_platform_engineering.knowledge_bases.results import compute_document_id
from ai_platform_engineering.knowledge_bases.sources.source_items import (
    ChangedItem,
    DocumentSource,
    GroupMembers,
    RemovedItem,
    SkippedItem,
    SourceItem,
    UnchangedItem,
)
from ai_platform_engineering.knowledge_bases.stores.job_store import ClaimedJob, IngestJob
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import DocumentVersion, KnowledgeStore

READER_VERSION = "2"  # counts up when documents are read or chunked in another way: all are read again then
_QUEUE_SIZE = 4  # documents in memory
_MAX_FAILURES = 100  # that a job lists, and as many documents that were cut
_LARGE_BYTES = 1_000_000  # whose digest takes milliseconds

_ReadOutcome = Document | str  # or why it cannot be read
_Reading = asyncio.Task[_ReadOutcome]
_QueueEntry = tuple[SourceItem, _Reading | None]


@dataclass(frozen=True, slots=True)
class CommitInterval:
    """A commit after so many documents, or seconds, whichever comes first."""

    documents: int = 200
    seconds: float = 2.0


def compute_digest(raw: RawDocument, *more_facts: str) -> str:
    """Of the content, and of what the source says of the document beside it: a page may be renamed or moved,
    or be for other people."""
    digest = hashlib.sha256(raw.content)
    if raw.title or raw.headings or raw.metadata or raw.visible_to is not None or more_facts:
        metadata = sorted(raw.metadata.items())
        facts = [raw.title, raw.headings, raw.link, metadata, raw.visible_to, more_facts]
        digest.update(b"\0" + json.dumps(facts).encode())
    return f"{READER_VERSION}-{digest.hexdigest()}"


def build_document(raw: RawDocument, datasource: str, digest: str, content: ReadDocument) -> Document:
    return Document(
        document_id=compute_document_id(datasource, raw.address),
        datasource=datasource,
        title=raw.title or content.title,
        address=raw.address,
        text=content.text,
        digest=digest,
        link=raw.link,
        kind=content.kind,
        changed=raw.changed,
        chunks=content.chunks,
        missing=content.missing,
        metadata=raw.metadata,
        visible_to=raw.visible_to,
    )


def check_pass(job: IngestJob) -> None:
    """Raises SourceUnavailable when there was something at the location, and none of it could be read.

    Documents of earlier passes stay. Those that are gone for good were removed, which is a result, too.
    """
    if job.failed and not job.removed and not job.brought_documents:
        raise SourceUnavailable("Nothing at this location can be read.")


class IngestPass:
    """One pass over a source, for a claimed job. `get_job` returns the job's current state, `update_job`
    replaces it.

    Two tasks work at the same time: one lists the source and starts to read its documents, the other stores
    them in the same order."""

    def __init__(
        self,
        store: KnowledgeStore,
        claim: ClaimedJob,
        *,
        readers: DocumentReaders,
        commit_interval: CommitInterval,
        get_job: Callable[[], IngestJob],
        update_job: Callable[[IngestJob], None],
        on_commit: Callable[[], None],
    ) -> None:
        self._store = store
        self._claim = claim
        self._datasource = claim.job.datasource
        self._readers = readers
        self._commit_interval = commit_interval
        self._get_job = get_job
        self._update_job = update_job
        self._on_commit = on_commit
        self._readings: set[_Reading] = set()
        self._versions: Mapping[str, DocumentVersion] = {}
        self._removed_ids: list[str] = []
        self._uncommitted = 0
        self._commit_due = 0.0
        self._committing: asyncio.Task[None] | None = None

    async def run(self, source: DocumentSource, cursor: str = "") -> None:
        """Runs to the end; the last commit is the caller's, with the source's new cursor. Raises
        SourceUnavailable: documents stored until then stay, and none is deleted. Raises ClaimLost."""
        self._versions = await self._store.list_versions(self._datasource)
        known_marks = self._known_marks()
        if not all(known_marks.values()):  # the source must list what is to be read again
            cursor = ""
        self._update_job(replace(self._get_job(), total=await source.count()))
        queue: asyncio.Queue[_QueueEntry | None] = asyncio.Queue(_QUEUE_SIZE)
        listing = asyncio.create_task(self._list_source(source.items(known_marks, cursor), queue))
        try:
            await self._store_items(queue)
            await listing
            await self._delete_removed()
            await self._wait_for_commit()
        finally:
            tasks = [listing, *self._readings]
            if self._committing is not None:
                tasks.append(self._committing)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _list_source(
        self, listing: AsyncGenerator[SourceItem, None], queue: asyncio.Queue[_QueueEntry | None]
    ) -> None:
        """Puts the items of the source into the queue, each with the future of its document; None is the
        end."""
        try:
            async with aclosing(listing) as items:
                async for item in items:
                    reading = None
                    if isinstance(item, ChangedItem):
                        reading = await self._begin_reading(item)
                    await queue.put((item, reading))
        except Exception:
            await queue.put(None)  # not on cancellation: nobody reads the queue any more
            raise
        await queue.put(None)

    def _known_marks(self) -> dict[str, str]:
        """The source's mark of each stored document; empty for one that an older reader read, so that it is
        read again."""
        marks: dict[str, str] = {}
        for address, version in self._versions.items():
            marks[address] = ""
            if version.digest.startswith(f"{READER_VERSION}-"):
                marks[address] = version.mark
        return marks

    async def _begin_reading(self, item: ChangedItem) -> _Reading | None:
        """Starts to read a document; None when what is stored is of the same content."""
        if len(item.raw.content) > _LARGE_BYTES:
            digest = await asyncio.to_thread(compute_digest, item.raw)
        else:
            digest = compute_digest(item.raw)
        version = self._versions.get(item.address)
        if version is not None and version.digest == digest:
            return None
        reading = asyncio.create_task(self._read_document(item.raw, digest))
        self._readings.add(reading)
        reading.add_done_callback(self._readings.discard)
        return reading

    async def _read_document(self, raw: RawDocument, digest: str) -> _ReadOutcome:
        try:
            content = await self._readers.read(raw)
        except UnreadableDocument as error:
            return str(error)
        return build_document(raw, self._datasource, digest, content)

    async def _store_items(self, queue: asyncio.Queue[_QueueEntry | None]) -> None:
        while True:
            deadline = None
            if self._uncommitted:
                deadline = self._commit_due
            try:
                async with asyncio.timeout_at(deadline):
                    entry = await queue.get()
            except TimeoutError:  # the source is slow: what is stored can be found already
                await self._begin_commit()
                continue
            if entry is None:
                return
            await self._store_item(*entry)
            if self._uncommitted >= self._commit_interval.documents:
                await self._begin_commit()

    async def _store_item(self, item: SourceItem, reading: _Reading | None) -> None:
        match item:
            case ChangedItem() if reading is not None:
                await self._store_document(item, await reading)
            case ChangedItem() | UnchangedItem():
                await self._update_mark(item.address, item.mark)
                job = self._get_job()
                self._update_job(replace(job, skipped=job.skipped + 1))
            case SkippedItem():
                self._add_failure(item.address, item.reason)
            case RemovedItem():
                version = self._versions.get(item.address)
                if version is not None:
                    self._removed_ids.append(version.document_id)
            case GroupMembers():
                await self._claim.put_group(item.name, item.members)

    async def _store_document(self, item: ChangedItem, outcome: _ReadOutcome) -> None:
        if isinstance(outcome, str):
            self._add_failure(item.address, outcome)
            return
        await self._claim.put_document(outcome, item.mark)
        self._count_write()
        job = self._get_job()
        if not outcome.missing:
            job = replace(job, done=job.done + 1)
        elif len(job.cut) < _MAX_FAILURES:
            job = replace(job, cut=(*job.cut, (item.address, outcome.missing)))
        self._update_job(job)

    async def _update_mark(self, address: str, mark: str) -> None:
        version = self._versions.get(address)
        if version is not None and version.mark != mark:
            await self._claim.update_mark(version.document_id, mark)
            self._count_write()

    def _add_failure(self, address: str, reason: str) -> None:
        job = self._get_job()
        if len(job.failed) < _MAX_FAILURES:
            job = replace(job, failed=(*job.failed, (address, reason)))
        self._update_job(job)

    async def _delete_removed(self) -> None:
        if self._removed_ids:
            await self._claim.delete_documents(self._removed_ids)
            self._count_write()
        self._update_job(replace(self._get_job(), removed=len(self._removed_ids)))

    def _count_write(self) -> None:
        if not self._uncommitted:
            self._commit_due = asyncio.get_running_loop().time() + self._commit_interval.seconds
        self._uncommitted += 1

    async def _begin_commit(self) -> None:
        """Begins to commit the documents and the progress of the job; more are read and stored meanwhile."""
        self._uncommitted = 0
        await self._wait_for_commit()
        self._committing = asyncio.create_task(self._commit())

    async def _wait_for_commit(self) -> None:
        if self._committing is not None:
            await self._committing

    async def _commit(self) -> None:
        await self._claim.renew(self._get_job())
        await self._store.commit()
        self._on_commit()
