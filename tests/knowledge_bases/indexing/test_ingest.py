"""Documents come in, stay as they are while nothing changes, and leave when their source no longer has them;
whatever breaks meanwhile."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import CaipeError, Refused
from ai_platform_engineering.knowledge_bases.indexing.ingest_pass import CommitInterval
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.results import KnowledgeNotFound, compute_document_id
from tests.conftest import ROOT
from tests.support.fakes.embedding import WordVectors
from tests.support.fakes.site import Page, Site, serve_site
from tests.support.knowledge import (
    add_datasource,
    holds_documents,
    job_counts,
    open_knowledge_base,
    refresh_datasource,
    search_titles,
    wait_for_job,
    wait_until,
    write_files,
)
from tests.support.processes import start_command

DOCS = {
    "rollback": "# Rolling back\n\nRevert the deployment with the pipeline, then tell the channel.\n",
    "certificates": "# Certificates\n\nThey are renewed by the issuer, thirty days before they end.\n",
    "paging": "# Paging\n\nThe primary on-call person is paged first, the secondary after ten minutes.\n",
}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return write_files(tmp_path / "docs", **DOCS)


async def only_job(kb: KnowledgeBase) -> str:
    (job,) = await kb.list_jobs()
    return job.job_id


# --- what has changed, and nothing else


async def test_a_folder_is_brought_in_and_found(tmp_path: Path, docs: Path) -> None:
    async with open_knowledge_base(tmp_path) as kb:
        assert not await kb.has_documents()
        datasource, job = await kb.add_datasource(str(docs))
        assert await kb.has_documents()
        job = await wait_for_job(kb, job)
        (result,) = await kb.search("who is paged on-call")
        listed = await kb.list_datasources()
    assert job_counts(job) == ("done", 3, 0, 0, 0)
    assert job.total == 3
    assert job.created is not None
    assert job.ended is not None
    assert job.ended >= job.created
    assert (datasource.name, datasource.kind, datasource.location) == ("docs", "folder", str(docs))
    assert (result.title, result.datasource, result.headings, result.offset) == (
        "Paging",
        "docs",
        ("Paging",),
        0,
    )
    assert result.document_id == compute_document_id("docs", "paging.md")
    assert "secondary after ten minutes" in result.snippet
    assert [
        (datasource.name, datasource.documents, datasource.refreshed is not None) for datasource in listed
    ] == [("docs", 3, True)]


async def test_only_what_has_changed_is_read_again(tmp_path: Path, docs: Path) -> None:
    async with open_knowledge_base(tmp_path) as kb:
        await add_datasource(kb, docs)
        assert job_counts(await refresh_datasource(kb, "docs")) == ("done", 0, 3, 0, 0)
        os.utime(docs / "paging.md", (1, 1))  # another time, the same content
        assert job_counts(await refresh_datasource(kb, "docs")) == ("done", 0, 3, 0, 0)
        write_files(
            docs,
            paging="# Paging\n\nNobody is woken up at night any more.\n",
            added="# Added\n\nSomething about zebras.\n",
        )
        assert job_counts(await refresh_datasource(kb, "docs")) == ("done", 2, 2, 0, 0)
        assert await search_titles(kb, "zebras") == ["Added"]
        assert await search_titles(kb, "woken up at night") == ["Paging"]
        assert await search_titles(kb, "secondary") == []


async def test_a_document_that_its_source_has_no_more_leaves(tmp_path: Path, docs: Path) -> None:
    async with open_knowledge_base(tmp_path) as kb:
        await add_datasource(kb, docs)
        (removed,) = await kb.search("certificates issuer")
        (docs / "certificates.md").unlink()
        assert job_counts(await refresh_datasource(kb, "docs")) == ("done", 0, 2, 1, 0)
        assert await search_titles(kb, "certificates issuer") == []
        with pytest.raises(KnowledgeNotFound, match="There is no document"):
            await kb.fetch_document(removed.document_id)
        assert [datasource.documents for datasource in await kb.list_datasources()] == [2]


async def test_a_broken_document_is_reported_and_costs_no_other(tmp_path: Path, docs: Path) -> None:
    (docs / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing of a PDF follows")
    async with open_knowledge_base(tmp_path) as kb:
        job = await add_datasource(kb, docs)
        assert len(await search_titles(kb, "pipeline issuer secondary")) == 3
    assert job_counts(job) == ("done", 3, 0, 0, 1)
    ((address, reason),) = job.failed
    assert address == "broken.pdf"
    assert reason.endswith(".")


async def test_a_location_that_failed_leaves_no_datasource_and_its_job_says_why(
    tmp_path: Path, docs: Path
) -> None:
    async with (
        serve_site({"/": Page("gone", status=404)}) as served,
        open_knowledge_base(tmp_path, private=True) as kb,
    ):
        job = await add_datasource(kb, f"{served.url}/", name="web")
        assert job.state == "failed"
        assert job.problem.endswith(".")
        assert await kb.list_datasources() == []
        assert [listed.job_id for listed in await kb.list_jobs()] == [job.job_id]
        await add_datasource(kb, docs)
        docs.rename(tmp_path / "moved")
        assert (await refresh_datasource(kb, "docs")).state == "failed"
        assert [datasource.documents for datasource in await kb.list_datasources()] == [3]


async def test_a_document_that_is_cut_is_not_counted_as_read(tmp_path: Path) -> None:
    docs = write_files(tmp_path / "docs", long__txt="giraffe " * 300_000, short__txt="zebra")
    async with open_knowledge_base(tmp_path) as kb:
        job = await add_datasource(kb, docs)
        excerpt = await kb.fetch_document(compute_document_id("docs", "long.txt"))
        (stored_job,) = await kb.list_jobs()
    missing = "the last 400,000 of 2,399,999 characters"  # without the space where it was cut
    assert job_counts(job) == ("done", 1, 0, 0, 0)
    assert list(job.cut) == list(stored_job.cut) == [("long.txt", missing)]
    assert excerpt.missing == missing
    assert excerpt.text.endswith(f"[Too long to be read as a whole. Missing: {missing}.]")


async def test_a_document_that_breaks_keeps_what_is_known_of_it(tmp_path: Path, docs: Path) -> None:
    async with open_knowledge_base(tmp_path) as kb:
        await add_datasource(kb, docs)
        (docs / "paging.md").write_bytes(b"%PDF-1.7\nnothing of a PDF follows")
        assert job_counts(await refresh_datasource(kb, "docs")) == ("done", 0, 2, 0, 1)
        assert await search_titles(kb, "secondary after ten minutes") == ["Paging"]


async def test_what_a_source_remembers_of_a_document_is_kept_up_to_date(tmp_path: Path) -> None:
    def page(tag: str) -> Page:
        return Page("# Paging\n\nText.\n", "text/markdown", headers={"ETag": tag})

    async with serve_site({"/": page('"one"')}) as served, open_knowledge_base(tmp_path, private=True) as kb:
        await add_datasource(kb, f"{served.url}/", name="web", options={"depth": "0"})
        served.pages["/"] = page('"two"')
        assert job_counts(await refresh_datasource(kb, "web")) == ("done", 0, 1, 0, 0)
        await refresh_datasource(kb, "web")
        tags = [request.headers.get("if-none-match") for request in served.requests if request.path == "/"]
    assert tags == [None, '"one"', '"two"']


async def test_a_source_that_fails_deletes_nothing(tmp_path: Path, docs: Path) -> None:
    async with open_knowledge_base(tmp_path) as kb:
        await add_datasource(kb, docs)
        docs.rename(tmp_path / "elsewhere")
        job = await refresh_datasource(kb, "docs")
        assert job_counts(job) == ("failed", 0, 0, 0, 0)
        assert str(docs) in job.problem
        assert await search_titles(kb, "secondary after ten minutes") == ["Paging"]
        (tmp_path / "elsewhere").rename(docs)
        assert job_counts(await refresh_datasource(kb, "docs")) == ("done", 0, 3, 0, 0)


# --- stopped, killed, slow

HANGS = Page(endless=True)
PAGES = {f"/{name}": Page(text, "text/markdown") for name, text in DOCS.items()}
START = Page(
    "<title>Start</title><p>Welcome</p>"
    + "".join(f'<a href="{path}">{path}</a>' for path in (*PAGES, "/slow"))
)


def slow_site(served: Site) -> None:
    """All of it is there but for a page that never comes."""
    served.pages |= {"/": START, **PAGES, "/slow": HANGS}


def finish_slow_page(served: Site) -> None:
    served.pages["/slow"] = Page("# Slow\n\nAbout tortoises.\n", "text/markdown")


async def test_what_is_there_is_found_while_the_source_still_works(tmp_path: Path) -> None:
    by_time_alone = CommitInterval(documents=1000, seconds=0.01)
    async with serve_site() as served, open_knowledge_base(tmp_path, private=True, pace=by_time_alone) as kb:
        slow_site(served)
        _, job = await kb.add_datasource(f"{served.url}/")
        async with asyncio.timeout(120):
            async for progress in kb.follow_job(job.job_id):
                if progress.done == 4:
                    break
        await wait_until(lambda: _finds(kb, "secondary after ten minutes", "Paging"))
        assert (await kb.find_job(job.job_id)).state == "running"


async def _finds(kb: KnowledgeBase, query: str, title: str) -> bool:
    return await search_titles(kb, query) == [title]


async def test_a_job_that_is_stopped_keeps_what_it_brought_in_and_stays_stopped(tmp_path: Path) -> None:
    async with serve_site() as served:
        slow_site(served)
        async with open_knowledge_base(tmp_path, private=True) as kb:
            _, job = await kb.add_datasource(f"{served.url}/", name="web")
            async for progress in kb.follow_job(job.job_id):
                if progress.done == 4:
                    break
            stopped = await kb.stop_job(job.job_id)
            assert job_counts(stopped) == ("stopped", 4, 0, 0, 0)
            assert await kb.stop_job(job.job_id) == stopped
            assert await search_titles(kb, "secondary after ten minutes") == ["Paging"]
        finish_slow_page(served)
        async with open_knowledge_base(tmp_path, private=True) as kb:
            assert [job.state for job in await kb.list_jobs()] == ["stopped"]
            assert job_counts(await refresh_datasource(kb, "web"))[:3] == ("done", 1, 4)


async def test_a_job_goes_on_when_the_knowledge_base_is_opened_again(tmp_path: Path) -> None:
    async with serve_site() as served:
        slow_site(served)
        async with open_knowledge_base(tmp_path, private=True) as kb:
            _, job = await kb.add_datasource(f"{served.url}/")
            async for progress in kb.follow_job(job.job_id):
                if progress.done == 4:
                    break
        finish_slow_page(served)
        async with open_knowledge_base(tmp_path, private=True) as kb:
            assert await only_job(kb) == job.job_id
            assert job_counts(await wait_for_job(kb, job)) == ("done", 1, 4, 0, 0)
            assert await search_titles(kb, "tortoises") == ["Slow"]


async def test_a_killed_process_loses_nothing_that_was_stored_and_the_next_one_finishes(
    tmp_path: Path,
) -> None:
    home = tmp_path / "caipe-home"
    async with serve_site() as served:
        slow_site(served)
        async with start_command(
            "caipe", "kb", "add", f"{served.url}/", env={"RAG_ALLOW_PRIVATE_ADDRESSES": "true"}
        ) as program:
            await wait_until(lambda: holds_documents(home, "web", 4))
            program.send_signal(signal.SIGKILL)
            await program.wait_for_exit()
        finish_slow_page(served)
        async with open_knowledge_base(home, private=True) as kb:
            job = next(job for job in await kb.list_jobs() if job.datasource.startswith("127.0.0.1"))
            assert job_counts(await wait_for_job(kb, job)) == ("done", 1, 4, 0, 0)
            assert await search_titles(kb, "tortoises") == ["Slow"]
            assert (await search_titles(kb, "secondary after ten minutes"))[0] == "Paging"


async def test_one_datasource_has_one_job_at_a_time(tmp_path: Path, docs: Path) -> None:
    async with serve_site() as served, open_knowledge_base(tmp_path, private=True) as kb:
        slow_site(served)
        _, first = await kb.add_datasource(f"{served.url}/", name="web")
        again = await kb.refresh_datasource("web")
        _, waiting = await kb.add_datasource(str(docs))
        assert again.job_id == first.job_id
        async for progress in kb.follow_job(first.job_id):
            if progress.done == 4:
                break
        assert (await kb.find_job(waiting.job_id)).state == "waiting"
        await kb.remove_datasource("web")  # whatever it does just now
        assert job_counts(await wait_for_job(kb, waiting)) == ("done", 3, 0, 0, 0)
        assert [datasource.name for datasource in await kb.list_datasources()] == ["docs"]
        assert (await kb.find_job(first.job_id)).state == "stopped"


# --- vectors in the background


async def test_documents_are_found_by_words_before_they_have_vectors(tmp_path: Path, docs: Path) -> None:
    embedder = WordVectors()
    embedder.release.clear()
    async with open_knowledge_base(tmp_path, embedder) as kb:
        await add_datasource(kb, docs)
        await embedder.requested.wait()
        assert await search_titles(kb, "secondary", mode="lexical") == ["Paging"]
        assert [datasource.embedded for datasource in await kb.list_datasources()] == [0]
        embedder.release.set()
        await kb.wait_for_embeddings()
        assert [(datasource.embedded, datasource.chunks) for datasource in await kb.list_datasources()] == [
            (3, 3)
        ]
        assert (await search_titles(kb, "the issuer of certificates", mode="vectors"))[0] == "Certificates"
    # What is embedded is the chunk with its place in the document.
    assert any(text.startswith("Paging\n") for text in embedder.texts)


@pytest.mark.full
async def test_vectors_that_are_missing_are_made_by_the_next_process_and_no_others(
    tmp_path: Path, docs: Path
) -> None:
    async with open_knowledge_base(tmp_path, WordVectors()) as kb:
        await add_datasource(kb, docs)
        await kb.wait_for_embeddings()
    blocked = WordVectors()
    blocked.release.clear()
    async with open_knowledge_base(tmp_path, blocked) as kb:
        await add_datasource(kb, write_files(docs, new="# New\n\nAbout giraffes.\n"))
    again = WordVectors()
    async with open_knowledge_base(tmp_path, again) as kb:
        await kb.wait_for_embeddings()
        assert [(datasource.embedded, datasource.chunks) for datasource in await kb.list_datasources()] == [
            (4, 4)
        ]
    assert len(again.texts) == 1
    assert "giraffes" in again.texts[0]


async def test_embeddings_that_fail_are_made_later_and_searches_use_words_meanwhile(
    tmp_path: Path, docs: Path
) -> None:
    embedder = WordVectors(broken=True)
    async with open_knowledge_base(tmp_path, embedder) as kb:
        await add_datasource(kb, docs)
        await kb.wait_for_embeddings()  # as far as they can be made
        assert [datasource.embedded for datasource in await kb.list_datasources()] == [0]
        assert await search_titles(kb, "secondary after ten minutes") == ["Paging"]
        with pytest.raises(Refused, match="The embedding model did not answer"):
            await kb.search("secondary", mode="vectors")
        embedder.broken = False
        await refresh_datasource(kb, "docs")
        await wait_until(lambda: _embedded(kb, 3))


async def _embedded(kb: KnowledgeBase, count: int) -> bool:
    return [datasource.embedded for datasource in await kb.list_datasources()] == [count]


# --- this product's documentation


@pytest.mark.full
async def test_a_fresh_installation_answers_questions_about_itself(tmp_path: Path) -> None:
    root = ROOT
    async with open_knowledge_base(tmp_path, docs=root) as kb:
        assert await kb.has_documents()
        await wait_for_job(kb, await kb.find_job(await only_job(kb)))
        titles = await search_titles(kb, "how do I move an agent to another machine")
    assert titles[0] == "Placement: where agents run"


async def test_own_documentation_is_read_again_only_where_it_changed(tmp_path: Path) -> None:
    root = tmp_path / "product"
    write_files(root, README="# Product\n\nIt counts sheep.\n")
    write_files(root / "docs", guide="# Guide\n\nPress the button.\n", old="# Old\n\nAbout dinosaurs.\n")
    async with open_knowledge_base(tmp_path, docs=root) as kb:
        assert job_counts(await wait_for_job(kb, await kb.find_job(await only_job(kb)))) == (
            "done",
            3,
            0,
            0,
            0,
        )
    async with open_knowledge_base(tmp_path, docs=root) as kb:
        assert len(await kb.list_jobs()) == 1  # nothing to do
    write_files(root / "docs", guide="# Guide\n\nPull the lever.\n")
    (root / "docs" / "old.md").unlink()
    async with open_knowledge_base(tmp_path, docs=root) as kb:
        newest, _ = await kb.list_jobs()
        assert job_counts(await wait_for_job(kb, newest)) == ("done", 1, 1, 1, 0)
        assert await search_titles(kb, "lever") == ["Guide"]
        assert await search_titles(kb, "button dinosaurs") == []


async def test_own_documentation_that_was_removed_does_not_come_back_by_itself(tmp_path: Path) -> None:
    root = write_files(tmp_path / "product", README="# Product\n\nIt counts sheep.\n")
    async with open_knowledge_base(tmp_path, docs=root) as kb:
        await wait_for_job(kb, await kb.find_job(await only_job(kb)))
        await kb.remove_datasource("caipe-docs")
        assert await kb.list_datasources() == []
        assert await search_titles(kb, "sheep") == []
    write_files(root, README="# Product\n\nIt counts sheep and goats.\n")
    async with open_knowledge_base(tmp_path, docs=root) as kb:
        assert await kb.list_datasources() == []
        assert not await kb.has_documents()
        assert (await add_datasource(kb, "built-in")).state == "done"
        assert await search_titles(kb, "goats") == ["Product"]


# --- names, options, and who may write


async def test_a_datasource_is_named_after_its_place_and_keeps_its_name(tmp_path: Path, docs: Path) -> None:
    other = write_files(tmp_path / "other" / "docs", other="# Other\n\nText.\n")
    async with open_knowledge_base(tmp_path) as kb:
        first, _ = await kb.add_datasource(str(docs))
        second, _ = await kb.add_datasource(str(other), title="The other")
        again, _ = await kb.add_datasource(str(other))
        assert (first.name, second.name, again.name) == ("docs", "docs-2", "docs-2")
        assert again.title == "The other"
        with pytest.raises(Refused, match="another name"):
            await kb.add_datasource(str(tmp_path / "other"), name="docs")
        with pytest.raises(Refused, match="small letters"):
            await kb.add_datasource(str(docs), name="Not a name")


async def test_what_is_no_source_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with open_knowledge_base(tmp_path) as kb:
        for location, options, words in (
            (str(tmp_path / "nowhere"), {}, "There is nothing that can be read at"),
            ("ftp://example.com/", {}, "Only http"),
            ("https://example.com/", {"depth": "many"}, "depth is a number from 0 to 20"),
            ("https://example.com/", {"colour": "red"}, "There is no option colour"),
            ("https://example.com/", {"kind": "tape"}, "one of: folder, web, git"),
        ):
            with pytest.raises(CaipeError, match=words):
                await kb.add_datasource(location, options=options)
        assert await kb.list_datasources() == []
        for missing in (kb.refresh_datasource("docs"), kb.remove_datasource("docs")):
            with pytest.raises(KnowledgeNotFound, match=r"There is no datasource docs\. There is none yet\."):
                await missing
        with pytest.raises(KnowledgeNotFound, match="There is no job"):
            await kb.stop_job("nothing")


async def test_a_web_site_keeps_its_bounds(tmp_path: Path) -> None:
    async with serve_site() as served, open_knowledge_base(tmp_path, private=True) as kb:
        slow_site(served)
        finish_slow_page(served)
        datasource, job = await kb.add_datasource(f"{served.url}/", name="web", options={"depth": "0"})
        assert job_counts(await wait_for_job(kb, job)) == ("done", 1, 0, 0, 0)
        assert datasource.options == {"depth": "0"}
        assert job_counts(await refresh_datasource(kb, "web"))[:3] == ("done", 0, 1)
        await kb.add_datasource(f"{served.url}/", name="web")  # given again, without bounds
        assert (await refresh_datasource(kb, "web")).done == 4


async def test_a_second_process_searches_and_changes_nothing(tmp_path: Path, docs: Path) -> None:
    async with open_knowledge_base(tmp_path) as owner:
        await add_datasource(owner, docs)
        async with open_knowledge_base(tmp_path) as second:
            assert (owner.is_writable, second.is_writable) == (True, False)
            assert await search_titles(second, "secondary after ten minutes") == ["Paging"]
            with pytest.raises(Refused, match="Another process has the knowledge base open"):
                await second.add_datasource(str(docs))
            with pytest.raises(Refused, match="Another process"):
                await second.remove_datasource("docs")
            write_files(docs, new="# New\n\nAbout giraffes.\n")
            await refresh_datasource(owner, "docs")
            assert await search_titles(second, "giraffes") == ["New"]
