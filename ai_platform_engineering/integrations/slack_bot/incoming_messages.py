"""From a message in Slack to a question: whether it is one, its words, the talk before it, and its files."""

import html
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from ai_platform_engineering.a2a.message_parts import TEXT_TYPES
from ai_platform_engineering.core.events import FilePart
from ai_platform_engineering.integrations.slack_bot.blocks import escape_line
from ai_platform_engineering.integrations.slack_bot.users import UserDirectory
from ai_platform_engineering.integrations.slack_bot.web_api import DeliveryUnknown, SlackApi, SlackError

log = logging.getLogger(__name__)

_ANGLED = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>")
_STOP_WORDS = frozenset({"stop", "cancel"})
_MOST_BEFORE = 20_000  # characters of earlier messages
_PAGES = 5
_SECONDS = 20.0  # for a file
EARLIER_MESSAGES_FILE = "earlier-messages-of-this-thread.txt"


@dataclass(frozen=True, slots=True)
class SlackMessage:
    """A message that somebody sent, as Slack tells of it."""

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

    def is_stop(self) -> bool:
        return self.text.strip().strip(".!").lower() in _STOP_WORDS

    def is_empty(self) -> bool:
        return not self.text.strip() and not self.files

    def is_addressed_to_others(self) -> bool:
        """It speaks to somebody else by name, or to a group."""
        return self.text.startswith(("<@", "<!"))


def parse_message(event: Mapping[str, Any], team: str, me: str) -> SlackMessage | None:
    """None for what is no message of somebody: edits, deletions, notes of Slack itself, and our own words."""
    if event.get("subtype") not in (None, "file_share", "thread_broadcast", "bot_message") or event.get(
        "hidden"
    ):
        return None
    user = str(event.get("user") or "")
    ts = event.get("ts")
    channel = event.get("channel")
    if not ts or not channel or user == me:
        return None
    text = str(event.get("text") or "")
    named = re.compile(rf"<@{re.escape(me)}(?:\|[^<>]*)?>")
    return SlackMessage(
        team=team,  # the bot's own: in a shared channel the event names that of whoever wrote
        channel=str(channel),
        user=user,
        ts=str(ts),
        thread_ts=str(event.get("thread_ts") or ts),
        text=named.sub("", text, count=1).strip()
        if named.match(text.lstrip())
        else named.sub("@me", text).strip(),
        bot=str(event.get("bot_id") or ""),
        mentions=event.get("type") == "app_mention" or named.search(text) is not None,
        direct=event.get("channel_type") == "im" or str(channel).startswith("D"),
        files=tuple(event.get("files") or ()),
    )


