"""The bot through hours and outages: long runs, limits, lost networks and restarts, and the answer arrives,
whole and once.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import random
import re
import socket
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.integrations.slack_bot.app import STORE_FILE
from ai_platform_engineering.integrations.slack_bot.rate_limits import RateLimiter
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.clock import ScaledClock
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Attempts, Call, Gate, Say, Script, Turn
from tests.support.fakes.slack import FakeSlack, Fault
from tests.support.harness import FAST, PLAIN, Client, serve_app
from tests.support.processes import start_command
from tests.support.scenarios import tool
from tests.support.slack_workspace import LIMITS, BotHarness, join_texts, message_text, start_harness
from tests.support.storages import in_folder

POSTS = {"SLACK_INTEGRATION_STREAMING": "false"}
ways = pytest.mark.parametrize("way", [{}, POSTS], ids=["streams", "posts"])


def still_open(message: Any) -> list[str]:
    """The steps that a finished message shows as unfinished."""
    return [card["title"] for card in message.cards.values() if card["status"] in ("pending", "in_progress")]


async def noted(on: BotHarness, thread_ts: str) -> Any:
    """The last message of the bot, once it knows that it wrote it."""
    while True:
        last = on.bot_messages("C1", thread_ts)[-1]
        turns = await on.running.bot.store.list_open_turns("C1", thread_ts)
        if turns and turns[0].drawn.part is not None and turns[0].drawn.part.ts == last.ts:
            return last
        await asyncio.sleep(0.005)


async def all_done(on: BotHarness) -> None:
    """The bot has nothing left to draw."""
    while await on.running.bot.store.list_open_turns():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)


async def over(on: BotHarness, thread_ts: str, channel: str = "C1") -> None:
    """The turn has ended for the bot, whatever Slack shows of it: it says that it works no more."""
    await on.slack.wait(
        lambda: (
            on.slack.sessions.get((channel, thread_ts))
            and on.slack.sessions[channel, thread_ts].status == "active"
        )
    )


# --- long runs ----------------------------------------------------------------------------------------------


@dataclass
class LongRun:
    """A plan, and a tool that takes its time in its second step."""

    waiting: BlockingScenario = field(default_factory=BlockingScenario)

    @property
    def script(self) -> Script:
        todos = [{"title": "Look around"}, {"title": "Wait for it"}, {"title": "Sum up"}]
        return Script(
            Turn(
                Say("I make a plan. "),
                Call("write_todos", {"title": "The long way", "todos": todos}),
                Call("look", {}),
            ),
            Turn(Say("Now I wait:\n```sh\nwait --for it\n"), Call("wait", {})),
            Turn(Say("It took long: {{tool:wait.waited}}.")),
        )

    @property
    def text(self) -> str:
        return (
            f"I make a plan. \n\nNow I wait:\n```sh\nwait --for it\n\n\nIt took long: {self.waiting.value}."
        )


OPEN = [
    ("Look around", "pending"),
    ("Wait for it", "pending"),
    ("Sum up", "pending"),
    ("Wait", "in_progress"),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize("jumps", [(50,) * 12, (250, 310, 60)], ids=["planned", "expired"])
async def test_a_run_of_ten_minutes_goes_on_in_new_messages_that_repeat_what_is_open(
    tmp_path: Path, jumps: tuple[int, ...]
) -> None:
    run = LongRun()
    async with (
        start_harness(tmp_path, run.script, tools=[run.waiting.tool, tool("look", "nothing")]) as on,
        on.bot(),
    ):
        root = await on.slack.say("Take your time", mention=True)
        await on.slack.wait(
            lambda: (
                run.waiting.started.is_set()
                and "Wait" in str([one.cards for one in on.bot_messages("C1", root)])
            )
        )
        await on.slack.wait(lambda: "wait --for" in join_texts(on.bot_messages("C1", root)))
        for seconds in jumps:
            last = await noted(on, root)
            on.clock.advance(seconds)
            if on.clock.now() - last.created_at > 240.2:
                await on.slack.wait(lambda last=last: on.bot_messages("C1", root)[-1] is not last)
        run.waiting.released.set()
        mine = await on.wait_for_turns("C1", root)
    assert join_texts(mine) == run.text
    assert len(mine) == 3
    assert [still_open(one) for one in mine] == [[], [], []]
    assert all(message_text(one).count("```") % 2 == 0 for one in mine[:-1])
    for later in on.slack.called("chat.startStream")[1:]:
        plan, *chunks = later.params["chunks"]
        assert plan == {"type": "plan_update", "title": "The long way"}
        assert [(one["title"], one["status"]) for one in chunks if one["type"] == "task_update"] == OPEN
    if len(jumps) == 3:  # what Slack ended by itself does not look unfinished for ever
        assert [one.updates for one in mine] == [0, 1, 0]
        assert "Wait for it" not in str(mine[1].blocks), "it is not done, and the next message shows it"
    else:
        assert "continues below" in str(mine[0].card_history)
        assert not on.slack.called("chat.update")


# --- long answers -------------------------------------------------------------------------------------------


def long_answer(seed: int) -> str:
    """Sixty thousand characters: paragraphs, lists with code, and code blocks longer than a message."""
    made = random.Random(seed)

    def words(most: int) -> str:
        return " ".join(
            made.choice(["deploy", "the", "<service>", "a&b", "`kubectl`", "über", "🚀", "*now*"])
            for _ in range(made.randint(3, most))
        )

    def code(most: int, indent: str = "") -> str:
        return "".join(
            f"{indent}{made.choice(['if a < b:', '    x = 1  # `y`', 'done', '', '> no quote'])} {number}\n"
            for number in range(most)
        )

    parts: list[str] = []
    while sum(map(len, parts)) < 60_000:
        parts.append(f"{words(90)}\n\n")
        parts.append("".join(f"- {words(12)}\n" for _ in range(made.choice([3, 200]))) + "\n")
        parts.append(
            f"1. First:\n\n   ```yaml\n{code(made.choice([5, 300]), '   ')}   ```\n2. {words(9)}\n\n"
        )
        parts.append(f"```python\n{code(made.choice([10, 900]))}```\n\n")
    return "".join(parts) + "That is all."


@pytest.mark.sample(1)
@ways
async def test_an_answer_of_sixty_thousand_characters_is_there_to_the_letter(
    tmp_path: Path, way: dict[str, str]
) -> None:
    answer = long_answer(7)
    pieces = [answer[at : at + 700] for at in range(0, len(answer), 700)]
    async with start_harness(tmp_path, Script(Turn(Say(*pieces))), env=way) as on, on.bot():
        mine = await on.wait_for_turns("C1", await on.slack.say("Everything, please", mention=True))
    assert join_texts(mine) == answer
    assert all(len(re.findall(r"^ *```", message_text(one), re.MULTILINE)) % 2 == 0 for one in mine)
    assert 6 <= len(mine) <= 12
    assert not [call.answer for call in on.slack.calls if call.answer != "ok"]


@pytest.mark.sample(1)
@ways
async def test_a_word_of_thirty_thousand_characters_is_there_too(tmp_path: Path, way: dict[str, str]) -> None:
    word = "".join(random.Random(1).choices("abcdefghij<", k=30_000))
    async with start_harness(tmp_path, Script(Turn(Say(word[:9000], word[9000:]))), env=way) as on, on.bot():
        mine = await on.wait_for_turns("C1", await on.slack.say("One word", mention=True))
    assert join_texts(mine) == word


# --- Slack says no ------------------------------------------------------------------------------------------

EVERYWHERE = (
    "agents.sessions.setStatus",
    "assistant.threads.setStatus",
    "chat.appendStream",
    "chat.delete",
    "chat.postMessage",
    "chat.startStream",
    "chat.stopStream",
    "chat.update",
    "conversations.replies",
    "users.info",
)


@pytest.mark.sample(1)
@ways
async def test_a_storm_of_429_on_every_method_costs_time_and_nothing_else(
    tmp_path: Path, way: dict[str, str]
) -> None:
    waiting = BlockingScenario()
    async with (
        start_harness(tmp_path, waiting.script, tools=[waiting.tool], env=way, clock=ScaledClock(40)) as on,
        on.bot(),
    ):
        for method in EVERYWHERE:
            on.slack.faults.add(method, Fault(retry_after=2, times=3))
        root = await on.slack.say("Wait", mention=True)
        await on.slack.wait(lambda: "Wait" in str(on.bot_messages("C1", root)))
        for method in EVERYWHERE:
            on.slack.faults.add(method, Fault(retry_after=2, times=3))
        waiting.released.set()
        mine = await on.wait_for_turns("C1", root)
        await over(on, root)
    assert join_texts(mine) == f"Please wait. \n\n{waiting.answer}"
    for method in {call.method for call in on.slack.limited}:
        calls = on.slack.called(method)
        for before, after in itertools.pairwise(calls):  # nobody asks again before the time
            assert before.answer != "ratelimited" or after.at - before.at >= 1.99
    assert len(on.slack.limited) >= 12


@pytest.mark.sample(1)
@ways
async def test_when_the_thread_is_deleted_in_the_middle_nothing_is_written_anywhere(
    tmp_path: Path, way: dict[str, str]
) -> None:
    waiting = BlockingScenario()
    async with start_harness(tmp_path, waiting.script, tools=[waiting.tool], env=way) as on, on.bot():
        root = await on.slack.say("Wait", mention=True)
        await on.slack.wait(lambda: "Wait" in str(on.bot_messages("C1", root)))
        await waiting.started.wait()
        on.slack.delete_thread("C1", root)
        before = len(on.slack.messages)
        waiting.released.set()
        await all_done(on)
    assert len(on.slack.messages) == before
    assert all(call.params.get("thread_ts") for call in on.slack.called("chat.postMessage"))


@pytest.mark.parametrize("code", ["not_in_channel", "missing_scope"])
async def test_where_the_bot_may_not_write_the_person_hears_of_it_directly(
    tmp_path: Path, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    needed = "chat:write" if code == "missing_scope" else None
    async with start_harness(tmp_path, Script(Turn(Say("Here it is.")))) as on, on.bot():
        for method in ("chat.startStream", "agents.sessions.setStatus", "assistant.threads.setStatus"):
            on.slack.faults.add(method, Fault(error=code, needed=needed, times=50))
        root = await on.slack.say("Tell me", mention=True)
        told = (await on.slack.wait(lambda: on.slack.called("chat.postMessage")))[0]
    assert told.params["channel"] == "U1"
    assert "<#C1>" in told.params["text"]
    assert code in told.params["text"]
    assert not on.bot_messages("C1", root)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert any(code in text and (needed or "") in text for text in said)
    assert ("Invite me" in told.params["text"]) == (code == "not_in_channel")


@pytest.mark.parametrize("code", ["channel_type_not_supported", "unknown_method", "user_not_found"])
async def test_where_slack_refuses_streams_the_same_turn_goes_on_with_messages(
    tmp_path: Path, code: str
) -> None:
    waiting = BlockingScenario()
    refusing = {"streaming": False, "streaming_error": code}
    async with start_harness(tmp_path, waiting.script, tools=[waiting.tool], slack=refusing) as on, on.bot():
        root = await on.slack.say("Wait", mention=True)
        await on.slack.wait(lambda: "🔄 Wait" in str([one.blocks for one in on.bot_messages("C1", root)]))
        waiting.released.set()
        mine = await on.wait_for_turns("C1", root)
    assert join_texts(mine) == f"Please wait. \n\n{waiting.answer}"
    assert len(on.slack.called("chat.startStream")) == 1
    assert "caipe_stop" not in str(mine[0].blocks)


# --- nobody there -------------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@ways
async def test_while_the_network_to_slack_is_down_the_run_goes_on_and_nothing_is_lost(
    tmp_path: Path, way: dict[str, str]
) -> None:
    waiting = BlockingScenario()
    async with (
        start_harness(tmp_path, waiting.script, tools=[waiting.tool], env=way, clock=ScaledClock(20)) as on,
        on.bot(),
    ):
        root = await on.slack.say("Wait", mention=True)
        await on.slack.wait(lambda: "Wait" in str(on.bot_messages("C1", root)))
        await on.slack.go_away()
        waiting.released.set()
        down_until = on.clock.now() + 10
        task = (await on.running.bot.store.list_open_turns())[0].task_id
        client = on.supervisor_for(root)
        while (await client.call("GetTask", {"id": task}))["status"]["state"] != "TASK_STATE_COMPLETED":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await on.clock.sleep(max(0.0, down_until - on.clock.now()))
        await on.slack.come_back()
        mine = await on.wait_for_turns("C1", root)
    assert join_texts(mine) == f"Please wait. \n\n{waiting.answer}"


@pytest.mark.full  # the client looks after its socket every few seconds
async def test_when_the_network_is_back_new_questions_are_heard(tmp_path: Path) -> None:
    async with start_harness(tmp_path, Script(Turn(Say("Here I am.")))) as on, on.bot():
        await on.slack.go_away()
        await on.slack.wait(lambda: not on.slack.sockets)
        await asyncio.sleep(6)  # long enough for an attempt in vain
        await on.slack.come_back()
        await on.slack.wait(lambda: on.slack.sockets, 60)
        mine = await on.wait_for_turns("C1", await on.slack.say("Are you there?", mention=True))
    assert join_texts(mine) == "Here I am."


# --- restarts of the bot ------------------------------------------------------------------------------------

WORDS = "Please wait. " + " ".join(f"word{number}" for number in range(40))


@dataclass(frozen=True)
class Point:
    """A call in whose middle the bot ends: the `nth` of its method, which Slack does not see, or whose answer
    nobody hears.
    """

    method: str
    nth: int
    handled: bool
    streaming: bool = True

    def __str__(self) -> str:
        name = f"{self.method}-{self.nth}-{'handled' if self.handled else 'unseen'}"
        return name if self.streaming else f"{name}-posts"


POINTS = [
    Point("users.info", 1, False),
    Point("agents.sessions.setStatus", 1, False),  # before the first call
    Point("chat.startStream", 1, False),
    Point("chat.startStream", 1, True),
    Point("chat.appendStream", 2, True),
    Point("chat.stopStream", 1, False),  # after the last text
    Point("chat.stopStream", 1, True),  # and nobody has noted it
    Point("agents.sessions.setStatus", 2, True, False),  # all is there, and nobody has noted that it is over
    Point("chat.postMessage", 1, True, False),
    Point("chat.update", 2, True, False),
]


@contextlib.asynccontextmanager
async def reported_texts(on: BotHarness, root: str, gate: Gate) -> AsyncIterator[None]:
    """Reports to the gate what Slack has of the bot's texts in a thread."""

    async def report() -> None:
        while True:
            gate.seen(join_texts(on.bot_messages("C1", root)))
            await asyncio.sleep(0.02)

    reporting = asyncio.create_task(report())
    try:
        yield
    finally:
        reporting.cancel()


