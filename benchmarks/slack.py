"""The Slack bot with 1, 10 and 30 live conversations under Slack's rate limits: time to first text, and CPU.

    .venv/bin/python -m benchmarks.slack [--live 1 10 30] [--tokens 600] [--scale 1]

A fake Slack with the real limits and the supervisor are in this process; the bot is in one of its own,
so that its CPU time can be measured. The model is scripted and sends 50 tokens of four characters a
second. All clocks run `--scale` times as fast as real time, and all printed seconds are theirs; on a slow
machine use a smaller scale. Nothing leaves loopback.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.integrations.slack_bot.app import connect_to_slack, run_bot
from ai_platform_engineering.integrations.slack_bot.rate_limits import RateLimiter
from tests.support.fakes.clock import ScaledClock
from tests.support.fakes.gate import Gate
from tests.support.fakes.script import Say, Script, Turn
from tests.support.fakes.slack import FakeSlack
from tests.support.fakes.slack_rules import PER_MINUTE, Message
from tests.support.harness import supervisor

TOKENS_A_SECOND = 50
PIECE = 10  # tokens that the model sends at once
CHANNELS = 6
BOT = "bot"


class ModelPace(Gate):
    """The speed of a model."""

    def __init__(self, clock: ScaledClock) -> None:
        super().__init__()
        self._clock = clock

    async def before(self, piece: str) -> None:
        await self._clock.sleep(PIECE / TOKENS_A_SECOND)


async def main(counts: list[int], tokens: int, scale: float) -> None:
    for count in counts:
        clock = ScaledClock(scale)
        pieces = [
            f"{number:03} of the things to say about it is this. "[: 4 * PIECE]
            for number in range(tokens // PIECE)
        ]
        script = Script(Turn(Say(*pieces)), gate=ModelPace(clock))
        async with FakeSlack(clock=clock) as slack, supervisor(script) as client:
            async with start_bot(slack.base_url, client.url, scale) as process:
                await slack.wait(lambda slack=slack: slack.sockets, 60)
                first = await run_conversations(slack, count, len("".join(pieces)))
            print_report(slack, count, first, float(process["cpu"]), count * len("".join(pieces)))


async def run_conversations(slack: FakeSlack, count: int, length: int) -> list[float]:
    """Runs conversations at once; the seconds that each waited for its first text.

    Exits when an answer is not complete.
    """
    slack.ack_seconds = 60
    channels = [f"C{number % CHANNELS + 1}" for number in range(count)]
    asked_at = slack.clock.now()
    roots = await asyncio.gather(
        *(slack.say("Tell me", channel=channel, mention=True) for channel in channels)
    )
    threads = list(zip(channels, roots, strict=True))
    await slack.wait(
        lambda: all(any(message.metadata for message in bot_messages(slack, *thread)) for thread in threads),
        600,
    )
    for thread in threads:
        if sum(len(text_of(message)) for message in bot_messages(slack, *thread)) != length:
            raise SystemExit(f"{thread}: the answer is not whole")
    return [first_text_at(slack, thread) - asked_at for thread in threads]


def bot_messages(slack: FakeSlack, channel: str, thread_ts: str) -> list[Message]:
    return [message for message in slack.thread(channel, thread_ts) if message.bot_id]


def text_of(message: Message) -> str:
    return message.markdown or "".join(
        block["text"] for block in message.blocks if block["type"] == "markdown"
    )


def first_text_at(slack: FakeSlack, thread: tuple[str, str]) -> float:
    """When the first call with text for the thread arrived."""
    timestamps = {message.ts for message in bot_messages(slack, *thread)}
    with_text = (
        call
        for call in slack.calls
        if {call.params.get("ts"), call.result.get("ts")} & timestamps and "of the things" in str(call.params)
    )
    return next(with_text).at


def print_report(slack: FakeSlack, count: int, first: list[float], cpu: float, characters: int) -> None:
    took = slack.calls[-1].at - slack.calls[0].at
    print(
        f"{count} live: first text after {statistics.median(first):.1f} s (at most {max(first):.1f}),"
        f" all over after {took:.0f} s"
    )
    for method, most in count_busiest_minute(slack).items():
        print(f"   {method:28} {most:3} in the busiest minute, Slack allows {PER_MINUTE.get(method, '-')}")
    print(
        f"   429: {len(slack.limited)}; CPU of the bot per 1,000 characters: {1000 * cpu / characters:.3f} s"
    )


def count_busiest_minute(slack: FakeSlack) -> dict[str, int]:
    """The most calls of each method in any sixty seconds."""
    most: Counter[str] = Counter()
    for call in slack.calls:
        recent_calls = [
            other_call for other_call in slack.called(call.method) if call.at - 60 < other_call.at <= call.at
        ]
        most[call.method] = max(most[call.method], len(recent_calls))
    return {
        method: number
        for method, number in sorted(most.items())
        if method.startswith(("chat.", "agents.", "assistant."))
    }


# --- the bot's process ----------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def start_bot(slack: str, upstream: str, scale: float) -> AsyncIterator[dict[str, Any]]:
    """The bot as a process; when it has ended, its CPU time is known."""
    usage: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as home:
        arguments = ("-m", "benchmarks.slack", BOT, slack, upstream, home, str(scale))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe)
        yield usage
        output, _ = await process.communicate(b"")  # the end of its input is its end
        usage["cpu"] = output.decode()


async def run_bot_process(slack: str, upstream: str, home: str, scale: float) -> None:
    own = {
        "SLACK_INTEGRATION_BOT_TOKEN": "xoxb-test",
        "SLACK_INTEGRATION_APP_TOKEN": "xapp-test",
        "SLACK_INTEGRATION_API_URL": slack,
    }
    settings = Settings.from_variables({**own, "CAIPE_HOME": str(Path(home))})
    async with (
        run_bot(settings, upstream, None, RateLimiter(ScaledClock(scale))) as running,
        connect_to_slack(running, settings),
    ):
        began = time.process_time()
        await asyncio.to_thread(sys.stdin.read)
        print(time.process_time() - began)


if __name__ == "__main__":
    if sys.argv[1:2] == [BOT]:
        asyncio.run(run_bot_process(*sys.argv[2:5], float(sys.argv[5])))
    else:
        options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        options.add_argument("--live", type=int, nargs="+", default=[1, 10, 30])
        options.add_argument("--tokens", type=int, default=600)
        options.add_argument("--scale", type=float, default=1)
        arguments = options.parse_args()
        asyncio.run(main(arguments.live, arguments.tokens, arguments.scale))
