"""Stored ingest jobs: claimed by one process at a time, with leases and epochs, on each storage."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ai_platform_engineering.knowledge_bases.stores.job_store import (
    ENDED_JOBS_KEPT,
    ClaimedJob,
    ClaimLost,
    IngestJob,
)
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Datasource, KnowledgeStore
from tests.knowledge_bases.stores.conftest import OpenStore
from tests.knowledge_bases.stores.test_store import a_document, filled, found

LONG = 600.0
OVER = -1.0  # a lease that has ended when it begins


async def add(store: KnowledgeStore, datasource: str = "docs", *, again: bool = False) -> IngestJob:
    return await store.jobs.add(datasource, again=again)


async def claim(store: KnowledgeStore, job: IngestJob, seconds: float = LONG) -> ClaimedJob:
    claimed = await store.jobs.claim(job.job_id, "me", seconds)
    assert claimed is not None
    return claimed


async def claimable(store: KnowledgeStore) -> list[str]:
    return [job.job_id for job in await store.jobs.list_claimable()]


async def finish(store: KnowledgeStore, job: IngestJob) -> IngestJob:
    claimed = await claim(store, job)
    return await claimed.end(replace(claimed.job, state="done"))


async def test_jobs_are_listed_newest_first_with_what_they_did(store: KnowledgeStore) -> None:
    before = datetime.now(UTC)
    first = await add(store)
    claimed = await claim(store, first)
    outcome = replace(
        claimed.job,
        state="failed",
        total=10,
        done=8,
        skipped=1,
        removed=1,
        failed=(("a.pdf", "It is encrypted."),),
        cut=(("long.txt", "the last 7 of 9 pages"),),
        problem="It is away.",
    )
    ended = await claimed.end(outcome)
    assert ended == replace(outcome, ended=ended.ended)
    second = await add(store)
    assert await store.jobs.list() == [second, ended]
    assert await store.jobs.list(unfinished=True) == [second]
    assert await store.jobs.find(first.job_id) == ended
    assert await store.jobs.find("other") is None
    assert first.created is not None
    assert ended.ended is not None
    assert abs((first.created - before).total_seconds()) < 60
    assert first.created <= ended.ended


async def test_the_oldest_ended_jobs_are_dropped(store: KnowledgeStore) -> None:
    """A datasource that is refreshed every few minutes would fill the table."""
    other = await finish(store, await add(store, "wiki"))
    ended = [await finish(store, await add(store)) for _ in range(ENDED_JOBS_KEPT + 2)]
    waiting = await add(store)
    assert await store.jobs.list() == [waiting, *reversed(ended[2:]), other]


async def test_a_datasource_has_one_job_and_one_more_that_waits(store: KnowledgeStore) -> None:
    first = await add(store)
    assert await add(store) == first
    assert await add(store, again=True) == first  # it waits, so that it will see what has changed
    claimed = await claim(store, first)
    assert (await add(store)).job_id == first.job_id
    second = await add(store, again=True)
    assert second.job_id != first.job_id
    assert await add(store, again=True) == second
    assert await claimable(store) == []  # one after the other
    assert await store.jobs.claim(second.job_id, "me", LONG) is None
    await claimed.end(replace(claimed.job, state="done"))
    assert await claimable(store) == [second.job_id]


async def test_a_job_is_claimed_once(open_store: OpenStore) -> None:
    store = await open_store()
    stores = [store, store, store]
    if store.is_shared:
        stores = [store, await open_store(), await open_store()]
    jobs = [await add(store, f"docs-{number}") for number in range(20)]
    attempts = [one.jobs.claim(job.job_id, "somebody", LONG) for job in jobs for one in stores]
    claims = await asyncio.gather(*attempts)
    taken = [claimed.job.job_id for claimed in claims if claimed is not None]
    assert sorted(taken) == sorted(job.job_id for job in jobs)
    assert await claimable(store) == []
    assert {job.state for job in await store.jobs.list()} == {"running"}


async def test_a_job_whose_lease_has_ended_is_taken_and_begins_again(store: KnowledgeStore) -> None:
    job = await add(store)
    dead = await claim(store, job, OVER)
    await dead.renew(replace(dead.job, done=3, total=7))
    [listed] = await store.jobs.list()
    assert (listed.state, listed.done, listed.total) == ("running", 3, 7)
    assert await claimable(store) == [job.job_id]
    second = await claim(store, job)
    assert (second.job.job_id, second.job.done, second.job.total) == (job.job_id, 0, None)
    assert await claimable(store) == []


LATE_WRITES: dict[str, Callable[[ClaimedJob], Awaitable[object]]] = {
    "document": lambda claimed: claimed.put_document(a_document("late", "about ingress")),
    "mark": lambda claimed: claimed.update_mark("one", "late"),
    "deletion": lambda claimed: claimed.delete_documents(["one"]),
    "group": lambda claimed: claimed.put_group("sre", ["mallory"]),
    "pass": lambda claimed: claimed.note_pass({}, "", "late"),
    "progress": lambda claimed: claimed.renew(replace(claimed.job, done=99)),
    "release": lambda claimed: claimed.release(),
    "end": lambda claimed: claimed.end(replace(claimed.job, state="failed"), drop_empty=True),
}


@pytest.mark.parametrize("write", LATE_WRITES)
async def test_who_lost_a_job_writes_nothing_more(store: KnowledgeStore, write: str) -> None:
    await store.put_datasource(Datasource("docs", "/docs", "folder"))
    await filled(store, a_document("one", "about volumes"))
    job = await add(store)
    paused = await claim(store, job, OVER)
    second = await claim(store, job)
    await second.renew(replace(second.job, done=1))

    async def look() -> object:
        await store.commit()
        return (
            await store.list_datasources(),
            await store.find_document("one"),
            await store.list_versions("docs"),
            await store.list_groups(),
            await store.jobs.list(),
            await found(store, "ingress"),
        )

    before = await look()
    with pytest.raises(ClaimLost):
        await LATE_WRITES[write](paused)
    assert await look() == before
    await LATE_WRITES[write](second)  # the same is done for who has it
    assert await look() != before


async def test_a_job_that_is_stopped_is_nobodys(store: KnowledgeStore) -> None:
    job = await add(store)
    claimed = await claim(store, job)
    stopped = await store.jobs.stop(job.job_id)
    assert stopped is not None
    assert (stopped.state, stopped.ended is not None) == ("stopped", True)
    assert await store.jobs.stop(job.job_id) == stopped
    assert await store.jobs.stop("other") is None
    with pytest.raises(ClaimLost):
        await claimed.put_document(a_document("late", "about ingress"))
    with pytest.raises(ClaimLost):
        await claimed.end(replace(claimed.job, state="done"))
    assert await store.jobs.find(job.job_id) == stopped
    assert await claimable(store) == []


async def test_a_datasource_that_is_removed_leaves_no_job_that_writes(store: KnowledgeStore) -> None:
    await store.put_datasource(Datasource("docs", "/docs", "folder"))
    claimed = await claim(store, await add(store))
    waiting = await add(store, again=True)
    await store.remove_datasource("docs")
    with pytest.raises(ClaimLost):
        await claimed.put_document(a_document("late", "about ingress"))
    assert {job.state for job in await store.jobs.list()} == {"stopped"}
    assert await store.jobs.claim(waiting.job_id, "me", LONG) is None
    assert await store.is_empty()


async def test_attempts_count_until_something_is_stored(store: KnowledgeStore) -> None:
    job = await add(store)
    for number in (1, 2, 3):
        claimed = await claim(store, job, OVER)
        assert claimed.attempts == number
    await claimed.renew(replace(claimed.job, skipped=5))
    claimed = await claim(store, job, OVER)
    assert claimed.attempts == 4
    await claimed.renew(replace(claimed.job, done=1))
    claimed = await claim(store, job)
    assert claimed.attempts == 2
    await claimed.release()  # whoever stops in order is no reason to give up
    assert await claimable(store) == [job.job_id]
    assert (await claim(store, job)).attempts == 2


async def test_a_pass_moves_the_cursor_unless_somebody_wants_all_of_it(store: KnowledgeStore) -> None:
    options = {"b": "1", "a": "2"}
    await store.put_datasource(Datasource("docs", "x", "web", options=options, cursor="page 1"))
    claimed = await claim(store, await add(store))
    await claimed.note_pass(options, "page 1", "page 2")
    [datasource] = await store.list_datasources()
    assert (datasource.cursor, datasource.refreshed is not None) == ("page 2", True)
    await store.put_datasource(replace(datasource, cursor=""))
    await claimed.note_pass(options, "page 2", "page 3")
    await store.put_datasource(replace(datasource, cursor="page 2", options={}))
    await claimed.note_pass(options, "page 2", "page 3")
    assert [datasource.cursor for datasource in await store.list_datasources()] == ["page 2"]


async def test_only_an_empty_datasource_without_other_jobs_is_dropped(store: KnowledgeStore) -> None:
    async def fail() -> list[str]:
        claimed = await claim(store, (await store.jobs.list_claimable())[0])
        await claimed.end(replace(claimed.job, state="failed"), drop_empty=True)
        return [datasource.name for datasource in await store.list_datasources()]

    async def put() -> None:
        await store.put_datasource(Datasource("docs", "x", "web"))
        await add(store)

    await put()
    await claim(store, (await store.jobs.list_claimable())[0], OVER)
    await add(store, again=True)
    assert await fail() == ["docs"]  # another one waits
    assert await fail() == []
    await put()
    await filled(store, a_document("one", "about volumes"))
    assert await fail() == ["docs"]


async def test_a_job_that_nobody_takes_is_given_up_when_nobody_is_busy(store: KnowledgeStore) -> None:
    job = await add(store)
    assert not await store.jobs.give_up(job.job_id, "Nobody can.", 60)  # not yet
    busy = await claim(store, await add(store, "wiki"))
    assert not await store.jobs.give_up(job.job_id, "Nobody can.", 0)
    await busy.end(replace(busy.job, state="done"))
    running = await claim(store, job)
    assert not await store.jobs.give_up(job.job_id, "Nobody can.", 0)
    await running.release()
    assert await store.jobs.give_up(job.job_id, "Nobody can.", -2 * LONG)
    given_up = await store.jobs.find(job.job_id)
    assert given_up is not None
    assert (given_up.state, given_up.problem, given_up.ended is not None) == ("failed", "Nobody can.", True)
