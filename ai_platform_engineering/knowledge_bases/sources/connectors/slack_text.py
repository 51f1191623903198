"""Messages of Slack as Markdown, and Slack's users by the names under which they ask questions."""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ai_platform_engineering.knowledge_bases.sources.connectors.json_values import (
    read_list,
    read_mapping,
    read_text,
)

_MARKUP = re.compile(r"<([^<>|]+)(?:\|([^<>]*))?>")
_MAX_TITLE_CHARS = 80


@dataclass(frozen=True, slots=True)
class SlackMember:
    """A user of the workspace. `principal`: by which name they ask questions, as the Slack bot has it."""

    name: str
    principal: str


Members = Mapping[str, SlackMember]  # by user id


def read_member(user: Mapping[str, Any], team: str) -> SlackMember:
    profile = read_mapping(user, "profile")
    user_id = read_text(user, "id")
    names = (profile.get("display_name"), profile.get("real_name"), user.get("name"))
    name = next((name for name in names if isinstance(name, str) and name), user_id)
    is_of_team = not user.get("is_stranger") and user.get("team_id") in (None, team)
    mail = read_text(profile, "email").lower()
    if is_of_team and not user.get("is_bot") and mail:
        return SlackMember(name, mail)
    return SlackMember(name, f"slack:{team}:{user_id}")


def parse_timestamp(ts: str) -> datetime | None:
    """The time of a message, which is its id as well: 1700000000.000100."""
    try:
        return datetime.fromtimestamp(float(ts), UTC)
    except (ValueError, OverflowError, OSError):
        return None


def render_message(message: Mapping[str, Any], members: Members) -> str:
    """Who wrote when, then the text, with what bots put into attachments and the names of files."""
    user_id = read_text(message, "user")
    author = read_text(message, "username") or "app"
    if user_id:
        author = user_id
    if user_id in members:
        author = members[user_id].name
    time = parse_timestamp(read_text(message, "ts"))
    when = f"{time:%Y-%m-%d %H:%M} UTC" if time is not None else ""
    texts = [render_text(read_text(message, "text"), members)]
    for attachment in read_list(message, "attachments"):
        texts.append(render_text(read_text(attachment, "text") or read_text(attachment, "fallback"), members))
    for file in read_list(message, "files"):
        texts.append(f"(file: {read_text(file, 'title') or read_text(file, 'name')})")
    body = "\n\n".join(filter(None, texts))
    return f"**{author}** ({when}):\n\n{body}"


def render_text(text: str, members: Members) -> str:
    """Slack's markup as plain text: mentions by name, links with their addresses."""

    def replace(match: re.Match[str]) -> str:
        target, label = match[1], match[2] or ""
        if target.startswith("@"):
            user_id = target[1:]
            name = label
            if user_id in members:
                name = members[user_id].name
            return f"@{name or user_id}"
        if target.startswith("#"):
            return f"#{label or target[1:]}"
        if target.startswith("!"):
            return label or f"@{target[1:].partition('^')[0]}"
        return f"{label} ({target})" if label else target

    return html.unescape(_MARKUP.sub(replace, text)).strip()


def make_title(message: Mapping[str, Any], members: Members) -> str:
    """The first line of a message, cut at a word."""
    text = render_text(read_text(message, "text"), members)
    line = text.split("\n", 1)[0].strip()
    if len(line) > _MAX_TITLE_CHARS:
        line = f"{line[:_MAX_TITLE_CHARS].rpartition(' ')[0] or line[:_MAX_TITLE_CHARS]} ..."
    if line:
        return line
    time = parse_timestamp(read_text(message, "ts"))
    return f"Message of {time:%Y-%m-%d}" if time is not None else "Message"
