"""Tool messages of LangChain as events tell them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import ToolMessage

from ai_platform_engineering.core.events import ToolOutcome
from ai_platform_engineering.core.message_metadata import ToolResultNote
from ai_platform_engineering.core.tool_traits import UNKNOWN_AGENT, ToolTraits

PREVIEW_CHARS = 4000
ERROR_CHARS = 500


@dataclass(frozen=True, slots=True)
class CallResult:
    """How a call ended, as `ToolFinished` says it."""

    outcome: ToolOutcome
    error: str | None
    result: str | None


def called_name(name: str, arguments: Mapping[str, Any]) -> str:
    """The tool, or the agent when the call delegates."""
    if ToolTraits.from_name(name).delegates:
        return str(arguments.get("subagent_type") or UNKNOWN_AGENT)
    return name


def read_result(message: ToolMessage, *, delegates: bool) -> CallResult:
    """The outcome of a call; a delegation has no result text, since the agent's answer was delivered as its
    text."""
    outcome = ToolResultNote.of(message).outcome or _status_outcome(message)
    error = None
    if outcome != "ok":
        error = _preview(message.text, ERROR_CHARS)
    result = None
    if not delegates:
        result = _preview(message.text, PREVIEW_CHARS)
    return CallResult(outcome, error, result)


def plain_result(message: ToolMessage) -> str:
    """The result of a call for a reader that is not a model."""
    return ToolResultNote.of(message).plain_text or message.text


def _status_outcome(message: ToolMessage) -> ToolOutcome:
    if message.status == "error":
        return "error"
    return "ok"


def _preview(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}…"
