"""A supervisor, the bot and a fake Slack: people write and click at one end, and what Slack received is read
at the same end.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from ai_platform_engineering.a2a.client import A2AClient
from ai_platform_engineering.a2a.codec import decode_snapshot
from ai_platform_engineering.core.events import AnyEvent
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.integrations.slack_bot.app import (
    RunningBot,
    connect_to_slack,
    create_http_app,
    run_bot,
)
from ai_platform_engineering.integrations.slack_bot.rate_limits import RATE_LIMITS, RateLimit, RateLimiter
from ai_platform_engineering.integrations.slack_bot.turn_rows import thread_owner
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from tests.support.fakes.clock import ScaledClock
from tests.support.fakes.script import Script
from tests.support.fakes.slack import FakeSlack
from tests.support.harness import Client, serve_app, supervisor

ACK_SECONDS = 20.0  # seconds that Slack waits for the bot: how loaded the machine is, is not what is tested
FLUSH_INTERVAL = 0.01  # seconds between two flushes, where a test is not about the pace
UNLIMITED_RATES: Mapping[str, RateLimit] = dict.fromkeys(
    RATE_LIMITS, RateLimit(60_000, 1_000)
)  # budgets that no test comes near
LIMITS = dict.fromkeys(RATE_LIMITS, 1_000_000)


@dataclass(slots=True)
class BotHarness:
    """A supervisor, a fake Slack and the bot between them."""

    slack: FakeSlack
    client: Client  # of the supervisor
    home: Path
    env: dict[str, str] = field(default_factory=dict)
    rate_limiter: RateLimiter | None = None
    running: RunningBot | None = None

    def __post_init__(self) -> None:
        self.slack.ack_seconds = self.slack.trigger_seconds = ACK_SECONDS

    @property
    def clock(self) -> ScaledClock:
        return self.slack.clock

    def settings(self) -> Settings:
        own = {
            "SLACK_INTEGRATION_BOT_TOKEN": "xoxb-test",
            "SLACK_INTEGRATION_APP_TOKEN": "xapp-test",
            "SLACK_INTEGRATION_API_URL": self.slack.base_url,
            "CAIPE_HOME": str(self.home),
        }
        return Settings.from_variables({**own, **self.env})

    @contextlib.asynccontextmanager
    async def bot(self, url: str | None = None, token: str | None = None) -> AsyncIterator[RunningBot]:
        """A process of the bot, as far as Slack and the supervisor can tell; a second one goes on where the
        first was.
        """
        settings = self.settings()
        rate_limiter = self.rate_limiter or RateLimiter(self.clock, UNLIMITED_RATES, FLUSH_INTERVAL)
        async with contextlib.AsyncExitStack() as stack:
            running = await stack.enter_async_context(
                run_bot(settings, url or self.client.url, token, rate_limiter)
            )
            if settings.slack.mode == "http" and settings.slack.signing_secret is not None:
                address = await stack.enter_async_context(
                    serve_app(create_http_app(running, settings.slack.signing_secret))
                )
                self.slack.post_to(f"{address}slack/events", settings.slack.signing_secret.get_secret_value())
            else:
                connected = len(self.slack.sockets)
                await stack.enter_async_context(connect_to_slack(running, settings))
                await self.slack.wait(lambda: len(self.slack.sockets) > connected)
            self.running, running.bot.requests.modal_timeout = running, ACK_SECONDS / 2
            yield running

    # --- what people see ------------------------------------------------------------------------------------

    async def wait_for_turns(self, channel: str, thread_ts: str, count: int = 1) -> list[Any]:
        """Waits until `count` turns of the thread have ended, and returns the bot's messages."""
        await self.slack.wait(lambda: self.count_ended_turns(channel, thread_ts) >= count)
        return self.bot_messages(channel, thread_ts)

    def bot_messages(self, channel: str, thread_ts: str) -> list[Any]:
        """The bot's messages in the thread, in order."""
        return [one for one in self.slack.thread(channel, thread_ts) if one.bot_id == "B1"]

    def count_ended_turns(self, channel: str, thread_ts: str) -> int:
        """How many turns have ended: each has its ids below its last message."""
        return sum(
            1
            for one in self.bot_messages(channel, thread_ts)
            if (one.metadata or {}).get("event_type") == "caipe_turn" and one.state != "streaming"
        )

    def message_with(self, action_id: str, channel: str, thread_ts: str) -> Any:
        """The message that has a button with this action id."""
        return next(
            (one for one in self.bot_messages(channel, thread_ts) if action_id in str(one.all_blocks)), None
        )

    async def wait_for_button(self, action_id: str, thread_ts: str, channel: str = "C1") -> Any:
        """Waits for the message that has a button with this action id."""
        return await self.slack.wait(lambda: self.message_with(action_id, channel, thread_ts))

    async def open_modal(self, message: Any, action_id: str, user: str = "U1") -> Any:
        """Clicks a button, and waits for the modal that it opens."""
        known = set(self.slack.views)
        await self.slack.click(message, action_id, user)
        return await self.slack.wait(
            lambda: next((view for key, view in self.slack.views.items() if key not in known), None)
        )

    def ephemeral_texts(self, user: str = "U1") -> list[str]:
        """The texts of the ephemeral messages for a user."""
        return [one.text for one in self.slack.ephemerals if one.recipient[1] == user]

    # --- what the supervisor knows --------------------------------------------------------------------------

    def supervisor_for(
        self, thread_ts: str, user: str = "first@example.com", channel: str = "C1"
    ) -> A2AClient:
        """A client of the supervisor on behalf of a user, in the conversation of a thread."""
        return A2AClient(self.client.url, self.client.http).on_behalf_of(
            user, thread_owner("T1", channel, thread_ts)
        )

    async def events(self, task_id: str, thread_ts: str, channel: str = "C1") -> list[AnyEvent]:
        """The stored events of a run."""
        task = await self.supervisor_for(thread_ts, channel=channel).call("GetTask", {"id": task_id})
        return [item.event for item in decode_snapshot(task)]


