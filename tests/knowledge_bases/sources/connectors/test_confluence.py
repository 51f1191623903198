"""Pages of a Confluence space come in, and follow their changes, moves and deletions; what cannot be read
says why."""

import asyncio
import base64
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError, Refused
from ai_platform_engineering.knowledge_bases.results import compute_document_id
from tests.support.connectors import LIST_RARELY, RecordedWaits, build_connectors
from tests.support.fakes.api_stand_in import Failure, serve_api
from tests.support.fakes.confluence import ConfluenceApi
from tests.support.knowledge import (
    add_datasource,
    holds_documents,
    job_counts,
    open_knowledge_base,
    refresh_datasource,
    search_titles,
    wait_for_job,
    wait_until,
)
from tests.support.processes import start_command

TOKEN = "token-of-a-reader"
CLOUD = "Basic " + base64.b64encode(f"ann@example.org:{TOKEN}".encode()).decode()
DATA_CENTER = f"Bearer {TOKEN}"
CODE = (
    '<ac:structured-macro ac:name="code"><ac:plain-text-body><![CDATA[df -h]]></ac:plain-text-body>'
    "</ac:structured-macro>"
)


def fill(wiki: ConfluenceApi) -> ConfluenceApi:
    wiki.write("1", "Handbook", "")
    wiki.write("2", "Runbooks", "<p>How we operate giraffes.</p>", parent="1")
    wiki.write(
        "3",
        "Full disk",
        f"<h2>First</h2><p>Look at the zebra volume.</p>{CODE}",
        parent="2",
        labels=["disk", "on-call"],
    )
    wiki.write("9", "Elsewhere", "<p>Another space.</p>", space="HR")
    wiki.now += timedelta(hours=1)
    return wiki


def cloud_variables(wiki: ConfluenceApi) -> dict[str, str]:
    return {"ATLASSIAN_API_URL": wiki.url, "ATLASSIAN_EMAIL": "ann@example.org", "ATLASSIAN_TOKEN": TOKEN}


@pytest.fixture
async def wiki() -> AsyncIterator[ConfluenceApi]:
    async with serve_api(fill(ConfluenceApi(CLOUD))) as running:
        yield running


async def test_pages_come_in_under_their_ancestors(tmp_path: Path, wiki: ConfluenceApi) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(cloud_variables(wiki))) as kb:
        assert job_counts(await add_datasource(kb, "confluence:OPS")) == ("done", 3, 0, 0, 0)
        (result,) = await kb.search("zebra volume")
        (datasource,) = await kb.list_datasources()
        excerpt = await kb.fetch_document(compute_document_id("confluence-ops", "pages/3"))
    assert (result.title, result.kind) == ("Full disk", "confluence")
    assert result.headings[:3] == ("Handbook", "Runbooks", "Full disk")
    assert result.link == "https://wiki.example/wiki/spaces/OPS/pages/3"
    assert (datasource.name, datasource.kind, datasource.location) == (
        "confluence-ops",
        "confluence",
        "confluence:OPS",
    )
    assert "df -h" in excerpt.text
    assert "Labels: disk, on-call" in excerpt.text


@pytest.mark.full
async def test_the_next_pass_asks_for_changes_alone(tmp_path: Path, wiki: ConfluenceApi) -> None:
    connectors = build_connectors(cloud_variables(wiki), rules=LIST_RARELY)
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        await add_datasource(kb, "confluence:OPS")
        assert wiki.read_ids == ["1", "2", "3"]
        wiki.now += timedelta(minutes=90, seconds=20)
        wiki.write("3", "Disk that is full", "<p>Look at the okapi volume.</p>")
        wiki.now += timedelta(seconds=20)
        assert job_counts(await refresh_datasource(kb, "confluence-ops")) == ("done", 1, 0, 0, 0)
        listing = wiki.requests[1].query["cql"]
        # 91 minutes since the last pass, and ten for an index that is behind.
        assert listing == 'space = "OPS" and type = page and lastmodified >= now("-101m")'
        assert wiki.read_ids == ["3"]
        assert await search_titles(kb, "okapi") == ["Disk that is full"]
        assert await search_titles(kb, "zebra") == []
        # What is listed again because of the overlap is not read again.
        wiki.now += timedelta(minutes=1)
        assert job_counts(await refresh_datasource(kb, "confluence-ops")) == ("done", 0, 1, 0, 0)
        assert wiki.read_ids == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("end", ["purged", "trashed", "archived", "moved"])