@dataclass(frozen=True, slots=True)
class MessageReader:
    """Reads what belongs to a question from Slack."""

    slack: SlackApi
    users: UserDirectory

    async def to_plain_text(self, text: str, team: str) -> str:
        """The words as people read them: names in the place of ids, addresses in the place of links."""
        users = {found[2] for found in _ANGLED.finditer(text) if found[1] == "@"}
        names = {user: (await self.users.find_user(team, user)).name for user in users}
        return html.unescape(_ANGLED.sub(lambda found: _read(found[1], found[2], found[3], names), text))

    async def read_earlier_messages(self, heard: SlackMessage, given: str | None, me: str) -> FilePart | None:
        """What was said in the thread before and has not been given yet; the last of it where it is much."""
        if not heard.in_thread:
            return None
        lines: list[str] = []
        for message in await self._replies(heard, given):
            if float(message["ts"]) >= float(heard.ts) or (
                given is not None and float(message["ts"]) <= float(given)
            ):
                continue
            if message.get("user") == me:
                continue  # the supervisor knows its own words
            if said := (await self.to_plain_text(str(message.get("text") or ""), heard.team)).strip():
                who = (
                    (await self.users.find_user(heard.team, str(message["user"]))).name
                    if message.get("user")
                    else "a bot"
                )
                lines.append(f"{who}: {said}")
        text = "\n".join(lines)
        if text:
            return FilePart(name=EARLIER_MESSAGES_FILE, media_type="text/plain", text=text[-_MOST_BEFORE:])
        return None

    async def _replies(self, heard: SlackMessage, given: str | None) -> list[dict[str, Any]]:
        asked = {
            "channel": heard.channel,
            "ts": heard.thread_ts,
            "limit": 200,
            "oldest": given,
            "latest": heard.ts,
            "inclusive": "true",
        }
        found: list[dict[str, Any]] = []
        cursor = ""
        try:
            for _ in range(_PAGES):
                answer = (
                    await self.slack.call("conversations.replies", {**asked, "cursor": cursor or None}) or {}
                )
                found += answer.get("messages") or ()
                cursor = (answer.get("response_metadata") or {}).get("next_cursor") or ""
                if not cursor:
                    break
        except (SlackError, DeliveryUnknown) as error:
            log.warning("%s The question is asked without what was said before.", error)
        return found

    async def read_files(self, heard: SlackMessage, most: int) -> tuple[tuple[FilePart, ...], list[str]]:
        """The text files of a message within the limit, and a sentence for each that could not be read."""
        read: list[FilePart] = []
        problems: list[str] = []
        for given in heard.files:
            name = str(given.get("name") or given.get("id") or "file")
            try:
                content = await self._content(given, most - sum(len(one.text.encode()) for one in read))
                read.append(FilePart(name=name, media_type="text/plain", text=content))
            except _Unread as error:
                problems.append(f"{escape_line(name)} {error}")
        return tuple(read), problems

    async def _content(self, given: Mapping[str, Any], most: int) -> str:
        kind, address = (
            str(given.get("mimetype") or ""),
            str(given.get("url_private_download") or given.get("url_private") or ""),
        )
        if kind and not kind.startswith(TEXT_TYPES):
            raise _Unread(f"is not a text file ({kind}), and only text can be read.")
        if int(given.get("size") or 0) > most:
            raise _Unread(f"is too large: {most} bytes are left for the files of a message.")
        body = await self._downloaded(address, kind, most)
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise _Unread("is not text in UTF-8, and only that can be read.") from None
        if "\x00" in text:
            raise _Unread("is not a text file.")
        return text

    async def _downloaded(self, address: str, kind: str, most: int) -> bytes:
        if not _is_slacks(address, self.slack.client.base_url):
            raise _Unread("is kept outside of Slack, and is not fetched.")
        headers = {"Authorization": f"Bearer {self.slack.client.token}"}
        body = b""
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_SECONDS), trust_env=True) as session,
                session.get(address, headers=headers, allow_redirects=False) as response,
            ):
                is_page = response.content_type == "text/html" and kind != "text/html"  # to log in at
                if response.status != 200 or is_page:
                    raise _Unread(
                        "could not be read: Slack did not give it out. Has the app the scope files:read?"
                    )
                async for piece in response.content.iter_chunked(65_536):
                    body += piece
                    if len(body) > most:
                        raise _Unread(f"is too large: {most} bytes are left for the files of a message.")
        except (aiohttp.ClientError, TimeoutError):
            raise _Unread("could not be fetched from Slack.") from None
        return body


class _Unread(Exception):
    """Why a file is not read; ends a sentence that begins with its name."""


def _is_slacks(address: str, base_url: str) -> bool:
    """The token is for Slack's own hosts alone."""
    host, own = urlsplit(address).netloc, urlsplit(base_url).netloc
    return host == own or (
        address.startswith("https://") and (host == "slack.com" or host.endswith(".slack.com"))
    )


def _read(sign: str, what: str, label: str | None, names: Mapping[str, str]) -> str:
    match sign:
        case "@":
            return f"@{names.get(what, label or what)}"
        case "#":
            return f"#{label or what}"
        case "!" if what.startswith("date^"):
            return label or what
        case "!":
            return f"@{label or what.partition('^')[0]}".replace("@@", "@")
        case _ if label and what.startswith(("mailto:", "tel:")):
            return label
        case _:
            if label and label.strip("/") != what.partition("://")[2].strip("/") and label != what:
                return f"{label} ({what})"
            return what
