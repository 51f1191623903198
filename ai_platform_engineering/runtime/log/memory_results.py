"""Stored tool results in memory, for a run log in memory."""

import asyncio
from collections.abc import Callable

from ai_platform_engineering.core.errors import RunNotFound
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.result_store import (
    PackedResult,
    ResultLimits,
    ResultPart,
    cut_part,
    find_chunks,
    unpack_chunk,
)
from ai_platform_engineering.runtime.log.run_log_rules import check_epoch

_MAX_BYTES = 64 * 1024 * 1024  # of all results, whatever the limits are: memory is no disk

_Key = tuple[str, str]  # run id and result id


class MemoryResults:
    """The results of runs in memory, compressed; the oldest one is the first."""

    def __init__(self, find_run: Callable[[str], RunRow]) -> None:
        """`find_run` raises RunNotFound."""
        self._find_run = find_run
        self._results: dict[_Key, PackedResult] = {}

    async def store(self, run_id: str, epoch: int, result: PackedResult, limits: ResultLimits) -> None:
        check_epoch(self._find_run(run_id), epoch)
        self._results.pop((run_id, result.result_id), None)
        of_run = [key for key in self._results if key[0] == run_id]
        self._remove_until(of_run, limits.run_bytes - result.bytes)
        self._remove_until(list(self._results), min(limits.total_bytes, _MAX_BYTES) - result.bytes)
        self._results[run_id, result.result_id] = result

    async def read(self, run_id: str, result_id: str, start: int, length: int) -> ResultPart | None:
        result = self._find(run_id, result_id)
        if result is None:
            return None
        numbers = find_chunks(start, length)
        packed = result.chunks[numbers[0] : numbers[-1] + 1]
        return ResultPart(
            cut_part([unpack_chunk(chunk) for chunk in packed], start, length), start, result.chars
        )

    async def read_all(self, run_id: str, result_id: str) -> bytes | None:
        result = self._find(run_id, result_id)
        if result is None:
            return None
        return await asyncio.to_thread(lambda: b"".join(map(unpack_chunk, result.chunks)))

    def remove_runs(self, run_ids: set[str]) -> None:
        self._results = {key: result for key, result in self._results.items() if key[0] not in run_ids}

    def _find(self, run_id: str, result_id: str) -> PackedResult | None:
        """The result that this run may read."""
        try:
            reader = self._find_run(run_id)
        except RunNotFound:
            return None
        for (stored_by, stored_id), result in reversed(self._results.items()):
            if stored_id != result_id:
                continue
            writer = self._find_run(stored_by)
            if (writer.owner, writer.context_id) == (reader.owner, reader.context_id):
                return result
        return None

    def _remove_until(self, keys: list[_Key], most: int) -> None:
        """Removes the first of these results until at most so many bytes of them are left."""
        total = sum(self._results[key].bytes for key in keys)
        for key in keys:
            if total <= most:
                return
            total -= self._results.pop(key).bytes
