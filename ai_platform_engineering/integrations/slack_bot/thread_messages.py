"""The messages of one thread: Slack's calls to begin, go on with, end, post, change and remove them."""

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.integrations.slack_bot.blocks import Block, Chunk, markdown
from ai_platform_engineering.integrations.slack_bot.web_api import (
    DeliveryUnknown,
    SlackApi,
    SlackError,
    retry_delay,
)

log = logging.getLogger(__name__)

EXPIRED = "message_not_in_streaming_state"
GONE = frozenset({"thread_not_found", "invalid_thread_ts", "message_not_found", "channel_not_found"})
_NO_STREAM = frozenset(
    {
        "channel_type_not_supported",
        "feature_not_enabled",
        "invalid_recipient",
        "method_not_supported_for_channel_type",
        "missing_recipient_team_id",
        "missing_recipient_user_id",
        "not_allowed_token_type",
        "team_not_found",
        "unknown_method",
        "user_not_found",
    }
)
_START_WITHIN = 3.0  # seconds to wait for the budget of streams before a message is posted instead
_ATTEMPTS = 6  # to end a stream, of which nobody knows whether it has ended
_ENDLESS = math.inf  # the words of an answer wait for Slack as long as it is away
TOO_LONG = frozenset({"msg_too_long", "msg_blocks_too_long"})
_PLACEHOLDER = "Continues below."


@dataclass(frozen=True, slots=True)
class SlackThread:
    """A thread, for whom a stream in it is, and the message with which it began."""

    team: str
    channel: str
    thread_ts: str
    user: str
    oldest_ts: str = ""


class StreamingUnavailable(Exception):
    """Slack does not stream here."""


@dataclass(frozen=True, slots=True)
class ThreadMessages:
    slack: SlackApi
    thread: SlackThread

    @property
    def _thread(self) -> dict[str, str]:
        return {"channel": self.thread.channel, "thread_ts": self.thread.thread_ts}

    def _message(self, ts: str) -> dict[str, str]:
        return {"channel": self.thread.channel, "ts": ts}

    async def start_stream(self, chunks: Sequence[Chunk], *, planned: bool) -> str | None:
        """Begins a stream. None when too many have been started lately. Raises NoStreams, SlackError, Unsure."""
        asked = {
            **self._thread,
            "recipient_team_id": self.thread.team,
            "recipient_user_id": self.thread.user,
            "task_display_mode": "plan" if planned else "timeline",
            "chunks": list(chunks),
        }
        try:
            answer = await self.slack.call("chat.startStream", asked, max_wait=_START_WITHIN, tries=_ENDLESS)
        except SlackError as error:
            if error.reason not in _NO_STREAM:
                raise
            log.warning("%s Messages are posted and updated instead.", error)
            raise StreamingUnavailable from None
        if answer is not None:
            return str(answer["ts"])
        return None

    async def append_stream(self, ts: str, chunks: Sequence[Chunk]) -> None:
        """Raises SlackError and Unsure."""
        await self.slack.call(
            "chat.appendStream", {**self._message(ts), "chunks": list(chunks)}, tries=_ENDLESS
        )

    async def stop_stream(self, ts: str, **more: Any) -> bool:
        """Ends a stream. False when what was to stand below it is not there: it was gone, or Slack found it too much. Raises SlackError."""
        given = {name: value for name, value in more.items() if value}
        asked, unsure = given, False
        for number in range(_ATTEMPTS):
            try:
                await self.slack.call("chat.stopStream", {**self._message(ts), **asked}, tries=_ENDLESS)
                return asked is given
            except DeliveryUnknown:
                unsure = True
                await self.slack.rate_limiter.clock.sleep(retry_delay(number))
            except SlackError as error:
                if error.reason in TOO_LONG and asked:
                    asked = {}
                    continue
                if error.reason != EXPIRED and error.reason not in GONE:
                    raise
                return unsure and asked is given  # the attempt before has done it
        return False

    async def post(
        self, text: str, blocks: Sequence[Block], metadata: Mapping[str, Any] | None = None
    ) -> str:
        """Raises SlackError and Unsure."""
        asked = {
            **self._thread,
            "text": text,
            "blocks": list(blocks),
            "unfurl_links": False,
            "unfurl_media": False,
        }
        answer = await self.slack.call(
            "chat.postMessage", {**asked, "metadata": dict(metadata) if metadata else None}, tries=_ENDLESS
        )
        assert answer is not None
        return str(answer["ts"])

    async def update(
        self, ts: str, text: str, blocks: Sequence[Block], metadata: Mapping[str, Any] | None = None
    ) -> None:
        """May be done twice. Raises SlackError and Unsure."""
        asked = {
            **self._message(ts),
            "text": text,
            "blocks": list(blocks),
            "metadata": dict(metadata) if metadata else None,
        }
        await self.slack.call("chat.update", asked, tries=_ENDLESS)

    async def remove(self, ts: str) -> None:
        """A stream is ended first: what streams cannot be deleted. What cannot be deleted says that it goes on elsewhere."""
        try:
            await self.stop_stream(ts)
            await self.slack.call("chat.delete", self._message(ts), tries=_ENDLESS)
        except (SlackError, DeliveryUnknown) as error:
            if isinstance(error, SlackError) and error.reason == "message_not_found":
                return
            log.warning("%s", error)
            await self.slack.try_call(
                "chat.update", {**self._message(ts), "text": _PLACEHOLDER, "blocks": [markdown(_PLACEHOLDER)]}
            )

    async def remove_unknown(self, is_known: Callable[[str], Awaitable[bool]]) -> None:
        """Removes what this bot wrote without learning of it. Raises SlackError and Unsure."""
        for ts in await self.list_own():
            if not await is_known(ts):
                await self.remove(ts)

    async def list_own(self) -> list[str]:
        """The messages of this bot in the thread, from the question on. Raises SlackError and Unsure."""
        me = (await self.slack.call("auth.test", {}, tries=_ENDLESS) or {}).get("bot_id")
        found: list[str] = []
        cursor = ""
        while True:
            asked = {
                "channel": self.thread.channel,
                "ts": self.thread.thread_ts,
                "limit": 200,
                "oldest": self.thread.oldest_ts or None,
            }
            answer = (
                await self.slack.call(
                    "conversations.replies", {**asked, "cursor": cursor or None}, tries=_ENDLESS
                )
                or {}
            )
            found += [
                str(message["ts"]) for message in answer.get("messages") or () if message.get("bot_id") == me
            ]
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                return found
