"""Reads what belongs to a question in Slack: plain text, earlier messages of the thread, and files."""

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
from ai_platform_engineering.integrations.slack_bot.incoming_messages import SlackMessage
from ai_platform_engineering.integrations.slack_bot.users import UserDirectory
from ai_platform_engineering.integrations.slack_bot.web_api import DeliveryUnknown, SlackApi, SlackError

log = logging.getLogger(__name__)

_ENTITY = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>")  # a mention, a channel or a link: <#C1|general>
_MAX_EARLIER_TEXT = 20_000  # characters of earlier messages
_MAX_PAGES = 5
_DOWNLOAD_TIMEOUT = 20.0
EARLIER_MESSAGES_FILE = "earlier-messages-of-this-thread.txt"


class _UnreadableFile(Exception):
    """Why a file is not read; ends a sentence that begins with its name."""


@dataclass(frozen=True, slots=True)
class MessageReader:
    slack: SlackApi
    users: UserDirectory

    async def to_plain_text(self, text: str, team: str) -> str:
        """The text as people read it: names in the place of user ids, URLs in the place of links."""
        user_ids = {entity[2] for entity in _ENTITY.finditer(text) if entity[1] == "@"}
        names = {user_id: (await self.users.find_user(team, user_id)).name for user_id in user_ids}
        return html.unescape(_ENTITY.sub(lambda entity: _format_entity(entity, names), text))

    async def read_earlier_messages(
        self, question: SlackMessage, sent_until: str | None, bot_user_id: str
    ) -> FilePart | None:
        """The thread's messages after `sent_until` and before the question; the last of them where it is
        much.
        """
        if not question.in_thread:
            return None
        lines: list[str] = []
        for message in await self._fetch_replies(question, sent_until):
            if message.get("user") == bot_user_id or not _is_between(message, sent_until, question.ts):
                continue  # the supervisor has it already, or wrote it
            text = await self.to_plain_text(str(message.get("text") or ""), question.team)
            if text.strip():
                lines.append(f"{await self._author_name(message, question.team)}: {text.strip()}")
        if not lines:
            return None
        earlier_text = "\n".join(lines)[-_MAX_EARLIER_TEXT:]
        return FilePart(name=EARLIER_MESSAGES_FILE, media_type="text/plain", text=earlier_text)

    async def _author_name(self, message: Mapping[str, Any], team: str) -> str:
        if not message.get("user"):
            return "a bot"
        return (await self.users.find_user(team, str(message["user"]))).name

    async def _fetch_replies(self, question: SlackMessage, oldest: str | None) -> list[dict[str, Any]]:
        replies: list[dict[str, Any]] = []
        cursor = ""
        try:
            for _ in range(_MAX_PAGES):
                params = {
                    "channel": question.channel,
                    "ts": question.thread_ts,
                    "limit": 200,
                    "oldest": oldest,
                    "latest": question.ts,
                    "inclusive": "true",
                    "cursor": cursor or None,
                }
                response = await self.slack.call("conversations.replies", params) or {}
                replies += response.get("messages") or ()
                cursor = (response.get("response_metadata") or {}).get("next_cursor") or ""
                if not cursor:
                    break
        except (SlackError, DeliveryUnknown) as error:
            log.warning("%s The question is asked without what was said before.", error)
        return replies

    # --- files ----------------------------------------------------------------------------------------------

    async def read_files(
        self, message: SlackMessage, max_bytes: int
    ) -> tuple[tuple[FilePart, ...], list[str]]:
        """The text files of a message within the limit, and a sentence for each that could not be read."""
        parts: list[FilePart] = []
        problems: list[str] = []
        bytes_left = max_bytes
        for file in message.files:
            name = str(file.get("name") or file.get("id") or "file")
            try:
                text = await self._read_file(file, bytes_left)
            except _UnreadableFile as error:
                problems.append(f"{escape_line(name)} {error}")
                continue
            parts.append(FilePart(name=name, media_type="text/plain", text=text))
            bytes_left -= len(text.encode())
        return tuple(parts), problems

    async def _read_file(self, file: Mapping[str, Any], max_bytes: int) -> str:
        media_type = str(file.get("mimetype") or "")
        url = str(file.get("url_private_download") or file.get("url_private") or "")
        if media_type and not media_type.startswith(TEXT_TYPES):
            raise _UnreadableFile(f"is not a text file ({media_type}), and only text can be read.")
        if int(file.get("size") or 0) > max_bytes:
            raise _too_large(max_bytes)
        body = await self._download(url, media_type, max_bytes)
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise _UnreadableFile("is not text in UTF-8, and only that can be read.") from None
        if "\x00" in text:
            raise _UnreadableFile("is not a text file.")
        return text

    async def _download(self, url: str, media_type: str, max_bytes: int) -> bytes:
        if not _is_slack_host(url, self.slack.client.base_url):
            raise _UnreadableFile("is stored outside Slack and is not fetched.")
        headers = {"Authorization": f"Bearer {self.slack.client.token}"}
        timeout = aiohttp.ClientTimeout(_DOWNLOAD_TIMEOUT)
        body = b""
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
                session.get(url, headers=headers, allow_redirects=False) as response,
            ):
                is_login_page = response.content_type == "text/html" and media_type != "text/html"
                if response.status != 200 or is_login_page:
                    raise _UnreadableFile(
                        "could not be read: Slack did not provide it. Does the app have the scope files:read?"
                    )
                async for chunk in response.content.iter_chunked(65_536):
                    body += chunk
                    if len(body) > max_bytes:
                        raise _too_large(max_bytes)
        except (aiohttp.ClientError, TimeoutError):
            raise _UnreadableFile("could not be fetched from Slack.") from None
        return body


def _too_large(max_bytes: int) -> _UnreadableFile:
    return _UnreadableFile(f"is too large: {max_bytes} bytes are left for the files of a message.")


def _is_slack_host(url: str, base_url: str) -> bool:
    """Whether a URL is Slack's own: the token is sent to no other host."""
    host = urlsplit(url).netloc
    if host == urlsplit(base_url).netloc:
        return True
    return url.startswith("https://") and (host == "slack.com" or host.endswith(".slack.com"))


def _is_between(message: Mapping[str, Any], after: str | None, before: str) -> bool:
    ts = float(message["ts"])
    if ts >= float(before):
        return False
    return after is None or ts > float(after)


def _format_entity(entity: re.Match[str], names: Mapping[str, str]) -> str:
    """A mention, a channel, a date or a link as people read it."""
    sign, target, label = entity.groups()
    match sign:
        case "@":
            return f"@{names.get(target, label or target)}"
        case "#":
            return f"#{label or target}"
        case "!" if target.startswith("date^"):
            return label or target
        case "!":
            return f"@{label or target.partition('^')[0]}".replace("@@", "@")
        case _:
            return _format_link(target, label)


def _format_link(url: str, label: str | None) -> str:
    if not label or label == url:
        return url
    if url.startswith(("mailto:", "tel:")):
        return label
    if label.strip("/") == url.partition("://")[2].strip("/"):
        return url
    return f"{label} ({url})"
