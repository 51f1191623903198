"""The storages of the knowledge base, as fixtures: each test runs on all of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore
from tests.knowledge_bases.conftest import empty_knowledge
from tests.support.database_servers import DatabaseServers

OpenStore = Callable[[], Awaitable[KnowledgeStore]]


@pytest.fixture(params=["embedded", "postgres"])
async def open_store(
    request: pytest.FixtureRequest, tmp_path: Path, servers: DatabaseServers
) -> AsyncIterator[OpenStore]:
    """Opens the same storage as often as it is called; all are closed at the end."""
    stores: list[KnowledgeStore] = []
    if request.param == "postgres":
        await asyncio.to_thread(empty_knowledge, servers.postgres_with_vectors)

    async def open_new() -> KnowledgeStore:
        from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_store import PostgresStore

        new: KnowledgeStore = (
            EmbeddedStore(tmp_path / "kb")
            if request.param == "embedded"
            else PostgresStore(servers.postgres_with_vectors)
        )
        await new.open()
        stores.append(new)
        return new

    yield open_new
    for store in stores:
        await store.close()


@pytest.fixture
async def store(open_store: OpenStore) -> KnowledgeStore:
    return await open_store()
