"""Queries of the run log on a database: finding and listing runs, conversations and requests."""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ai_platform_engineering.a2a.codec import TaskRef
from ai_platform_engineering.core.events import StoredEvent
from ai_platform_engineering.databases.sql_connections import Row
from ai_platform_engineering.files.sqlite_file import microseconds
from ai_platform_engineering.runtime.log import conversation_rows, run_details, run_queries, run_rows
from ai_platform_engineering.runtime.log.conversation_rows import ConversationPage, ConversationPosition
from ai_platform_engineering.runtime.log.log_database import LogDatabase
from ai_platform_engineering.runtime.log.log_rows import (
    LAST_RUNS,
    RequestPage,
    RunFilter,
    RunPage,
    RunPosition,
    RunRow,
)
from ai_platform_engineering.runtime.log.run_details import DetailsFilter, DetailsPage

_LAST_CHARACTER = "\U0010ffff"  # it sorts behind every id that goes on after a prefix


class DatabaseQueries:
    """The queries of a run log; lists are read in a thread."""

    def __init__(self, database: LogDatabase) -> None:
        self._database = database

    async def list_runs(
        self, run_filter: RunFilter, *, after: RunPosition | None = None, limit: int
    ) -> RunPage:
        return await self._database.read(lambda db: run_queries.list_runs(db, run_filter, after, limit))

    async def list_details(
        self, details_filter: DetailsFilter, *, after: int | None = None, limit: int
    ) -> DetailsPage:
        return await self._database.read(
            lambda db: run_details.list_details(db, details_filter, after, limit)
        )

    async def find_runs_by_prefix(self, owner: str, prefix: str, limit: int) -> list[TaskRef]:
        query = (
            "SELECT run_id, context_id FROM runs WHERE owner = ? AND run_id >= ? AND run_id < ?"
            " ORDER BY run_id LIMIT ?"
        )
        rows = await self._database.query(query, owner, prefix, f"{prefix}{_LAST_CHARACTER}", limit)
        return [TaskRef(row["run_id"], row["context_id"]) for row in rows]

    async def find_contexts_by_prefix(self, owner: str, prefix: str, limit: int) -> list[str]:
        query = (
            "SELECT DISTINCT context_id FROM runs WHERE owner = ? AND context_id >= ? AND context_id < ?"
            " ORDER BY context_id LIMIT ?"
        )
        rows = await self._database.query(query, owner, prefix, f"{prefix}{_LAST_CHARACTER}", limit)
        return [row["context_id"] for row in rows]

    async def find_open_runs(self, owner: str, context_id: str) -> list[RunRow]:
        query = (
            "SELECT * FROM runs WHERE owner = ? AND context_id = ? AND status <> 'ended' ORDER BY number DESC"
        )
        return list(map(run_rows.read_run, await self._database.query(query, owner, context_id)))

    async def find_run_of_message(self, owner: str, context_id: str, message_id: str) -> RunRow | None:
        query = (
            "SELECT * FROM runs WHERE owner = ? AND message_id = ? AND context_id = ?"
            " ORDER BY number DESC LIMIT 1"
        )
        return await self._first_run(query, owner, message_id, context_id)

    async def find_asking_run(self, owner: str, context_id: str) -> RunRow | None:
        query = (
            "SELECT * FROM (SELECT * FROM runs WHERE owner = ? AND context_id = ?"
            " ORDER BY number DESC LIMIT ?) AS last_runs WHERE run_id IN (SELECT run_id FROM pending) LIMIT 1"
        )
        return await self._first_run(query, owner, context_id, LAST_RUNS)

    async def has_conversation(self, owner: str, context_id: str) -> bool:
        query = "SELECT 1 FROM runs WHERE owner = ? AND context_id = ? LIMIT 1"
        return await self._first_row(query, owner, context_id) is not None

    async def list_conversations(
        self, owner: str, *, query: str = "", after: ConversationPosition | None = None, limit: int
    ) -> ConversationPage:
        return await self._database.read(
            lambda db: conversation_rows.list_conversations(db, owner, query, after, limit)
        )

    async def find_unfinished(self) -> list[RunRow]:
        rows = await self._database.query("SELECT * FROM runs WHERE status <> 'ended' ORDER BY number")
        return list(map(run_rows.read_run, rows))

    async def read_outlines(self, run_ids: Sequence[str]) -> dict[str, list[StoredEvent]]:
        return await self._database.read(lambda db: run_queries.read_outlines(db, run_ids))

    async def list_open_requests(self, owner: str, *, after: int = 0, limit: int) -> RequestPage:
        now = time.time_ns() // 1000
        return await self._database.read(
            lambda db: run_queries.list_open_requests(db, owner, now, after, limit)
        )

    async def find_overdue_runs(self, limit: int) -> list[str]:
        query = (
            "SELECT run_id FROM pending WHERE status = 'pending' AND expires_at <= ?"
            " GROUP BY run_id ORDER BY min(expires_at) LIMIT ?"
        )
        return [row["run_id"] for row in await self._database.query(query, time.time_ns() // 1000, limit)]

    async def find_expired_conversations(
        self, older_than: datetime, *, after: tuple[str, str] = ("", ""), limit: int
    ) -> list[tuple[str, str]]:
        before = microseconds(older_than)
        return await self._database.read(
            lambda db: run_queries.find_expired_conversations(db, before, after, limit)
        )

    async def has_run_since(self, owner: str, context_id: str, moment: datetime) -> bool:
        query = (
            "SELECT 1 FROM runs WHERE owner = ? AND context_id = ?"
            " AND (status <> 'ended' OR updated >= ?) LIMIT 1"
        )
        return await self._first_row(query, owner, context_id, microseconds(moment)) is not None

    async def _first_row(self, query: str, *values: Any) -> Row | None:
        for row in await self._database.query(query, *values):
            return row  # type: ignore[no-any-return]
        return None

    async def _first_run(self, query: str, *values: Any) -> RunRow | None:
        row = await self._first_row(query, *values)
        if row is None:
            return None
        return run_rows.read_run(row)
