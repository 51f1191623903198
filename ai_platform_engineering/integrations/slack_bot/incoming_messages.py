"""A message that somebody wrote in Slack, parsed from an event."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_STOP_WORDS = frozenset({"stop", "cancel"})
_MESSAGE_SUBTYPES = (None, "file_share", "thread_broadcast", "bot_message")


@dataclass(frozen=True, slots=True)
class SlackMessage:
    """A message in a channel; a stored row until it is handled."""

    team: str
    channel: str
    user: str
    ts: str
    thread_ts: str  # its own `ts` when it begins a thread
    text: str
    bot: str  # the id of the bot that wrote it, or ""
    mentions: bool
    direct: bool
    files: tuple[Mapping[str, Any], ...] = ()

    @property
    def in_thread(self) -> bool:
        return self.thread_ts != self.ts

    @property
    def turn_id(self) -> str:
        return f"{self.channel}:{self.ts}"

    @property
    def author(self) -> str:
        """The id of the user or of the bot that wrote it."""
        return self.user or self.bot

    @property
    def reply_thread_ts(self) -> str | None:
        """The thread for an ephemeral reply; None when the message is not in a thread."""
        if self.in_thread:
            return self.thread_ts
        return None

    def is_stop(self) -> bool:
        return self.text.strip().strip(".!").lower() in _STOP_WORDS

    def is_empty(self) -> bool:
        return not self.text.strip() and not self.files

    def is_addressed_to_others(self) -> bool:
        """Whether it begins with the mention of somebody else, or of a group."""
        return self.text.startswith(("<@", "<!"))


def parse_message(event: Mapping[str, Any], team: str, bot_user_id: str) -> SlackMessage | None:
    """The message of an event; None for edits, deletions, Slack's own notes and the bot's own messages."""
    if event.get("subtype") not in _MESSAGE_SUBTYPES or event.get("hidden"):
        return None
    user = str(event.get("user") or "")
    ts = event.get("ts")
    channel = event.get("channel")
    if not ts or not channel or user == bot_user_id:
        return None
    text = str(event.get("text") or "")
    mention = re.compile(rf"<@{re.escape(bot_user_id)}(?:\|[^<>]*)?>")
    return SlackMessage(
        team=team,  # the bot's own: in a shared channel the event names that of whoever wrote
        channel=str(channel),
        user=user,
        ts=str(ts),
        thread_ts=str(event.get("thread_ts") or ts),
        text=_strip_mention(text, mention),
        bot=str(event.get("bot_id") or ""),
        mentions=event.get("type") == "app_mention" or mention.search(text) is not None,
        direct=event.get("channel_type") == "im" or str(channel).startswith("D"),
        files=tuple(event.get("files") or ()),
    )


def _strip_mention(text: str, mention: re.Pattern[str]) -> str:
    """The text without the bot's mention at its beginning; elsewhere the mention is part of a sentence."""
    if mention.match(text.lstrip()):
        return mention.sub("", text, count=1).strip()
    return mention.sub("@me", text).strip()
