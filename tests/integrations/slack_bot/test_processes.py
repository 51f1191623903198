"""Several processes of the bot: whichever Slack reaches or ends, each message is answered once."""

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from ai_platform_engineering.core.events import Cancelled
from ai_platform_engineering.integrations.slack_bot import approval_messages, blocks, request_messages
from ai_platform_engineering.integrations.slack_bot.rate_limits import RATE_LIMITS, RateLimiter
from ai_platform_engineering.integrations.slack_bot.thread_holders import ThreadTaken
from ai_platform_engineering.integrations.slack_bot.thread_leases import ThreadLeases
from ai_platform_engineering.integrations.slack_bot.turn_rows import ThreadKey
from ai_platform_engineering.integrations.slack_bot.web_api import SlackApi
from tests.support.agent_services import eventually
from tests.support.asking_agent import DELEGATING, Repos, form_tool, github
from tests.support.database_servers import DatabaseServers
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.clock import ScaledClock
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Book, Call, Fail, Gate, Request, Say, Script, Turn
from tests.support.fakes.slack import FakeSlack
from tests.support.slack_processes import ConnectedBot, connect_bots, empty_database, start_process
from tests.support.slack_requests import (
    TEXT_FIELDS,
    buttons,
    count_stopped_notes,
    model_that_calls,
    task_of,
    write_approvers,
)
from tests.support.slack_workspace import BotHarness, join_texts, start_harness

MENTION = {
    "type": "app_mention",
    "channel": "C1",
    "user": "U1",
    "text": "<@UBOT> What runs?",
    "ts": "1000.000001",
    "event_ts": "1000.000001",
}
POSTS = {"SLACK_INTEGRATION_STREAMING": "false"}
by_way = pytest.mark.parametrize("way", [{}, POSTS], ids=["streams", "posts"])


@pytest.fixture
def database(servers: DatabaseServers) -> Iterator[dict[str, str]]:
    with empty_database(servers) as url:
        yield {"DATABASE_URL": url}


@contextlib.asynccontextmanager
async def started(
    tmp_path: Path, database: dict[str, str], model: Script | ScriptedChatModel, **more: Any
) -> AsyncIterator[tuple[BotHarness, ConnectedBot, ConnectedBot]]:
    """A supervisor with its runs elsewhere, and two bots that share a database."""
    env = {**database, **more.pop("env", {})}
    async with start_harness(tmp_path, model, **more) as on:
        on.env = env
        async with connect_bots(on) as (first, second):
            yield on, first, second


async def idle(*bots: ConnectedBot) -> None:
    """Nothing is open in the database, and nobody draws."""
    store = bots[0].running.bot.store
    await eventually(store.list_open_turns, lambda rows: not rows)
    for bot in bots:
        await bot.running.listeners.drain()


async def stored(database: dict[str, str], ts: str) -> None:
    """The process that has posted a message knows which one it is."""

    async def count() -> int:
        with psycopg.connect(database["DATABASE_URL"]) as db:
            [(schema,)] = db.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'posted'")
            query = f"SELECT 1 FROM {schema}.posted WHERE ts = %s"
            return len(db.execute(query.encode(), (ts,)).fetchall())

    await eventually(count, lambda number: number == 1)


async def test_an_event_that_both_get_is_answered_once(tmp_path: Path, database: dict[str, str]) -> None:
    model = ScriptedChatModel(script=Script(Turn(Say("It runs."))))
    async with started(tmp_path, database, model) as (on, first, second):
        root = await on.slack.say("What runs?", mention=True)
        on.slack.receiver = second.socket
        await on.slack.redeliver(2)
        messages = await on.wait_for_turns("C1", root)
        on.slack.receiver = first.socket
        await on.slack.redeliver(2)
        await idle(first, second)
        assert on.bot_messages("C1", root) == messages
    assert join_texts(messages) == "It runs."
    assert len(model.requests) == 1


