"""Two knowledge bases on one PostgreSQL: a job is done once, by whichever is there, and both see it."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.knowledge_bases.access import OPERATOR
from ai_platform_engineering.knowledge_bases.indexing.ingest_jobs import MAX_ATTEMPTS, JobTiming
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.stores.job_store import IngestJob
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Datasource
from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_store import PostgresStore
from tests.knowledge_bases.conftest import Replica
from tests.support.fakes.site import Page, Site, serve_site
from tests.support.knowledge import (
    add_datasource,
    job_counts,
    search_titles,
    wait_for_job,
    wait_until,
    write_files,
)
from tests.support.processes import start_command

PAGES = {
    f"/{name}": Page(f"# {name.title()}\n\nAbout {name}.\n", "text/markdown") for name in ("a", "b", "c")
}
LINKS = "".join(f'<a href="{path}">{path}</a>' for path in (*PAGES, "/slow"))
SLOW = Page("# Slow\n\nAbout tortoises.\n", "text/markdown")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """All of it is there but for a page that does not come before the test says so."""
    async with serve_site() as served:
        start = Page(f"<title>Start</title><p>Welcome</p>{LINKS}")
        served.pages |= {"/": start, **PAGES, "/slow": Page(endless=True)}
        yield served


def requests_of(site: Site, path: str) -> int:
    return sum(request.path == path for request in site.requests)


async def start_slow_job(kb: KnowledgeBase, site: Site) -> IngestJob:
    """A job that has stored four documents and waits for the last one."""
    _, job = await kb.add_datasource(f"{site.url}/", name="web")
    await wait_until(lambda: is_at(kb, job, 4))
    return job


async def is_at(kb: KnowledgeBase, job: IngestJob, done: int) -> bool:
    return (await kb.find_job(job.job_id)).done == done


async def test_each_job_is_done_once_and_both_see_it(replica: Replica, tmp_path: Path) -> None:
    pages = {f"/{number}": Page(f"# Page {number}\n\nText.\n", "text/markdown") for number in range(12)}
    async with serve_site(pages) as served, replica() as first, replica() as second:
        jobs: list[IngestJob] = []
        for number, kb in zip(range(12), [first, second] * 6, strict=True):
            location = f"{served.url}/{number}"
            jobs.append((await kb.add_datasource(location, name=f"page-{number}", options={"depth": "0"}))[1])
        ended = [await wait_for_job(second, job) for job in jobs]
        assert {job_counts(job) for job in ended} == {("done", 1, 0, 0, 0)}
        assert await first.list_jobs() == await second.list_jobs()
        requests = Counter(path for path in served.paths if path in pages)
        assert requests == dict.fromkeys(pages, 1)
        assert len(await search_titles(first, "page text", limit=20)) == 12


async def test_what_one_asks_for_is_followed_and_stopped_through_the_other(
    replica: Replica, site: Site, tmp_path: Path
) -> None:
    docs = write_files(tmp_path / "docs", guide="# Guide\n\nTurn the wheel.\n")
    async with replica() as first, replica() as second:
        job = await start_slow_job(first, site)
        await wait_until(lambda: is_at(second, job, 4))
        assert (await second.find_job(job.job_id)).state == "running"
        assert (await second.refresh_datasource("web")).job_id == job.job_id
        stopped = await second.stop_job(job.job_id)
        assert (stopped.state, stopped.done) == ("stopped", 4)
        assert await wait_for_job(first, job) == stopped
        assert (await add_datasource(first, docs)).state == "done"  # and it is free for the next one
        assert await second.find_job(job.job_id) == stopped


async def test_a_replica_that_leaves_hands_its_job_over(replica: Replica, site: Site) -> None:
    async with replica() as second:
        async with replica() as first:
            while True:  # until it is the first that works on it
                job = await start_slow_job(first, site)
                if first._ingest._running is not None:
                    break
                await second.remove_datasource("web")
            site.pages["/slow"] = SLOW
        assert job_counts(await wait_for_job(second, job)) == ("done", 1, 4, 0, 0)
        assert await search_titles(second, "tortoises") == ["Slow"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_job_goes_on_when_its_process_is_killed_or_paused(
    replica: Replica, site: Site, address: str, number: signal.Signals
) -> None:
    env = {"RAG_ALLOW_PRIVATE_ADDRESSES": "true", "RAG_DATABASE_URL": address, "RAG_EMBEDDINGS": "off"}
    command = ("caipe", "kb", "add", f"{site.url}/", "--name", "web")
    async with start_command(*command, env=env) as program:
        job = await wait_for_slow_page(address)
        program.send_signal(number)
        site.pages["/slow"] = SLOW
        async with replica() as kb:
            ended = await wait_for_job(kb, job)
            assert job_counts(ended) == ("done", 1, 4, 0, 0)
            if number is signal.SIGSTOP:
                for task in list(site.working):
                    task.cancel()  # its page fails, so that it would store another outcome
                program.send_signal(signal.SIGCONT)
                result = await program.wait_for_exit()
                assert result.code == 0, result.err
            assert await kb.find_job(job.job_id) == ended
            assert await search_titles(kb, "tortoises") == ["Slow"]
            assert requests_of(site, "/slow") == 2


async def wait_for_slow_page(address: str) -> IngestJob:
    """The job of another process, once it has stored the other pages."""
    store = PostgresStore(address)
    await store.open()

    async def has_stored() -> bool:
        datasources = await store.list_datasources(OPERATOR)
        return any((datasource.name, datasource.documents) == ("web", 4) for datasource in datasources)

    await wait_until(has_stored)
    [job] = [job for job in await store.jobs.list(unfinished=True) if job.datasource == "web"]
    await store.close()
    assert job.state == "running"
    return job


async def test_a_refresh_that_is_due_happens_once(replica: Replica, address: str) -> None:
    pages = {"/": Page("# Guide\n\nText.\n", "text/markdown")}
    async with serve_site(pages) as served:
        async with replica() as kb:
            await add_datasource(kb, f"{served.url}/", name="web", options={"depth": "0"}, every=3600)
            await make_due(kb._store)
        async with replica(scheduled=True) as first, replica(scheduled=True) as second:
            await wait_until(lambda: was_refreshed(second))
            await asyncio.sleep(0.5)  # what would come twice would have come by now
            assert [job.state for job in await first.list_jobs()] == ["done", "done"]
            [datasource] = await second.list_datasources()
        assert requests_of(served, "/") == 2
    assert datasource.refresh_due is not None
    assert datasource.refresh_due > datetime.now(UTC) + timedelta(minutes=50)


async def make_due(store: Any) -> datetime:
    due = datetime.now(UTC) - timedelta(seconds=1)
    await store.set_schedule("web", 3600, due)
    return due


async def was_refreshed(kb: KnowledgeBase) -> bool:
    jobs = await kb.list_jobs()
    return len(jobs) > 1 and all(job.state == "done" for job in jobs)


async def test_a_refresh_whose_replica_died_before_it_began_is_done(replica: Replica, address: str) -> None:
    async with serve_site({"/": Page("# Guide\n\nText.\n", "text/markdown")}) as served:
        async with replica() as kb:
            await add_datasource(kb, f"{served.url}/", name="web", options={"depth": "0"}, every=3600)
        store = PostgresStore(address)
        await store.open()
        due = await make_due(store)
        assert await store.jobs.claim_refresh("web", due, due + timedelta(hours=1)) is not None
        await store.close()
        async with replica() as kb:
            await wait_until(lambda: was_refreshed(kb))
        assert requests_of(served, "/") == 2


async def test_only_who_has_the_documents_takes_the_job(replica: Replica, tmp_path: Path) -> None:
    """The documentation of this product differs between two versions, as a folder between two machines."""
    older = write_files(tmp_path / "older" / "docs", guide="# Guide\n\nTurn the wheel.\n").parent
    newer = write_files(tmp_path / "newer" / "docs", guide="# Guide\n\nPress the button.\n").parent
    async with replica(docs=older) as first:
        await wait_until(lambda: finds(first, "turn the wheel"))
        async with replica(docs=newer) as second:
            await wait_until(lambda: finds(second, "press the button"))
            assert [job.state for job in await first.list_jobs()] == ["done", "done"]


async def finds(kb: KnowledgeBase, query: str) -> bool:
    return await search_titles(kb, query) == ["Guide"]


async def test_a_folder_that_no_replica_has_fails_its_job_and_keeps_the_documents(
    replica: Replica, tmp_path: Path
) -> None:
    docs = write_files(tmp_path / "docs", guide="# Guide\n\nTurn the wheel.\n")
    timing = JobTiming(lease=0.2, renew=0.1, look=0.05, follow=0.05, give_up=0.5)
    async with replica(timing=timing) as first, replica(timing=timing) as second:
        await add_datasource(first, docs)
        docs.rename(tmp_path / "elsewhere")
        job = await wait_for_job(first, await second.refresh_datasource("docs"))
        assert (job.state, str(docs) in job.problem) == ("failed", True)
        assert "No server that runs can read" in job.problem
        assert await search_titles(second, "wheel") == ["Guide"]


async def test_a_location_that_makes_no_sense_ends_no_other_job(
    replica: Replica, address: str, tmp_path: Path
) -> None:
    docs = write_files(tmp_path / "docs", guide="# Guide\n\nTurn the wheel.\n")
    store = PostgresStore(address)
    await store.open()
    await store.put_datasource(Datasource("odd", "ftp://somewhere", "folder", refreshed=datetime.now(UTC)))
    odd = await store.jobs.add("odd")
    lost = await store.jobs.add("lost")  # its datasource is gone
    await store.close()
    async with replica() as kb:
        assert (await add_datasource(kb, docs)).state == "done"
        assert (await wait_for_job(kb, odd)).state == "failed"
        assert (await wait_for_job(kb, lost)).state == "failed"


async def test_a_connection_that_breaks_ends_no_job(replica: Replica, address: str, tmp_path: Path) -> None:
    import psycopg

    docs = write_files(tmp_path / "docs", guide="# Guide\n\nTurn the wheel.\n")
    timing = JobTiming(lease=1.0, renew=0.2, look=0.1, follow=0.05)
    async with (
        replica(timing=timing) as kb,
        await psycopg.AsyncConnection.connect(address, autocommit=True) as connection,
    ):
        async with connection.transaction():
            await connection.execute("LOCK TABLE caipe_kb.documents IN EXCLUSIVE MODE")
            _, job = await kb.add_datasource(str(docs))
            await wait_until(lambda: cut_waiting(address))
        ended = await wait_for_job(kb, job)
        assert (ended.state, ended.done) == ("done", 1)


async def cut_waiting(address: str) -> bool:
    """Breaks the connection that waits to store a document, if there is one."""
    import psycopg

    query = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND query LIKE '%documents%'"
    )
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
        return bool(await (await connection.execute(query)).fetchall())


async def test_a_job_that_ends_every_process_is_given_up(replica: Replica, address: str) -> None:
    store = PostgresStore(address)
    await store.open()
    await store.put_datasource(Datasource("web", "http://127.0.0.1:1/", "web", refreshed=datetime.now(UTC)))
    job = await store.jobs.add("web")
    for _ in range(MAX_ATTEMPTS):
        assert await store.jobs.claim(job.job_id, "dead", -1.0) is not None
    await store.close()
    async with replica() as kb:
        ended = await wait_for_job(kb, job)
    assert ended.state == "failed"
    assert f"begun {MAX_ATTEMPTS} times" in ended.problem


async def test_a_write_and_a_claim_of_its_job_exclude_each_other(address: str) -> None:
    """Nobody takes a job in the middle of a transaction of its holder."""
    stores = [PostgresStore(address), PostgresStore(address)]
    for store in stores:
        await store.open()
    first, second = stores
    job = await first.jobs.add("docs")
    holder: Any = await first.jobs.claim(job.job_id, "first", -1.0)
    async with holder._fenced():
        assert await second.jobs.claim(job.job_id, "second", 60) is None
    assert await second.jobs.claim(job.job_id, "second", 60) is not None
    for store in stores:
        await store.close()
