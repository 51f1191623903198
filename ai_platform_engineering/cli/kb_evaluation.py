"""Evaluation of the search over judged queries, for `caipe kb eval`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.access import OPERATOR
from ai_platform_engineering.knowledge_bases.documents import Document, ParsedDocument, Section
from ai_platform_engineering.knowledge_bases.indexing.chunking import chunk_document
from ai_platform_engineering.knowledge_bases.indexing.embeddings import Embedder, create_embedder
from ai_platform_engineering.knowledge_bases.knowledge_base_factory import create_store, create_worker_options
from ai_platform_engineering.knowledge_bases.search.evaluation import (
    SearchMetrics,
    compare_modes,
    create_ranker,
    read_qrels,
    read_queries,
)
from ai_platform_engineering.knowledge_bases.search.judged_collection import JudgedCollection, read_collection
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore
from ai_platform_engineering.knowledge_bases.workers.worker_process import WorkerOptions

_PAGE_SIZE = 500
_EMBEDDED_AT_ONCE = 64


async def evaluate_search(
    qrels_file: Path, queries_file: Path, datasource: str | None
) -> list[SearchMetrics]:
    """Runs all queries in each search mode that this installation has. Raises CaipeError."""
    qrels = read_qrels(qrels_file)
    queries = read_queries(queries_file)
    settings = Settings.from_variables(read_environment())
    judged_names = set[str]().union(*qrels.values())
    options = create_worker_options(settings)
    store = create_store(settings, options)
    async with _open_for_evaluation(settings, options, store) as embedder:
        only = [datasource] if datasource is not None else []
        names = await _map_judged_names(store, only, judged_names)
        if not names:
            raise CaipeError(
                "None of the judged documents is in the knowledge base."
                " They are named by address, file name or id."
            )
        datasources = await store.list_datasources(OPERATOR)
        chunk_count = sum(source.chunks for source in datasources if not only or source.name in only)
        ranker = create_ranker(store, embedder, names, only, chunk_count=chunk_count)
        return await compare_modes(queries, qrels, ranker, vectors=embedder is not None)


async def evaluate_collection(
    path: Path, show_progress: Callable[[str, int, int], None]
) -> list[SearchMetrics]:
    """Indexes a judged collection in a temporary folder and runs its queries. Raises CaipeError.

    `show_progress`: called with what is done, how many of it are ready, and how many there are."""
    collection = await asyncio.to_thread(read_collection, path)
    settings = Settings.from_variables(read_environment())
    options = create_worker_options(settings)
    with TemporaryDirectory(prefix="caipe-eval-", ignore_cleanup_errors=True) as folder:
        store = EmbeddedStore(Path(folder), options, search_seconds=settings.knowledge.search_seconds)
        async with _open_for_evaluation(settings, options, store) as embedder:
            chunk_count = await _index_collection(store, collection, show_progress)
            if embedder is not None:
                await _embed_collection(store, embedder, chunk_count, show_progress)
            ranker = create_ranker(store, embedder, {}, chunk_count=chunk_count)
            return await compare_modes(
                collection.queries, collection.qrels, ranker, vectors=embedder is not None
            )


@asynccontextmanager
async def _open_for_evaluation(
    settings: Settings, options: WorkerOptions, store: KnowledgeStore
) -> AsyncIterator[Embedder | None]:
    """Opens the store; the embedder of the settings, if there is one."""
    embedder = create_embedder(settings.knowledge, settings.agent.home, options)
    await store.open()
    try:
        yield embedder
    finally:
        if embedder is not None:
            await embedder.close()
        await store.close()


async def _index_collection(
    store: KnowledgeStore, collection: JudgedCollection, show_progress: Callable[[str, int, int], None]
) -> int:
    """The number of chunks."""
    chunk_count = 0
    for number, judged in enumerate(collection.documents, 1):
        parsed = ParsedDocument(judged.title, (Section(judged.text),))
        text, chunks = await asyncio.to_thread(chunk_document, parsed)
        document = Document(
            judged.name,
            "collection",
            judged.title,
            judged.name,
            text,
            judged.name,
            kind="text",
            chunks=chunks,
        )
        await store.put_document(document)
        chunk_count += len(chunks)
        if number % _PAGE_SIZE == 0 or number == len(collection.documents):
            await store.commit()
            show_progress("documents", number, len(collection.documents))
    return chunk_count


async def _embed_collection(
    store: KnowledgeStore,
    embedder: Embedder,
    chunk_count: int,
    show_progress: Callable[[str, int, int], None],
) -> None:
    count = 0
    while chunks := await store.list_chunks_without_vector(embedder.name, _EMBEDDED_AT_ONCE):
        vectors = await embedder.embed([chunk.text for chunk in chunks])
        await store.put_vectors(embedder.name, list(zip(chunks, vectors, strict=True)))
        count += len(chunks)
        show_progress("vectors", count, chunk_count)


async def _map_judged_names(
    store: KnowledgeStore, datasources: list[str], judged_names: Collection[str]
) -> dict[str, str]:
    """Document ids to the names that the judgements use.

    That is the id, the address, or the file's name with or without its suffix. No datasources mean all.
    """
    if not datasources:
        datasources = [datasource.name for datasource in await store.list_datasources(OPERATOR)]
    names: dict[str, str] = {}
    for datasource in datasources:
        after = ""
        while page := await store.list_documents(datasource, after=after, limit=_PAGE_SIZE):
            for document in page:
                path = PurePosixPath(document.address)
                for name in (document.document_id, document.address, path.name, path.stem):
                    if name in judged_names:
                        names[document.document_id] = name
                        break
            after = page[-1].address
    return names