@pytest.mark.sample(1)
@by_way
async def test_messages_of_a_thread_are_answered_in_order_by_the_process_that_has_it(
    tmp_path: Path, database: dict[str, str], way: dict[str, str]
) -> None:
    waiting = BlockingScenario()
    first_answer = Script(Turn(Say("First. "), Call("wait")), Turn(Say("Done.")))
    book = Book({"One?": first_answer}, default=Script(Turn(Say("You said {{user}} "))))
    script = ScriptedChatModel(script=book)
    async with started(tmp_path, database, script, tools=[waiting.tool], env=way) as (on, first, second):
        root = await on.slack.say("One?", mention=True)
        await waiting.started.wait()
        on.slack.receiver = second.socket
        await on.slack.say("Two?", thread_ts=root)
        await on.slack.say("Three?", thread_ts=root, user="U2")
        await eventually(first.running.bot.store.list_open_turns, lambda rows: len(rows) == 3)
        assert len(first.running.bot.turns._active) == 3
        assert not second.is_drawing()
        waiting.released.set()
        messages = await on.wait_for_turns("C1", root, 3)
        await idle(first, second)
        on.slack.receiver = second.socket
        await on.slack.say("Nobody has the thread now?", thread_ts=root)
        await on.slack.wait(second.is_drawing)
    assert join_texts(messages) == "First. \n\nDone.You said Two? You said Three? "


async def test_threads_are_shared_and_those_of_a_process_that_leaves_go_on_in_the_other(
    tmp_path: Path, database: dict[str, str]
) -> None:
    waiting = BlockingScenario()
    async with start_harness(tmp_path, waiting.script, tools=[waiting.tool]) as on:
        on.env = database
        async with on.bot() as staying:
            async with on.bot():
                on.slack.receiver = on.slack.sockets[-1]
                root = await on.slack.say("Wait", mention=True)
                await on.slack.wait(lambda: "Please wait." in join_texts(on.bot_messages("C1", root)))
                [message] = on.bot_messages("C1", root)
                assert not staying.bot.turns._active
            await on.slack.wait(lambda: on.slack.called("chat.update"))
            waiting.released.set()
            messages = await on.wait_for_turns("C1", root)
    assert messages == [message], "it goes on in the same message"
    assert join_texts(messages) == f"Please wait. \n\n{waiting.answer}"
    assert on.slack.called("chat.delete") == []


@pytest.mark.parametrize("how", ["native", "word", "button"])
async def test_a_run_is_stopped_through_the_other_process(
    tmp_path: Path, database: dict[str, str], how: str
) -> None:
    waiting = BlockingScenario()
    env = POSTS if how == "button" else {}
    async with started(tmp_path, database, waiting.script, tools=[waiting.tool], env=env) as (
        on,
        first,
        second,
    ):
        root = await on.slack.say("Wait", mention=True)
        await waiting.started.wait()
        await on.slack.wait(lambda: "Please wait." in on.slack.text_of("C1", root))
        on.slack.receiver = second.socket
        if how == "native":
            await on.slack.stop("C1", root, "U2")
        elif how == "word":
            await on.slack.say("stop", user="U2", thread_ts=root)
        else:
            message = await on.wait_for_button(blocks.STOP_ACTION, root)
            await on.slack.click(message, blocks.STOP_ACTION, user="U2")
        await on.wait_for_turns("C1", root)
        [*_, event] = await on.events(task_of(on, root), root)
        await idle(first, second)
        stops = await first.running.bot.store.find_stops([f"C1:{root}"])
    assert stops == {f"C1:{root}": "second@example.com"}, "the process that draws it was told"
    assert isinstance(event, Cancelled)
    assert event.by == "second@example.com"
    assert count_stopped_notes(on, root) == 1
    assert on.slack.text_of("C1", root).count("Please wait.") == 1


