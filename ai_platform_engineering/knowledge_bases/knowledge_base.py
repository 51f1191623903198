"""The knowledge base: search, documents, datasources and ingest jobs, for tools, the REST API and the command
line."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.knowledge_bases.datasources import DatasourceResolver
from ai_platform_engineering.knowledge_bases.documents import Chunk, Document, RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.indexing.embedding_worker import EmbeddingWorker
from ai_platform_engineering.knowledge_bases.indexing.ingest_jobs import IngestRunner
from ai_platform_engineering.knowledge_bases.indexing.ingest_pass import CommitInterval
from ai_platform_engineering.knowledge_bases.reading.document_readers import DocumentReaders
from ai_platform_engineering.knowledge_bases.results import (
    DocumentExcerpt,
    KnowledgeNotFound,
    SearchResult,
    WebPage,
)
from ai_platform_engineering.knowledge_bases.search.snippets import extract_snippet
from ai_platform_engineering.knowledge_bases.sources.shipped_documentation import SHIPPED_DOCS
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    Datasource,
    Hit,
    IngestJob,
    KnowledgeStore,
    SearchMode,
    Vector,
)
from ai_platform_engineering.net.url_policy import FetchFailed

if TYPE_CHECKING:
    from ai_platform_engineering.knowledge_bases.indexing.embeddings import Embedder

log = logging.getLogger(__name__)

DEFAULT_RESULTS = 5
_REMOVED = "removed"  # an option of the shipped documentation that somebody removed: it does not come back
_QUERY_SECONDS = 10.0  # to embed a query; after that the search is lexical only


class KnowledgeBase:
    """Searches documents, and brings them in from datasources.

    Only a process whose store is writable ingests and makes vectors. `with_shipped_docs`: this product's
    documentation is a datasource as well. `max_answer_chars`: the longest answer for a model.
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
    ) -> None:
        self.max_answer_chars = max_answer_chars
        self._store = store
        self._embedder = embedder
        self._resolver = resolver
        self._readers = readers
        self._with_shipped_docs = with_shipped_docs
        self._embedding_worker: EmbeddingWorker | None = None
        if embedder is not None:
            self._embedding_worker = EmbeddingWorker(store, embedder)
        self._ingest = IngestRunner(
            store,
            resolver.create_source,
            readers,
            on_commit=self._wake_embedding_worker,
            commit_interval=commit_interval,
        )

    async def open(self, *, start_workers: bool = True) -> None:
        """Opens the store and, with `start_workers`, goes on with jobs that an earlier process left
        unfinished."""
        await self._store.open()
        if not (start_workers and self.is_writable):
            return
        try:
            await self._ingest.resume()
            if self._with_shipped_docs:
                await self.add_shipped_docs()
        except BaseException:
            await self.aclose()
            raise
        if self._embedding_worker is not None:
            self._embedding_worker.start()

    async def aclose(self) -> None:
        await self._ingest.aclose()
        if self._embedding_worker is not None:
            await self._embedding_worker.aclose()
        if self._embedder is not None:
            await self._embedder.close()
        await self._readers.aclose()
        await self._store.close()

    @property
    def is_writable(self) -> bool:
        """Whether this process may change it; an embedded store belongs to one process at a time."""
        return self._store.is_writable

    @property
    def has_embeddings(self) -> bool:
        """Whether documents are also found by vectors, not by their words alone."""
        return self._embedder is not None

    # --- search and documents

    async def search(
        self,
        query: str,
        datasource: str | None = None,
        filters: Mapping[str, str] | None = None,
        limit: int | None = None,
        mode: SearchMode = "hybrid",
    ) -> list[SearchResult]:
        """Results, best first, each of another document. Raises KnowledgeNotFound for an unknown datasource,
        and Refused for a vector search without an embedding model."""
        # Each may have to start its worker first.
        vector, _ = await asyncio.gather(self._embed_query(query, mode), self._store.prepare_search())
        if mode == "vectors" and vector is None:
            raise Refused(
                "There is no model that finds documents by what they mean: caipe kb embeddings install "
                "brings one."
            )
        hits = await self._store.search(
            query,
            vector,
            model="" if self._embedder is None else self._embedder.name,
            datasources=() if datasource is None else (datasource,),
            filters=filters,
            limit=limit or DEFAULT_RESULTS,
            mode=mode,
        )
        if datasource is not None and not hits:
            await self.find_datasource(datasource)  # it counts documents, so only when nothing was found
        results: list[SearchResult] = []
        for hit in hits:
            document = await self._store.find_document(hit.document_id)
            if document is not None:  # it may have been deleted since the search
                results.append(_create_result(hit, document, query))
        return results

    async def fetch_document(self, document_id: str, offset: int = 0) -> DocumentExcerpt:
        """A document's text from the offset on. Raises KnowledgeNotFound, and Refused for an offset behind
        the end."""
        document = await self._store.find_document(document_id.strip())
        if document is None:
            raise KnowledgeNotFound(
                f"There is no document {document_id[:80]}. Use the document_id of a search result."
            )
        total_chars = len(document.text)
        if offset and offset >= total_chars:
            raise Refused(f"The document ends at {total_chars}: there is nothing at {offset}.")
        return DocumentExcerpt(
            document_id=document.document_id,
            title=document.title,
            link=document.link,
            datasource=document.datasource,
            offset=offset,
            text=document.text[offset:],
            total_chars=total_chars,
            missing=document.missing,
        )

    async def fetch_url(self, url: str) -> WebPage:
        """A page of the web as text. Raises FetchRefused and FetchFailed."""
        response = await self._resolver.context.fetcher.fetch(url)
        raw = RawDocument(response.url, response.content, response.media_type, link=response.url)
        try:
            page = await self._readers.read(raw, for_question=True)
        except UnreadableDocument as error:
            raise FetchFailed(str(error)) from None
        return WebPage(response.url, page.title, page.kind, page.text)

    # --- datasources

    async def list_datasources(self) -> list[Datasource]:
        """All datasources, by name."""
        datasources = await self._store.list_datasources()
        return [datasource for datasource in datasources if not datasource.options.get(_REMOVED)]

    async def find_datasource(self, name: str) -> Datasource:
        """Raises KnowledgeNotFound."""
        datasources = await self.list_datasources()
        datasource = _find_by_name(datasources, name)
        if datasource is not None:
            return datasource
        hint = "There is none yet."
        if datasources:
            hint = f"There are: {', '.join(datasource.name for datasource in datasources)}."
        raise KnowledgeNotFound(f"There is no datasource {name[:80]}. {hint}")

    async def has_documents(self) -> bool:
        """Whether there is something to find, now or as soon as an unfinished job has brought it in."""
        return not await self._store.is_empty() or bool(await self._store.list_jobs(unfinished=True))

    async def add_datasource(
        self,
        location: str,
        *,
        name: str | None = None,
        title: str = "",
        options: Mapping[str, str] | None = None,
        folders: Collection[Path] | None = None,
    ) -> tuple[Datasource, IngestJob]:
        """Adds a datasource, or updates the one with the same location, and starts its ingest job.

        `folders`: only files of this machine below these may be read; None allows all. Raises CaipeError for
        what cannot be a datasource."""
        self._check_writable()
        if location == SHIPPED_DOCS.location:
            return await self._put_shipped_docs()
        existing = await self.list_datasources()
        datasource = await asyncio.to_thread(
            self._resolver.resolve,
            location,
            existing,
            name=name,
            title=title,
            options=options or {},
            folders=folders,
        )
        previous = _find_by_name(existing, datasource.name)
        if previous is not None:
            if previous.location != datasource.location:
                raise Refused(
                    f"There is a datasource {datasource.name} with other documents. "
                    "Give this one another name, or remove that one first."
                )
            datasource = replace(datasource, title=title or previous.title, refreshed=previous.refreshed)
        return await self._put_datasource(datasource)

    async def refresh_datasource(self, name: str) -> IngestJob:
        """Starts an ingest job for a datasource. Raises KnowledgeNotFound."""
        self._check_writable()
        await self.find_datasource(name)
        return await self._ingest.start(name)

    async def remove_datasource(self, name: str) -> None:
        """Deletes a datasource with all its documents. Raises KnowledgeNotFound."""
        self._check_writable()
        datasource = await self.find_datasource(name)
        await self._ingest.stop_all(name)
        await self._store.remove_datasource(name)
        if datasource.kind == SHIPPED_DOCS.kind:
            await self._store.put_datasource(replace(SHIPPED_DOCS, options={_REMOVED: "yes"}))
        await self._store.commit()

    async def add_shipped_docs(self) -> IngestJob | None:
        """Brings in this product's documentation, if it is new or has changed and nobody removed it."""
        self._check_writable()
        datasource = _find_by_name(await self._store.list_datasources(), SHIPPED_DOCS.name)
        if datasource is not None:
            if datasource.kind != SHIPPED_DOCS.kind or datasource.options.get(_REMOVED):
                return None
            if datasource.options.get("revision") == await self._compute_docs_revision():
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
        self._check_writable()
        return await self._ingest.stop(job_id)

    def follow_job(self, job_id: str) -> AsyncIterator[IngestJob]:
        """Yields the job whenever it has changed, until its end. Raises KnowledgeNotFound."""
        return self._ingest.follow(job_id)

    async def wait_for_embeddings(self) -> None:
        """Waits until every chunk has its vector, as far as vectors can be made."""
        if self._embedding_worker is not None:
            await self._embedding_worker.wait_until_idle()

    # --- inside

    def _check_writable(self) -> None:
        if not self.is_writable:
            raise Refused(
                "Another process has the knowledge base open: it can be searched from here, but not changed."
            )

    async def _put_datasource(self, datasource: Datasource) -> tuple[Datasource, IngestJob]:
        await self._store.put_datasource(datasource)
        await self._store.commit()
        stored = await self.find_datasource(datasource.name)
        return stored, await self._ingest.start(datasource.name)

    async def _put_shipped_docs(self) -> tuple[Datasource, IngestJob]:
        revision = await self._compute_docs_revision()
        return await self._put_datasource(replace(SHIPPED_DOCS, options={"revision": revision}))

    async def _compute_docs_revision(self) -> str:
        return await asyncio.to_thread(self._resolver.shipped_docs.compute_revision)

    def _wake_embedding_worker(self) -> None:
        if self._embedding_worker is not None:
            self._embedding_worker.wake()

    async def _embed_query(self, query: str, mode: SearchMode) -> Vector | None:
        if self._embedder is None or mode == "lexical":
            return None
        try:
            async with asyncio.timeout(_QUERY_SECONDS):
                vectors = await self._embedder.embed([query])
                return vectors[0]
        # A model that cannot be loaded or a server that is away: words still find most of it.
        except Exception as error:  # noqa: BLE001
            log.warning("a query has no vector, words alone are searched: %s", type(error).__name__)
            return None


def _find_by_name(datasources: Iterable[Datasource], name: str) -> Datasource | None:
    return next((datasource for datasource in datasources if datasource.name == name), None)


def _create_result(hit: Hit, document: Document, query: str) -> SearchResult:
    chunks = {chunk.ordinal: chunk for chunk in document.chunks}
    chunk = chunks.get(hit.ordinal)
    if chunk is None:  # the document was read again since the search: the whole of it stands for the chunk
        chunk = Chunk(hit.ordinal, document.text)
    return SearchResult(
        document_id=document.document_id,
        title=document.title,
        link=document.link,
        datasource=document.datasource,
        score=hit.score,
        snippet=extract_snippet(chunk.text, query),
        headings=chunk.headings,
        offset=chunk.start,
        kind=document.kind,
        more_offsets=tuple(chunks[ordinal].start for ordinal in hit.other_ordinals if ordinal in chunks),
    )
