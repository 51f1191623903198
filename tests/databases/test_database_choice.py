"""Which database keeps the conversations, and what happens when it cannot: memory and a warning, or a refusal
to start."""

import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from ai_platform_engineering.core.errors import ConfigurationError, DatabaseUnavailable
from ai_platform_engineering.databases.database_choice import (
    choose_checkpoint_database,
    choose_store_database,
)
from ai_platform_engineering.runtime.checkpoints.checkpointer import check_databases, open_checkpoints
from tests.support import ports
from tests.support.checkpoint_databases import opened, storage
from tests.support.database_servers import PASSWORD

POSTGRES, REDIS, MONGODB = "postgresql://u:p@db/x", "redis://:p@cache:1/0", "mongodb://u:p@docs/x"


@pytest.mark.parametrize(
    ("variables", "backend", "address"),
    [
        ({}, "sqlite", ""),
        ({"DATABASE_URL": POSTGRES}, "postgres", POSTGRES),
        ({"DATABASE_URL": "postgres://db/x"}, "postgres", "postgres://db/x"),
        (
            {"DATABASE_URL": "postgresql+asyncpg://db/x?sslmode=require"},
            "postgres",
            "postgresql://db/x?sslmode=require",
        ),
        ({"DATABASE_URL": REDIS}, "redis", REDIS),
        ({"DATABASE_URL": "rediss://cache"}, "redis", "rediss://cache"),
        ({"DATABASE_URL": "valkey://cache"}, "redis", "redis://cache"),
        ({"REDIS_URL": "valkeys://cache"}, "redis", "rediss://cache"),
        ({"DATABASE_URL": MONGODB}, "mongodb", MONGODB),
        ({"DATABASE_URL": "mongodb+srv://docs/x"}, "mongodb", "mongodb+srv://docs/x"),
        ({"DATABASE_URL": "sqlite:///here.db"}, "sqlite", "here.db"),
        (
            {"DATABASE_URL": "sqlite+aiosqlite:////data/there%20too.db?mode=rw"},
            "sqlite",
            "/data/there too.db",
        ),
        ({"DATABASE_URL": "sqlite://"}, "memory", ""),
        ({"DATABASE_URL": "sqlite:///:memory:"}, "memory", ""),
        ({"DATABASE_URL": "memory://"}, "memory", ""),
        ({"MONGODB_URI": MONGODB, "REDIS_URL": REDIS}, "mongodb", MONGODB),
        ({"REDIS_URL": REDIS}, "redis", REDIS),
        ({"DATABASE_URL": POSTGRES, "MONGODB_URI": MONGODB, "REDIS_URL": REDIS}, "postgres", POSTGRES),
        ({"LANGGRAPH_CHECKPOINT_TYPE": "memory", "DATABASE_URL": POSTGRES}, "memory", ""),
        (
            {"LANGGRAPH_CHECKPOINT_TYPE": "Redis", "REDIS_URL": REDIS, "DATABASE_URL": POSTGRES},
            "redis",
            REDIS,
        ),
        (
            {
                "LANGGRAPH_CHECKPOINT_TYPE": "redis",
                "REDIS_URL": REDIS,
                "LANGGRAPH_CHECKPOINT_REDIS_URL": "redis://own",
            },
            "redis",
            "redis://own",
        ),
        (
            {"LANGGRAPH_CHECKPOINT_TYPE": "postgres", "LANGGRAPH_CHECKPOINT_POSTGRES_DSN": "host=db"},
            "postgres",
            "host=db",
        ),
        ({"LANGGRAPH_CHECKPOINT_TYPE": "postgres", "DATABASE_URL": POSTGRES}, "postgres", POSTGRES),
        (
            {"LANGGRAPH_CHECKPOINT_TYPE": "mongodb", "LANGGRAPH_CHECKPOINT_MONGODB_URI": MONGODB},
            "mongodb",
            MONGODB,
        ),
        ({"LANGGRAPH_CHECKPOINT_TYPE": "mongodb", "MONGODB_URI": MONGODB}, "mongodb", MONGODB),
        ({"LANGGRAPH_CHECKPOINT_TYPE": "sqlite", "DATABASE_URL": POSTGRES}, "sqlite", ""),
        ({"LANGGRAPH_CHECKPOINT_TYPE": "sqlite", "DATABASE_URL": "sqlite:///here.db"}, "sqlite", "here.db"),
    ],
)
def test_which_database(variables: dict[str, str], backend: str, address: str) -> None:
    choice = choose_checkpoint_database(storage(**variables))
    assert (choice.backend, choice.address) == (backend, address)
    assert choose_store_database(storage(**variables)) == choice
    assert "p@" not in repr(choice)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"LANGGRAPH_CHECKPOINT_TYPE": "postgres"}, "LANGGRAPH_CHECKPOINT_POSTGRES_DSN or DATABASE_URL"),
        (
            {"LANGGRAPH_CHECKPOINT_TYPE": "redis", "DATABASE_URL": POSTGRES},
            "LANGGRAPH_CHECKPOINT_REDIS_URL or REDIS_URL",
        ),
        ({"LANGGRAPH_CHECKPOINT_TYPE": "mongodb"}, "LANGGRAPH_CHECKPOINT_MONGODB_URI or MONGODB_URI"),
        ({"LANGGRAPH_STORE_TYPE": "postgres"}, "LANGGRAPH_CHECKPOINT_POSTGRES_DSN or DATABASE_URL"),
        ({"DATABASE_URL": f"mysql://u:{PASSWORD}@db/x"}, "DATABASE_URL"),
        ({"DATABASE_URL": f"{PASSWORD}"}, "DATABASE_URL"),
        ({"LANGGRAPH_CHECKPOINT_TYPE": "oracle"}, "LANGGRAPH_CHECKPOINT_TYPE"),
        (
            {"LANGGRAPH_CHECKPOINT_TYPE": "postgres", "LANGGRAPH_CHECKPOINT_POSTGRES_DSN": PASSWORD},
            "LANGGRAPH_CHECKPOINT_POSTGRES_DSN",
        ),
        ({"REDIS_URL": f"{PASSWORD}@cache"}, "REDIS_URL"),
        ({"MONGODB_URI": f"{PASSWORD}@docs"}, "MONGODB_URI"),
        ({"MONGODB_URI": f"mongodb://u:{PASSWORD}:x@docs:port"}, "MONGODB_URI"),
    ],
)
async def test_a_setting_that_cannot_be_used_is_named(
    variables: dict[str, str], named: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=named) as raised:
        await open_checkpoints(storage(**variables), tmp_path)
    assert PASSWORD not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.fixture