async def test_a_stop_is_carried_out_even_if_the_process_that_stored_it_is_gone(
    tmp_path: Path, database: dict[str, str]
) -> None:
    waiting = BlockingScenario()
    async with started(tmp_path, database, waiting.script, tools=[waiting.tool]) as (on, first, second):
        root = await on.slack.say("Wait", mention=True)
        await waiting.started.wait()
        await second.running.bot.store.record_stop(f"C1:{root}", "second@example.com")
        await on.wait_for_turns("C1", root)
        [*_, event] = await on.events(task_of(on, root), root)
        await idle(first, second)
    assert isinstance(event, Cancelled)
    assert event.by == "second@example.com"


async def test_an_approval_that_is_pressed_on_both_at_once_counts_once(
    tmp_path: Path, database: dict[str, str]
) -> None:
    repos = Repos()
    config = write_approvers(tmp_path, "anyone")
    tools = [github(repos, {"name": "one", "stars": 2})]
    async with started(tmp_path, database, DELEGATING, agents=tools, env=config) as (on, first, second):
        root = await on.slack.say("Go.", mention=True)
        message = await on.wait_for_button(approval_messages.APPROVE_ACTION, root)
        pressed = []
        for bot, user in ((first, "U1"), (second, "U2")):
            on.slack.receiver = bot.socket
            pressed.append(
                asyncio.create_task(on.slack.click(message, approval_messages.APPROVE_ACTION, user))
            )
            await asyncio.sleep(0)
        await asyncio.gather(*pressed)
        await on.wait_for_turns("C1", root)
        await idle(first, second)
        refusals = [message.text for message in on.slack.ephemerals]
    assert repos.made == [{"name": "one", "private": False, "stars": 2}]
    assert buttons(message) == []
    assert str(message.blocks).count("Approved by") == 1
    assert len(refusals) == 1, "whoever came too late is told"


async def test_a_form_is_opened_in_one_process_corrected_and_sent_in_another(
    tmp_path: Path, database: dict[str, str]
) -> None:
    model = model_that_calls("ask")
    tools = [form_tool("ask", TEXT_FIELDS)]
    async with started(tmp_path, database, model, tools=tools) as (on, first, second):
        root = await on.slack.say("Go", mention=True)
        message = await on.wait_for_button(request_messages.FILL_ACTION, root)
        on.slack.receiver = second.socket
        view = await on.open_modal(message, request_messages.FILL_ACTION)
        refused = await on.slack.submit(view, {"answer": "NO"})
        on.slack.receiver = first.socket
        accepted = await on.slack.submit(view, {"answer": "blue"})
        messages = await on.wait_for_turns("C1", root)
        await idle(first, second)
    assert refused is not None
    assert refused["response_action"] == "errors"
    assert not accepted
    assert buttons(message) == []
    assert "blue" in join_texts(messages[-1:])
    assert len(messages) == 3, (
        "the modal of the other process showed the error, so no note in the thread does"
    )


async def test_an_answer_is_asked_for_again_through_the_process_that_is_pressed(
    tmp_path: Path, database: dict[str, str]
) -> None:
    down = [True]

    def answer(request: Request) -> Turn:
        return Turn(Fail()) if down else Turn(Say("It runs."))

    async with started(tmp_path, database, Script(answer)) as (on, first, second):
        root = await on.slack.say("What runs?", mention=True)
        [message] = await on.wait_for_turns("C1", root)
        await idle(first, second)
        down.clear()
        pressed = []
        for bot in (first, second):
            on.slack.receiver = bot.socket
            pressed.append(asyncio.create_task(on.slack.click(message, blocks.RETRY_ACTION)))
            await asyncio.sleep(0)
        await asyncio.gather(*pressed)
        messages = await on.wait_for_turns("C1", root, 2)
        await idle(first, second)
    assert join_texts(messages[-1:]) == "It runs."
    assert on.ephemeral_texts() == ["This was already retried, below."]
    assert len(messages) == 2


