"""Scheduled refreshes: when a datasource is due, once, with a back-off after failures, over restarts."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import Refused, SourceUnavailable
from ai_platform_engineering.knowledge_bases.access import OPERATOR
from ai_platform_engineering.knowledge_bases.indexing.refresh_schedule import (
    RefreshScheduler,
    compute_delay,
    parse_interval,
)
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
from ai_platform_engineering.knowledge_bases.stores.job_store import IngestJob, JobState
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Datasource, RefreshSchedule
from tests.support.knowledge import (
    add_datasource,
    create_knowledge_base,
    open_knowledge_base,
    search_titles,
    wait_until,
    write_files,
)

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
HOUR = 3600


class Refreshes:
    """A scheduler on a real store, with a clock of its own and refreshes that end as they are told."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.store = store
        self.now = NOON
        self.state: JobState = "done"
        self.started: list[str] = []
        self.scheduler = RefreshScheduler(store, self._run, now=lambda: self.now)

    async def _run(self, job: IngestJob) -> IngestJob:
        self.started.append(job.datasource)
        if self.state == "failed" and len(self.started) % 2:  # either way is a failure
            raise SourceUnavailable("away")
        return replace(job, state=self.state)

    async def schedule(self) -> RefreshSchedule:
        (schedule,) = await self.store.list_schedules()
        return schedule


@pytest.fixture
async def refreshes(tmp_path: Path) -> AsyncIterator[Refreshes]:
    store = EmbeddedStore(tmp_path / "kb")
    await store.open()
    await store.put_datasource(Datasource("docs", "/docs", "folder"))
    refreshes = Refreshes(store)
    yield refreshes
    await store.close()


async def test_a_datasource_is_refreshed_when_it_is_due_and_once(refreshes: Refreshes) -> None:
    await refreshes.scheduler.set_interval("docs", HOUR)
    await refreshes.scheduler.run_due()
    assert refreshes.started == []
    first = await refreshes.schedule()
    assert HOUR <= (first.due - NOON).total_seconds() <= 1.1 * HOUR
    refreshes.now = first.due
    await refreshes.scheduler.run_due()
    await refreshes.scheduler.run_due()
    assert refreshes.started == ["docs"]
    assert HOUR <= ((await refreshes.schedule()).due - refreshes.now).total_seconds() <= 1.1 * HOUR


async def test_failures_make_it_rarer_and_a_success_resets_them(refreshes: Refreshes) -> None:
    await refreshes.scheduler.set_interval("docs", HOUR)
    refreshes.state = "failed"
    hours: list[int] = []
    for _ in range(8):
        refreshes.now = (await refreshes.schedule()).due
        await refreshes.scheduler.run_due()
        hours.append(int(((await refreshes.schedule()).due - refreshes.now).total_seconds() // HOUR))
    assert hours == [2, 4, 8, 16, 24, 24, 24, 24]
    assert (await refreshes.schedule()).failures == 8
    refreshes.state = "done"
    refreshes.now = (await refreshes.schedule()).due
    await refreshes.scheduler.run_due()
    last = await refreshes.schedule()
    assert (last.failures, int((last.due - refreshes.now).total_seconds() // HOUR)) == (0, 1)


async def test_a_schedule_that_is_ended_during_the_refresh_stays_ended(refreshes: Refreshes) -> None:
    async def end_it(job: IngestJob) -> IngestJob:
        await scheduler.set_interval(job.datasource, None)
        return replace(job, state="done")

    scheduler = RefreshScheduler(refreshes.store, end_it, now=lambda: NOON)
    await refreshes.store.set_schedule("docs", HOUR, NOON)
    await scheduler.run_due()
    assert await refreshes.store.list_schedules() == []


def test_an_interval_is_longer_than_the_longest_backoff_if_it_says_so() -> None:
    assert compute_delay(7 * 86_400, 3) >= timedelta(days=7)
    assert compute_delay(7 * 86_400, 3) < timedelta(days=8)


@pytest.mark.parametrize(("text", "seconds"), [("5m", 300), ("6h", 21_600), (" 1D ", 86_400)])
def test_intervals_are_written_as_people_do(text: str, seconds: int) -> None:
    assert parse_interval(text) == seconds


@pytest.mark.parametrize("text", ["", "6", "h", "1m", "31d", "0h", "-6h", "1.5h", "* * * * *"])
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_interval(text)


async def make_due(kb: KnowledgeBase) -> None:
    """As if the time had come."""
    store = kb._store
    await store.set_schedule("docs", HOUR, datetime.now(UTC) - timedelta(seconds=1))


async def test_a_server_refreshes_what_became_due_while_it_was_away(tmp_path: Path) -> None:
    docs = write_files(tmp_path / "docs", guide="# Guide\n\nTurn the wheel.\n")
    async with open_knowledge_base(tmp_path) as kb:
        await add_datasource(kb, docs, every=6 * HOUR)
        (datasource,) = await kb.list_datasources(OPERATOR)
        assert datasource.refresh_every == 6 * HOUR
        await make_due(kb)
    write_files(docs, zoo="# Zoo\n\nGiraffes graze.\n")
    # A command that only opens it refreshes nothing.
    async with open_knowledge_base(tmp_path) as kb:
        assert await search_titles(kb, "giraffes") == []
        assert len(await kb.list_jobs()) == 1
    kb = create_knowledge_base(tmp_path)
    await kb.open(scheduled=True)
    try:
        await wait_until(lambda: _has_found(kb))
        jobs = await kb.list_jobs()
        async with asyncio.timeout(60):
            async for _ in kb.follow_job(jobs[0].job_id):
                pass
        (datasource,) = await kb.list_datasources(OPERATOR)
    finally:
        await kb.aclose()
    assert [job.datasource for job in jobs] == ["docs", "docs"]
    assert datasource.refresh_due is not None
    assert datasource.refresh_due > datetime.now(UTC)


async def _has_found(kb: KnowledgeBase) -> bool:
    return await search_titles(kb, "giraffes") == ["Zoo"]
