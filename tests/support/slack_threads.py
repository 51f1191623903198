"""Questions in Slack threads, drawn with Slack's streams or with messages that are updated, and what Slack
was told of each.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from ai_platform_engineering.a2a.codec import decode_snapshot
from ai_platform_engineering.core.transcript import Transcript, fold
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from tests.support.fakes.clock import ScaledClock
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Gate, Script
from tests.support.fakes.slack import ApiCall, FakeSlack
from tests.support.knowing_supervisor import KnowledgeFolder
from tests.support.slack_workspace import LIMITS, BotHarness, start_harness

DELIVERY_MODES: Mapping[str, dict[str, Any]] = {
    "streams": {},
    "posts": {
        "env": {"SLACK_INTEGRATION_STREAMING": "false"},
        "scale": 50.0,
    },  # a message is updated every 1.2 s of this clock
    "refused": {"slack": {"streaming": False}, "scale": 50.0},
}
both_modes = pytest.mark.parametrize("way", ["streams", "posts"])
_MARKS = {"pending": "⏳", "in_progress": "🔄", "complete": "✅", "error": "❌"}


@contextlib.asynccontextmanager
async def start_in_mode(
    way: str,
    tmp_path: Path,
    model: Script | BaseChatModel,
    *,
    agents: Sequence[Any] = (),
    tools: Sequence[BaseTool] = (),
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[BotHarness]:
    """A supervisor, the bot and Slack in one of the DELIVERY_MODES."""
    given = DELIVERY_MODES[way]
    clock, own = ScaledClock(given.get("scale", 1.0)), {**given.get("env", {}), **(env or {})}
    async with (
        start_harness(
            tmp_path, model, agents=agents, tools=tools, env=own, clock=clock, slack=given.get("slack")
        ) as on,
        on.bot(),
    ):
        yield on


@contextlib.asynccontextmanager
async def start_with_knowledge(
    way: str, tmp_path: Path, model: Script, *, agents: Sequence[LocalAgent] = ()
) -> AsyncIterator[BotHarness]:
    """The same with a real knowledge base."""
    given, known = DELIVERY_MODES[way], await KnowledgeFolder.of(tmp_path / "library")
    async with (
        known.run_supervisor(
            ScriptedChatModel(script=model), agents=agents, env={"ENABLE_RAG": "true"}
        ) as client,
        FakeSlack(clock=ScaledClock(given.get("scale", 1.0)), limits=LIMITS) as fake,
    ):
        on = BotHarness(fake, client, tmp_path / "bot-home", given.get("env", {}))
        async with on.bot():
            yield on


@dataclass(frozen=True)
class AnsweredThread:
    """A thread in which one question was asked and answered."""

    on: BotHarness
    channel: str
    ts: str

    @property
    def messages(self) -> list[Any]:
        """The bot's messages in the thread now."""
        return self.on.bot_messages(self.channel, self.ts)

    @property
    def calls(self) -> list[ApiCall]:
        """All calls for this thread that Slack accepted, also of messages that were deleted since."""
        mine = {
            one.ts
            for one in self.on.slack.messages.values()
            if (one.channel, one.thread_ts) == (self.channel, self.ts)
        }
        asked = (
            call for call in self.on.slack.calls if call.method.startswith("chat.") and call.answer == "ok"
        )
        return [
            call for call in asked if call.params.get("thread_ts") == self.ts or call.params.get("ts") in mine
        ]

    @property
    def received(self) -> str:
        """Every text that Slack was sent, also what was deleted since."""
        return "\n".join(text for call in self.calls for text in texts_of(call))

    @property
    def text(self) -> str:
        """The text of the bot's messages now."""
        return "".join(one.markdown or "".join(_texts_in(one.blocks)) for one in self.messages)

    @property
    def steps(self) -> list[str]:
        """The cards, or the lines in their place: a mark for the state, and the title."""
        return [line for one in self.messages for line in _lines(one)]

    async def load_transcript(self) -> Transcript:
        """The transcript of the stored run."""
        assert self.on.running is not None
        bot = self.on.running.bot
        row = await bot.store.find_turn(f"{self.channel}:{self.ts}")
        assert row is not None
        task = await bot.supervisor.on_behalf_of(row.principal, row.owner).call(
            "GetTask", {"id": row.task_id}
        )
        return fold(item.event for item in decode_snapshot(task))


async def ask(on: BotHarness, text: str = "Which?", channel: str = "C1") -> AnsweredThread:
    """Asks a question, and returns its thread when it is answered."""
    ts = await on.slack.say(text, mention=True, channel=channel)
    await on.slack.wait(lambda: on.count_ended_turns(channel, ts), timeout=240)
    return AnsweredThread(on, channel, ts)


async def ask_all(on: BotHarness, questions: Sequence[str], at_once: int = 5) -> dict[str, AnsweredThread]:
    """Asks questions, at most `at_once` at a time, each in a channel of its own."""
    door = asyncio.Semaphore(at_once)

    async def one(number: int, text: str) -> AnsweredThread:
        async with door:
            return await ask(on, text, f"C{number}")

    threads = await asyncio.gather(*(one(number, text) for number, text in enumerate(questions, 1)))
    return dict(zip(questions, threads, strict=True))


# --- reading calls ------------------------------------------------------------------------------------------


def texts_of(call: ApiCall) -> list[str]:
    """The text of a call, in chunks or in blocks."""
    chunks = [chunk["text"] for chunk in call.params.get("chunks") or () if chunk["type"] == "markdown_text"]
    return chunks + _texts_in(call.params.get("blocks"))


def _texts_in(blocks: Sequence[dict[str, Any]] | None) -> list[str]:
    return [block["text"] for block in blocks or () if block["type"] == "markdown"]


def steps_of(call: ApiCall) -> Iterator[str]:
    """The steps of a call, each with its mark, its title and what is called in it."""
    for chunk in call.params.get("chunks") or ():
        if chunk["type"] == "task_update":
            details = f" — {chunk['details']}" if "details" in chunk else ""
            yield f"{_MARKS[chunk['status']]} {chunk['title']}{details}"
    yield from _lines_in(call.params.get("blocks") or ())


def _lines(message: Any) -> Iterator[str]:
    yield from (f"{_MARKS[card['status']]} {card['title']}" for card in message.cards.values())
    yield from (line.partition(" — ")[0] for line in _lines_in(message.blocks))


def _lines_in(blocks: Sequence[dict[str, Any]]) -> Iterator[str]:
    for block in blocks:
        text = block["text"]["text"] if block["type"] == "section" else ""
        yield from (line for line in text.splitlines() if line[:1] in _MARKS.values())


@contextlib.asynccontextmanager
async def report_to_gate(slack: FakeSlack, gate: Gate, also: Callable[[], str] = str) -> AsyncIterator[None]:
    """Reports every text and step to the gate the moment Slack has it, with what `also` returns then."""

    told: list[ApiCall] = []

    def news() -> ApiCall | None:
        fresh = slack.calls[len(told) : len(told) + 1]
        return fresh[0] if fresh and fresh[0].answer != "pending" else None

    async def report() -> None:
        while (call := await slack.wait(news, timeout=240)) is not None:
            told.append(call)
            gate.seen("\n".join([*texts_of(call), *steps_of(call), also(), ""]))

    task = asyncio.create_task(report())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