@contextlib.asynccontextmanager
async def start_harness(
    tmp_path: Path,
    model: Script | BaseChatModel | None,
    *,
    agents: Sequence[LocalAgent] = (),
    tools: Sequence[BaseTool] = (),
    env: Mapping[str, str] | None = None,
    clock: ScaledClock | None = None,
    rate_limiter: RateLimiter | None = None,
    slack: Mapping[str, Any] | None = None,
) -> AsyncIterator[BotHarness]:
    """A supervisor with a scripted model, and a fake Slack; `slack` is for the fake, `env` for both
    processes.
    """
    given = {"limits": LIMITS, **(slack or {})} if rate_limiter is None else dict(slack or {})
    async with (
        FakeSlack(clock=clock or ScaledClock(), **given) as fake,
        supervisor(
            model,
            agents=agents,
            tools=tools,
            env={name: value for name, value in (env or {}).items() if "SLACK" not in name},
        ) as client,
    ):
        yield BotHarness(fake, client, tmp_path / "bot-home", dict(env or {}), rate_limiter)


def join_texts(messages: Sequence[Any]) -> str:
    """What the bot wrote, over all its messages, as the supervisor said it: escaping undone, code blocks that
    were cut put together.
    """
    texts = [text for one in messages if (text := message_text(one))]
    text = texts[0] if texts else ""
    for piece in texts[1:]:
        text = _rejoined(text, piece)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def message_text(message: Any) -> str:
    """The text of one message, streamed or in its blocks, verbatim."""
    return str(
        message.markdown or "".join(block["text"] for block in message.blocks if block["type"] == "markdown")
    )


def _rejoined(before: str, after: str) -> str:
    """Takes out the end and the new beginning of a code block, where a message was cut in the middle of one:
    at the end of a line.
    """
    head, _, fence = before.rpartition("\n")
    if set(fence.lstrip(" ")) == {"`"} and fence.count("`") >= 3 and after.startswith(fence):
        return f"{head}\n{after.partition(chr(10))[2]}"
    return before + after
