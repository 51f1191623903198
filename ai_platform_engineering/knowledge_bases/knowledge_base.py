"""The knowledge base: what tools, REST and the command line do with documents."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.knowledge_bases.datasources import DatasourceResolver
from ai_platform_engineering.knowledge_bases.documents import Document, RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.indexing.chunking import chunk_document
from ai_platform_engineering.knowledge_bases.indexing.embedding_worker import EmbeddingWorker
from ai_platform_engineering.knowledge_bases.indexing.ingest_jobs import IngestRunner
from ai_platform_engineering.knowledge_bases.indexing.ingest_pass import CommitInterval
from ai_platform_engineering.knowledge_bases.reading.document_reader import read_document
from ai_platform_engineering.knowledge_bases.results import (
    DocumentExcerpt,
    KnowledgeNotFound,
    SearchResult,
    WebPage,
)
from ai_platform_engineering.knowledge_bases.search.snippets import extract_snippet
from ai_platform_engineering.knowledge_bases.sources.fetcher import FetchResponse
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

RESULTS = 5
_REMOVED = "removed"  # an option of the built-in datasource that somebody removed: it does not come back
_QUERY_SECONDS = 10.0  # for the vector of a query; without it words alone are searched


class KnowledgeBase:
    """Only one that writes ingests and makes vectors. `own_docs`: this product's documentation is brought in as well."""

    def __init__(
        self,
        store: KnowledgeStore,
        embedder: "Embedder | None",
        resolver: DatasourceResolver,
        *,
        max_answer_chars: int = 10_000,
        commit_interval: CommitInterval | None = None,
        with_shipped_docs: bool = False,
    ) -> None:
        """`longest`: characters of an answer for a model."""
        self._store = store
        self._embedder = embedder
        self._places = resolver
        self._own_docs = with_shipped_docs
        self._vectors = EmbeddingWorker(store, embedder) if embedder is not None else None
        self._ingest = IngestRunner(
            store, resolver.create_source, on_commit=self._wake, commit_interval=commit_interval
        )
        self.max_answer_chars = max_answer_chars

    async def open(self, *, start_workers: bool = True) -> None:
        """Goes on with what an earlier process left unfinished, unless it is opened only for a look."""
        await self._store.open()
        if not (start_workers and self.is_writable):
            return
        try:
            await self._ingest.resume()
            if self._own_docs:
                await self.add_shipped_docs()
        except BaseException:
            await self.aclose()
            raise
        if self._vectors is not None:
            self._vectors.start()

    async def aclose(self) -> None:
        await self._ingest.aclose()
        if self._vectors is not None:
            await self._vectors.aclose()
        if self._embedder is not None:
            await self._embedder.close()
        await self._store.close()

    @property
    def is_writable(self) -> bool:
        """Whether this process may change it; the embedded one belongs to one process at a time."""
        return self._store.is_writable

    @property
    def has_embeddings(self) -> bool:
        """Whether documents are also found by what they mean."""
        return self._embedder is not None

    # --- what models ask

    async def search(
        self,
        query: str,
        datasource: str | None = None,
        filters: Mapping[str, str] | None = None,
        limit: int | None = None,
        mode: SearchMode = "hybrid",
    ) -> list[SearchResult]:
        """Best first. Raises NotThere for a datasource that is not there, and Refused for vectors alone where there are none."""
        vector = None if mode == "lexical" else await self._vector(query)
        if mode == "vectors" and vector is None:
            raise Refused(
                "There is no model that finds documents by what they mean: caipe kb embeddings install brings one."
            )
        model = self._embedder.name if self._embedder is not None else ""
        chosen = [datasource] if datasource is not None else ()
        hits = await self._store.search(
            query, vector, model=model, datasources=chosen, filters=filters, limit=limit or RESULTS, mode=mode
        )
        if datasource is not None and not hits:
            await self.find_datasource(datasource)  # counting is not for free, so not before
        documents: dict[str, Document | None] = {}
        for hit in hits:
            if hit.document_id not in documents:
                documents[hit.document_id] = await self._store.find_document(hit.document_id)
        # One that left since it was found has no text any more.
        return [
            _result(hit, document, query)
            for hit in hits
            if (document := documents[hit.document_id]) is not None
        ]

    async def fetch_document(self, document_id: str, offset: int = 0) -> DocumentExcerpt:
        """From the offset on. Raises NotThere, and Refused for an offset behind the end."""
        found = await self._store.find_document(document_id.strip())
        if found is None:
            raise KnowledgeNotFound(
                f"There is no document {document_id[:80]}. Use the document_id of a search result."
            )
        if offset and offset >= len(found.text):
            raise Refused(f"The document ends at {len(found.text)}: there is nothing at {offset}.")
        return DocumentExcerpt(
            found.document_id,
            found.title,
            found.link,
            found.datasource,
            offset,
            found.text[offset:],
            len(found.text),
        )

    async def fetch_url(self, url: str) -> WebPage:
        """Raises FetchRefused and FetchFailed."""
        fetched = await self._places.context.fetcher.fetch(url)
        try:
            return await asyncio.to_thread(_page, fetched)
        except UnreadableDocument as error:
            raise FetchFailed(str(error)) from None

    # --- datasources and jobs

    async def list_datasources(self) -> list[Datasource]:
        """By name."""
        return [one for one in await self._store.list_datasources() if not one.options.get(_REMOVED)]

    async def find_datasource(self, name: str) -> Datasource:
        """Raises NotThere."""
        known = await self.list_datasources()
        found = next((one for one in known if one.name == name), None)
        if found is None:
            there = f"There are: {', '.join(one.name for one in known)}." if known else "There is none yet."
            raise KnowledgeNotFound(f"There is no datasource {name[:80]}. {there}")
        return found

    async def has_documents(self) -> bool:
        """Whether there is something to find, now or as soon as a job has brought it in."""
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
        """A new datasource, or one that is given again, perhaps with other options. `folders`: only below these may this machine be
        read. Raises CaipeError for what cannot be a datasource."""
        self._check_writes()
        if location == SHIPPED_DOCS.location:
            return await self._add_built_in()
        known = await self.list_datasources()
        given = await asyncio.to_thread(
            self._places.resolve,
            location,
            known,
            name=name,
            title=title,
            options=options or {},
            folders=folders,
        )
        before = next((one for one in known if one.name == given.name), None)
        if before is not None and before.location != given.location:
            raise Refused(
                f"There is a datasource {given.name} with other documents. Give this one another name, or remove that one first."
            )
        if before is not None:
            given = replace(given, title=title or before.title, refreshed=before.refreshed)
        return await self._add(given)

    async def _add(self, datasource: Datasource) -> tuple[Datasource, IngestJob]:
        await self._store.put_datasource(datasource)
        await self._store.commit()
        return await self.find_datasource(datasource.name), await self._ingest.start(datasource.name)

    async def refresh_datasource(self, name: str) -> IngestJob:
        """Raises NotThere."""
        self._check_writes()
        await self.find_datasource(name)
        return await self._ingest.start(name)

    async def remove_datasource(self, name: str) -> None:
        """With all its documents. Raises NotThere."""
        self._check_writes()
        removed = await self.find_datasource(name)
        await self._ingest.stop_all(name)
        await self._store.remove_datasource(name)
        if removed.kind == SHIPPED_DOCS.kind:
            await self._store.put_datasource(replace(SHIPPED_DOCS, options={_REMOVED: "yes"}))
        await self._store.commit()

    async def add_shipped_docs(self) -> IngestJob | None:
        """Brings in this product's documentation, if it is new or has changed and nobody removed it."""
        self._check_writes()
        known = next(
            (one for one in await self._store.list_datasources() if one.name == SHIPPED_DOCS.name), None
        )
        if known is not None and (known.kind != SHIPPED_DOCS.kind or known.options.get(_REMOVED)):
            return None
        if known is not None and known.options.get("revision") == await asyncio.to_thread(
            self._places.shipped_docs.compute_revision
        ):
            return None
        return (await self._add_built_in())[1]

    async def _add_built_in(self) -> tuple[Datasource, IngestJob]:
        revision = await asyncio.to_thread(self._places.shipped_docs.compute_revision)
        return await self._add(replace(SHIPPED_DOCS, options={"revision": revision}))

    async def list_jobs(self) -> list[IngestJob]:
        """Newest first."""
        return await self._ingest.list_jobs()

    async def find_job(self, job_id: str) -> IngestJob:
        """Raises NotThere."""
        return await self._ingest.find_job(job_id)

    async def stop_job(self, job_id: str) -> IngestJob:
        """Raises NotThere."""
        self._check_writes()
        return await self._ingest.stop(job_id)

    def follow_job(self, job_id: str) -> AsyncIterator[IngestJob]:
        """The job whenever it has changed, until its end. Raises NotThere."""
        return self._ingest.follow(job_id)

    async def wait_for_embeddings(self) -> None:
        """Waits until every chunk has its vector, as far as vectors can be made."""
        if self._vectors is not None:
            await self._vectors.wait_until_idle()

    # --- inside

    def _check_writes(self) -> None:
        if not self.is_writable:
            raise Refused(
                "Another process has the knowledge base open: it can be searched from here, but not changed."
            )

    def _wake(self) -> None:
        if self._vectors is not None:
            self._vectors.wake()

    async def _vector(self, query: str) -> Vector | None:
        if self._embedder is None:
            return None
        try:
            async with asyncio.timeout(_QUERY_SECONDS):
                return (await self._embedder.embed([query]))[0]
        except Exception as error:  # noqa: BLE001 - a model that cannot be loaded or a server that is away: words still find most of it
            log.warning("a query has no vector, words alone are searched: %s", type(error).__name__)
            return None


def _result(hit: Hit, document: Document, query: str) -> SearchResult:
    chunk = next((chunk for chunk in document.chunks if chunk.ordinal == hit.ordinal), None)
    text, headings, start = (
        (chunk.text, chunk.headings, chunk.start) if chunk is not None else (document.text, (), 0)
    )
    shown = extract_snippet(text, query)
    return SearchResult(
        document.document_id,
        document.title,
        document.link,
        document.datasource,
        hit.score,
        shown,
        headings,
        start,
    )


def _page(fetched: FetchResponse) -> WebPage:
    kind, parsed = read_document(
        RawDocument(fetched.url, fetched.content, fetched.media_type, link=fetched.url)
    )
    return WebPage(fetched.url, parsed.title, kind, chunk_document(parsed)[0])
