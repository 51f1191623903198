"""Processes of the bot whose database goes away for a while, and those that Slack reaches over HTTP."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.agent_services import eventually
from tests.support.database_servers import DatabaseServers
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.gate import Gate
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Say, Script, Turn
from tests.support.slack_processes import connect_bots, empty_database
from tests.support.slack_workspace import join_texts, start_harness

CUT = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.fixture
def url(servers: DatabaseServers) -> Iterator[str]:
    with empty_database(servers) as address:
        yield address


def cut_connections(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as db:
        [(count,)] = db.execute(CUT).fetchall()
        return int(count)


async def test_an_answer_goes_on_when_all_connections_to_the_database_are_cut(
    tmp_path: Path, url: str
) -> None:
    gate = Gate(timeout=240)
    script = Script(Turn(Say("alpha ", "bravo ", "charlie."), gate=gate))
    async with start_harness(tmp_path, script) as on:
        on.env = {"DATABASE_URL": url}
        async with connect_bots(on) as (first, _):
            root = await on.slack.say("What runs?", mention=True)
            for piece in ("alpha", "bravo"):
                await on.slack.wait(lambda piece=piece: piece in join_texts(on.bot_messages("C1", root)))
                assert cut_connections(url)
                gate.seen(piece)
            messages = await on.wait_for_turns("C1", root)
            await eventually(first.running.bot.store.list_open_turns, lambda rows: not rows)
    assert join_texts(messages) == "alpha bravo charlie."
    assert len(messages) == 1
    assert on.slack.called("chat.delete") == []


@pytest.mark.full
async def test_a_thread_is_handed_over_when_nobody_is_told(tmp_path: Path, url: str) -> None:
    """Without NOTIFY each process looks by itself."""
    waiting = BlockingScenario()
    async with start_harness(tmp_path, waiting.script, tools=[waiting.tool]) as on:
        on.env = {"DATABASE_URL": url}
        async with connect_bots(on) as (first, second):
            root = await on.slack.say("Wait", mention=True)
            await waiting.started.wait()
            for bot in (first, second):
                listener = bot.running.bot.store.database._listener  # type: ignore[attr-defined]
                listener._closing.set()  # it does not connect again
                listener.interrupt()
            on.slack.receiver = second.socket
            await on.slack.say("stop", thread_ts=root)
            messages = await on.wait_for_turns("C1", root)
    assert waiting.cancelled.is_set()
    assert "Stopped." in str([message.all_blocks for message in messages])


async def test_over_http_too_each_event_is_answered_once(tmp_path: Path, url: str) -> None:
    model = ScriptedChatModel(script=Script(Turn(Say("It runs."))))
    async with start_harness(tmp_path, model) as on:
        secret = "s3cret"
        on.env = {
            "DATABASE_URL": url,
            "SLACK_INTEGRATION_BOT_MODE": "http",
            "SLACK_INTEGRATION_SIGNING_SECRET": secret,
        }
        async with contextlib.AsyncExitStack() as stack:
            endpoints = []
            for _ in range(2):
                await stack.enter_async_context(on.bot())
                endpoints.append(on.slack.endpoint)
            root = await on.slack.say("What runs?", mention=True)
            on.slack.post_to(endpoints[0], secret)
            await on.slack.redeliver(2)
            messages = await on.wait_for_turns("C1", root)
            await on.slack.redeliver(2)
    assert len(set(endpoints)) == 2
    assert join_texts(messages) == "It runs."
    assert len(model.requests) == 1
