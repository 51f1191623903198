"""Every storage of the run log, for tests that run over all of them; a conftest has the servers."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg import sql

from ai_platform_engineering.databases.postgres_database import PostgresAddress
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.runtime.log.postgres_log import PostgresLog
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog
from tests.support.database_servers import DatabaseServers

NAMES = ("memory", "sqlite", "postgres")
LogOpener = Callable[[Path], RunLog]

_FREE: list[PostgresAddress] = []  # that no test uses now


def new_address(servers: DatabaseServers) -> PostgresAddress:
    """A schema that nobody else uses."""
    return PostgresAddress(servers.postgres, f"test_{uuid.uuid4().hex}")


def log_opener(name: str, request: pytest.FixtureRequest) -> LogOpener:
    """Opens an empty log, below a folder or in a schema of its own."""
    match name:
        case "memory":
            return lambda _: MemoryLog()
        case "sqlite":
            return lambda folder: SqliteLog.open(folder / "caipe.db", tick=0)
        case _:
            servers: DatabaseServers = request.getfixturevalue("servers")
            return lambda _: PostgresLog.open(_lend_address(servers, request), tick=0)


def _lend_address(servers: DatabaseServers, request: pytest.FixtureRequest) -> PostgresAddress:
    """A schema with empty tables, until the test ends: to create them takes longer than most tests."""
    address = new_address(servers)
    if _FREE:
        address = _FREE.pop()
        db = address.connect().raw
        with db:
            tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (address.schema,))
            names = [sql.Identifier(row[0]) for row in tables if row[0] != "schema_versions"]
            db.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY").format(sql.SQL(", ").join(names)))
    request.addfinalizer(lambda: _FREE.append(address))
    return address
