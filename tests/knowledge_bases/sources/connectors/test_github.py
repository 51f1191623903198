"""Issues, pull requests, discussions and the wiki of a repository on GitHub come in, and follow their
changes, transfers and deletions."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError, Refused
from ai_platform_engineering.knowledge_bases.indexing.ingest_pass import CommitInterval
from ai_platform_engineering.knowledge_bases.results import compute_document_id
from ai_platform_engineering.knowledge_bases.sources.connectors.api_client import ApiLimits
from ai_platform_engineering.knowledge_bases.sources.connectors.retries import RetryLimits
from tests.support.connectors import LIST_RARELY, RecordedWaits, build_connectors
from tests.support.fakes.api_stand_in import Failure, serve_api
from tests.support.fakes.git_server import commit, repository
from tests.support.fakes.github_graphql import GitHubApi, connection
from tests.support.knowledge import (
    add_datasource,
    job_counts,
    open_knowledge_base,
    refresh_datasource,
    search_titles,
)

TOKEN = "token-of-a-reader"


def fill(github: GitHubApi) -> GitHubApi:
    github.write(
        "issues", 1, "Disk is full", "# What\n\nThe zebra volume has no room.", stateReason="COMPLETED"
    )
    github.write("issues", 2, "Certificate ends", "Renew the okapi certificate.")
    github.comment("issues", 1, "Fixed by the walrus job.")
    github.write("pulls", 3, "Add an index", "Speeds up the ibex query.")
    reply = github.render_comment("Thank you, says the lemur.")
    github.write("discussions", 4, "How to restart?", "We have no idea.")
    github.comment(
        "discussions", 4, "Ask the tapir.", isAnswer=True, replies=lambda _, first: connection([reply], first)
    )
    github.now += timedelta(hours=1)
    return github


def variables(github: GitHubApi, home: Path) -> dict[str, str]:
    return {"GITHUB_API_URL": f"{github.url}/api/v3", "GITHUB_TOKEN": TOKEN, "CAIPE_HOME": str(home)}


@pytest.fixture
async def github() -> AsyncIterator[GitHubApi]:
    async with serve_api(fill(GitHubApi(TOKEN))) as running:
        yield running


async def test_conversations_come_in_with_their_comments(tmp_path: Path, github: GitHubApi) -> None:
    connectors = build_connectors(variables(github, tmp_path))
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        assert job_counts(await add_datasource(kb, "github:o/r")) == ("done", 3, 0, 0, 0)
        (result,) = await kb.search("walrus job")
        (datasource,) = await kb.list_datasources()
        excerpt = await kb.fetch_document(compute_document_id("github-o-r", "discussions/4"))
        assert await search_titles(kb, "ibex") == []
    assert result.title == "Disk is full (o/r#1)"
    assert result.link == "https://git.example/o/r/issues/1"
    assert (datasource.kind, datasource.location) == ("github", "github:o/r")
    assert "Category: Q&A" in excerpt.text
    assert "### ann, 2026-03-01, the answer\n\nAsk the tapir." in excerpt.text
    assert "Thank you, says the lemur." in excerpt.text


@pytest.mark.parametrize(
    ("location", "options", "addresses"),
    [
        ("github:o/r/issues", {}, {"issue 1", "issue 2"}),
        ("github:o/r/pulls", {}, {"pullRequest 3"}),
        ("github:o/r/discussions", {}, {"discussion 4"}),
        ("github:o/r", {"include": "issues, pulls"}, {"issue 1", "issue 2", "pullRequest 3"}),
    ],
)
async def test_only_what_is_asked_for_is_read(
    tmp_path: Path, github: GitHubApi, location: str, options: dict[str, str], addresses: set[str]
) -> None:
    connectors = build_connectors(variables(github, tmp_path))
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        job = await add_datasource(kb, location, options=options)
        assert job_counts(job) == ("done", len(addresses), 0, 0, 0)
        assert set(github.read_numbers) == addresses


async def test_the_next_pass_reads_changes_alone(tmp_path: Path, github: GitHubApi) -> None:
    for number in range(100, 350):
        github.write("issues", number, f"Issue {number}", f"Text {number}.")
    github.now += timedelta(hours=1)
    connectors = build_connectors(variables(github, tmp_path), rules=LIST_RARELY)
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        assert (await add_datasource(kb, "github:o/r/issues")).done == 252
        github.take_requests()
        github.now += timedelta(hours=1)
        github.comment("issues", 2, "It was the marmot.")
        assert job_counts(await refresh_datasource(kb, "github-o-r-issues")) == ("done", 1, 0, 0, 0)
        assert len(github.requests) == 3  # the repository, one page of changes, one issue
        assert github.read_numbers == ["issue 2"]
        assert await search_titles(kb, "marmot") == ["Certificate ends (o/r#2)"]


async def test_what_is_deleted_or_transferred_leaves(tmp_path: Path, github: GitHubApi) -> None:
    connectors = build_connectors(variables(github, tmp_path))
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        await add_datasource(kb, "github:o/r")
        del github.conversations["issues"][1]
        del github.conversations["discussions"][4]
        github.read_numbers.clear()
        assert job_counts(await refresh_datasource(kb, "github-o-r")) == ("done", 0, 1, 2, 0)
        assert github.read_numbers == []
        assert await search_titles(kb, "walrus tapir") == []


async def test_an_issue_that_is_deleted_during_the_pass_costs_no_other(
    tmp_path: Path, github: GitHubApi
) -> None:
    github.deleted_once_listed = {2}
    connectors = build_connectors(variables(github, tmp_path))
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        assert job_counts(await add_datasource(kb, "github:o/r/issues")) == ("done", 1, 0, 0, 0)


async def test_long_conversations_are_read_to_their_end(tmp_path: Path, github: GitHubApi) -> None:
    for number in range(250):
        github.comment("issues", 2, f"Comment number{number}.")
    connectors = build_connectors(variables(github, tmp_path))
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        await add_datasource(kb, "github:o/r/issues")
        assert await search_titles(kb, "number249") == ["Certificate ends (o/r#2)"]


async def test_a_pull_request_comes_with_its_reviews(tmp_path: Path, github: GitHubApi) -> None:
    comment = {"author": None, "createdAt": "2026-03-01T12:00:00Z", "body": "Use the gazelle index."}
    thread = {"path": "db/schema.sql", "comments": lambda _, first: connection([comment] * 60, first)}
    review = {"author": {"login": "bo"}, "submittedAt": "2026-03-02T12:00:00Z", "body": "Looks good."}
    github.write(
        "pulls",
        3,
        "Add an index",
        "Text.",
        merged=True,
        reviews=lambda _, first: connection([review], first),
        reviewThreads=lambda _, first: connection([thread], first),
    )
    connectors = build_connectors(variables(github, tmp_path))
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        await add_datasource(kb, "github:o/r/pulls", name="pulls")
        excerpt = await kb.fetch_document(compute_document_id("pulls", "pulls/3"))
    for words in ("State: merged", "### bo, 2026-03-02", "### On db/schema.sql", "#### ghost, 2026-03-01"):
        assert words in excerpt.text
    assert "[10 more comments are not read.]" in excerpt.text


@pytest.mark.full
async def test_a_pass_that_was_killed_goes_on_without_reading_twice(
    tmp_path: Path, github: GitHubApi
) -> None:
    for number in range(10, 50):
        github.write("issues", number, f"Issue {number}", f"Text {number}.")
    connectors = build_connectors(variables(github, tmp_path))
    pace = CommitInterval(documents=5)
    async with open_knowledge_base(tmp_path, connectors=connectors, pace=pace) as kb:
        _, job = await kb.add_datasource("github:o/r/issues")
        async for progress in kb.follow_job(job.job_id):
            if progress.done >= 20:
                github.gate = asyncio.Event()
                break
    github.gate = None
    github.take_requests()
    async with open_knowledge_base(tmp_path, connectors=connectors, pace=pace) as kb:
        async for progress in kb.follow_job(job.job_id):
            job = progress
        assert (job.state, job.done + job.skipped) == ("done", 42)
        assert job.skipped >= 20
        assert len(github.read_numbers) == job.done


# --- the wiki


async def test_the_wiki_is_read_with_git(tmp_path: Path) -> None:
    origin = repository(tmp_path / "wiki", {"Home.md": "Welcome, platypus.", "Old-Page.md": "An old quokka."})
    async with serve_api(fill(GitHubApi(TOKEN, origin))) as github:
        connectors = build_connectors(variables(github, tmp_path))
        async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
            options = {"include": "issues,wiki"}
            assert job_counts(await add_datasource(kb, "github:o/r", options=options)) == ("done", 4, 0, 0, 0)
            (result,) = await kb.search("quokka")
            commit(origin, {"Old-Page.md": None, "New-Page.md": "A new numbat."})
            assert job_counts(await refresh_datasource(kb, "github-o-r")) == ("done", 1, 3, 1, 0)
            assert await search_titles(kb, "numbat") == ["New Page"]
            assert await search_titles(kb, "quokka") == []
            # Another choice: what it leaves out goes.
            job = await add_datasource(kb, "github:o/r/wiki", name="wiki")
            assert job_counts(job) == ("done", 2, 0, 0, 0)
            job = await add_datasource(kb, "github:o/r", options={"include": "issues"})
            assert job_counts(job) == ("done", 0, 2, 2, 0)
    assert result.title == "Old Page"
    assert result.link == f"{github.url}/o/r/wiki/Old-Page"


async def test_the_token_is_not_in_the_command_of_git(tmp_path: Path) -> None:
    """Commands can be read by everybody on the machine."""
    origin = repository(tmp_path / "wiki", {"Home.md": "Welcome."})
    folder = tmp_path / "bin"
    folder.mkdir()
    arguments = tmp_path / "arguments"
    program = folder / "git"
    program.write_text(f'#!/bin/sh\necho "$@" >> {arguments}\nPATH="${{PATH#*:}}" exec git "$@"\n')
    program.chmod(0o700)
    async with serve_api(fill(GitHubApi(TOKEN, origin))) as github:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", str(folder), prepend=":")
            connectors = build_connectors(variables(github, tmp_path))
        async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
            assert job_counts(await add_datasource(kb, "github:o/r/wiki")) == ("done", 1, 0, 0, 0)
        assert any(login.startswith("Basic ") for login in github.wiki_logins)
    assert "fetch" in arguments.read_text()
    assert "Basic" not in arguments.read_text()


# --- limits and refusals


@pytest.mark.parametrize(
    "failure",
    [
        Failure(403, {"Retry-After": "60"}, {"message": "You have exceeded a secondary rate limit."}),
        Failure(200, {"Retry-After": "60"}, {"errors": [{"type": "RATE_LIMITED", "message": "Limit."}]}),
    ],
)
async def test_rate_limits_are_waited_for(tmp_path: Path, github: GitHubApi, failure: Failure) -> None:
    waits = RecordedWaits()
    connectors = build_connectors(variables(github, tmp_path), waits=waits)
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        github.fail(failure)
        assert (await add_datasource(kb, "github:o/r")).state == "done"
    assert len(waits.seconds) == 1
    assert 60 <= waits.seconds[0] <= 61


async def test_a_query_that_takes_github_too_long_is_made_smaller(tmp_path: Path, github: GitHubApi) -> None:
    limits = ApiLimits(retries=RetryLimits(attempts=2))
    connectors = build_connectors(variables(github, tmp_path), limits=limits)
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        github.fail(Failure(502, text="n1: issue(number: 1)", times=2))
        assert job_counts(await add_datasource(kb, "github:o/r/issues")) == ("done", 2, 0, 0, 0)
        assert github.read_numbers == [*["issue 1", "issue 2"] * 2, "issue 1", "issue 2"]


async def test_an_expired_token_is_named_and_nothing_leaves(tmp_path: Path, github: GitHubApi) -> None:
    connectors = build_connectors(variables(github, tmp_path))
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        await add_datasource(kb, "github:o/r")
        github.token = "another"
        job = await refresh_datasource(kb, "github-o-r")
        assert job.state == "failed"
        assert "GitHub refused the credentials. Check GITHUB_TOKEN" in job.problem
        assert [datasource.documents for datasource in await kb.list_datasources()] == [3]


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("github:o/none", "GitHub has no repository o/none, or the account of GITHUB_TOKEN may not see it."),
        ("github:o/r/discussions", "o/r has no discussions."),
        ("github:o/r/wiki", "o/r has no wiki."),
    ],
)
async def test_what_cannot_be_read_says_why(
    tmp_path: Path, github: GitHubApi, location: str, words: str
) -> None:
    github.has_discussions = False
    connectors = build_connectors(variables(github, tmp_path))
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        job = await add_datasource(kb, location)
        assert (job.state, job.problem) == ("failed", words)
        assert (await add_datasource(kb, "github:o/r")).done == 2


async def test_a_token_that_may_not_read_is_named(tmp_path: Path, github: GitHubApi) -> None:
    github.fail(Failure(200, body={"data": {"repository": None}, "errors": [{"type": "FORBIDDEN"}]}))
    connectors = build_connectors(variables(github, tmp_path))
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        job = await add_datasource(kb, "github:o/r")
        assert "Check what the token of GITHUB_TOKEN may read" in job.problem


@pytest.mark.parametrize(
    ("location", "options", "settings", "error", "words"),
    [
        ("github:o", {}, {"GITHUB_TOKEN": TOKEN}, Refused, "github:octo-org/web"),
        ("github:o/..", {}, {"GITHUB_TOKEN": TOKEN}, Refused, "github:octo-org/web"),
        ("github:o/r/stars", {}, {"GITHUB_TOKEN": TOKEN}, Refused, "issues, pulls, discussions, wiki"),
        ("github:o/r", {"include": "stars"}, {"GITHUB_TOKEN": TOKEN}, Refused, "issues, pulls, discussions"),
        ("github:o/r", {}, {}, ConfigurationError, "Set GITHUB_TOKEN"),
        (
            "github:o/r",
            {},
            {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": "nonsense"},
            ConfigurationError,
            "GITHUB_API_URL is invalid",
        ),
    ],
)
async def test_what_is_malformed_or_not_configured_is_refused(
    tmp_path: Path,
    location: str,
    options: dict[str, str],
    settings: dict[str, str],
    error: type[CaipeError],
    words: str,
) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(settings)) as kb:
        with pytest.raises(error, match=words):
            await kb.add_datasource(location, options=options)