async def test_a_page_that_is_gone_leaves(tmp_path: Path, wiki: ConfluenceApi, end: str) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(cloud_variables(wiki))) as kb:
        await add_datasource(kb, "confluence:OPS")
        if end == "purged":
            del wiki.pages["3"]
        elif end == "moved":
            wiki.pages["3"].space = "HR"
        else:
            wiki.pages["3"].status = end
        assert job_counts(await refresh_datasource(kb, "confluence-ops")) == ("done", 0, 2, 1, 0)
        assert await search_titles(kb, "zebra") == []


async def test_a_page_that_the_index_lacks_for_a_while_stays(tmp_path: Path, wiki: ConfluenceApi) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(cloud_variables(wiki))) as kb:
        await add_datasource(kb, "confluence:OPS")
        wiki.pages["3"].indexed = False
        assert job_counts(await refresh_datasource(kb, "confluence-ops")) == ("done", 0, 2, 0, 0)
        assert await search_titles(kb, "zebra") == ["Full disk"]


async def test_a_page_that_stands_elsewhere_has_other_headings(tmp_path: Path, wiki: ConfluenceApi) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(cloud_variables(wiki))) as kb:
        await add_datasource(kb, "confluence:OPS")
        wiki.pages["3"].parent = "1"  # which makes no version
        assert job_counts(await refresh_datasource(kb, "confluence-ops")) == ("done", 1, 2, 0, 0)
        (result,) = await kb.search("zebra volume")
        assert result.headings[:2] == ("Handbook", "Full disk")


@pytest.mark.sample(1)
@pytest.mark.parametrize("cloud", [True, False])
async def test_large_spaces_come_in_pages(tmp_path: Path, cloud: bool) -> None:
    wiki = ConfluenceApi(CLOUD if cloud else DATA_CENTER, cloud=cloud)
    for number in range(130):
        wiki.write(str(number), f"Page {number}", f"<p>Text {number}.</p>")
    async with serve_api(wiki):
        variables = cloud_variables(wiki)
        if not cloud:
            variables = {"CONFLUENCE_API_URL": f"{wiki.url}/confluence", "CONFLUENCE_PERSONAL_TOKEN": TOKEN}
        async with open_knowledge_base(tmp_path, connectors=build_connectors(variables)) as kb:
            assert job_counts(await add_datasource(kb, "confluence:OPS")) == ("done", 130, 0, 0, 0)
            listings = [request for request in wiki.requests if "space =" in request.query["cql"]]
            assert len(listings) == 3  # the check, and two pages
            assert len(wiki.read_ids) == 130


@pytest.mark.full
async def test_a_process_that_was_killed_is_followed_by_one_that_reads_the_rest(
    tmp_path: Path, wiki: ConfluenceApi
) -> None:
    home = tmp_path / "caipe-home"
    for number in range(10, 40):
        wiki.write(str(number), f"Page {number}", f"<p>Text {number}.</p>")
    wiki.gate = asyncio.Event()
    wiki.gated_text = "id in (32"  # of the second batch
    async with start_command("caipe", "kb", "add", "confluence:OPS", env=cloud_variables(wiki)) as program:
        await wait_until(lambda: holds_documents(home, "confluence", 25))
        program.send_signal(signal.SIGKILL)
        await program.wait_for_exit()
    wiki.gate = None
    wiki.take_requests()
    async with open_knowledge_base(home, connectors=build_connectors(cloud_variables(wiki))) as kb:
        job = next(job for job in await kb.list_jobs() if job.datasource == "confluence-ops")
        assert job_counts(await wait_for_job(kb, job)) == ("done", 8, 25, 0, 0)
        assert wiki.read_ids == [str(number) for number in range(32, 40)]


