"""The Slack bot with 1, 10 and 30 live conversations, against Slack's own limits: how soon text is there, and what it costs.

    .venv/bin/python -m benchmarks.slack [--live 1 10 30] [--tokens 600] [--scale 1]

A fake Slack with the real limits and the supervisor are in this process, the bot is in one of its own, so that its CPU time is its own. The
model is scripted and speaks 50 tokens of four characters a second. All clocks run `--scale` times as fast as real time, and all seconds
printed are theirs; on a machine that cannot keep up, a smaller scale is the honest one. Nothing leaves loopback.
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


class Paced(Gate):
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
        script = Script(Turn(Say(*pieces)), gate=Paced(clock))
        async with FakeSlack(clock=clock) as slack, supervisor(script) as client:
            async with bot(slack.base_url, client.url, scale) as process:
                await slack.wait(lambda slack=slack: slack.sockets, 60)
                first = await conversations(slack, count, len("".join(pieces)))
            report(slack, count, first, float(process["cpu"]), count * len("".join(pieces)))


async def conversations(slack: FakeSlack, count: int, length: int) -> list[float]:
    """So many at once, to their end; the seconds that each waited for its first text. Raises for an answer that is not whole."""
    slack.ack_seconds = 60
    places = [f"C{number % CHANNELS + 1}" for number in range(count)]
    asked = slack.clock.now()
    roots = await asyncio.gather(*(slack.say("Tell me", channel=channel, mention=True) for channel in places))
    threads = list(zip(places, roots, strict=True))
    await slack.wait(lambda: all(any(one.metadata for one in mine(slack, *place)) for place in threads), 600)
    for place in threads:
        if sum(len(text_of(one)) for one in mine(slack, *place)) != length:
            raise SystemExit(f"{place}: the answer is not whole")
    return [first_text(slack, place) - asked for place in threads]


def mine(slack: FakeSlack, channel: str, thread_ts: str) -> list[Message]:
    return [one for one in slack.thread(channel, thread_ts) if one.bot_id]


def text_of(message: Message) -> str:
    return message.markdown or "".join(
        block["text"] for block in message.blocks if block["type"] == "markdown"
    )


def first_text(slack: FakeSlack, place: tuple[str, str]) -> float:
    """When the first call with text for the thread arrived."""
    known = {one.ts for one in mine(slack, *place)}
    with_text = (
        call
        for call in slack.calls
        if {call.params.get("ts"), call.result.get("ts")} & known and "of the things" in str(call.params)
    )
    return next(with_text).at


def report(slack: FakeSlack, count: int, first: list[float], cpu: float, characters: int) -> None:
    took = slack.calls[-1].at - slack.calls[0].at
    print(
        f"{count} live: first text after {statistics.median(first):.1f} s (at most {max(first):.1f}), all over after {took:.0f} s"
    )
    for method, most in busiest(slack).items():
        print(f"   {method:28} {most:3} in the busiest minute, Slack allows {PER_MINUTE.get(method, '-')}")
    print(
        f"   429: {len(slack.limited)}; CPU of the bot per 1,000 characters: {1000 * cpu / characters:.3f} s"
    )


def busiest(slack: FakeSlack) -> dict[str, int]:
    """The most calls of each method in any sixty seconds."""
    most: Counter[str] = Counter()
    for call in slack.calls:
        since = [one for one in slack.called(call.method) if call.at - 60 < one.at <= call.at]
        most[call.method] = max(most[call.method], len(since))
    return {
        method: number
        for method, number in sorted(most.items())
        if method.startswith(("chat.", "agents.", "assistant."))
    }


# --- the bot's process ------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def bot(slack: str, upstream: str, scale: float) -> AsyncIterator[dict[str, Any]]:
    """The bot as a process; when it has ended, its CPU time is known."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as home:
        arguments = ("-m", "benchmarks.slack", BOT, slack, upstream, home, str(scale))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe)
        yield found
        said, _ = await process.communicate(b"")  # the end of its input is its end
        found["cpu"] = said.decode()


async def be_the_bot(slack: str, upstream: str, home: str, scale: float) -> None:
    own = {
        "SLACK_INTEGRATION_BOT_TOKEN": "xoxb-test",
        "SLACK_INTEGRATION_APP_TOKEN": "xapp-test",
        "SLACK_INTEGRATION_API_URL": slack,
    }
    settings = Settings.from_variables({**own, "CAIPE_HOME": str(Path(home))})
    async with (
        run_bot(settings, upstream, None, RateLimiter(ScaledClock(scale))) as running,
        connect_to_slack(running, settings.slack),
    ):
        began = time.process_time()
        await asyncio.to_thread(sys.stdin.read)
        print(time.process_time() - began)


if __name__ == "__main__":
    if sys.argv[1:2] == [BOT]:
        asyncio.run(be_the_bot(*sys.argv[2:5], float(sys.argv[5])))
    else:
        options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        options.add_argument("--live", type=int, nargs="+", default=[1, 10, 30])
        options.add_argument("--tokens", type=int, default=600)
        options.add_argument("--scale", type=float, default=1)
        given = options.parse_args()
        asyncio.run(main(given.live, given.tokens, given.scale))