@pytest.mark.sample(5)
@pytest.mark.parametrize("point", POINTS, ids=str)
async def test_wherever_the_bot_is_restarted_the_answer_arrives_once(tmp_path: Path, point: Point) -> None:
    env = {} if point.streaming else POSTS
    # Ten words at a time, the next when Slack has them: so there are several calls, however fast all goes.
    gate = Gate(timeout=240)
    script = Script(
        Turn(Say(*re.findall(r"(?:\S+\s*){1,10}", WORDS)), Call("wait", {}), gate=gate),
        Turn(Say("Waited for {{tool:wait.waited}}.")),
    )
    waiting, held = BlockingScenario(), asyncio.Event()
    waiting.released.set()
    async with start_harness(tmp_path, script, tools=[waiting.tool], env=env, clock=ScaledClock(20)) as on:
        if point.nth > 1:
            on.slack.faults.add(point.method, Fault(times=point.nth - 1))
        on.slack.faults.add(point.method, Fault(hold_until=held, drop=None if point.handled else "before"))
        async with contextlib.AsyncExitStack() as stack:
            async with on.bot():
                root = await on.slack.say("Wait", mention=True)
                await stack.enter_async_context(reported_texts(on, root, gate))
                call = (await on.slack.wait(lambda: on.slack.called(point.method)[point.nth - 1 :]))[0]
            held.set()
            await on.slack.wait(lambda: call.answer == ("ok" if point.handled else "dropped"))
            async with on.bot():
                mine = await on.wait_for_turns("C1", root)
                await over(on, root)
                await all_done(on)
    assert join_texts(mine) == f"{WORDS}\n\n{waiting.answer}"
    assert join_texts(on.bot_messages("C1", root)) == join_texts(mine)
    assert on.count_ended_turns("C1", root) == 1
    assert str([one.all_blocks for one in on.bot_messages("C1", root)]).count("feedback_buttons") == 1
    assert [still_open(one) for one in mine] == [[]] * len(mine)


