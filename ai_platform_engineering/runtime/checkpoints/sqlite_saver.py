"""LangGraph's checkpointer for SQLite on two threads of ours: each call is one hop, and writes share commits.

The SDK's asynchronous saver takes a hop for each statement, with one lock for all conversations.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.sqlite import SqliteSaver

from ai_platform_engineering.runtime.log.sqlite_database import GroupCommitWriter, Work

_PAGE = 100  # checkpoints that are read at once


class _JoinedSaver(SqliteSaver):
    """The synchronous saver inside a transaction that its caller begins and commits."""

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        with self.lock, closing(self.conn.cursor()) as cursor:
            yield cursor


class SqliteCheckpointer(BaseCheckpointSaver[str]):
    """Checkpoints in a SQLite file, in the tables of LangGraph's own saver."""

    def __init__(
        self, writer: sqlite3.Connection, reader: sqlite3.Connection, serde: SerializerProtocol
    ) -> None:
        """Creates the tables, so not in the event loop; the connections are closed with it."""
        super().__init__(serde=serde)
        SqliteSaver(writer, serde=serde).setup()
        self._saver = _JoinedSaver(writer, serde=serde)
        self._reader = _JoinedSaver(reader, serde=serde)
        # No pause after a commit: each step of a graph waits for its checkpoint.
        self._writer = GroupCommitWriter(writer, "writer of checkpoints", tick=0)

    def close(self) -> None:
        """Commits what was submitted, and closes both connections; it waits, so not in the event loop."""
        self._writer.close()
        self._saver.conn.close()
        with self._reader.lock:
            self._reader.conn.close()

    async def write(self, work: Work[Any]) -> Any:
        """Runs a function with the writing connection, as a part of the next commit."""
        return await self._writer.submit(work)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self._reader.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        remaining = limit
        while remaining is None or remaining > 0:
            size = _PAGE if remaining is None else min(_PAGE, remaining)
            page = await asyncio.to_thread(self._read_page, config, filter, before, size)
            for checkpoint in page:
                yield checkpoint
            if len(page) < size:
                return
            before = page[-1].config
            if remaining is not None:
                remaining -= size

    def _read_page(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int,
    ) -> list[CheckpointTuple]:
        return list(self._reader.list(config, filter=filter, before=before, limit=limit))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await self._writer.submit(
            lambda _db, _now: self._saver.put(config, checkpoint, metadata, new_versions)
        )

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._writer.submit(
            lambda _db, _now: self._saver.put_writes(config, writes, task_id, task_path)
        )

    async def adelete_thread(self, thread_id: str) -> None:
        await self._writer.submit(lambda _db, _now: self._saver.delete_thread(thread_id))

    def get_next_version(self, current: str | None, channel: None) -> str:
        return self._saver.get_next_version(current, channel)
