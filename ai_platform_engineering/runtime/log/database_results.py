"""Stored tool results in the database of the run log."""

import asyncio

from ai_platform_engineering.databases.sql_connections import SqlConnection
from ai_platform_engineering.runtime.log import result_rows, run_rows
from ai_platform_engineering.runtime.log.log_database import LogDatabase
from ai_platform_engineering.runtime.log.result_store import (
    PackedResult,
    ResultLimits,
    ResultPart,
    cut_part,
    find_chunks,
    unpack_chunk,
)

_CHUNKS_AT_ONCE = 8  # in one commit, so that a long result delays no run


class DatabaseResults:
    """The results of runs, in compressed chunks."""

    def __init__(self, database: LogDatabase) -> None:
        self._database = database

    async def store(self, run_id: str, epoch: int, result: PackedResult, limits: ResultLimits) -> None:
        def touch(db: SqlConnection, now: int) -> bool:
            return result_rows.touch(db, now, run_rows.find_writable_run(db, run_id, epoch), result.result_id)

        def store(db: SqlConnection, now: int) -> None:
            result_rows.store(db, now, run_rows.find_writable_run(db, run_id, epoch), result, limits)

        if await self._database.submit(touch):
            return
        for first in range(0, len(result.chunks), _CHUNKS_AT_ONCE):
            await self._store_chunks(run_id, epoch, result, first)
        await self._database.submit(store)

    async def _store_chunks(self, run_id: str, epoch: int, result: PackedResult, first: int) -> None:
        chunks = result.chunks[first : first + _CHUNKS_AT_ONCE]

        def store(db: SqlConnection, now: int) -> None:
            run = run_rows.find_writable_run(db, run_id, epoch)
            result_rows.store_chunks(db, run, result.result_id, first, chunks)

        await self._database.submit(store)

    async def read(self, run_id: str, result_id: str, start: int, length: int) -> ResultPart | None:
        def read(db: SqlConnection) -> ResultPart | None:
            row = result_rows.find(db, run_id, result_id)
            if row is None:
                return None
            numbers = find_chunks(start, length)
            packed = result_rows.read_chunks(db, row, result_id, numbers[0], numbers[-1])
            text = cut_part([unpack_chunk(chunk) for chunk in packed], start, length)
            return ResultPart(text, start, row.chars)

        return await self._database.read(read)

    async def read_all(self, run_id: str, result_id: str) -> bytes | None:
        def read(db: SqlConnection) -> list[bytes] | None:
            row = result_rows.find(db, run_id, result_id)
            if row is None:
                return None
            numbers = find_chunks(0, row.chars)
            return result_rows.read_chunks(db, row, result_id, numbers[0], numbers[-1])

        packed = await self._database.read(read)
        if packed is None:
            return None
        return await asyncio.to_thread(lambda: b"".join(map(unpack_chunk, packed)))