async def test_a_bot_that_comes_back_while_the_run_still_works_follows_it(tmp_path: Path) -> None:
    waiting = BlockingScenario()
    async with start_harness(tmp_path, waiting.script, tools=[waiting.tool]) as on:
        async with on.bot():
            root = await on.slack.say("Wait", mention=True)
            await waiting.started.wait()
            await on.slack.wait(lambda: "Wait" in str(on.bot_messages("C1", root)))
        async with on.bot():
            await on.slack.wait(lambda: on.slack.called("chat.update"))  # though nothing happens in the run
            waiting.released.set()
            mine = await on.wait_for_turns("C1", root)
    assert join_texts(mine) == f"Please wait. \n\n{waiting.answer}"
    assert on.count_ended_turns("C1", root) == 1


async def test_a_bot_goes_on_with_the_open_turns_of_an_older_file(tmp_path: Path) -> None:
    """A file without a schema version, whose rows have other fields."""
    waiting = BlockingScenario()
    async with start_harness(tmp_path, waiting.script, tools=[waiting.tool]) as on:
        async with on.bot():
            root = await on.slack.say("Wait", mention=True)
            await waiting.started.wait()
            await on.slack.wait(lambda: "Wait" in str(on.bot_messages("C1", root)))
            await noted(on, root)
        with contextlib.closing(sqlite3.connect(on.home / STORE_FILE)) as db:
            db.execute("UPDATE turns SET row = json_remove(json_set(row, '$.mood', 'good'), '$.drawn.known')")
            db.execute("UPDATE turns SET row = json_set(row, '$.drawn.colour', 'red')")
            db.execute("PRAGMA user_version = 0")
            db.commit()
        async with on.bot():
            await on.slack.wait(lambda: on.slack.called("chat.update"))
            waiting.released.set()
            mine = await on.wait_for_turns("C1", root)
    assert join_texts(mine) == f"Please wait. \n\n{waiting.answer}"
    assert on.count_ended_turns("C1", root) == 1


