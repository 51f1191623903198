"""What every storage of the run log must do with tool results that are too long for messages."""

import sqlite3
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import Fenced, RunNotFound
from ai_platform_engineering.core.events import Answered, RunStarted, TextPart
from ai_platform_engineering.runtime.log.log_rows import NewRun
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.runtime.log.result_store import CHUNK_CHARS, PackedResult, ResultLimits
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog

STORAGES: dict[str, Callable[[Path], RunLog]] = {
    "memory": lambda _: MemoryLog(),
    "sqlite": lambda folder: SqliteLog.open(folder / "runs.db", tick=0),
}
LIMITS = ResultLimits(run_bytes=10_000_000, total_bytes=10_000_000)
LATER = datetime(9000, 1, 1, tzinfo=UTC)
TEXT = "".join(f"{number} zażółć \ud83d\ude00 " for number in range(60_000)) + "\ud800"


@pytest.fixture(params=STORAGES.values(), ids=STORAGES.keys())
def run_log(request: pytest.FixtureRequest, tmp_path: Path) -> RunLog:
    log: RunLog = request.param(tmp_path)
    return log


async def create(log: RunLog, context_id: str = "c", owner: str = "ann") -> str:
    run_id = str(uuid.uuid4())
    started = RunStarted(message_id=run_id, parts=(TextPart(text="?"),), owner=owner, principal=owner)
    await log.create(NewRun(run_id, context_id, owner, run_id, "d", started, lasting_id=True))
    return run_id


async def store(log: RunLog, run_id: str, text: str, limits: ResultLimits = LIMITS) -> str:
    result = PackedResult.pack(text)
    await log.results.store(run_id, 1, result, limits)
    return result.result_id


async def is_stored(log: RunLog, run_id: str, result_id: str) -> bool:
    return await log.results.read(run_id, result_id, 0, 1) is not None


async def test_parts_are_read_as_they_were_stored(run_log: RunLog) -> None:
    run_id = await create(run_log)
    result_id = await store(run_log, run_id, TEXT)
    ends = [0, 1, CHUNK_CHARS - 5, CHUNK_CHARS, 3 * CHUNK_CHARS - 1, len(TEXT) - 7, len(TEXT), len(TEXT) + 9]
    for start in ends:
        for length in (1, 10, CHUNK_CHARS, 2 * CHUNK_CHARS + 1):
            part = await run_log.results.read(run_id, result_id, start, length)
            assert part is not None
            assert (part.text, part.start, part.chars) == (TEXT[start : start + length], start, len(TEXT))
    content = await run_log.results.read_all(run_id, result_id)
    assert content == TEXT.encode("utf-8", "surrogatepass")


async def test_only_runs_of_the_same_conversation_read_a_result(run_log: RunLog) -> None:
    run_id = await create(run_log)
    result_id = await store(run_log, run_id, TEXT)
    assert await is_stored(run_log, await create(run_log), result_id)
    for reader in (await create(run_log, "other"), await create(run_log, owner="bob"), "no-such-run"):
        assert not await is_stored(run_log, reader, result_id)
        assert await run_log.results.read_all(reader, result_id) is None
    # Who has stored the same text in another conversation reads that one.
    other = await create(run_log, "other")
    assert await store(run_log, other, TEXT) == result_id
    assert await is_stored(run_log, other, result_id)


async def test_the_oldest_results_go_first(run_log: RunLog) -> None:
    first, second = await create(run_log), await create(run_log, "d")
    texts = [f"{number}" * 1_000 for number in range(5)]
    size = PackedResult.pack(texts[0]).bytes
    of_run = ResultLimits(run_bytes=2 * size + size // 2, total_bytes=100 * size)
    ids = [await store(run_log, first, text, of_run) for text in texts[:3]]
    assert [await is_stored(run_log, first, result_id) for result_id in ids] == [False, True, True]
    in_all = ResultLimits(run_bytes=100 * size, total_bytes=2 * size + size // 2)
    newest = await store(run_log, second, texts[3], in_all)
    assert [await is_stored(run_log, first, result_id) for result_id in ids] == [False, False, True]
    assert await is_stored(run_log, second, newest)
    # One that is stored again is new again.
    await store(run_log, first, texts[2], in_all)
    await store(run_log, first, texts[4], in_all)
    assert await is_stored(run_log, first, ids[2])
    assert not await is_stored(run_log, second, newest)


async def test_results_are_deleted_with_their_runs(run_log: RunLog) -> None:
    first, second, third = await create(run_log), await create(run_log, "d"), await create(run_log, "d")
    result_id = await store(run_log, first, TEXT)
    await store(run_log, second, TEXT)
    await run_log.append(first, 1, [Answered(text="Yes.", trace_id="t")])
    await run_log.append(second, 1, [Answered(text="Yes.", trace_id="t")])
    assert await run_log.delete_conversation("ann", "d") == 1
    assert not await is_stored(run_log, third, result_id)
    assert await run_log.delete_runs(LATER) == 1
    assert not await is_stored(run_log, await create(run_log), result_id)
    with pytest.raises(RunNotFound):
        await store(run_log, first, TEXT)


async def test_an_older_writer_stores_nothing(run_log: RunLog) -> None:
    run_id = await create(run_log)
    await run_log.advance_epoch(run_id)
    with pytest.raises(Fenced):
        await store(run_log, run_id, TEXT)
    assert not await is_stored(run_log, run_id, PackedResult.pack(TEXT).result_id)


async def test_a_file_keeps_results_and_nothing_of_deleted_ones(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    log = SqliteLog.open(path, tick=0)
    run_id = await create(log)
    result_id = await store(log, run_id, TEXT)
    await log.close()
    log = SqliteLog.open(path, tick=0)
    assert await is_stored(log, run_id, result_id)
    await log.append(run_id, 1, [Answered(text="Yes.", trace_id="t")])
    await log.delete_runs(LATER)
    await log.close()
    with sqlite3.connect(path) as db:
        for table in ("results", "result_chunks"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        assert db.execute("SELECT bytes FROM result_total").fetchone() == (0,)
    db.close()


def test_a_result_that_is_too_large_does_not_fit() -> None:
    packed = PackedResult.pack("x" * 100)
    assert packed.fits(ResultLimits(packed.bytes, packed.bytes))
    assert not packed.fits(ResultLimits(packed.bytes - 1, packed.bytes))
    assert not packed.fits(ResultLimits(packed.bytes, packed.bytes - 1))
