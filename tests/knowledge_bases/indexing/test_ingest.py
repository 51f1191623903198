"""Documents come in, stay as they are while nothing changes, and leave when their source no longer has them; whatever breaks meanwhile."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import CaipeError, Refused
from ai_platform_engineering.knowledge_bases.indexing.ingest_pass import Pace
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.results import NotThere, document_id
from tests.conftest import ROOT
from tests.support.fakes.embedding import WordVectors
from tests.support.fakes.site import Page, Site, site
from tests.support.knowledge import added, figures, finished, opened, refreshed, titles, until, written
from tests.support.processes import started

DOCS = {
    "rollback": "# Rolling back\n\nRevert the deployment with the pipeline, then tell the channel.\n",
    "certificates": "# Certificates\n\nThey are renewed by the issuer, thirty days before they end.\n",
    "paging": "# Paging\n\nThe primary on-call person is paged first, the secondary after ten minutes.\n",
}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return written(tmp_path / "docs", **DOCS)


async def only_job(kb: KnowledgeBase) -> str:
    (job,) = await kb.jobs()
    return job.job_id


# --- what has changed, and nothing else -------------------------------------------------------------------------------


async def test_a_folder_is_brought_in_and_found(tmp_path: Path, docs: Path) -> None:
    async with opened(tmp_path) as kb:
        assert not await kb.holds_documents()
        datasource, job = await kb.add(str(docs))
        assert await kb.holds_documents()
        job = await finished(kb, job)
        (found,) = await kb.search("who is paged on-call")
        listed = await kb.list_datasources()
    assert figures(job) == ("done", 3, 0, 0, 0)
    assert job.total == 3
    assert job.created is not None
    assert job.ended is not None
    assert job.ended >= job.created
    assert (datasource.name, datasource.kind, datasource.location) == ("docs", "folder", str(docs))
    assert (found.title, found.datasource, found.headings, found.offset) == ("Paging", "docs", ("Paging",), 0)
    assert found.document_id == document_id("docs", "paging.md")
    assert "secondary after ten minutes" in found.snippet
    assert [(one.name, one.documents, one.refreshed is not None) for one in listed] == [("docs", 3, True)]


async def test_only_what_has_changed_is_read_again(tmp_path: Path, docs: Path) -> None:
    async with opened(tmp_path) as kb:
        await added(kb, docs)
        assert figures(await refreshed(kb, "docs")) == ("done", 0, 3, 0, 0)
        os.utime(docs / "paging.md", (1, 1))  # another time, the same content
        assert figures(await refreshed(kb, "docs")) == ("done", 0, 3, 0, 0)
        written(docs, paging="# Paging\n\nNobody is woken up at night any more.\n", added="# Added\n\nSomething about zebras.\n")
        assert figures(await refreshed(kb, "docs")) == ("done", 2, 2, 0, 0)
        assert await titles(kb, "zebras") == ["Added"]
        assert await titles(kb, "woken up at night") == ["Paging"]
        assert await titles(kb, "secondary") == []


async def test_a_document_that_its_source_has_no_more_leaves(tmp_path: Path, docs: Path) -> None:
    async with opened(tmp_path) as kb:
        await added(kb, docs)
        (gone,) = await kb.search("certificates issuer")
        (docs / "certificates.md").unlink()
        assert figures(await refreshed(kb, "docs")) == ("done", 0, 2, 1, 0)
        assert await titles(kb, "certificates issuer") == []
        with pytest.raises(NotThere, match="There is no document"):
            await kb.fetch_document(gone.document_id)
        assert [one.documents for one in await kb.list_datasources()] == [2]


async def test_a_broken_document_is_reported_and_costs_no_other(tmp_path: Path, docs: Path) -> None:
    (docs / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing of a PDF follows")
    async with opened(tmp_path) as kb:
        job = await added(kb, docs)
        assert len(await titles(kb, "pipeline issuer secondary")) == 3
    assert figures(job) == ("done", 3, 0, 0, 1)
    ((address, reason),) = job.failed
    assert address == "broken.pdf"
    assert reason.endswith(".")


async def test_a_document_that_breaks_keeps_what_is_known_of_it(tmp_path: Path, docs: Path) -> None:
    async with opened(tmp_path) as kb:
        await added(kb, docs)
        (docs / "paging.md").write_bytes(b"%PDF-1.7\nnothing of a PDF follows")
        assert figures(await refreshed(kb, "docs")) == ("done", 0, 2, 0, 1)
        assert await titles(kb, "secondary after ten minutes") == ["Paging"]


async def test_what_a_source_remembers_of_a_document_is_kept_up_to_date(tmp_path: Path) -> None:
    def page(tag: str) -> Page:
        return Page("# Paging\n\nText.\n", "text/markdown", headers={"ETag": tag})

    async with site({"/": page('"one"')}) as served, opened(tmp_path, private=True) as kb:
        await added(kb, f"{served.url}/", name="web", options={"depth": "0"})
        served.pages["/"] = page('"two"')
        assert figures(await refreshed(kb, "web")) == ("done", 0, 1, 0, 0)
        await refreshed(kb, "web")
        tags = [request.headers.get("if-none-match") for request in served.requests if request.path == "/"]
    assert tags == [None, '"one"', '"two"']


async def test_a_source_that_fails_deletes_nothing(tmp_path: Path, docs: Path) -> None:
    async with opened(tmp_path) as kb:
        await added(kb, docs)
        docs.rename(tmp_path / "elsewhere")
        job = await refreshed(kb, "docs")
        assert figures(job) == ("failed", 0, 0, 0, 0)
        assert str(docs) in job.problem
        assert await titles(kb, "secondary after ten minutes") == ["Paging"]
        (tmp_path / "elsewhere").rename(docs)
        assert figures(await refreshed(kb, "docs")) == ("done", 0, 3, 0, 0)


# --- stopped, killed, slow --------------------------------------------------------------------------------------------

HANGS = Page(endless=True)
PAGES = {f"/{name}": Page(text, "text/markdown") for name, text in DOCS.items()}
START = Page("<title>Start</title><p>Welcome</p>" + "".join(f'<a href="{path}">{path}</a>' for path in (*PAGES, "/slow")))


def slow_site(served: Site) -> None:
    """All of it is there but for a page that never comes."""
    served.pages |= {"/": START, **PAGES, "/slow": HANGS}


def mended(served: Site) -> None:
    served.pages["/slow"] = Page("# Slow\n\nAbout tortoises.\n", "text/markdown")


async def test_what_is_there_is_found_while_the_source_still_works(tmp_path: Path) -> None:
    by_time_alone = Pace(documents=1000, seconds=0.01)
    async with site() as served, opened(tmp_path, private=True, pace=by_time_alone) as kb:
        slow_site(served)
        _, job = await kb.add(f"{served.url}/")
        async with asyncio.timeout(30):
            async for seen in kb.follow(job.job_id):
                if seen.done == 4:
                    break
        await until(lambda: _finds(kb, "secondary after ten minutes", "Paging"))
        assert (await kb.job(job.job_id)).state == "running"


async def _finds(kb: KnowledgeBase, query: str, title: str) -> bool:
    return await titles(kb, query) == [title]


async def test_a_job_that_is_stopped_keeps_what_it_brought_in_and_stays_stopped(tmp_path: Path) -> None:
    async with site() as served:
        slow_site(served)
        async with opened(tmp_path, private=True) as kb:
            _, job = await kb.add(f"{served.url}/", name="web")
            async for seen in kb.follow(job.job_id):
                if seen.done == 4:
                    break
            stopped = await kb.stop(job.job_id)
            assert figures(stopped) == ("stopped", 4, 0, 0, 0)
            assert await kb.stop(job.job_id) == stopped
            assert await titles(kb, "secondary after ten minutes") == ["Paging"]
        mended(served)
        async with opened(tmp_path, private=True) as kb:
            assert [one.state for one in await kb.jobs()] == ["stopped"]
            assert figures(await refreshed(kb, "web"))[:3] == ("done", 1, 4)


async def test_a_job_goes_on_when_the_knowledge_base_is_opened_again(tmp_path: Path) -> None:
    async with site() as served:
        slow_site(served)
        async with opened(tmp_path, private=True) as kb:
            _, job = await kb.add(f"{served.url}/")
            async for seen in kb.follow(job.job_id):
                if seen.done == 4:
                    break
        mended(served)
        async with opened(tmp_path, private=True) as kb:
            assert await only_job(kb) == job.job_id
            assert figures(await finished(kb, job)) == ("done", 1, 4, 0, 0)
            assert await titles(kb, "tortoises") == ["Slow"]


async def test_a_killed_process_loses_nothing_that_was_stored_and_the_next_one_finishes(tmp_path: Path) -> None:
    home = tmp_path / "caipe-home"
    async with site() as served:
        slow_site(served)
        async with started("caipe", "kb", "add", f"{served.url}/", env={"RAG_ALLOW_PRIVATE_ADDRESSES": "true"}) as program:
            await until(lambda: _holds(home, 4))
            program.signal(signal.SIGKILL)
            await program.finished()
        mended(served)
        async with opened(home, private=True) as kb:
            job = next(one for one in await kb.jobs() if one.datasource.startswith("127.0.0.1"))
            assert figures(await finished(kb, job)) == ("done", 1, 4, 0, 0)
            assert await titles(kb, "tortoises") == ["Slow"]
            assert (await titles(kb, "secondary after ten minutes"))[0] == "Paging"


async def _holds(home: Path, count: int) -> bool:
    """Whether a process has stored so many documents of a web site by now."""
    if not (home / "knowledge" / "knowledge.db").exists():
        return False
    try:
        async with opened(home) as kb:
            assert not kb.writes
            return any(one.documents == count for one in await kb.list_datasources() if one.kind == "web")
    except (CaipeError, AssertionError):
        return False  # it is just being made


async def test_one_datasource_has_one_job_at_a_time(tmp_path: Path, docs: Path) -> None:
    async with site() as served, opened(tmp_path, private=True) as kb:
        slow_site(served)
        _, first = await kb.add(f"{served.url}/", name="web")
        again = await kb.refresh("web")
        _, waiting = await kb.add(str(docs))
        assert again.job_id == first.job_id
        async for seen in kb.follow(first.job_id):
            if seen.done == 4:
                break
        assert (await kb.job(waiting.job_id)).state == "waiting"
        await kb.remove("web")  # whatever it does just now
        assert figures(await finished(kb, waiting)) == ("done", 3, 0, 0, 0)
        assert [one.name for one in await kb.list_datasources()] == ["docs"]
        assert (await kb.job(first.job_id)).state == "stopped"


# --- vectors in the background ----------------------------------------------------------------------------------------


async def test_documents_are_found_by_words_before_they_have_vectors(tmp_path: Path, docs: Path) -> None:
    embedder = WordVectors()
    embedder.may_go.clear()
    async with opened(tmp_path, embedder) as kb:
        await added(kb, docs)
        await embedder.asked.wait()
        assert await titles(kb, "secondary", mode="lexical") == ["Paging"]
        assert [one.embedded for one in await kb.list_datasources()] == [0]
        embedder.may_go.set()
        await kb.embedded()
        assert [(one.embedded, one.chunks) for one in await kb.list_datasources()] == [(3, 3)]
        assert (await titles(kb, "the issuer of certificates", mode="vectors"))[0] == "Certificates"
    # What is embedded is the chunk with its place in the document.
    assert any(text.startswith("Paging\n") for text in embedder.texts)


async def test_vectors_that_are_missing_are_made_by_the_next_process_and_no_others(tmp_path: Path, docs: Path) -> None:
    async with opened(tmp_path, WordVectors()) as kb:
        await added(kb, docs)
        await kb.embedded()
    held = WordVectors()
    held.may_go.clear()
    async with opened(tmp_path, held) as kb:
        await added(kb, written(docs, new="# New\n\nAbout giraffes.\n"))
    again = WordVectors()
    async with opened(tmp_path, again) as kb:
        await kb.embedded()
        assert [(one.embedded, one.chunks) for one in await kb.list_datasources()] == [(4, 4)]
    assert len(again.texts) == 1
    assert "giraffes" in again.texts[0]


async def test_embeddings_that_fail_are_made_later_and_searches_use_words_meanwhile(tmp_path: Path, docs: Path) -> None:
    embedder = WordVectors(broken=True)
    async with opened(tmp_path, embedder) as kb:
        await added(kb, docs)
        await kb.embedded()  # as far as they can be made
        assert [one.embedded for one in await kb.list_datasources()] == [0]
        assert await titles(kb, "secondary after ten minutes") == ["Paging"]
        with pytest.raises(Refused, match="no model that finds documents by what they mean"):
            await kb.search("secondary", mode="vectors")
        embedder.broken = False
        await refreshed(kb, "docs")
        await until(lambda: _embedded(kb, 3))


async def _embedded(kb: KnowledgeBase, count: int) -> bool:
    return [one.embedded for one in await kb.list_datasources()] == [count]


# --- this product's documentation -------------------------------------------------------------------------------------


async def test_a_fresh_installation_answers_questions_about_itself(tmp_path: Path) -> None:
    root = ROOT
    async with opened(tmp_path, docs=root) as kb:
        assert await kb.holds_documents()
        await finished(kb, await kb.job(await only_job(kb)))
        found = await titles(kb, "how do I move an agent to another machine")
    assert found[0] == "Where agents run"


async def test_own_documentation_is_read_again_only_where_it_changed(tmp_path: Path) -> None:
    root = tmp_path / "product"
    written(root, README="# Product\n\nIt counts sheep.\n")
    written(root / "docs", guide="# Guide\n\nPress the button.\n", old="# Old\n\nAbout dinosaurs.\n")
    async with opened(tmp_path, docs=root) as kb:
        assert figures(await finished(kb, await kb.job(await only_job(kb)))) == ("done", 3, 0, 0, 0)
    async with opened(tmp_path, docs=root) as kb:
        assert len(await kb.jobs()) == 1  # nothing to do
    written(root / "docs", guide="# Guide\n\nPull the lever.\n")
    (root / "docs" / "old.md").unlink()
    async with opened(tmp_path, docs=root) as kb:
        newest, _ = await kb.jobs()
        assert figures(await finished(kb, newest)) == ("done", 1, 1, 1, 0)
        assert await titles(kb, "lever") == ["Guide"]
        assert await titles(kb, "button dinosaurs") == []


async def test_own_documentation_that_was_removed_does_not_come_back_by_itself(tmp_path: Path) -> None:
    root = written(tmp_path / "product", README="# Product\n\nIt counts sheep.\n")
    async with opened(tmp_path, docs=root) as kb:
        await finished(kb, await kb.job(await only_job(kb)))
        await kb.remove("caipe-docs")
        assert await kb.list_datasources() == []
        assert await titles(kb, "sheep") == []
    written(root, README="# Product\n\nIt counts sheep and goats.\n")
    async with opened(tmp_path, docs=root) as kb:
        assert await kb.list_datasources() == []
        assert not await kb.holds_documents()
        assert (await added(kb, "built-in")).state == "done"
        assert await titles(kb, "goats") == ["Product"]


# --- names, options, and who may write --------------------------------------------------------------------------------


async def test_a_datasource_is_named_after_its_place_and_keeps_its_name(tmp_path: Path, docs: Path) -> None:
    other = written(tmp_path / "other" / "docs", other="# Other\n\nText.\n")
    async with opened(tmp_path) as kb:
        first, _ = await kb.add(str(docs))
        second, _ = await kb.add(str(other), title="The other")
        again, _ = await kb.add(str(other))
        assert (first.name, second.name, again.name) == ("docs", "docs-2", "docs-2")
        assert again.title == "The other"
        with pytest.raises(Refused, match="another name"):
            await kb.add(str(tmp_path / "other"), name="docs")
        with pytest.raises(Refused, match="small letters"):
            await kb.add(str(docs), name="Not a name")


async def test_what_is_no_source_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with opened(tmp_path) as kb:
        for location, options, words in (
            (str(tmp_path / "nowhere"), {}, "There is nothing that can be read at"),
            ("ftp://example.com/", {}, "Only http"),
            ("https://example.com/", {"depth": "many"}, "depth is a number from 0 to 20"),
            ("https://example.com/", {"colour": "red"}, "There is no option colour"),
            ("https://example.com/", {"kind": "tape"}, "one of: folder, web, git"),
        ):
            with pytest.raises(CaipeError, match=words):
                await kb.add(location, options=options)
        assert await kb.list_datasources() == []
        for missing in (kb.refresh("docs"), kb.remove("docs")):
            with pytest.raises(NotThere, match=r"There is no datasource docs\. There is none yet\."):
                await missing
        with pytest.raises(NotThere, match="There is no job"):
            await kb.stop("nothing")


async def test_a_web_site_keeps_its_bounds(tmp_path: Path) -> None:
    async with site() as served, opened(tmp_path, private=True) as kb:
        slow_site(served)
        mended(served)
        datasource, job = await kb.add(f"{served.url}/", name="web", options={"depth": "0"})
        assert figures(await finished(kb, job)) == ("done", 1, 0, 0, 0)
        assert datasource.options == {"depth": "0"}
        assert figures(await refreshed(kb, "web"))[:3] == ("done", 0, 1)
        await kb.add(f"{served.url}/", name="web")  # given again, without bounds
        assert (await refreshed(kb, "web")).done == 4


async def test_a_second_process_searches_and_changes_nothing(tmp_path: Path, docs: Path) -> None:
    async with opened(tmp_path) as owner:
        await added(owner, docs)
        async with opened(tmp_path) as second:
            assert (owner.writes, second.writes) == (True, False)
            assert await titles(second, "secondary after ten minutes") == ["Paging"]
            with pytest.raises(Refused, match="Another process has the knowledge base open"):
                await second.add(str(docs))
            with pytest.raises(Refused, match="Another process"):
                await second.remove("docs")
            written(docs, new="# New\n\nAbout giraffes.\n")
            await refreshed(owner, "docs")
            assert await titles(second, "giraffes") == ["New"]
