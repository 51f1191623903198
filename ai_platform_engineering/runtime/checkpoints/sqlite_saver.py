"""LangGraph's checkpointer for SQLite on two threads of ours: each call is one hop, and writes share commits.

The SDK's asynchronous saver takes a hop for each statement, with one lock for all conversations.
"""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.sqlite import SqliteSaver

from ai_platform_engineering.databases.sql_connections import SqlConnection, Work
from ai_platform_engineering.runtime.log.sqlite_database import SqliteWriter

log = logging.getLogger(__name__)

_SHARE_SECONDS = 0.005  # how long a write that nobody waits for is held back, to share a commit
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
        self._writer = SqliteWriter(writer, "writer of checkpoints", tick=0)
        # By thread: the last write that waits for the next commit.
        self._unstored: dict[str, asyncio.Future[Any]] = {}

    def close(self) -> None:
        """Commits what was submitted, and closes both connections; it waits, so not in the event loop."""
        self._writer.close()
        self._saver.conn.close()
        with self._reader.lock:
            self._reader.conn.close()

    @property
    def commits(self) -> int:
        return self._writer.commits

    async def write(self, thread_id: str, work: Work[Any]) -> Any:
        """Runs a function on a thread with the writing connection, as a part of the next commit."""
        return await self._submit_later(thread_id, work)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        await self._wait_until_stored(config)
        return await asyncio.to_thread(self._reader.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        await self._wait_until_stored(config)
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
        def put(_db: SqlConnection, _now: int) -> RunnableConfig:
            return self._saver.put(config, checkpoint, metadata, new_versions)

        if metadata.get("source") == "input":
            # The graph runs no node of ours before its next checkpoint is stored, and with it this one. A
            # crash in between is a crash before the first checkpoint: the question is asked again.
            self._submit_later(_thread_of(config), put).add_done_callback(_log_failure)
            return _config_of(config, checkpoint)
        return await self._writer.submit(put)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        def put(_db: SqlConnection, _now: int) -> None:
            self._saver.put_writes(config, writes, task_id, task_path)

        if any(channel in WRITES_IDX_MAP for channel, _ in writes):
            await self._writer.submit(put)  # an interrupt or an error: no checkpoint follows
        else:
            await self._submit_later(_thread_of(config), put)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._writer.submit(lambda _db, _now: self._saver.delete_thread(thread_id))

    def get_next_version(self, current: str | None, channel: None) -> str:
        return self._saver.get_next_version(current, channel)

    def _submit_later(self, thread_id: str, work: Work[Any]) -> asyncio.Future[Any]:
        """Submits a write that shares the commit of the next checkpoint, of whatever conversation."""
        stored = self._writer.submit(work, within=_SHARE_SECONDS)
        self._unstored[thread_id] = stored
        stored.add_done_callback(lambda _: self._remove_unstored(thread_id, stored))
        return stored

    def _remove_unstored(self, thread_id: str, stored: asyncio.Future[Any]) -> None:
        if self._unstored.get(thread_id) is stored:
            del self._unstored[thread_id]

    async def _wait_until_stored(self, config: RunnableConfig | None) -> None:
        """Waits for the earlier writes of the conversation, or of all: readers see them."""
        unstored = set(self._unstored.values())
        if config is not None:
            of_thread = self._unstored.get(_thread_of(config))
            unstored = {of_thread} if of_thread is not None else set()
        if unstored:
            self._writer.commit_soon()
            await asyncio.wait(unstored)


def _thread_of(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])


def _config_of(config: RunnableConfig, checkpoint: Checkpoint) -> RunnableConfig:
    """Where a checkpoint is stored, as LangGraph's saver says it."""
    place = {
        "thread_id": config["configurable"]["thread_id"],
        "checkpoint_ns": config["configurable"]["checkpoint_ns"],
        "checkpoint_id": checkpoint["id"],
    }
    return {"configurable": place}


def _log_failure(stored: asyncio.Future[Any]) -> None:
    if not stored.cancelled() and (error := stored.exception()) is not None:
        log.error("The first checkpoint of a turn was not stored: %s", type(error).__name__)
