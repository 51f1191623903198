"""Every database that holds checkpoints, for tests that run over all of them; a conftest has the fixture."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.storage_settings import StorageSettings
from ai_platform_engineering.runtime.checkpoints.checkpointer import Checkpoints, open_checkpoints
from tests.support.database_servers import DatabaseServers

LASTING = ("sqlite", "postgres", "redis-modules", "redis-plain", "mongodb")
EVERY = ("memory", *LASTING)


def storage(**variables: str) -> StorageSettings:
    return Settings.from_variables(variables).storage


@asynccontextmanager
async def opened(settings: StorageSettings, home: Path) -> AsyncIterator[Checkpoints]:
    checkpoints = await open_checkpoints(settings, home)
    try:
        yield checkpoints
    finally:
        await checkpoints.aclose()


class Database:
    """A backend under test: how it is chosen, and where it keeps files."""

    def __init__(self, name: str, settings: StorageSettings, home: Path) -> None:
        self.name, self.settings, self.home = name, settings, home

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Checkpoints]:
        async with opened(self.settings, self.home) as checkpoints:
            assert checkpoints.problem is None
            yield checkpoints


def make_database(name: str, servers: DatabaseServers, home: Path) -> Database:
    settings_factories: dict[str, Callable[[], StorageSettings]] = {
        "memory": lambda: storage(DATABASE_URL="memory://"),
        "sqlite": storage,
        "postgres": lambda: storage(DATABASE_URL=servers.postgres),
        "redis-modules": lambda: storage(REDIS_URL=servers.redis_with_modules),
        "redis-plain": lambda: storage(
            LANGGRAPH_CHECKPOINT_TYPE="redis", LANGGRAPH_CHECKPOINT_REDIS_URL=servers.redis
        ),
        "mongodb": lambda: storage(MONGODB_URI=servers.mongodb),
    }
    return Database(name, settings_factories[name](), home)


def over(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("database", names, indirect=True)
