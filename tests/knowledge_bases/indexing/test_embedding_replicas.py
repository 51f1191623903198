"""Vectors with two knowledge bases on one PostgreSQL: one makes them at a time, and nobody twice."""

import asyncio
from pathlib import Path

import pytest

from ai_platform_engineering.knowledge_bases.access import OPERATOR
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_store import PostgresStore
from tests.knowledge_bases.conftest import Replica
from tests.support.fakes.embedding import WordVectors
from tests.support.knowledge import add_datasource, write_files


def some_documents(folder: Path, count: int) -> Path:
    texts = {f"{folder.name}-{number}": f"# {folder.name} {number}\n\nText.\n" for number in range(count)}
    return write_files(folder, **texts)


async def count_embedded(kb: KnowledgeBase) -> list[tuple[int, int]]:
    return [(datasource.chunks, datasource.embedded) for datasource in await kb.list_datasources(OPERATOR)]


async def test_each_vector_is_made_once(replica: Replica, tmp_path: Path) -> None:
    one, two = WordVectors(), WordVectors()
    async with replica(embedder=one) as first, replica(embedder=two) as second:
        for kb in (first, second):
            await kb.wait_for_embeddings()
        # The first one begins, and the other one has something to embed as well.
        one.release.clear()
        two.release.clear()
        await add_datasource(first, some_documents(tmp_path / "okapi", 3))
        async with asyncio.timeout(60):
            waiting = [asyncio.create_task(far_end.requested.wait()) for far_end in (one, two)]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await add_datasource(second, some_documents(tmp_path / "heron", 3))
        await asyncio.sleep(0.5)
        assert [far_end.requested.is_set() for far_end in (one, two)].count(True) == 1
        one.release.set()
        two.release.set()
        async with asyncio.timeout(120):
            await asyncio.gather(first.wait_for_embeddings(), second.wait_for_embeddings())
        assert await count_embedded(second) == [(3, 3), (3, 3)]
        assert len(one.texts) + len(two.texts) == 6
        for task in waiting:
            task.cancel()


@pytest.mark.full
async def test_vectors_of_a_process_that_died_are_made_by_another(
    replica: Replica, address: str, tmp_path: Path
) -> None:
    async with replica() as kb:
        await add_datasource(kb, some_documents(tmp_path / "okapi", 3))
    dead = PostgresStore(address)
    await dead.open()
    assert await dead.claim_embedding("words", 3.0)
    async with replica(embedder=WordVectors()) as kb:
        async with asyncio.timeout(120):
            await kb.wait_for_embeddings()
        assert await count_embedded(kb) == [(3, 3)]
    await dead.close()
