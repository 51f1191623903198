"""The bot's messages in one thread: Slack's calls to stream, post, update and delete them."""

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

# Slack's error codes
STREAM_ENDED = "message_not_in_streaming_state"
THREAD_GONE = frozenset({"thread_not_found", "invalid_thread_ts", "message_not_found", "channel_not_found"})
TOO_LONG = frozenset({"msg_too_long", "msg_blocks_too_long"})
_STREAMING_UNAVAILABLE = frozenset(
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
_MAX_START_WAIT = 3.0  # seconds to wait for the rate limit of streams before a message is posted instead
_MAX_STOP_ATTEMPTS = 6  # while nobody knows whether the stream has ended
_ENDLESS = math.inf  # the text of an answer waits for Slack as long as it cannot be reached
_MAX_SHARE_CHECKS = 7  # of whether Slack shows an uploaded file; it scans the file before
_PLACEHOLDER = "Continues below."


@dataclass(frozen=True, slots=True)
class SlackThread:
    """A thread, and the user who sees a stream in it; `oldest_ts` is the message that asked the question."""

    team: str
    channel: str
    thread_ts: str
    user: str
    oldest_ts: str = ""


class StreamingUnavailable(Exception):
    """Slack does not stream in this channel or for this user."""


@dataclass(frozen=True, slots=True)
class ThreadMessages:
    slack: SlackApi
    thread: SlackThread

    def _thread_params(self) -> dict[str, Any]:
        return {"channel": self.thread.channel, "thread_ts": self.thread.thread_ts}

    def _message_params(self, ts: str) -> dict[str, Any]:
        return {"channel": self.thread.channel, "ts": ts}

    async def start_stream(self, chunks: Sequence[Chunk], *, planned: bool) -> str | None:
        """Starts a stream and returns its ts; None when too many were started lately.

        Raises StreamingUnavailable, SlackError and DeliveryUnknown.
        """
        display_mode = "timeline"
        if planned:
            display_mode = "plan"
        params = {
            **self._thread_params(),
            "recipient_team_id": self.thread.team,
            "recipient_user_id": self.thread.user,
            "task_display_mode": display_mode,
            "chunks": list(chunks),
        }
        try:
            response = await self.slack.call(
                "chat.startStream", params, max_wait=_MAX_START_WAIT, tries=_ENDLESS
            )
        except SlackError as error:
            if error.reason not in _STREAMING_UNAVAILABLE:
                raise
            log.warning("%s Messages are posted and updated instead.", error)
            raise StreamingUnavailable from None
        if response is None:
            return None
        return str(response["ts"])

    async def append_stream(self, ts: str, chunks: Sequence[Chunk]) -> None:
        """Appends chunks to a stream. Raises SlackError and DeliveryUnknown."""
        params = {**self._message_params(ts), "chunks": list(chunks)}
        await self.slack.call("chat.appendStream", params, tries=_ENDLESS)

    async def stop_stream(
        self,
        ts: str,
        *,
        chunks: Sequence[Chunk] = (),
        blocks: Sequence[Block] = (),
        metadata: Mapping[str, Any] | None = None,
        session_status: str = "",
    ) -> bool:
        """Ends a stream; False when the last chunks and blocks are not below it. Raises SlackError.

        They are missing when the stream had ended already, or when Slack found them too long.
        """
        last_params: dict[str, Any] = {
            "chunks": list(chunks),
            "blocks": list(blocks),
            "metadata": metadata,
            "session_status": session_status,
        }
        content = {name: value for name, value in last_params.items() if value}
        with_content = True
        unknown_outcome = False
        for attempt in range(_MAX_STOP_ATTEMPTS):
            try:
                params = self._message_params(ts)
                if with_content:
                    params |= content
                await self.slack.call("chat.stopStream", params, tries=_ENDLESS)
                return with_content
            except DeliveryUnknown:
                unknown_outcome = True
                await self.slack.rate_limiter.clock.sleep(retry_delay(attempt))
            except SlackError as error:
                if error.reason in TOO_LONG and content and with_content:
                    with_content = False
                    continue
                if error.reason != STREAM_ENDED and error.reason not in THREAD_GONE:
                    raise
                return unknown_outcome and with_content  # the attempt before has done it
        return False

    async def post(
        self, text: str, blocks: Sequence[Block], metadata: Mapping[str, Any] | None = None
    ) -> str:
        """Posts a message and returns its ts. Raises SlackError and DeliveryUnknown."""
        params: dict[str, Any] = {
            **self._thread_params(),
            "text": text,
            "blocks": list(blocks),
            "unfurl_links": False,
            "unfurl_media": False,
        }
        if metadata:
            params["metadata"] = dict(metadata)
        response = await self.slack.call("chat.postMessage", params, tries=_ENDLESS)
        assert response is not None
        return str(response["ts"])

    async def attach(self, name: str, content: bytes) -> str:
        """Attaches a text file to the thread and returns the ts of its message, once Slack shows it there.

        Raises SlackError and DeliveryUnknown.
        """
        file_id = await self.slack.upload(name, content, self.thread.channel, self.thread.thread_ts)
        for attempt in range(_MAX_SHARE_CHECKS):
            response = await self.slack.call("files.info", {"file": file_id}) or {}
            ts = _find_share(response.get("file") or {}, self.thread)
            if ts is not None:
                return ts
            await self.slack.rate_limiter.clock.sleep(retry_delay(attempt))
        raise SlackError("files.completeUploadExternal", "the file is not shown in the thread")

    async def update(
        self, ts: str, text: str, blocks: Sequence[Block], metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Replaces a message; doing it twice is harmless. Raises SlackError and DeliveryUnknown."""
        params: dict[str, Any] = {**self._message_params(ts), "text": text, "blocks": list(blocks)}
        if metadata:
            params["metadata"] = dict(metadata)
        await self.slack.call("chat.update", params, tries=_ENDLESS)

    async def remove(self, ts: str) -> None:
        """Deletes a message; what cannot be deleted is replaced by a placeholder.

        A stream is ended first: Slack does not delete a message that streams.
        """
        try:
            await self.stop_stream(ts)
            await self.slack.call("chat.delete", self._message_params(ts), tries=_ENDLESS)
        except (SlackError, DeliveryUnknown) as error:
            if isinstance(error, SlackError) and error.reason == "message_not_found":
                return
            log.warning("%s", error)
            placeholder = {"text": _PLACEHOLDER, "blocks": [markdown(_PLACEHOLDER)]}
            await self.slack.try_call("chat.update", {**self._message_params(ts), **placeholder})

    async def remove_unknown(self, is_known: Callable[[str], Awaitable[bool]]) -> None:
        """Deletes messages of this bot that it does not know of: Slack posted them, and the answer was lost.

        Raises SlackError and DeliveryUnknown.
        """
        for ts in await self.list_own():
            if not await is_known(ts):
                await self.remove(ts)

    async def list_own(self) -> list[str]:
        """The ts of this bot's messages in the thread, from the question on.

        Raises SlackError and DeliveryUnknown.
        """
        identity = await self.slack.call("auth.test", {}, tries=_ENDLESS) or {}
        bot_id = identity.get("bot_id")
        own: list[str] = []
        cursor = ""
        while True:
            params = {
                "channel": self.thread.channel,
                "ts": self.thread.thread_ts,
                "limit": 200,
                "oldest": self.thread.oldest_ts or None,
                "cursor": cursor or None,
            }
            response = await self.slack.call("conversations.replies", params, tries=_ENDLESS) or {}
            for message in response.get("messages") or ():
                if message.get("bot_id") == bot_id:
                    own.append(str(message["ts"]))
            cursor = (response.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                return own


def _find_share(file: Mapping[str, Any], thread: SlackThread) -> str | None:
    """The ts of the message that shows a file in the thread."""
    for shares in (file.get("shares") or {}).values():
        for share in shares.get(thread.channel) or ():
            if share.get("thread_ts") == thread.thread_ts:
                return str(share["ts"])
    return None
