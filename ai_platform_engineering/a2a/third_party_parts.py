"""Texts in the parts of a third-party agent's messages: text, names of files, data as JSON."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from a2a.types import Message, Part, Role
from google.protobuf.json_format import MessageToDict

from ai_platform_engineering.a2a.protobuf_values import restore_integers
from ai_platform_engineering.a2a.third_party_tools import parse_tool_notifications
from ai_platform_engineering.core.events import clean_text

_MAX_FILE_NAME_LENGTH = 200


def read_text(parts: Iterable[Part], *, is_start: bool = True) -> str:
    """The text of the parts; a file is named, never opened. `is_start`: no text stands before the parts."""
    texts: list[str] = []
    for part in parts:
        match part.WhichOneof("content"):
            case "text":
                texts.append(clean_text(part.text))
            case "raw" | "url":
                line = f"(file {_describe_file(part)})\n"
                if not is_start or any(texts):
                    line = f"\n{line}"
                texts.append(clean_text(line))
            case _:
                pass
    return "".join(texts)


def read_data(parts: Iterable[Part]) -> list[str]:
    """The data parts as JSON texts."""
    texts: list[str] = []
    for part in parts:
        if part.WhichOneof("content") == "data":
            try:
                value: Any = restore_integers(MessageToDict(part.data))
                texts.append(clean_text(json.dumps(value, ensure_ascii=False, sort_keys=True)))
            except (ValueError, TypeError, RecursionError):  # protobuf holds numbers that JSON does not know
                continue
    return texts


def read_text_or_data(parts: Sequence[Part]) -> str:
    """The text of the parts, or their data when there is none."""
    text = read_text(parts)
    if text.strip():
        return text
    return "\n".join(read_data(parts))


def find_last_agent_text(history: Sequence[Message]) -> str:
    """The agent's last text after the user's last message; older servers store an answer nowhere else."""
    last_text = ""
    for message in history:
        text = read_text(message.parts)
        if message.role == Role.ROLE_USER:
            last_text = ""
        elif text.strip() and not _is_tool_notification(text):
            last_text = text
    return last_text


def remove_whitespace(text: str) -> str:
    return "".join(text.split())


def _is_tool_notification(text: str) -> bool:
    return any(notification.certain for notification in parse_tool_notifications(text))


def _describe_file(part: Part) -> str:
    description = _shorten(part.filename or "file")
    if part.media_type:
        description += f", {_shorten(part.media_type)}"
    return description


def _shorten(name: str) -> str:
    return " ".join(name.split())[:_MAX_FILE_NAME_LENGTH]
