"""A knowledge base in a folder of the test, and what tests do with it again and again."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.knowledge_settings import KnowledgeSettings
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.datasources import DatasourceResolver
from ai_platform_engineering.knowledge_bases.indexing.ingest_jobs import JobTiming
from ai_platform_engineering.knowledge_bases.indexing.ingest_pass import CommitInterval
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.reading.document_readers import DocumentReaders
from ai_platform_engineering.knowledge_bases.results import SearchResult
from ai_platform_engineering.knowledge_bases.sources.connectors.connector import Connectors
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher, FetchLimits
from ai_platform_engineering.knowledge_bases.sources.shipped_documentation import ShippedDocsSource
from ai_platform_engineering.knowledge_bases.sources.source_factory import SourceContext
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
from ai_platform_engineering.knowledge_bases.stores.job_store import IngestJob
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore
from ai_platform_engineering.knowledge_bases.tool_schemas import answer_tool_call
from tests.support.fakes.embedding import WordVectors


def create_knowledge_base(
    home: Path,
    embedder: WordVectors | None = None,
    *,
    env: dict[str, str] | None = None,
    private: bool = False,
    pace: CommitInterval | None = None,
    docs: Path | None = None,
    connectors: Connectors | None = None,
    store: KnowledgeStore | None = None,
    timing: JobTiming | None = None,
) -> KnowledgeBase:
    """Not open yet. `docs`: where this product's documentation is; without it there is none. `store`: one
    that others share."""
    settings: KnowledgeSettings = Settings.from_variables(env or {}).knowledge
    fetcher = Fetcher(
        FetchLimits(max_bytes=settings.fetch_bytes, seconds=settings.fetch_seconds), allow_private=private
    )
    readers = DocumentReaders(count=1)
    context = SourceContext(
        fetcher, home / "cache", {}, read_links=readers.read_links, connectors=connectors or {}
    )
    store = store or EmbeddedStore(home / "knowledge")
    resolver = DatasourceResolver(context, ShippedDocsSource(docs), store.uploads)
    return KnowledgeBase(
        store,
        embedder,
        resolver,
        readers,
        max_answer_chars=settings.max_output_chars,
        commit_interval=pace,
        with_shipped_docs=docs is not None,
        job_timing=timing,
    )


@contextlib.asynccontextmanager
async def open_knowledge_base(
    home: Path, embedder: WordVectors | None = None, **options: Any
) -> AsyncIterator[KnowledgeBase]:
    scheduled = options.pop("scheduled", False)
    kb = create_knowledge_base(home, embedder, **options)
    await kb.open(scheduled=scheduled)
    try:
        yield kb
    finally:
        await kb.aclose()


def write_files(folder: Path, **texts: str) -> Path:
    """Files by name; two underscores stand for a dot, and one without is Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / (name.replace("__", ".") if "__" in name else f"{name}.md")).write_text(
            text, encoding="utf-8"
        )
    return folder


async def wait_for_job(kb: KnowledgeBase, job: IngestJob) -> IngestJob:
    async with asyncio.timeout(120):
        async for progress in kb.follow_job(job.job_id):
            job = progress
    return job


async def add_datasource(kb: KnowledgeBase, location: Path | str, **options: Any) -> IngestJob:
    return await wait_for_job(kb, (await kb.add_datasource(str(location), **options))[1])


async def refresh_datasource(kb: KnowledgeBase, name: str) -> IngestJob:
    return await wait_for_job(kb, await kb.refresh_datasource(name))


def job_counts(job: IngestJob) -> tuple[str, int, int, int, int]:
    return job.state, job.done, job.skipped, job.removed, len(job.failed)


async def search_titles(kb: KnowledgeBase, query: str, **more: Any) -> list[str]:
    results: list[SearchResult] = await kb.search(query, **more)
    return [result.title for result in results]


async def call_knowledge_tool(kb: KnowledgeBase, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a model gets."""
    answer = json.loads(await answer_tool_call(kb, tool, arguments))
    assert isinstance(answer, dict)
    return answer


async def holds_documents(home: Path, kind: str, count: int) -> bool:
    """Whether another process has stored so many documents of this kind of datasource by now."""
    if not (home / "knowledge" / "knowledge.db").exists():
        return False
    try:
        async with open_knowledge_base(home) as kb:
            assert not kb.is_writable
            datasources = await kb.list_datasources()
    except (CaipeError, AssertionError):
        return False  # it is just being made
    return any(datasource.documents == count for datasource in datasources if datasource.kind == kind)


async def wait_until(holds: Callable[[], Any]) -> None:
    """Waits for something that another process does."""
    async with asyncio.timeout(120):
        while True:
            result = holds()
            if await result if asyncio.iscoroutine(result) else result:
                return
            await asyncio.sleep(0.02)
