"""Threads of a Slack channel come in, and follow edits, replies and deletions; those of a private channel are
for its members alone."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import ConfigurationError, Refused
from ai_platform_engineering.knowledge_bases.access import OPERATOR
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from tests.support.connectors import LIST_RARELY, RecordedWaits, build_connectors
from tests.support.fakes.api_stand_in import Failure, serve_api
from tests.support.fakes.slack_history import CHANNEL, TOKEN, SlackHistory
from tests.support.knowledge import (
    add_datasource,
    job_counts,
    open_knowledge_base,
    refresh_datasource,
    search_titles,
)


@pytest.fixture
async def slack() -> AsyncIterator[SlackHistory]:
    async with serve_api(SlackHistory()) as running:
        yield running


def variables(slack: SlackHistory) -> dict[str, str]:
    return {"SLACK_BOT_TOKEN": TOKEN, "SLACK_API_URL": f"{slack.url}/api"}


def fill(slack: SlackHistory) -> str:
    """Three messages, the first with two replies; the id of the first."""
    slack.now -= timedelta(days=10)
    first = slack.write(
        "Why is the giraffe gateway down? <@U2> see <https://status.test|the page> &amp; more"
    )
    slack.now += timedelta(minutes=5)
    slack.write("The certificate expired.", "U2", thread=first)
    slack.now += timedelta(minutes=5)
    slack.write("Renewed, thank you!", thread=first)
    slack.write("joined", subtype="channel_join")
    slack.now += timedelta(days=1)
    slack.write("", "U9", subtype="bot_message", attachments=[{"text": "Okapi alert"}])
    slack.now += timedelta(days=9)
    return first


async def seen_by(kb: KnowledgeBase, person: str, query: str) -> list[str]:
    return await search_titles(kb, query, viewer=await kb.groups.identify(person))


async def test_a_thread_is_a_document(tmp_path: Path, slack: SlackHistory) -> None:
    first = fill(slack)
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables(slack))) as kb:
        assert job_counts(await add_datasource(kb, "slack:#help")) == ("done", 2, 0, 0, 0)
        (result,) = await kb.search("giraffe certificate")
        excerpt = await kb.fetch_document(result.document_id)
        (datasource,) = await kb.list_datasources()
        assert await search_titles(kb, "okapi") == ["Message of 2026-03-11"]
    assert result.title == "Why is the giraffe gateway down? @Bob see the page (https://status.test) & more"
    assert result.link == f"https://team.slack.test/archives/{CHANNEL}/p{first.replace('.', '')}"
    assert result.headings[0] == "#help"
    assert "**Bob** (2026-03-10 12:05 UTC):\n\nThe certificate expired." in excerpt.text
    assert (datasource.name, datasource.location) == ("slack-help", "slack:help")


async def test_edits_replies_and_deletions_are_followed(tmp_path: Path, slack: SlackHistory) -> None:
    first = fill(slack)
    connectors = build_connectors(variables(slack))
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        await add_datasource(kb, f"slack:{CHANNEL}", name="help")
        assert job_counts(await refresh_datasource(kb, "help")) == ("done", 0, 2, 0, 0)
        slack.messages[first] |= {"text": "Why is the zebra gateway down?", "edited": {"ts": "1.0"}}
        assert job_counts(await refresh_datasource(kb, "help")) == ("done", 1, 1, 0, 0)
        assert await search_titles(kb, "zebra") == ["Why is the zebra gateway down?"]
        slack.now += timedelta(days=1)
        reply = slack.write("Quokka again.", thread=first)
        assert job_counts(await refresh_datasource(kb, "help"))[1] == 1
        assert await search_titles(kb, "quokka") == ["Why is the zebra gateway down?"]
        # An edit of a reply shows in no listing: a young thread is read again.
        slack.replies[first][reply]["text"] = "Wombat again."
        slack.now += timedelta(hours=1)
        assert job_counts(await refresh_datasource(kb, "help"))[1] == 1
        assert await search_titles(kb, "wombat") == ["Why is the zebra gateway down?"]
        del slack.replies[first][reply]
        await refresh_datasource(kb, "help")
        assert await search_titles(kb, "wombat") == []
        del slack.messages[first]
        assert job_counts(await refresh_datasource(kb, "help"))[3] == 1
        assert await search_titles(kb, "zebra") == []


async def test_the_next_pass_begins_near_its_cursor(tmp_path: Path, slack: SlackHistory) -> None:
    slack.now -= timedelta(days=60)
    slack.write("Old giraffes.")
    slack.now += timedelta(days=60)
    connectors = build_connectors(variables(slack), rules=LIST_RARELY)
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        await add_datasource(kb, "slack:help")
        slack.take_requests()
        slack.write("New zebras.")
        assert job_counts(await refresh_datasource(kb, "slack-help")) == ("done", 1, 0, 0, 0)
        (listing,) = [
            request
            for request in slack.take_requests()
            if request.path.endswith("history") and "oldest" in request.query
        ]
        assert float(listing.query["oldest"]) == (slack.now - timedelta(days=14)).timestamp()
        assert await search_titles(kb, "giraffes") == ["Old giraffes."]


async def test_a_private_channel_is_for_its_members(tmp_path: Path, slack: SlackHistory) -> None:
    fill(slack)
    slack.is_private = True
    slack.members = ["U1", "U3", "U4"]
    connectors = build_connectors(variables(slack), rules=LIST_RARELY)
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        await add_datasource(kb, "slack:help")
        assert await search_titles(kb, "giraffe") == []
        assert len(await seen_by(kb, "ann@example.org", "giraffe")) == 1
        assert len(await seen_by(kb, "slack:T1:U4", "giraffe")) == 1
        for stranger in ("bob@example.org", "left@example.org", "guest@elsewhere.org"):
            assert await seen_by(kb, stranger, "giraffe") == []
        # Who joins or leaves sees all of it, or none, after the next pass, though no thread is read again.
        slack.members = ["U2"]
        assert job_counts(await refresh_datasource(kb, "slack-help"))[1] == 0
        assert await seen_by(kb, "ann@example.org", "giraffe") == []
        assert len(await seen_by(kb, "bob@example.org", "giraffe")) == 1


async def test_a_channel_that_becomes_private_leaves_nothing_open(
    tmp_path: Path, slack: SlackHistory
) -> None:
    slack.now -= timedelta(days=60)
    slack.write("Old giraffes.")
    slack.now += timedelta(days=60)
    connectors = build_connectors(variables(slack), rules=LIST_RARELY)
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        await add_datasource(kb, "slack:help")
        assert await search_titles(kb, "giraffes") == ["Old giraffes."]
        slack.is_private = True
        await refresh_datasource(kb, "slack-help")
        assert await search_titles(kb, "giraffes") == []
        assert await search_titles(kb, "giraffes", viewer=OPERATOR) == ["Old giraffes."]


async def test_rate_limits_are_waited_for(tmp_path: Path, slack: SlackHistory) -> None:
    fill(slack)
    waits = RecordedWaits()
    slack.fail(Failure(429, {"Retry-After": "30"}, path="conversations.replies"))
    async with open_knowledge_base(
        tmp_path, connectors=build_connectors(variables(slack), waits=waits)
    ) as kb:
        assert job_counts(await add_datasource(kb, "slack:help"))[:2] == ("done", 2)
    (seconds,) = waits.seconds
    assert 30 <= seconds <= 31


@pytest.mark.parametrize(
    ("error", "sentence"),
    [("not_in_channel", "Invite the app to the channel."), ("missing_scope", "channels:history")],
)
async def test_what_slack_refuses_says_what_to_do_and_loses_nothing(
    tmp_path: Path, slack: SlackHistory, error: str, sentence: str
) -> None:
    fill(slack)
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables(slack))) as kb:
        await add_datasource(kb, "slack:help")
        slack.error = error
        job = await refresh_datasource(kb, "slack-help")
        assert len(await search_titles(kb, "giraffe")) == 1
    assert job.state == "failed"
    assert sentence in job.problem
    assert TOKEN not in job.problem


def test_what_cannot_be_a_channel_is_refused() -> None:
    connectors = build_connectors({"SLACK_BOT_TOKEN": TOKEN})
    with pytest.raises(Refused):
        connectors["slack"].create("two words", {})
    with pytest.raises(ConfigurationError, match="SLACK_BOT_TOKEN"):
        build_connectors({})["slack"].create("help", {})
