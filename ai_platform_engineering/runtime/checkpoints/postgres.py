"""Checkpoints and store in PostgreSQL."""

import asyncio
import select
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from ai_platform_engineering.databases.database_choice import DatabaseChoice
from ai_platform_engineering.databases.postgres_check import MIN_CONNECT_SECONDS, check_postgres
from ai_platform_engineering.runtime.checkpoints.backend import (
    BackendOptions,
    CheckpointBackend,
    OpenBackend,
    stop_store_task,
)
from ai_platform_engineering.runtime.checkpoints.postgres_retries import RetryingPostgresStore
from ai_platform_engineering.runtime.checkpoints.postgres_saver import FencedPostgresSaver
from ai_platform_engineering.runtime.checkpoints.serializer import CheckpointSerializer

Pool = AsyncConnectionPool[AsyncConnection[DictRow]]

_MAX_CONNECTIONS = 10
_SETUP_LOCK_ID = 0x_CA1_9E
_DELETE_SUBGRAPHS = (
    "WITH of_checkpoints AS (DELETE FROM checkpoints WHERE thread_id = %(thread)s AND checkpoint_ns <> ''),"
    " of_blobs AS (DELETE FROM checkpoint_blobs WHERE thread_id = %(thread)s AND checkpoint_ns <> '')"
    " DELETE FROM checkpoint_writes WHERE thread_id = %(thread)s AND checkpoint_ns <> ''"
)


async def check_address(choice: DatabaseChoice, options: BackendOptions) -> None:
    await check_postgres(
        choice.address, variable=choice.variable, label=choice.label, seconds=options.timeout_seconds
    )


async def open_postgres(
    choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack
) -> OpenBackend:
    pool = await _open_pool(choice, options, stack)
    saver = _make_saver(pool, options)
    store = RetryingPostgresStore(pool)
    stack.push_async_callback(stop_store_task, store)
    async with _setup_lock(pool):
        await saver.setup()
        await store.setup()

    async def prune(thread_id: str, idle: bool) -> None:
        if idle:
            async with pool.connection() as connection:
                await connection.execute(_DELETE_SUBGRAPHS, {"thread": thread_id})
        await saver.aprune([thread_id])

    return OpenBackend(saver, store, prune)


def _make_saver(pool: Pool, options: BackendOptions) -> AsyncPostgresSaver:
    serde = CheckpointSerializer()
    if options.runs_schema is None:
        return AsyncPostgresSaver(pool, serde=serde)
    return FencedPostgresSaver(pool, serde, options.runs_schema)


async def _open_pool(choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack) -> Pool:
    pool: Pool = AsyncConnectionPool(
        choice.address,
        min_size=1,
        max_size=_MAX_CONNECTIONS,
        open=False,
        name="checkpoints",
        configure=_limit_transactions,
        check=_check_connection,
        reconnect_timeout=options.timeout_seconds,
        kwargs={
            "autocommit": True,
            "prepare_threshold": 0,
            "row_factory": dict_row,
            "connect_timeout": max(MIN_CONNECT_SECONDS, round(options.timeout_seconds)),
        },
    )
    stack.push_async_callback(pool.close)
    await pool.open(wait=True, timeout=options.timeout_seconds)
    return pool


async def _check_connection(connection: AsyncConnection[DictRow]) -> None:
    """Asks the server on a connection that has something to read though nobody has asked: one that has ended.

    To ask on each connection before its use would be a round trip for each checkpoint."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):
        await AsyncConnectionPool.check_connection(connection)


async def _limit_transactions(connection: AsyncConnection[DictRow]) -> None:
    """A process that is stopped in the middle of a checkpoint must not hold the lock of its run for long."""
    await connection.execute("SET idle_in_transaction_session_timeout = '5s'")


@asynccontextmanager
async def _setup_lock(pool: Pool) -> AsyncIterator[None]:
    """An advisory lock, so that one replica at a time creates the tables.

    It is polled, since a waiting statement would block CREATE INDEX CONCURRENTLY."""
    async with pool.connection() as connection:
        while True:
            cursor = await connection.execute("SELECT pg_try_advisory_lock(%s) AS got", (_SETUP_LOCK_ID,))
            row = await cursor.fetchone()
            if row and row["got"]:
                break
            await asyncio.sleep(0.1)
        try:
            yield
        finally:
            await connection.execute("SELECT pg_advisory_unlock(%s)", (_SETUP_LOCK_ID,))


POSTGRES = CheckpointBackend(check_address, open_postgres)
