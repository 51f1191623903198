"""Conversations in PostgreSQL: for several replicas."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.store.postgres.aio import AsyncPostgresStore
from psycopg import AsyncConnection, Error
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.runtime.checkpoints.backend import BackendOptions, OpenBackend, stop_store_task
from ai_platform_engineering.runtime.checkpoints.database_choice import DatabaseChoice

Pool = AsyncConnectionPool[AsyncConnection[DictRow]]

_CONNECTIONS = 10
_SETUP_LOCK = 0x_CA1_9E
_FORGET = (
    "DELETE FROM checkpoints WHERE thread_id = %s AND checkpoint_ns <> ''",
    "DELETE FROM checkpoint_blobs WHERE thread_id = %s AND checkpoint_ns <> ''",
    "DELETE FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_ns <> ''",
)


async def open_postgres(choice: DatabaseChoice, terms: BackendOptions, stack: AsyncExitStack) -> OpenBackend:
    pool = await _pool(choice, terms, stack)
    saver = AsyncPostgresSaver(pool)
    store = AsyncPostgresStore(pool)
    stack.push_async_callback(stop_store_task, store)
    async with _alone(pool):
        await saver.setup()
        await store.setup()

    async def prune(thread_id: str, idle: bool) -> None:
        if idle:
            async with pool.connection() as connection, connection.transaction():
                for statement in _FORGET:
                    await connection.execute(statement, (thread_id,))
        await saver.aprune([thread_id])

    return OpenBackend(saver, store, prune)


async def _pool(choice: DatabaseChoice, terms: BackendOptions, stack: AsyncExitStack) -> Pool:
    try:
        conninfo_to_dict(choice.address)
    except Error:
        # Without the cause: its text quotes the address.
        raise ConfigurationError(f"{choice.variable} is not an address of a PostgreSQL database.") from None
    pool: Pool = AsyncConnectionPool(
        choice.address,
        min_size=1,
        max_size=_CONNECTIONS,
        open=False,
        name="checkpoints",
        check=AsyncConnectionPool.check_connection,
        reconnect_timeout=terms.timeout_seconds,
        kwargs={
            "autocommit": True,
            "prepare_threshold": 0,
            "row_factory": dict_row,
            "connect_timeout": max(2, round(terms.timeout_seconds)),
        },
    )
    stack.push_async_callback(pool.close)
    await pool.open(wait=True, timeout=terms.timeout_seconds)
    return pool


@asynccontextmanager
async def _alone(pool: Pool) -> AsyncIterator[None]:
    """One replica at a time makes the tables; asking again and again, since a waiting statement would block CREATE INDEX CONCURRENTLY."""
    async with pool.connection() as connection:
        while True:
            found = await (
                await connection.execute("SELECT pg_try_advisory_lock(%s) AS got", (_SETUP_LOCK,))
            ).fetchone()
            if found and found["got"]:
                break
            await asyncio.sleep(0.1)
        try:
            yield
        finally:
            await connection.execute("SELECT pg_advisory_unlock(%s)", (_SETUP_LOCK,))
