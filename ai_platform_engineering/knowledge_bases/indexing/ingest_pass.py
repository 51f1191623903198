"""One pass over a source: what is new or has changed is read, cut and stored; what is gone leaves when the pass is complete."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass, replace

from ai_platform_engineering.knowledge_bases.documents import Document, RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.indexing.chunking import chunk_document
from ai_platform_engineering.knowledge_bases.reading.document_reader import read_document
from ai_platform_engineering.knowledge_bases.results import compute_document_id
from ai_platform_engineering.knowledge_bases.sources.source_items import (
    ChangedItem,
    DocumentSource,
    RemovedItem,
    SkippedItem,
    SourceItem,
    UnchangedItem,
)
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    DocumentVersion,
    IngestJob,
    KnowledgeStore,
)

READER_VERSION = "1"  # counts up when documents are read or cut in another way: all are read again then
_AT_ONCE = 4  # documents in memory
_MOST_FAILED = 100

_Outcome = Document | str  # or why it cannot be read
_Told = tuple[SourceItem, "asyncio.Future[_Outcome] | None"]


@dataclass(frozen=True, slots=True)
class CommitInterval:
    """A commit after so many documents, or seconds, whichever comes first."""

    documents: int = 200
    seconds: float = 2.0


def compute_digest(content: bytes) -> str:
    return f"{READER_VERSION}-{hashlib.sha256(content).hexdigest()}"


def build_document(raw: RawDocument, datasource: str) -> Document:
    """Reads and cuts a document; blocks. Raises Unreadable."""
    kind, parsed = read_document(raw)
    text, chunks = chunk_document(parsed)
    return Document(
        compute_document_id(datasource, raw.address),
        datasource,
        parsed.title,
        raw.address,
        text,
        compute_digest(raw.content),
        raw.link,
        kind,
        raw.changed,
        chunks,
    )


def _read(raw: RawDocument, datasource: str) -> _Outcome:
    try:
        return build_document(raw, datasource)
    except UnreadableDocument as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - one document, whatever it does to a reader, costs no other
        return f"The document cannot be read ({type(error).__name__})."


class IngestPass:
    """`job` is the job as it is, `tell` takes what it becomes."""

    def __init__(
        self,
        store: KnowledgeStore,
        datasource: str,
        pool: Executor,
        pace: CommitInterval,
        job: Callable[[], IngestJob],
        tell: Callable[[IngestJob], None],
        committed: Callable[[], None],
    ) -> None:
        self._store = store
        self._datasource = datasource
        self._pool = pool
        self._pace = pace
        self._job = job
        self._tell = tell
        self._committed = committed
        self._marks: Mapping[str, DocumentVersion] = {}
        self._gone: list[str] = []
        self._written, self._due = 0, 0.0

    async def run(self, source: DocumentSource) -> None:
        """To its end; the last commit is the caller's. Raises SourceUnavailable: what came until then stays, and nothing has left."""
        self._marks = await self._store.list_versions(self._datasource)
        self._tell(replace(self._job(), total=await source.count()))
        told: asyncio.Queue[_Told | None] = asyncio.Queue(_AT_ONCE)
        looking = asyncio.create_task(self._look(source, told))
        try:
            await self._take(told)
            await looking
            await self._leave()
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self, source: DocumentSource, told: asyncio.Queue[_Told | None]) -> None:
        """What the source has, with its documents on the way to being read."""
        loop = asyncio.get_running_loop()
        known = {
            address: mark.mark if mark.digest.startswith(f"{READER_VERSION}-") else ""
            for address, mark in self._marks.items()
        }
        try:
            async with aclosing(source.items(known)) as items:
                async for item in items:
                    reading = None
                    if isinstance(item, ChangedItem) and not self._is_known(item):
                        reading = loop.run_in_executor(self._pool, _read, item.raw, self._datasource)
                    await told.put((item, reading))
        except Exception:
            await told.put(None)  # not when it was cancelled: nobody listens any more
            raise
        await told.put(None)

    def _is_known(self, item: ChangedItem) -> bool:
        mark = self._marks.get(item.address)
        return mark is not None and mark.digest == compute_digest(item.raw.content)

    async def _take(self, told: asyncio.Queue[_Told | None]) -> None:
        while True:
            try:
                async with asyncio.timeout_at(self._due if self._written else None):
                    entry = await told.get()
            except TimeoutError:  # the source is slow: what is there can be found already
                await self._commit()
                continue
            if entry is None:
                return
            await self._one(*entry)
            if self._written >= self._pace.documents:
                await self._commit()

    async def _one(self, item: SourceItem, reading: "asyncio.Future[_Outcome] | None") -> None:
        job = self._job()
        match item:
            case ChangedItem() if reading is not None:
                await self._keep(item, await reading)
            case ChangedItem() | UnchangedItem():
                await self._touch(item.address, item.mark)
                self._tell(replace(job, skipped=job.skipped + 1))
            case SkippedItem():
                self._fail(item.address, item.reason)
            case RemovedItem():
                if (mark := self._marks.get(item.address)) is not None:
                    self._gone.append(mark.document_id)

    async def _keep(self, item: ChangedItem, outcome: _Outcome) -> None:
        if isinstance(outcome, str):
            self._fail(item.address, outcome)
            return
        await self._store.put_document(outcome, item.mark)
        self._wrote()
        job = self._job()
        self._tell(replace(job, done=job.done + 1))

    async def _touch(self, address: str, mark: str) -> None:
        known = self._marks.get(address)
        if known is not None and known.mark != mark:
            await self._store.update_mark(known.document_id, mark)
            self._wrote()

    def _fail(self, address: str, reason: str) -> None:
        job = self._job()
        if len(job.failed) < _MOST_FAILED:
            job = replace(job, failed=(*job.failed, (address, reason)))
        self._tell(job)

    async def _leave(self) -> None:
        if self._gone:
            await self._store.delete_documents(self._gone)
            self._wrote()
        self._tell(replace(self._job(), removed=len(self._gone)))

    def _wrote(self) -> None:
        if not self._written:
            self._due = asyncio.get_running_loop().time() + self._pace.seconds
        self._written += 1

    async def _commit(self) -> None:
        """Keeps the documents and how far the job is."""
        self._written = 0
        await self._store.put_job(self._job())
        await self._store.commit()
        self._committed()
