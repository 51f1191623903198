"""A knowledge base in a folder of the test, and what tests do with it again and again."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from ai_platform_engineering.core.settings import KnowledgeSettings, Settings
from ai_platform_engineering.knowledge_bases.datasources import Places
from ai_platform_engineering.knowledge_bases.indexing.ingest_pass import Pace
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.results import Result
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher, Limits
from ai_platform_engineering.knowledge_bases.sources.shipped_documentation import BuiltIn
from ai_platform_engineering.knowledge_bases.sources.source_factory import Surroundings
from ai_platform_engineering.knowledge_bases.stores.embedded.store import EmbeddedStore
from ai_platform_engineering.knowledge_bases.stores.store import Job
from ai_platform_engineering.knowledge_bases.tool_schemas import answered
from tests.support.fakes.embedding import WordVectors


def made(
    home: Path,
    embedder: WordVectors | None = None,
    *,
    env: dict[str, str] | None = None,
    private: bool = False,
    pace: Pace | None = None,
    docs: Path | None = None,
) -> KnowledgeBase:
    """Not open yet. `docs`: where this product's documentation is; without it there is none."""
    settings: KnowledgeSettings = Settings.of(env or {}).knowledge
    fetcher = Fetcher(Limits(size=settings.fetch_bytes, seconds=settings.fetch_seconds), allow_private=private)
    places = Places(Surroundings(fetcher, home / "cache", {}), BuiltIn(docs))
    store = EmbeddedStore(home / "knowledge")
    return KnowledgeBase(store, embedder, places, longest=settings.max_output_chars, pace=pace, own_docs=docs is not None)


@contextlib.asynccontextmanager
async def opened(home: Path, embedder: WordVectors | None = None, **options: Any) -> AsyncIterator[KnowledgeBase]:
    kb = made(home, embedder, **options)
    await kb.open()
    try:
        yield kb
    finally:
        await kb.aclose()


def written(folder: Path, **texts: str) -> Path:
    """Files by name; two underscores stand for a dot, and one without is Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / (name.replace("__", ".") if "__" in name else f"{name}.md")).write_text(text, encoding="utf-8")
    return folder


async def finished(kb: KnowledgeBase, job: Job) -> Job:
    async with asyncio.timeout(60):
        async for seen in kb.follow(job.job_id):
            job = seen
    return job


async def added(kb: KnowledgeBase, location: Path | str, **options: Any) -> Job:
    return await finished(kb, (await kb.add(str(location), **options))[1])


async def refreshed(kb: KnowledgeBase, name: str) -> Job:
    return await finished(kb, await kb.refresh(name))


def figures(job: Job) -> tuple[str, int, int, int, int]:
    return job.state, job.done, job.skipped, job.removed, len(job.failed)


async def titles(kb: KnowledgeBase, query: str, **more: Any) -> list[str]:
    found: list[Result] = await kb.search(query, **more)
    return [result.title for result in found]


async def asked(kb: KnowledgeBase, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a model gets."""
    said = json.loads(await answered(kb, tool, arguments))
    assert isinstance(said, dict)
    return said


async def until(holds: Callable[[], Any]) -> None:
    """Waits for something that another process does."""
    async with asyncio.timeout(60):
        while True:
            found = holds()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.02)
