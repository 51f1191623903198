"""Conversations in an SQLite file: the embedded default, for one process."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import aiosqlite
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.sqlite.aio import AsyncSqliteStore

from ai_platform_engineering.runtime.checkpoints.backend import BackendOptions, OpenBackend, stop_store_task
from ai_platform_engineering.runtime.checkpoints.database_choice import DatabaseChoice

_OLDER = """DELETE FROM checkpoints WHERE thread_id = ? AND EXISTS (
    SELECT 1 FROM checkpoints newer WHERE newer.thread_id = checkpoints.thread_id
    AND newer.checkpoint_ns = checkpoints.checkpoint_ns AND newer.checkpoint_id > checkpoints.checkpoint_id)"""
_SUBGRAPHS = "DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_ns <> ''"
_LEFT_WRITES = """DELETE FROM writes WHERE thread_id = ? AND NOT EXISTS (
    SELECT 1 FROM checkpoints kept WHERE kept.thread_id = writes.thread_id
    AND kept.checkpoint_ns = writes.checkpoint_ns AND kept.checkpoint_id = writes.checkpoint_id)"""

_SPARE = 256  # pages, which the next turn takes again


async def open_sqlite(choice: DatabaseChoice, terms: BackendOptions, stack: AsyncExitStack) -> OpenBackend:
    path = Path(choice.address)
    await asyncio.to_thread(_prepare, path)
    saver = AsyncSqliteSaver(await _connection(path, stack))
    stack.push_async_callback(_end, saver.conn, saver.lock)
    await saver.setup()
    # The store opens transactions of its own, so it gets a connection of its own.
    store = AsyncSqliteStore(await _connection(path, stack, own_transactions=True))
    stack.push_async_callback(_end, store.conn, store.lock)
    stack.push_async_callback(stop_store_task, store)
    await store.setup()

    async def prune(thread_id: str, idle: bool) -> None:
        async with saver.lock:
            for statement in (_OLDER, *([_SUBGRAPHS] if idle else []), _LEFT_WRITES):
                await saver.conn.execute(statement, (thread_id,))
            await saver.conn.commit()
            await _give_back(saver.conn)

    return OpenBackend(saver, store, prune)


async def _give_back(connection: aiosqlite.Connection) -> None:
    """Shortens the file: every step of a turn stores the whole conversation, so most of it is free afterwards."""
    ((free,),) = await connection.execute_fetchall("PRAGMA freelist_count")
    if free > _SPARE:
        # As a script: the driver ends a single statement after its first step, and each step frees one page.
        await connection.executescript(f"PRAGMA incremental_vacuum({free - _SPARE})")


def _prepare(path: Path) -> None:
    """Conversations are nobody else's to read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600, exist_ok=True)


async def _connection(
    path: Path, stack: AsyncExitStack, *, own_transactions: bool = False
) -> aiosqlite.Connection:
    opening = aiosqlite.connect(path, isolation_level=None) if own_transactions else aiosqlite.connect(path)
    connection = await stack.enter_async_context(opening)
    for pragma in (
        "busy_timeout = 30000",
        "auto_vacuum = INCREMENTAL",
        "journal_mode = WAL",
        "synchronous = NORMAL",
    ):
        await connection.execute(f"PRAGMA {pragma}")
    return connection


async def _end(connection: aiosqlite.Connection, lock: asyncio.Lock) -> None:
    """Closes between two writes: one that is cut off in the middle of a run's end would go on holding the file after the close."""
    async with lock:
        await connection.rollback()
        await connection.close()