async def test_the_limits_of_people_and_of_slack_are_those_of_all_processes_together(
    tmp_path: Path, database: dict[str, str]
) -> None:
    config = tmp_path / "channels.yaml"
    config.write_text("defaults: {questions_per_hour: 2}")
    env = {"SLACK_INTEGRATION_BOT_CONFIG": str(config)}
    model = ScriptedChatModel(script=Script(Turn(Say("It runs."))))
    async with started(tmp_path, database, model, env=env) as (on, first, second):
        for bot in (first, second, first, second):
            on.slack.receiver = bot.socket
            await on.slack.say("What runs?", mention=True)
        await idle(first, second)
        limiter = first.running.bot.slack.rate_limiter
        async with asyncio.timeout(60):
            while limiter.processes < 2:  # noqa: ASYNC110 - it learns of the other one with its next renewal
                await asyncio.sleep(0.05)
        refusals = on.ephemeral_texts()
    assert len(model.requests) == 2
    assert [text.partition(",")[0] for text in refusals] == [
        "You have asked 2 questions here in the last hour"
    ] * 2


def test_each_process_uses_its_part_of_the_rates_of_slack() -> None:
    limiter = RateLimiter(ScaledClock())
    limiter.share_among(3)
    assert limiter._find_bucket("chat.startStream", "chat.startStream").limit.per_minute == 6
    limiter.share_among(40)
    assert limiter._find_bucket("chat.startStream", "chat.startStream").limit.burst == 1
    limiter.share_among(1)
    bucket = limiter._find_bucket("chat.postMessage C1", "chat.postMessage")
    assert bucket.limit == RATE_LIMITS["chat.postMessage"]


async def test_nothing_is_written_to_slack_while_the_lease_is_not_valid_or_after_the_thread_is_lost() -> None:
    thread = ThreadKey("C1", "1.0")
    leases = ThreadLeases()
    leases.add(thread)
    async with FakeSlack(ScaledClock()) as fake:
        client = AsyncWebClient(token="xoxb-test", base_url=fake.base_url)
        guard = partial(leases.wait_until_valid, thread)
        slack = SlackApi(client, RateLimiter(fake.clock), before_call=guard)
        leases.extend(6.0, since=time.monotonic() - 5.5)  # it ends before that of the database does
        waiting = asyncio.create_task(slack.call("auth.test", {}))
        await asyncio.sleep(0.1)
        assert fake.calls == []
        leases.extend(6.0, since=time.monotonic())
        await waiting
        assert len(fake.calls) == 1
        leases.extend(6.0, since=time.monotonic() - 10)
        waiting = asyncio.create_task(slack.call("auth.test", {}))
        await asyncio.sleep(0.05)
        leases.remove(thread)
        with pytest.raises(ThreadTaken):
            await waiting
        assert len(fake.calls) == 1


async def test_what_no_process_could_store_is_not_acknowledged_and_comes_again(
    tmp_path: Path, database: dict[str, str]
) -> None:
    """The first process cannot reach the database, so Slack gives the event to the second one."""
    model = ScriptedChatModel(script=Script(Turn(Say("It runs."))))
    async with started(tmp_path, database, model) as (on, first, second):
        with psycopg.connect(database["DATABASE_URL"]) as db:
            for (schema,) in db.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'seen'"):
                db.execute(f"LOCK TABLE {schema}.seen IN ACCESS EXCLUSIVE MODE".encode())
            on.slack.ack_seconds = 1.0
            with pytest.raises(TimeoutError):
                await on.slack.deliver(MENTION, "Ev1")
            assert model.requests == []
        on.slack.ack_seconds = 20.0
        on.slack.receiver = second.socket
        await on.slack.redeliver()
        messages = await on.wait_for_turns("C1", MENTION["ts"])
        await idle(first, second)
    assert join_texts(messages) == "It runs."
    assert len(model.requests) == 1


# --- processes that end -------------------------------------------------------------------------------------


