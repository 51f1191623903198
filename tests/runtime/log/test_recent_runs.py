"""The newest rows of runs in memory: the same as in the database, within their limit."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from ai_platform_engineering.core.events import Answered, Paused
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.recent_runs import RecentRuns
from ai_platform_engineering.runtime.log.run_rows import read_run
from ai_platform_engineering.runtime.log.sqlite_database import Database
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog
from tests.runtime.log.test_recent_events import NOW
from tests.runtime.log.test_sqlite_log import created, noted
from tests.support.run_lists import list_all_runs

ROW = RunRow("run", "context", "ann", "ann", "m", "running", 1, 1, NOW, NOW, "working", NOW)


def test_what_was_written_longest_ago_is_dropped_first() -> None:
    recent = RecentRuns(2)
    for run_id in ("a", "b", "a", "c"):
        recent.add(replace(ROW, run_id=run_id))
    assert [recent.get(run_id) is not None for run_id in "abc"] == [True, False, True]
    recent.clear()
    assert recent.get("a") is None


async def test_a_row_is_the_stored_one_after_every_kind_of_change(tmp_path: Path) -> None:
    database = Database(tmp_path / "runs.db")
    log = SqliteLog(database)

    async def check() -> None:
        [stored] = map(read_run, database.rows("SELECT * FROM runs WHERE run_id = 'run'"))
        assert await log.get("run") == stored
        [found] = [item for item in await list_all_runs(log, stored.owner) if item.run_id == "run"]
        assert found == stored

    try:
        row = await created(log)
        await check()
        await log.append("run", row.epoch, [noted(1), noted(2)])
        await check()
        await log.append("run", row.epoch, [Paused(text="Well?")])
        await check()
        epoch = await log.advance_epoch("run")
        await check()
        epoch = (await log.take_over("run")).epoch
        await check()
        await log.append("run", epoch, [Answered(text="Done.", trace_id="t")])
        await check()
        assert await log.delete_runs(NOW + timedelta(days=365_000)) == 1
        assert await log.get("run") is None
    finally:
        await log.close()


async def test_a_run_that_works_is_read_without_queries(tmp_path: Path) -> None:
    database = Database(tmp_path / "runs.db")
    log = SqliteLog(database)
    row = await created(log)
    await log.append("run", row.epoch, [noted(1)])
    queries: list[str] = []
    database._reader.set_trace_callback(queries.append)
    assert [item.seq for item in await log.read("run")] == [1, 2]
    await log.wait_for_event("run", 1)
    stored = await log.get("run")
    assert stored is not None
    assert stored.last_seq == 2
    assert queries == []
    await log.close()
