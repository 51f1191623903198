"""Issues of a Jira project or query come in with their comments, and follow their changes, moves and
deletions."""

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError, Refused
from ai_platform_engineering.knowledge_bases.indexing.ingest_pass import CommitInterval
from ai_platform_engineering.knowledge_bases.results import compute_document_id
from ai_platform_engineering.knowledge_bases.sources.connectors.jira_text import render_text
from tests.support.connectors import LIST_RARELY, RecordedWaits, build_connectors
from tests.support.fakes.api_stand_in import Failure, serve_api
from tests.support.fakes.jira import JiraApi
from tests.support.knowledge import (
    add_datasource,
    job_counts,
    open_knowledge_base,
    refresh_datasource,
    search_titles,
)

TOKEN = "token-of-a-reader"
CLOUD = "Basic " + base64.b64encode(f"ann@example.org:{TOKEN}".encode()).decode()


def text_node(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def block(kind: str, *content: dict[str, Any], **attrs: Any) -> dict[str, Any]:
    return {"type": kind, "content": list(content), "attrs": attrs}


def paragraph(text: str) -> dict[str, Any]:
    return block("paragraph", text_node(text))


def fill(jira: JiraApi) -> JiraApi:
    jira.write(
        "OPS-1", "Disk is full", block("doc", paragraph("The zebra volume has no room.")), status="Done"
    )
    jira.write("OPS-2", "Certificate ends", block("doc", paragraph("Renew the okapi certificate.")))
    jira.write("OPS-3", "Slow queries", block("doc", paragraph("Add an index.")), labels=["runbook"])
    jira.write("HR-1", "Party", block("doc", paragraph("Cake.")))
    jira.comment("OPS-1", block("doc", paragraph("Fixed by the walrus job.")))
    jira.now += timedelta(hours=1)
    return jira


def variables(jira: JiraApi) -> dict[str, str]:
    return {"ATLASSIAN_API_URL": jira.url, "ATLASSIAN_EMAIL": "ann@example.org", "ATLASSIAN_TOKEN": TOKEN}


@pytest.fixture
async def jira() -> AsyncIterator[JiraApi]:
    async with serve_api(fill(JiraApi(CLOUD))) as running:
        yield running


async def test_issues_come_in_with_their_comments(tmp_path: Path, jira: JiraApi) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables(jira))) as kb:
        assert job_counts(await add_datasource(kb, "jira:ops")) == ("done", 3, 0, 0, 0)
        (result,) = await kb.search("walrus job")
        (datasource,) = await kb.list_datasources()
        excerpt = await kb.fetch_document(compute_document_id("jira-ops", "OPS-1"))
    assert result.title == "OPS-1 Disk is full"
    assert result.link == f"{jira.url}/browse/OPS-1"
    assert (datasource.kind, datasource.location) == ("jira", "jira:OPS")
    assert "Status: Done" in excerpt.text
    assert "The zebra volume has no room." in excerpt.text
    assert "### Ann, 2026-03-01\n\nFixed by the walrus job." in excerpt.text


async def test_the_next_pass_asks_for_changes_alone(tmp_path: Path, jira: JiraApi) -> None:
    connectors = build_connectors(variables(jira), rules=LIST_RARELY)
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        await add_datasource(kb, "jira:OPS")
        assert jira.read_keys == ["OPS-1", "OPS-2", "OPS-3"]
        jira.now += timedelta(minutes=30, seconds=50)
        jira.comment("OPS-2", block("doc", paragraph("The ibex did it.")))
        # In the same minute, and already too late for a time without seconds.
        jira.now += timedelta(seconds=5)
        assert job_counts(await refresh_datasource(kb, "jira-ops")) == ("done", 1, 0, 0, 0)
        assert jira.requests[1].query["jql"] == '(project = "OPS") AND updated >= -41m ORDER BY key ASC'
        assert jira.read_keys == ["OPS-2"]
        assert await search_titles(kb, "ibex") == ["OPS-2 Certificate ends"]
        jira.now += timedelta(seconds=2)
        jira.comment("OPS-2", block("doc", paragraph("No, the lemur.")))
        assert job_counts(await refresh_datasource(kb, "jira-ops")) == ("done", 1, 0, 0, 0)
        assert await search_titles(kb, "lemur") == ["OPS-2 Certificate ends"]


@pytest.mark.parametrize("end", ["deleted", "moved"])
async def test_an_issue_that_is_gone_leaves(tmp_path: Path, jira: JiraApi, end: str) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables(jira))) as kb:
        await add_datasource(kb, "jira:OPS")
        issue = jira.issues.pop("OPS-2")
        if end == "moved":
            jira.issues["HR-2"] = issue
            jira.moved["OPS-2"] = "HR-2"
        assert job_counts(await refresh_datasource(kb, "jira-ops")) == ("done", 0, 2, 1, 0)
        assert await search_titles(kb, "okapi") == []


