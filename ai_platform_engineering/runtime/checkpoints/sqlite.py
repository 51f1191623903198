"""Checkpoints and store in an SQLite file: the default, for one process."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import aiosqlite
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.sqlite.aio import AsyncSqliteStore

from ai_platform_engineering.runtime.checkpoints.backend import BackendOptions, OpenBackend, stop_store_task
from ai_platform_engineering.runtime.checkpoints.database_choice import DatabaseChoice

_DELETE_OLDER = """DELETE FROM checkpoints WHERE thread_id = ? AND EXISTS (
    SELECT 1 FROM checkpoints newer WHERE newer.thread_id = checkpoints.thread_id
    AND newer.checkpoint_ns = checkpoints.checkpoint_ns
    AND newer.checkpoint_id > checkpoints.checkpoint_id)"""
_DELETE_SUBGRAPHS = "DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_ns <> ''"
_DELETE_ORPHANED_WRITES = """DELETE FROM writes WHERE thread_id = ? AND NOT EXISTS (
    SELECT 1 FROM checkpoints kept WHERE kept.thread_id = writes.thread_id
    AND kept.checkpoint_ns = writes.checkpoint_ns AND kept.checkpoint_id = writes.checkpoint_id)"""

_SPARE_PAGES = 256  # free pages that stay in the file for the next turn


async def open_sqlite(choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack) -> OpenBackend:
    path = Path(choice.address)
    await asyncio.to_thread(_create_file, path)
    saver = AsyncSqliteSaver(await _open_connection(path, stack))
    stack.push_async_callback(_close_connection, saver.conn, saver.lock)
    await saver.setup()
    # The store opens transactions of its own, so it gets a connection of its own.
    store = AsyncSqliteStore(await _open_connection(path, stack, own_transactions=True))
    stack.push_async_callback(_close_connection, store.conn, store.lock)
    stack.push_async_callback(stop_store_task, store)
    await store.setup()

    async def prune(thread_id: str, idle: bool) -> None:
        async with saver.lock:
            await saver.conn.execute(_DELETE_OLDER, (thread_id,))
            if idle:
                await saver.conn.execute(_DELETE_SUBGRAPHS, (thread_id,))
            await saver.conn.execute(_DELETE_ORPHANED_WRITES, (thread_id,))
            await saver.conn.commit()
            await _shrink_file(saver.conn)

    return OpenBackend(saver, store, prune)


async def _shrink_file(connection: aiosqlite.Connection) -> None:
    """Frees unused pages: each step of a turn stores the whole conversation, so most pages are unused."""
    ((free_pages,),) = await connection.execute_fetchall("PRAGMA freelist_count")
    if free_pages > _SPARE_PAGES:
        # As a script: the driver ends a single statement after its first step, and each step frees one page.
        await connection.executescript(f"PRAGMA incremental_vacuum({free_pages - _SPARE_PAGES})")


def _create_file(path: Path) -> None:
    """Creates the file with permissions for its owner only: conversations are private."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600, exist_ok=True)


async def _open_connection(
    path: Path, stack: AsyncExitStack, *, own_transactions: bool = False
) -> aiosqlite.Connection:
    if own_transactions:
        connector = aiosqlite.connect(path, isolation_level=None)
    else:
        connector = aiosqlite.connect(path)
    connection = await stack.enter_async_context(connector)
    for pragma in (
        "busy_timeout = 30000",
        "auto_vacuum = INCREMENTAL",
        "journal_mode = WAL",
        "synchronous = NORMAL",
    ):
        await connection.execute(f"PRAGMA {pragma}")
    return connection


async def _close_connection(connection: aiosqlite.Connection, lock: asyncio.Lock) -> None:
    """Closes the connection between two writes: an interrupted write would hold the file after the close."""
    async with lock:
        await connection.rollback()
        await connection.close()
