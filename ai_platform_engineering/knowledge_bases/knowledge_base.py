"""The knowledge base: search, documents, datasources and ingest jobs, for tools, the REST API and the command
line."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.knowledge_bases.access import ANYBODY, OPERATOR, Viewer, VisibleTo
from ai_platform_engineering.knowledge_bases.datasources import PUSH, DatasourceResolver, check_name
from ai_platform_engineering.knowledge_bases.documents import RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.indexing.document_push import DocumentPush
from ai_platform_engineering.knowledge_bases.indexing.embedding_models import EmbeddingModels, QueryVector
from ai_platform_engineering.knowledge_bases.indexing.embedding_worker import EmbeddingWorker
from ai_platform_engineering.knowledge_bases.indexing.ingest_jobs import IngestRunner, JobTiming
from ai_platform_engineering.knowledge_bases.indexing.ingest_pass import CommitInterval
from ai_platform_engineering.knowledge_bases.indexing.refresh_schedule import RefreshScheduler
from ai_platform_engineering.knowledge_bases.people_groups import PeopleGroups
from ai_platform_engineering.knowledge_bases.reading.document_readers import DocumentReaders
from ai_platform_engineering.knowledge_bases.results import (
    DocumentExcerpt,
    KnowledgeNotFound,
    SearchResult,
    WebPage,
)
from ai_platform_engineering.knowledge_bases.search.result_factory import create_result
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher
from ai_platform_engineering.knowledge_bases.sources.shipped_documentation import SHIPPED_DOCS
from ai_platform_engineering.knowledge_bases.stores.job_store import IngestJob
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    Datasource,
    KnowledgeStore,
    SearchMode,
    find_by_name,
)
from ai_platform_engineering.knowledge_bases.stores.upload_store import UploadStore
from ai_platform_engineering.net.url_policy import FetchFailed

if TYPE_CHECKING:
    from ai_platform_engineering.knowledge_bases.indexing.embeddings import Embedder

log = logging.getLogger(__name__)

DEFAULT_RESULTS = 5
_NO_MODEL = (
    "There is no model that finds documents by what they mean: caipe kb embeddings install brings one."
)
_NO_VECTOR = "The embedding model did not answer. Try again in a moment, or search by words: mode lexical."
_REMOVED = "removed"  # an option of the shipped documentation that somebody removed: it does not come back


class KnowledgeBase:
    """Searches documents, and brings them in from datasources.

    Only a process whose store is writable ingests and makes vectors. `with_shipped_docs`: this product's
    documentation is a datasource as well. `max_answer_chars`: the longest answer for a model. `page_fetcher`:
    for pages that a question asks for, where that is not the one of datasources.
    `create_embedder`: gives the embedder of another model, whose vectors the store may still have.
    """

    def __init__(
        self,
        store: KnowledgeStore,
        embedder: "Embedder | None",
        resolver: DatasourceResolver,
        readers: DocumentReaders,
        *,
        max_answer_chars: int = 10_000,
        commit_interval: CommitInterval | None = None,
        with_shipped_docs: bool = False,
        create_embedder: "Callable[[str], Embedder | None]" = lambda _: None,
        page_fetcher: Fetcher | None = None,
        job_timing: JobTiming | None = None,
    ) -> None:
        self.max_answer_chars = max_answer_chars
        self._store = store
        self._resolver = resolver
        self._readers = readers
        self._with_shipped_docs = with_shipped_docs
        self._models: EmbeddingModels | None = None
        self._page_fetcher = page_fetcher or resolver.context.fetcher
        self._embedding_worker: EmbeddingWorker | None = None
        if embedder is not None:
            self._models = EmbeddingModels(store, embedder, create_embedder)
            self._embedding_worker = EmbeddingWorker(
                store, self._models, last_datasource=SHIPPED_DOCS.name if with_shipped_docs else ""
            )
        self._ingest = IngestRunner(
            store,
            resolver.create_source,
            readers,
            can_read=resolver.can_read,
            on_commit=self._wake_embedding_worker,
            commit_interval=commit_interval,
            timing=job_timing,
        )
        self.groups = PeopleGroups(store)
        self.push = DocumentPush(store, readers, on_commit=self._wake_embedding_worker)
        self._scheduler = RefreshScheduler(store, self._run_refresh)

    async def open(self, *, start_workers: bool = True, scheduled: bool = False) -> None:
        """Opens the store and, with `start_workers`, takes the jobs that no process works on.

        `scheduled`: datasources are refreshed when they are due, which is for a server."""
        await self._store.open()
        if not (start_workers and self.is_writable):
            return
        try:
            self._ingest.resume()
            if self._with_shipped_docs:
                await self.add_shipped_docs()
        except BaseException:
            await self.aclose()
            raise
        if self._embedding_worker is not None:
            self._embedding_worker.start()
        if scheduled:
            self._scheduler.start()

    async def aclose(self) -> None:
        await self._scheduler.aclose()
        await self._ingest.aclose()
        if self._embedding_worker is not None:
            await self._embedding_worker.aclose()
        if self._models is not None:
            await self._models.close()
        await self._readers.aclose()
        await self._store.close()

    @property
    def is_writable(self) -> bool:
        """Whether this process may change it; an embedded store belongs to one process at a time."""
        return self._store.is_writable

    @property
    def uploads(self) -> UploadStore | None:
        """Uploaded files, where several processes share them."""
        return self._store.uploads

    @property
    def has_embeddings(self) -> bool:
        """Whether documents are also found by vectors, not by their words alone."""
        return self._models is not None

    # --- search and documents

    async def search(
        self,
        query: str,
        datasource: str | None = None,
        filters: Mapping[str, str] | None = None,
        limit: int | None = None,
        mode: SearchMode = "hybrid",
        viewer: Viewer = ANYBODY,
        *,
        explain: bool = False,
    ) -> list[SearchResult]:
        """Results, best first, each of another document. `explain`: with the reasons why each was found.

        Raises KnowledgeNotFound for an unknown datasource, and Refused for a vector search without an
        embedding model."""
        self._note_question()
        preparing = asyncio.create_task(self._store.prepare_search())  # its worker may have to start first
        try:
            async with self._embed_query(query, mode) as query_vector:
                if mode == "vectors" and query_vector is None:
                    raise Refused(_NO_MODEL if self._models is None else _NO_VECTOR)
                await preparing
                hits = await self._store.search(
                    query,
                    None if query_vector is None else query_vector.vector,
                    model="" if query_vector is None else query_vector.model,
                    datasources=() if datasource is None else (datasource,),
                    filters=filters,
                    limit=limit or DEFAULT_RESULTS,
                    mode=mode,
                    viewer=viewer,
                )
        finally:
            preparing.cancel()
            await asyncio.gather(preparing, return_exceptions=True)
        if datasource is not None and not hits:
            # It counts documents, so only when nothing was found.
            await self.find_datasource(datasource, viewer)
        results: list[SearchResult] = []
        for hit in hits:
            document = await self._store.find_document(hit.document_id, viewer)
            if document is not None:  # it may have been deleted since the search
                results.append(create_result(hit, document, query, explain=explain))
        return results

    async def fetch_document(
        self, document_id: str, offset: int = 0, viewer: Viewer = ANYBODY
    ) -> DocumentExcerpt:
        """A document's text from the offset on. Raises KnowledgeNotFound, also for one that the viewer may
        not see, and Refused for an offset behind the end."""
        document = await self._store.find_document(document_id.strip(), viewer)
        if document is None:
            raise KnowledgeNotFound(
                f"There is no document {document_id[:80]}. Use the document_id of a search result."
            )
        total_chars = len(document.text)
        if offset and offset >= total_chars:
            raise Refused(f"The document has {total_chars} characters: there is nothing at offset {offset}.")
        return DocumentExcerpt(
            document_id=document.document_id,
            title=document.title,
            link=document.link,
            datasource=document.datasource,
            offset=offset,
            text=document.text[offset:],
            total_chars=total_chars,
            missing=document.missing,
            metadata=document.metadata,
        )

    async def fetch_url(self, url: str) -> WebPage:
        """A page of the web as text. Raises FetchRefused and FetchFailed."""
        response = await self._page_fetcher.fetch(url)
        raw = RawDocument(response.url, response.content, response.media_type, link=response.url)
        try:
            page = await self._readers.read(raw, for_question=True)
        except UnreadableDocument as error:
            raise FetchFailed(str(error)) from None
        return WebPage(response.url, page.title, page.kind, page.text)

    # --- datasources

    async def list_datasources(self, viewer: Viewer = ANYBODY) -> list[Datasource]:
        """The datasources that the viewer may see, by name."""
        datasources = await self._store.list_datasources(viewer)
        return [datasource for datasource in datasources if not datasource.options.get(_REMOVED)]

    async def find_datasource(self, name: str, viewer: Viewer = ANYBODY) -> Datasource:
        """Raises KnowledgeNotFound, also for one that the viewer may not see."""
        datasources = await self.list_datasources(viewer)
        datasource = find_by_name(datasources, name)
        if datasource is not None:
            return datasource
        hint = "There is none yet."
        if datasources:
            hint = f"There are: {', '.join(datasource.name for datasource in datasources)}."
        raise KnowledgeNotFound(f"There is no datasource {name[:80]}. {hint}")

    async def is_empty(self) -> bool:
        """Whether no document was read yet."""
        return await self._store.is_empty()

    async def has_documents(self) -> bool:
        """Whether there is something to find, now or as soon as an unfinished job has brought it in; asked
        before every question."""
        self._note_question()
        return not await self._store.is_empty() or bool(await self._store.jobs.list(unfinished=True))

    async def add_datasource(
        self,
        location: str,
        *,
        name: str | None = None,
        title: str = "",
        options: Mapping[str, str] | None = None,
        folders: Collection[Path] | None = None,
        visible_to: VisibleTo = None,
        every: int | None = None,
        viewer: Viewer = ANYBODY,
    ) -> tuple[Datasource, IngestJob]:
        """Adds a datasource, or updates the one with the same location, and starts its ingest job.

        `folders`: only files of this machine below these may be read; None allows all. `visible_to`: who may
        see a new one. `every`: seconds from one refresh to the next. `viewer`: who adds it, and so changes
        none that they may not see. Raises CaipeError for what cannot be a datasource."""
        self.check_writable()
        if location == SHIPPED_DOCS.location:
            return await self._put_shipped_docs()
        existing = await self.list_datasources(OPERATOR)
        datasource = await asyncio.to_thread(
            self._resolver.resolve,
            location,
            existing,
            name=name,
            title=title,
            options=options or {},
            folders=folders,
        )
        for other in existing:
            if datasource.location == other.location:
                viewer.check_may_see(other.visible_to)
        previous = find_by_name(existing, datasource.name)
        if previous is not None:
            viewer.check_may_see(previous.visible_to)
            if previous.location != datasource.location:
                raise Refused(
                    f"There is a datasource {datasource.name} with other documents. "
                    "Give this one another name, or remove that one first."
                )
            datasource = replace(datasource, title=title or previous.title, refreshed=previous.refreshed)
        stored, job = await self._put_datasource(replace(datasource, visible_to=visible_to))
        if every is not None:
            await self._scheduler.set_interval(stored.name, every)
            stored = await self.find_datasource(stored.name, OPERATOR)
        return stored, job

    async def add_pushed_datasource(
        self,
        name: str,
        *,
        title: str = "",
        visible_to: VisibleTo = None,
        viewer: Viewer = ANYBODY,
    ) -> Datasource:
        """Adds a datasource that other programs push documents to; an existing one stays as it is.

        Raises Refused for a name that cannot be one, or is another datasource's."""
        self.check_writable()
        check_name(name)
        previous = find_by_name(await self.list_datasources(OPERATOR), name)
        if previous is not None:
            viewer.check_may_see(previous.visible_to)
        if previous is not None and previous.kind != PUSH:
            raise Refused(
                f"There is a datasource {name} that is read from {previous.kind}. Use another name."
            )
        if previous is None:
            datasource = Datasource(name, f"{PUSH}:{name}", PUSH, title, visible_to=visible_to)
            await self._store.put_datasource(datasource)
        return await self.find_datasource(name, OPERATOR)

    def take_job(self, job: IngestJob) -> None:
        """Looks at once for a job that was added to the store."""
        self._ingest.take(job)

    async def refresh_datasource(self, name: str, *, again: bool = False) -> IngestJob:
        """Starts an ingest job for a datasource. `again`: also while one runs. Raises KnowledgeNotFound, and
        Refused for a pushed one."""
        await self._check_refreshable(name)
        return await self._ingest.start(name, again=again)

    async def set_visible_to(self, name: str, visible_to: VisibleTo) -> None:
        """Changes who may see a datasource. Raises KnowledgeNotFound."""
        self.check_writable()
        await self.find_datasource(name, OPERATOR)
        await self._store.set_visible_to(name, visible_to)

    async def set_interval(self, name: str, every: int | None) -> None:
        """Refreshes a datasource every so many seconds, or no more with None. Raises KnowledgeNotFound, and
        Refused for a pushed one."""
        await self._check_refreshable(name)
        await self._scheduler.set_interval(name, every)

    async def remove_datasource(self, name: str) -> None:
        """Deletes a datasource with all its documents. Raises KnowledgeNotFound."""
        self.check_writable()
        datasource = await self.find_datasource(name, OPERATOR)
        await self._ingest.stop_all(name)
        async with self.push.turn():  # a batch that is stored now would leave documents of nobody
            await self._store.remove_datasource(name)
        if datasource.kind == SHIPPED_DOCS.kind:
            await self._store.put_datasource(replace(SHIPPED_DOCS, options={_REMOVED: "yes"}))
        await self._store.commit()

    async def add_shipped_docs(self) -> IngestJob | None:
        """Brings in this product's documentation, if it is new or has changed and nobody removed it."""
        self.check_writable()
        datasource = find_by_name(await self._store.list_datasources(OPERATOR), SHIPPED_DOCS.name)
        if datasource is not None:
            if datasource.kind != SHIPPED_DOCS.kind or datasource.options.get(_REMOVED):
                return None
            if await asyncio.to_thread(self._resolver.can_read, datasource):  # it is of this revision
                return None
        _, job = await self._put_shipped_docs()
        return job

    # --- ingest jobs

    async def list_jobs(self) -> list[IngestJob]:
        """All jobs, newest first."""
        return await self._ingest.list_jobs()

    async def find_job(self, job_id: str) -> IngestJob:
        """Raises KnowledgeNotFound."""
        return await self._ingest.find_job(job_id)

    async def stop_job(self, job_id: str) -> IngestJob:
        """Raises KnowledgeNotFound."""
        self.check_writable()
        return await self._ingest.stop(job_id)

    def follow_job(self, job_id: str) -> AsyncIterator[IngestJob]:
        """Yields the job whenever it has changed, until its end. Raises KnowledgeNotFound."""
        return self._ingest.follow(job_id)

    async def wait_for_embeddings(self) -> None:
        """Waits until every chunk has its vector, as far as vectors can be made."""
        if self._embedding_worker is not None:
            await self._embedding_worker.wait_until_idle()

    # --- inside

    async def _check_refreshable(self, name: str) -> None:
        """Raises KnowledgeNotFound, and Refused for a pushed datasource."""
        self.check_writable()
        datasource = await self.find_datasource(name, OPERATOR)
        if datasource.kind == PUSH:
            raise Refused(f"{name} holds pushed documents: there is no source to refresh them from.")

    def check_writable(self) -> None:
        """Raises Refused when another process has it open for writing."""
        if not self.is_writable:
            raise Refused(
                "Another process has the knowledge base open: you can search it from here, but not change it."
            )

    async def _put_datasource(self, datasource: Datasource) -> tuple[Datasource, IngestJob]:
        await self._store.put_datasource(datasource)
        await self._store.commit()
        stored = await self.find_datasource(datasource.name, OPERATOR)
        return stored, await self._ingest.start(datasource.name)

    async def _run_refresh(self, job: IngestJob) -> IngestJob:
        """Follows the job of a refresh to its end, whichever process works on it."""
        self._ingest.take(job)
        async for progress in self._ingest.follow(job.job_id):
            job = progress
        return job

    async def _put_shipped_docs(self) -> tuple[Datasource, IngestJob]:
        revision = await asyncio.to_thread(self._resolver.shipped_docs.compute_revision)
        return await self._put_datasource(replace(SHIPPED_DOCS, options={"revision": revision}))

    def _note_question(self) -> None:
        if self._embedding_worker is not None:
            self._embedding_worker.note_question()

    def _wake_embedding_worker(self) -> None:
        if self._embedding_worker is not None:
            self._embedding_worker.wake()

    @asynccontextmanager
    async def _embed_query(self, query: str, mode: SearchMode) -> AsyncIterator[QueryVector | None]:
        if self._models is None or mode == "lexical":
            yield None
            return
        async with self._models.embed_query(query) as query_vector:
            yield query_vector