async def test_an_issue_that_the_index_lacks_for_a_while_stays(tmp_path: Path, jira: JiraApi) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables(jira))) as kb:
        await add_datasource(kb, "jira:OPS")
        jira.issues["OPS-2"].indexed = False
        assert job_counts(await refresh_datasource(kb, "jira-ops")) == ("done", 0, 2, 0, 0)
        assert await search_titles(kb, "okapi") == ["OPS-2 Certificate ends"]


async def test_what_a_query_no_longer_finds_leaves(tmp_path: Path, jira: JiraApi) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables(jira))) as kb:
        location = "jira:project = OPS AND labels = runbook ORDER BY created DESC"
        assert job_counts(await add_datasource(kb, location, name="runbooks")) == ("done", 1, 0, 0, 0)
        (datasource,) = await kb.list_datasources()
        assert datasource.location == "jira:project = OPS AND labels = runbook"
        jira.issues["OPS-3"].labels.clear()
        jira.issues["OPS-1"].labels.append("runbook")
        assert job_counts(await refresh_datasource(kb, "runbooks")) == ("done", 1, 0, 1, 0)


async def test_an_issue_that_is_deleted_during_the_pass_costs_no_other(tmp_path: Path, jira: JiraApi) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables(jira))) as kb:
        await add_datasource(kb, "jira:OPS")
        for key in ("OPS-1", "OPS-2", "OPS-3"):
            jira.comment(key, block("doc", paragraph("New.")))
        jira.deleted_once_listed = {"OPS-2"}
        assert job_counts(await refresh_datasource(kb, "jira-ops")) == ("done", 2, 0, 1, 0)


async def test_data_center_has_another_search_and_wiki_markup(tmp_path: Path) -> None:
    jira = JiraApi(f"Bearer {TOKEN}", cloud=False)
    for number in range(1, 131):
        jira.write(f"OPS-{number}", f"Issue {number}", f"h2. Part\n\nText {number} about {{{{kubelet}}}}.")
    async with serve_api(jira):
        settings = {"ATLASSIAN_API_URL": jira.url, "JIRA_PERSONAL_TOKEN": TOKEN}
        async with open_knowledge_base(tmp_path, connectors=build_connectors(settings)) as kb:
            assert job_counts(await add_datasource(kb, "jira:OPS")) == ("done", 130, 0, 0, 0)
            excerpt = await kb.fetch_document(compute_document_id("jira-ops", "OPS-7"))
            listings = [request for request in jira.requests if "ORDER BY" in request.query.get("jql", "")]
    assert "### Part\n\nText 7 about `kubelet`." in excerpt.text
    assert [request.query.get("startAt", "0") for request in listings] == ["0", "100"]


async def test_all_comments_are_read(tmp_path: Path, jira: JiraApi) -> None:
    for number in range(150):
        jira.comment("OPS-1", block("doc", paragraph(f"Comment number{number}.")))
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables(jira))) as kb:
        await add_datasource(kb, "jira:OPS")
        assert await search_titles(kb, "number149") == ["OPS-1 Disk is full"]
        paths = [request.path for request in jira.requests]
        assert paths.count("/rest/api/3/issue/OPS-1/comment") == 2


@pytest.mark.full
async def test_a_pass_that_was_killed_goes_on_without_reading_twice(tmp_path: Path, jira: JiraApi) -> None:
    for number in range(10, 50):
        jira.write(f"OPS-{number}", f"Issue {number}", block("doc", paragraph(f"Text {number}.")))
    connectors = build_connectors(variables(jira))
    pace = CommitInterval(documents=5)
    async with open_knowledge_base(tmp_path, connectors=connectors, pace=pace) as kb:
        _, job = await kb.add_datasource("jira:OPS")
        async for progress in kb.follow_job(job.job_id):
            if progress.done >= 20:
                jira.gate = asyncio.Event()
                break
    jira.gate = None
    jira.take_requests()
    async with open_knowledge_base(tmp_path, connectors=connectors, pace=pace) as kb:
        async for progress in kb.follow_job(job.job_id):
            job = progress
        assert (job.state, job.done + job.skipped) == ("done", 43)
        assert job.skipped >= 20
        assert len(jira.read_keys) == job.done


async def test_a_rate_limit_is_waited_for(tmp_path: Path, jira: JiraApi) -> None:
    waits = RecordedWaits()
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables(jira), waits=waits)) as kb:
        jira.fail(Failure(429, {"Retry-After": "12"}))
        assert (await add_datasource(kb, "jira:OPS")).state == "done"
    assert len(waits.seconds) == 1
    assert 12 <= waits.seconds[0] <= 13


async def test_expired_credentials_are_named_and_nothing_leaves(tmp_path: Path, jira: JiraApi) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables(jira))) as kb:
        await add_datasource(kb, "jira:OPS")
        jira.authorization = "Basic of another token"
        job = await refresh_datasource(kb, "jira-ops")
        assert job.state == "failed"
        assert "Jira refused the credentials. Check ATLASSIAN_EMAIL and ATLASSIAN_TOKEN" in job.problem
        assert await search_titles(kb, "zebra") == ["OPS-1 Disk is full"]


