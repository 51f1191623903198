"""Checkpoints and store in an SQLite file: the default, for one process."""

import asyncio
import os
import sqlite3
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import aiosqlite

from ai_platform_engineering.core.errors import DatabaseUnavailable
from ai_platform_engineering.core.private_files import create_private_folder, open_private_file
from ai_platform_engineering.databases.database_choice import DatabaseChoice
from ai_platform_engineering.databases.sql_connections import SqlConnection
from ai_platform_engineering.files import sqlite_file
from ai_platform_engineering.runtime.checkpoints.backend import (
    BackendOptions,
    CheckpointBackend,
    OpenBackend,
)
from ai_platform_engineering.runtime.checkpoints.serializer import CheckpointSerializer
from ai_platform_engineering.runtime.checkpoints.sqlite_saver import SqliteCheckpointer
from ai_platform_engineering.runtime.checkpoints.sqlite_store import SqliteStore

_DELETE_OLDER = """DELETE FROM checkpoints WHERE thread_id = ? AND EXISTS (
    SELECT 1 FROM checkpoints newer WHERE newer.thread_id = checkpoints.thread_id
    AND newer.checkpoint_ns = checkpoints.checkpoint_ns
    AND newer.checkpoint_id > checkpoints.checkpoint_id)"""
_DELETE_SUBGRAPHS = "DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_ns <> ''"
_DELETE_ORPHANED_WRITES = """DELETE FROM writes WHERE thread_id = ? AND NOT EXISTS (
    SELECT 1 FROM checkpoints kept WHERE kept.thread_id = writes.thread_id
    AND kept.checkpoint_ns = writes.checkpoint_ns AND kept.checkpoint_id = writes.checkpoint_id)"""

_SPARE_PAGES = 256  # free pages that stay in the file for the next turn
_PAGES_AT_ONCE = 2000  # that one turn frees, so that others need not wait long
_BUSY_SECONDS = 30.0
_PRAGMAS = ("auto_vacuum = INCREMENTAL", "journal_mode = WAL", "synchronous = NORMAL")


async def check_sqlite(choice: DatabaseChoice, options: BackendOptions) -> None:
    """Whether the file can be written, or created; neither it nor its folder is."""
    await asyncio.to_thread(check_file, choice)


async def open_sqlite(choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack) -> OpenBackend:
    path = Path(choice.address)
    await asyncio.to_thread(_create_file, path)
    saver = await asyncio.to_thread(_open_saver, path)
    stack.push_async_callback(asyncio.to_thread, saver.close)
    # The store opens transactions of its own, so it gets a connection of its own.
    store = SqliteStore(await _open_connection(path, stack))
    stack.push_async_callback(_close_connection, store.conn, store.lock)
    await store.setup()

    async def prune(thread_id: str, idle: bool) -> None:
        await saver.write(thread_id, lambda db, _: _prune(db, thread_id, idle))

    return OpenBackend(saver, store, prune)


def _prune(db: SqlConnection, thread_id: str, idle: bool) -> None:
    db.execute(_DELETE_OLDER, (thread_id,))
    if idle:
        db.execute(_DELETE_SUBGRAPHS, (thread_id,))
    db.execute(_DELETE_ORPHANED_WRITES, (thread_id,))
    assert isinstance(db, sqlite3.Connection)
    # Each step of a turn stores the whole conversation, so most pages are unused.
    sqlite_file.release_pages(db, _PAGES_AT_ONCE, spare=_SPARE_PAGES)


def _open_saver(path: Path) -> SqliteCheckpointer:
    with ExitStack() as opened:
        writer = sqlite_file.connect(path, busy_seconds=_BUSY_SECONDS, pragmas=_PRAGMAS)
        opened.callback(writer.close)
        reader = sqlite_file.connect(path, busy_seconds=_BUSY_SECONDS)
        opened.callback(reader.close)
        saver = SqliteCheckpointer(writer, reader, CheckpointSerializer())
        opened.pop_all()  # the saver closes them
        return saver


def check_file(choice: DatabaseChoice) -> None:
    """Raises DatabaseUnavailable for a file that can neither be written nor created; blocks."""
    file = Path(choice.address).absolute()
    path = next(path for path in (file, *file.parents) if path.exists())
    is_usable = os.access(path, os.W_OK)
    if path != file:
        is_usable = path.is_dir() and os.access(path, os.W_OK | os.X_OK)
    if not is_usable:
        problem = f"SQLite cannot be used: {path} cannot be written."
        variable = choice.variable or "CAIPE_HOME"
        raise DatabaseUnavailable(problem, f"Set {variable} to a place that can be written.")


def _create_file(path: Path) -> None:
    """Creates the file with permissions for its owner only: conversations are private."""
    create_private_folder(path.parent)
    os.close(open_private_file(path))


async def _open_connection(path: Path, stack: AsyncExitStack) -> aiosqlite.Connection:
    connection = await stack.enter_async_context(
        aiosqlite.connect(path, isolation_level=None, timeout=_BUSY_SECONDS)
    )
    for pragma in _PRAGMAS:
        await connection.execute(f"PRAGMA {pragma}")
    return connection


async def _close_connection(connection: aiosqlite.Connection, lock: asyncio.Lock) -> None:
    """Closes the connection between two writes: an interrupted write would hold the file after the close."""
    async with lock:
        await connection.rollback()
        await connection.close()


SQLITE = CheckpointBackend(check_sqlite, open_sqlite)