@pytest.mark.full  # three processes are started
async def test_a_bot_that_is_killed_is_replaced_by_one_that_goes_on(tmp_path: Path) -> None:
    waiting, held = BlockingScenario(), asyncio.Event()
    async with start_harness(tmp_path, waiting.script, tools=[waiting.tool]) as on:
        own = {
            "SLACK_INTEGRATION_BOT_TOKEN": "xoxb-test",
            "SLACK_INTEGRATION_APP_TOKEN": "xapp-test",
            "SLACK_INTEGRATION_API_URL": on.slack.base_url,
            "CAIPE_HOME": str(on.home),
        }
        command = ("caipe", "slack", "--url", on.client.url)
        on.slack.faults.add("chat.startStream", Fault(hold_until=held))
        async with start_command(*command, env=own) as first:
            await on.slack.wait(lambda: on.slack.sockets, 60)
            root = await on.slack.say("Wait", mention=True)
            await on.slack.wait(lambda: on.slack.called("chat.startStream"))
            first.process.kill()
            await first.process.wait()
        held.set()  # what the first one began comes into being when it is dead
        await on.slack.wait(lambda: on.slack.called("chat.startStream")[0].answer == "ok")
        async with start_command(*command, env=own) as second:
            await on.slack.wait(lambda: "Please wait." in join_texts(on.bot_messages("C1", root)), 60)
            second.process.kill()
            await second.process.wait()
        async with start_command(*command, env=own):
            await on.slack.wait(lambda: on.slack.sockets, 60)
            waiting.released.set()
            mine = await on.wait_for_turns("C1", root)
    assert join_texts(mine) == f"Please wait. \n\n{waiting.answer}"
    assert on.count_ended_turns("C1", root) == 1


