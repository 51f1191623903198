"""Evaluation of the search over judged queries, for `caipe kb eval`."""

from collections.abc import Collection
from pathlib import Path, PurePosixPath

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings, read_environment
from ai_platform_engineering.knowledge_bases.indexing.embeddings import create_embedder
from ai_platform_engineering.knowledge_bases.knowledge_base_factory import create_store, create_worker_options
from ai_platform_engineering.knowledge_bases.search.evaluation import (
    SearchMetrics,
    compare_modes,
    create_ranker,
    read_qrels,
    read_queries,
)
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore

_PAGE_SIZE = 500


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
    embedder = create_embedder(settings.knowledge, settings.agent.home, options)
    await store.open()
    try:
        only = [datasource] if datasource is not None else []
        names = await _map_judged_names(store, only, judged_names)
        if not names:
            raise CaipeError(
                "None of the judged documents is in the knowledge base."
                " They are named by address, file name or id."
            )
        ranker = create_ranker(store, embedder, names, only)
        return await compare_modes(queries, qrels, ranker, vectors=embedder is not None)
    finally:
        if embedder is not None:
            await embedder.close()
        await store.close()


async def _map_judged_names(
    store: KnowledgeStore, datasources: list[str], judged_names: Collection[str]
) -> dict[str, str]:
    """Document ids to the names that the judgements use.

    That is the id, the address, or the file's name with or without its suffix. No datasources mean all.
    """
    if not datasources:
        datasources = [datasource.name for datasource in await store.list_datasources()]
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
