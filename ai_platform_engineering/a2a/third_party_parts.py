"""Texts in the parts of a third-party agent's messages: text, names of files, data as JSON."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from a2a.types import Message, Part, Role
from google.protobuf.json_format import MessageToDict

from ai_platform_engineering.a2a.protobuf_values import restore_integers
from ai_platform_engineering.a2a.third_party_tools import is_tool_part, parse_tool_notifications
from ai_platform_engineering.core.storable_text import clean_text

_MAX_FILE_NAME_LENGTH = 200


def read_text(parts: Iterable[Part], *, is_start: bool = True) -> str:
    """The text of the parts; a file is named, never opened. `is_start`: no text stands before the parts."""
    texts: list[str] = []
    for part in parts:
        match part.WhichOneof("content"):
            case "text":
                if not _is_reasoning(part):
                    texts.append(clean_text(part.text))
            case "raw" | "url":
                line = f"(file {_describe_file(part)})\n"
                if not is_start or any(texts):
                    line = f"\n{line}"
                texts.append(clean_text(line))
            case _:
                pass
    return "".join(texts)


def has_text(parts: Iterable[Part]) -> bool:
    """Whether a part has text of its own, not only the name of a file."""
    return any(part.text and not _is_reasoning(part) for part in parts)


def read_data(parts: Iterable[Part]) -> list[str]:
    """The data parts as JSON texts, without those that tell of tool calls."""
    texts: list[str] = []
    for part in parts:
        if part.WhichOneof("content") == "data" and not is_tool_part(part):
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


def find_turn(history: Sequence[Message]) -> tuple[list[Message], bool]:
    """The agent's messages after the user's last one, and whether that one is there: else some may lack."""
    turn: list[Message] = []
    is_whole = False
    for message in history:
        if message.role == Role.ROLE_USER:
            turn = []
            is_whole = True
        else:
            turn.append(message)
    return turn, is_whole


def find_last_text(messages: Sequence[Message]) -> str:
    """The last text that tells of no tool; older servers store an answer nowhere else."""
    for message in reversed(messages):
        text = read_text(message.parts)
        if text.strip() and not _is_tool_notification(text):
            return text
    return ""


def remove_whitespace(text: str) -> str:
    return "".join(text.split())


def is_same_text(text: str, other: str) -> bool:
    """Whether the texts differ in whitespace only; around them most often, which costs next to nothing."""
    if text.strip() == other.strip():
        return True
    return remove_whitespace(text) == remove_whitespace(other)


def _is_reasoning(part: Part) -> bool:
    """Whether the part is what a model thought, which nobody is shown: marks of ADK and of Pydantic AI."""
    fields = part.metadata.fields
    if "adk_thought" in fields and fields["adk_thought"].bool_value:
        return True
    return "type" in fields and fields["type"].string_value == "thinking"


def _is_tool_notification(text: str) -> bool:
    return any(notification.certain for notification in parse_tool_notifications(text))


def _describe_file(part: Part) -> str:
    description = _shorten(part.filename or "file")
    if part.media_type:
        description += f", {_shorten(part.media_type)}"
    return description


def _shorten(name: str) -> str:
    return " ".join(name.split())[:_MAX_FILE_NAME_LENGTH]