# --- restarts of the supervisor -----------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def supervisor_at(port: int, home: Path, model: ScriptedChatModel) -> AsyncIterator[str]:
    """A supervisor on a port that stays the same, with what an earlier one has stored."""
    app = create_app(Settings.from_variables(FAST), model=model, storage=in_folder(home))
    async with serve_app(app, socket.create_server(("127.0.0.1", port))) as url:
        yield url


@contextlib.asynccontextmanager
async def without_supervisor(tmp_path: Path, scale: float) -> AsyncIterator[tuple[BotHarness, int]]:
    """Slack and the bot's folder, and a port at which there is nobody yet."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    clock = ScaledClock(scale)
    async with FakeSlack(clock=clock, limits=LIMITS) as fake, httpx.AsyncClient(verify=PLAIN) as http:
        yield BotHarness(fake, Client(f"http://127.0.0.1:{port}/", http), tmp_path / "bot-home"), port


def held_model(gate: Gate) -> ScriptedChatModel:
    """The first attempt is held after its first word; the next one says all of it, in other words."""
    return ScriptedChatModel(
        script=Script(
            Attempts(Turn(Say("First ", "never said"), gate=gate), Turn(Say("Second ", "attempt.")))
        )
    )


async def test_the_supervisor_is_restarted_in_the_middle_of_a_run(tmp_path: Path) -> None:
    model = held_model(Gate(timeout=240))
    async with without_supervisor(tmp_path, 1) as (on, port), contextlib.AsyncExitStack() as stack:
        async with supervisor_at(port, tmp_path / "home", model):
            await stack.enter_async_context(on.bot())
            root = await on.slack.say("Tell me", mention=True)
            await on.slack.wait(lambda: join_texts(on.bot_messages("C1", root)) == "First ")
        async with supervisor_at(port, tmp_path / "home", model):
            mine = await on.wait_for_turns("C1", root)
            assert join_texts(mine) == "Second attempt."
            assert on.count_ended_turns("C1", root) == 1


@pytest.mark.full  # the client's own retries take their time
async def test_a_supervisor_that_is_away_for_long_is_waited_for(tmp_path: Path) -> None:
    model = held_model(Gate(timeout=240))
    async with without_supervisor(tmp_path, 5) as (on, port), contextlib.AsyncExitStack() as stack:
        async with supervisor_at(port, tmp_path / "home", model):
            await stack.enter_async_context(on.bot())
            root = await on.slack.say("Tell me", mention=True)
            await on.slack.wait(lambda: join_texts(on.bot_messages("C1", root)) == "First ")
        await on.slack.wait(
            lambda: "cannot be reached" in str([one.cards for one in on.bot_messages("C1", root)]), 40
        )
        async with supervisor_at(port, tmp_path / "home", model):
            mine = await on.wait_for_turns("C1", root)
    assert join_texts(mine) == "Second attempt."
    cards = {card["title"]: card["status"] for one in mine for card in one.cards.values()}
    assert cards["The supervisor was unreachable for a while."] == "complete"
    assert not any("cannot be reached" in title for title in cards)


async def test_a_question_that_is_asked_while_the_supervisor_is_away_is_answered_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with without_supervisor(tmp_path, 10) as (on, port), on.bot():
        root = await on.slack.say("Are you there?", mention=True)
        await on.slack.wait(
            lambda: "cannot be reached" in str([one.cards for one in on.bot_messages("C1", root)])
        )
        async with supervisor_at(
            port, tmp_path / "home", ScriptedChatModel(script=Script(Turn(Say("Here I am."))))
        ):
            mine = await on.wait_for_turns("C1", root)
    assert join_texts(mine) == "Here I am."
    assert [(card["title"], card["status"]) for one in mine for card in one.cards.values()] == [
        ("The supervisor was unreachable for a while.", "complete")
    ]


async def test_a_question_that_nobody_takes_in_can_be_asked_again(tmp_path: Path) -> None:
    async with without_supervisor(tmp_path, 100) as (on, port), on.bot():
        root = await on.slack.say("Are you there?", mention=True)
        mine = await on.wait_for_turns("C1", root)
        assert "cannot be reached, so your question was not accepted" in str(mine[-1].all_blocks)
        assert not any(still_open(one) for one in mine)
        async with supervisor_at(
            port, tmp_path / "home", ScriptedChatModel(script=Script(Turn(Say("Here I am."))))
        ):
            await on.slack.click(mine[-1], "caipe_retry")
            mine = await on.wait_for_turns("C1", root, 2)
    assert join_texts(mine).endswith("Here I am.")


# --- many at once -------------------------------------------------------------------------------------------


class Paced(Gate):
    """A model that speaks a sentence every so many seconds of a clock, and the last one when Slack has the
    first: how much is said until then depends on the machine.
    """

    def __init__(self, clock: ScaledClock, seconds: float) -> None:
        super().__init__()
        self.clock, self.seconds = clock, seconds
        self.slack: FakeSlack | None = None

    async def before(self, piece: str) -> None:
        await self.clock.sleep(self.seconds)
        first, *_, last = sentences(piece.split()[0])
        if piece == last:
            assert self.slack is not None
            await self.slack.wait(lambda: self._has_message_with(first.strip()), 240)

    def _has_message_with(self, text: str) -> bool:
        assert self.slack is not None
        return any(text in message_text(message) for message in self.slack.messages.values())


def sentences(question: str) -> list[str]:
    return [
        f"{question} has sentence number {number}, and goes on for a while so that it is worth a line. "
        for number in range(8)
    ]


@pytest.mark.full
async def test_thirty_conversations_at_once_keep_within_the_limits_and_nobody_starves(tmp_path: Path) -> None:
    clock = ScaledClock(5)
    gate = Paced(clock, 3)
    script = Script(lambda request: Turn(Say(*sentences(request.last_user))), gate=gate)
    async with start_harness(tmp_path, script, clock=clock, rate_limiter=RateLimiter(clock)) as on, on.bot():
        gate.slack = on.slack
        questions = {f"Question{number:02}": f"C{number % 6 + 1}" for number in range(30)}
        roots = await asyncio.gather(
            *(on.slack.say(text, channel=channel, mention=True) for text, channel in questions.items())
        )
        asked = list(zip(questions, questions.values(), roots, strict=True))
        await on.slack.wait(
            lambda: all(on.count_ended_turns(channel, root) for _, channel, root in asked), 240
        )
    assert on.slack.limited == []
    for text, channel, root in asked:
        mine = on.bot_messages(channel, root)
        assert join_texts(mine) == "".join(sentences(text))
        known = {one.ts for one in mine}
        written_at = [
            call for call in on.slack.calls if {call.params.get("ts"), call.result.get("ts")} & known
        ]
        first = json.dumps(written_at[0].params)
        assert sentences(text)[0].strip() in first  # something to read
        assert sentences(text)[-1].strip() not in first  # long before the end
