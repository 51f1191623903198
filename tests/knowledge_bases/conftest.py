"""Real database servers for the knowledge base, and replicas that share one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.knowledge_bases.indexing.ingest_jobs import JobTiming
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_store import PostgresStore
from tests.support.database_servers import DatabaseServers
from tests.support.knowledge import open_knowledge_base

OFTEN = JobTiming(lease=600.0, renew=0.1, look=0.05, follow=0.05)

Replica = Callable[..., AbstractAsyncContextManager[KnowledgeBase]]


@pytest.fixture(scope="module")
def servers() -> Iterator[DatabaseServers]:
    with DatabaseServers() as running:
        yield running


@pytest.fixture
async def address(servers: DatabaseServers) -> str:
    """An empty database."""
    await asyncio.to_thread(empty_knowledge, servers.postgres_with_vectors)
    return servers.postgres_with_vectors


@pytest.fixture
def replica(tmp_path: Path, address: str) -> Replica:
    """Opens one more knowledge base on the database, with a folder of its own."""
    count = 0

    @contextlib.asynccontextmanager
    async def open_replica(**options: Any) -> AsyncIterator[KnowledgeBase]:
        nonlocal count
        count += 1
        home = tmp_path / f"replica-{count}"
        options = {"timing": OFTEN, "private": True, **options}
        async with open_knowledge_base(home, store=PostgresStore(address), **options) as kb:
            yield kb

    return open_replica


def empty_knowledge(address: str) -> None:
    """Removes the knowledge base from a database."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS caipe_kb CASCADE")
