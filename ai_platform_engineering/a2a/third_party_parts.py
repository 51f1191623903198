"""What the parts of a foreign agent's messages say: words, names of files, data as JSON, and lines that tell of tools."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from a2a.types import Artifact, Message, Part, Role
from google.protobuf.json_format import MessageToDict

from ai_platform_engineering.a2a.protobuf_values import restore_integers
from ai_platform_engineering.core.events import clean_text

_WHO = r"(?:[^\s:*][^:*\n]{0,80}:\s+)??"
_START = re.compile(
    rf"🔧\s*{_WHO}Calling (?:tool:\s*(?P<tool>\S.{{0,200}}?)|(?:Agent )?(?P<plain>\S{{1,200}}?))\s*(?:\.{{2,}}|…)?"
)
_END = re.compile(
    rf"(?P<mark>[✅❌])\s*{_WHO}(?:(?P<said>Tool )(?P<tool>\S.{{0,200}}?)|(?P<plain>\S{{1,200}})) (?P<verb>completed|failed)\b(?P<why>.*)"
)


@dataclass(frozen=True, slots=True)
class ToolNotification:
    """A line that tells of a tool: its start, or its end."""

    tool: str
    ended: bool = False
    failed: bool = False
    why: str = ""
    certain: bool = True  # "✅ Sync completed" may also be plain speech


def read_text(parts: Iterable[Part], *, fresh: bool = True) -> str:
    """The text of the parts; a file is named, never opened. `fresh`: no text stands before it."""
    written: list[str] = []
    for part in parts:
        match part.WhichOneof("content"):
            case "text":
                written.append(clean_text(part.text))
            case "raw" | "url":
                named = ", ".join(
                    " ".join(one.split())[:200] for one in (part.filename or "file", part.media_type) if one
                )
                written.append(
                    clean_text(f"(file {named})\n" if fresh and not any(written) else f"\n(file {named})\n")
                )
            case _:
                pass
    return "".join(written)


def data_texts(parts: Iterable[Part]) -> list[str]:
    """The data parts as JSON."""
    found: list[str] = []
    for part in parts:
        if part.WhichOneof("content") == "data":
            try:
                value: Any = restore_integers(MessageToDict(part.data))
                found.append(clean_text(json.dumps(value, ensure_ascii=False, sort_keys=True)))
            except (ValueError, TypeError, RecursionError):  # protobuf holds numbers that JSON does not know
                continue
    return found


def read_text_or_data(parts: Sequence[Part]) -> str:
    """The words, or the data when there are none."""
    text = read_text(parts)
    if text.strip():
        return text
    return "\n".join(data_texts(parts))


def find_last_agent_text(history: Sequence[Message]) -> str:
    """What the agent said last after the user's last message; older servers keep a response nowhere else."""
    said = ""
    for message in history:
        text = read_text(message.parts)
        if message.role == Role.ROLE_USER:
            said = ""
        elif text.strip() and not any(call.certain for call in parse_tool_notifications(text)):
            said = text
    return said


def parse_tool_notifications(text: str) -> list[ToolNotification]:
    """The calls that a text tells of; none if any line of it says something else."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    calls = [call for line in lines if (call := _call(line)) is not None]
    if len(calls) == len(lines):
        return calls
    return []


def _call(line: str) -> ToolNotification | None:
    if found := _START.fullmatch(line):
        return ToolNotification(_bare(found["tool"] or found["plain"]))
    if found := _END.fullmatch(line):
        failed = found["mark"] == "❌" or found["verb"] == "failed"
        tool = _bare(found["tool"] or found["plain"])
        return ToolNotification(
            tool, ended=True, failed=failed, why=found["why"].strip(" :.-–"), certain=bool(found["said"])
        )
    return None


def _bare(name: str) -> str:
    return name.replace("**", "").strip(" `.…") or "tool"


def tool_name(artifact: Artifact) -> str:
    given = (
        artifact.metadata.fields["tool_name"].string_value if "tool_name" in artifact.metadata.fields else ""
    )
    if given:
        return clean_text(_bare(given)[:200])
    return ""


def failed_status(artifact: Artifact) -> bool:
    return (
        "status" in artifact.metadata.fields and artifact.metadata.fields["status"].string_value == "failed"
    )


def remove_whitespace(text: str) -> str:
    return "".join(text.split())