async def test_a_rate_limit_is_waited_for(tmp_path: Path, wiki: ConfluenceApi) -> None:
    waits = RecordedWaits()
    connectors = build_connectors(cloud_variables(wiki), waits=waits)
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        wiki.fail(Failure(429, {"Retry-After": "30", "X-RateLimit-Reset": "2026-03-01T12:00Z"}))
        assert job_counts(await add_datasource(kb, "confluence:OPS")) == ("done", 3, 0, 0, 0)
    (seconds,) = waits.seconds
    assert 30 <= seconds <= 31


async def test_expired_credentials_are_named_and_nothing_leaves(tmp_path: Path, wiki: ConfluenceApi) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(cloud_variables(wiki))) as kb:
        await add_datasource(kb, "confluence:OPS")
        wiki.authorization = "Basic of another token"
        job = await refresh_datasource(kb, "confluence-ops")
        assert job.state == "failed"
        assert job.problem == (
            "Confluence refused the credentials. Check ATLASSIAN_EMAIL and ATLASSIAN_TOKEN: "
            "they may be wrong or expired."
        )
        assert await search_titles(kb, "zebra") == ["Full disk"]


@pytest.mark.parametrize(
    ("location", "status", "words"),
    [
        ("confluence:NONE", None, "Confluence shows no page of the space NONE"),
        ("confluence:OPS", 403, "does not let this account read it"),
        ("confluence:OPS", 404, "Check ATLASSIAN_API_URL"),
    ],
)
async def test_what_cannot_be_read_says_why(
    tmp_path: Path, wiki: ConfluenceApi, location: str, status: int | None, words: str
) -> None:
    if status is not None:
        wiki.fail(Failure(status))
    async with open_knowledge_base(tmp_path, connectors=build_connectors(cloud_variables(wiki))) as kb:
        job = await add_datasource(kb, location)
        assert job.state == "failed"
        assert words in job.problem
        assert TOKEN not in job.problem
        assert await kb.list_datasources() == []


@pytest.mark.parametrize(
    ("location", "variables", "error", "words"),
    [
        ("confluence:", {"ATLASSIAN_API_URL": "https://a.example"}, Refused, "confluence:OPS"),
        ("confluence:A B", {"ATLASSIAN_API_URL": "https://a.example"}, Refused, "confluence:OPS"),
        ("confluence:OPS", {}, ConfigurationError, "Set ATLASSIAN_API_URL, ATLASSIAN_EMAIL and"),
        (
            "confluence:HR",
            {"ATLASSIAN_API_URL": "https://a.example", "CONFLUENCE_SPACES_FILTER": "OPS"},
            Refused,
            "CONFLUENCE_SPACES_FILTER allows only: OPS",
        ),
        (
            "confluence:OPS",
            {"CONFLUENCE_API_URL": "https://a.example"},
            ConfigurationError,
            "or CONFLUENCE_PERSONAL_TOKEN",
        ),
        (
            "confluence:OPS",
            {"CONFLUENCE_API_URL": "wiki.example", "CONFLUENCE_PERSONAL_TOKEN": TOKEN},
            ConfigurationError,
            "CONFLUENCE_API_URL is invalid",
        ),
    ],
)
async def test_what_is_malformed_or_not_configured_is_refused(
    tmp_path: Path, location: str, variables: dict[str, str], error: type[CaipeError], words: str
) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables)) as kb:
        with pytest.raises(error, match=words):
            await kb.add_datasource(location)
        assert await kb.list_datasources() == []