@pytest.mark.parametrize(
    ("location", "status", "words"),
    [
        ("jira:NONE", None, "Jira refuses jira:NONE.*The value 'NONE' does not exist"),
        ("jira:status == Done", None, "reserved JQL character"),
        ("jira:OPS", 403, "does not let this account read it"),
        ("jira:OPS", 404, "Check ATLASSIAN_API_URL"),
    ],
)
async def test_what_cannot_be_read_says_why(
    tmp_path: Path, jira: JiraApi, location: str, status: int | None, words: str
) -> None:
    if status is not None:
        jira.fail(Failure(status))
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables(jira))) as kb:
        job = await add_datasource(kb, location)
        assert job.state == "failed"
        with pytest.raises(AssertionError, match=words):
            raise AssertionError(job.problem)
        assert await kb.list_datasources() == []


@pytest.mark.parametrize(
    ("location", "settings", "error", "words"),
    [
        ("jira:", {"ATLASSIAN_API_URL": "https://a.example"}, Refused, "Give the key of a project"),
        ("jira:two words", {"ATLASSIAN_API_URL": "https://a.example"}, Refused, "a JQL query"),
        ("jira:OPS", {}, ConfigurationError, "Set ATLASSIAN_API_URL with ATLASSIAN_EMAIL"),
        ("jira:OPS", {"ATLASSIAN_API_URL": "https://a.example"}, ConfigurationError, "JIRA_PERSONAL_TOKEN"),
    ],
)
async def test_what_is_malformed_or_not_configured_is_refused(
    tmp_path: Path, location: str, settings: dict[str, str], error: type[CaipeError], words: str
) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(settings)) as kb:
        with pytest.raises(error, match=words):
            await kb.add_datasource(location)


async def test_projects_that_agents_may_not_read_are_not_read(tmp_path: Path, jira: JiraApi) -> None:
    settings = {**variables(jira), "JIRA_PROJECTS_FILTER": "OPS, WEB"}
    async with open_knowledge_base(tmp_path, connectors=build_connectors(settings)) as kb:
        with pytest.raises(Refused, match="JIRA_PROJECTS_FILTER allows only: OPS, WEB"):
            await kb.add_datasource("jira:HR")
        await add_datasource(kb, "jira:labels = party")
        assert jira.requests[0].query["jql"] == 'project in ("OPS", "WEB") AND (labels = party)'
        assert (await add_datasource(kb, "jira:OPS")).done == 3


# --- texts


def test_the_document_format_becomes_markdown() -> None:
    link = {"type": "link", "attrs": {"href": "https://example.org"}}
    row = block("tableRow", block("tableHeader", paragraph("Host")), block("tableHeader", paragraph("Role")))
    values = block("tableRow", block("tableCell", paragraph("a")), block("tableCell", paragraph("b|c")))
    nested = block("bulletList", block("listItem", paragraph("inner")))
    code = {"type": "code"}
    mention = {"type": "mention", "attrs": {"text": "@Ann"}}
    document = block(
        "doc",
        block("heading", text_node("Steps"), level=2),
        block(
            "orderedList", block("listItem", paragraph("one"), nested), block("listItem", paragraph("two"))
        ),
        block("codeBlock", text_node("kubectl get pods\n"), language="bash"),
        block("panel", paragraph("Careful."), panelType="warning"),
        block("paragraph", text_node("See "), text_node("this", marks=[link]), text_node("x", marks=[code])),
        block("paragraph", mention, {"type": "hardBreak"}, text_node("line")),
        block("table", row, values),
        block("taskList", block("taskItem", text_node("done"), state="DONE")),
        block("mediaSingle", {"type": "media", "attrs": {"id": "1"}}),
    )
    assert render_text(document) == (
        "## Steps\n\n1. one\n   - inner\n2. two\n\n```bash\nkubectl get pods\n```\n\nCareful.\n\n"
        "See [this](https://example.org)`x`\n\n@Ann\nline\n\n"
        "| Host | Role |\n| --- | --- |\n| a | b\\|c |\n\n- [x] done"
    )


def test_a_document_that_is_nested_for_ever_is_cut() -> None:
    document: dict[str, Any] = paragraph("deep")
    for _ in range(500):
        document = block("blockquote", document)
    assert render_text(block("doc", document, paragraph("kept"))).endswith("kept")


def test_wiki_markup_becomes_markdown() -> None:
    text = (
        "h1. Title\n* one\n** two\n# first\n{code:java|title=x}\nh1. not a heading\n{code}\n"
        "||Host||Role||\n|a|b|\n[docs|https://example.org] {color:red}red{color} {{mono}} !pic.png|thumbnail!"
    )
    assert render_text(text) == (
        "# Title\n- one\n   - two\n1. first\n\n```java\nh1. not a heading\n```\n\n"
        "| Host | Role |\n| --- | --- |\n|a|b|\n[docs](https://example.org) red `mono`"
    )