def closed_port() -> int:
    return ports.closed_port()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


UNREACHABLE = {
    "PostgreSQL": "postgresql://caipe:{}@127.0.0.1:{}/x",
    "Redis": "redis://:{}@127.0.0.1:{}/0",
    "MongoDB": "mongodb://caipe:{}@127.0.0.1:{}/x",
}
REASONS = {
    "closed_port": "nothing listens at its address",
    "silent_port": "it did not answer in time (STORAGE_TIMEOUT_SECONDS)",
}


@pytest.mark.parametrize("name", UNREACHABLE)
@pytest.mark.parametrize("port", REASONS)
async def test_a_database_that_does_not_answer_is_replaced_by_memory(
    name: str, port: str, request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    number = request.getfixturevalue(port)
    problem = f"{name} at 127.0.0.1:{number} cannot be used: {REASONS[port]}."
    settings = storage(DATABASE_URL=UNREACHABLE[name].format(PASSWORD, number), STORAGE_TIMEOUT_SECONDS="0.5")
    async with opened(settings, tmp_path) as checkpoints:
        assert checkpoints.backend == "memory"
        assert isinstance(checkpoints.saver, InMemorySaver)
        assert isinstance(checkpoints.store, InMemoryStore)
    assert checkpoints.problem == (
        f"{problem} Conversations are kept in memory and are lost when the server stops. Check DATABASE_URL."
    )
    with pytest.raises(DatabaseUnavailable, match=re.escape(problem)):
        await check_databases(settings, tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigurationError, match="STORAGE_REQUIRED") as raised:
        await open_checkpoints(settings.model_copy(update={"required": True}), tmp_path)
    assert PASSWORD not in caplog.text + checkpoints.problem + str(raised.value)


async def test_a_home_that_cannot_be_written_is_replaced_by_memory(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    async with opened(storage(), tmp_path / "home") as checkpoints:
        assert checkpoints.backend == "memory"
        assert checkpoints.problem
        assert "SQLite" in checkpoints.problem