@by_way
@pytest.mark.full  # two processes are started
async def test_the_message_of_a_process_that_is_killed_is_finished_by_the_other(
    tmp_path: Path, database: dict[str, str], way: dict[str, str]
) -> None:
    gate = Gate(timeout=240)
    first_answer = Script(Turn(Say("alpha ", "bravo ", "charlie."), gate=gate))
    book = Book({"What runs?": first_answer}, default=Script(Turn(Say("Nothing."))))
    async with start_harness(tmp_path, ScriptedChatModel(script=book)) as on:
        on.env = {**database, **way}
        async with start_process(on) as first, start_process(on):
            on.slack.receiver = first.socket
            root = await on.slack.say("What runs?", mention=True)
            await on.slack.wait(lambda: "alpha" in join_texts(on.bot_messages("C1", root)))
            [message] = on.bot_messages("C1", root)
            await stored(database, message.ts)
            await on.slack.say("And then?", thread_ts=root)  # waits for the first answer
            killed_at = on.slack.clock.now()
            first.program.process.kill()
            await first.program.process.wait()
            gate.seen("alpha bravo charlie")
            messages = await on.wait_for_turns("C1", root, 2)
    seconds = on.slack.clock.now() - killed_at
    assert messages[0] is message, "it goes on in the same message"
    assert join_texts(messages) == "alpha bravo charlie.Nothing."
    assert on.slack.called("chat.delete") == []
    assert seconds < 60, f"the other process went on after {seconds:.0f} s"


@pytest.mark.full
async def test_a_process_that_was_stopped_until_its_lease_ended_writes_nothing_more(
    tmp_path: Path, database: dict[str, str]
) -> None:
    waiting = BlockingScenario()
    async with start_harness(tmp_path, waiting.script, tools=[waiting.tool]) as on:
        on.env = database
        async with start_process(on) as first, start_process(on) as second:
            on.slack.receiver = first.socket
            root = await on.slack.say("Wait", mention=True)
            await on.slack.wait(lambda: "Please wait." in join_texts(on.bot_messages("C1", root)))
            await stored(database, on.bot_messages("C1", root)[0].ts)
            first.program.process.send_signal(signal.SIGSTOP)
            await on.slack.wait(lambda: on.slack.called("chat.update"), 60)
            first.program.process.send_signal(signal.SIGCONT)
            waiting.released.set()
            messages = await on.wait_for_turns("C1", root)
            on.slack.receiver = first.socket
            other = await on.slack.say("Wait", mention=True)  # it works on what comes
            await on.wait_for_turns("C1", other)
            for process in (first, second):
                process.program.send_signal(signal.SIGTERM)
            results = [await process.program.wait_for_exit() for process in (first, second)]
    assert [result.code for result in results] == [0, 0]
    assert join_texts(messages) == f"Please wait. \n\n{waiting.answer}"
    assert len(messages) == 1


@pytest.mark.full
async def test_messages_that_reach_processes_at_random_are_answered_while_processes_are_killed(
    tmp_path: Path, database: dict[str, str]
) -> None:
    """Each of three processes is killed once, and comes back; every event is delivered to two of them."""
    chance = random.Random(65)
    model = ScriptedChatModel(script=Script(Turn(Say("You said ", "{{user}}."))))
    async with start_harness(tmp_path, model) as on, contextlib.AsyncExitStack() as stack:
        on.env = database
        alive = [await stack.enter_async_context(start_process(on)) for _ in range(3)]
        roots: dict[str, int] = {}
        for number in range(30):
            receivers = chance.sample(alive, 2)
            for process in receivers:
                on.slack.receiver = process.socket
                if number not in roots.values():
                    roots[await on.slack.say(f"number {number}", mention=True)] = number
                else:
                    await on.slack.redeliver(2)
            if number % 10 == 5:
                killed = receivers[0]  # which has just acknowledged the message
                alive.remove(killed)
                killed.program.process.kill()
                await killed.program.process.wait()
                alive.append(await stack.enter_async_context(start_process(on)))
        for root in roots:
            await on.wait_for_turns("C1", root)
        answers = {root: join_texts(on.bot_messages("C1", root)) for root in roots}
        ended = [on.count_ended_turns("C1", root) for root in roots]
    assert answers == {root: f"You said number {number}." for root, number in roots.items()}
    assert ended == [1] * 30
