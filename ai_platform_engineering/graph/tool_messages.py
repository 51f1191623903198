"""Tool calls as events tell them: the tools that are special, and what a result says to people."""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import ToolMessage

from ai_platform_engineering.core.events import ToolOutcome
from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL, UNKNOWN_AGENT

PREVIEW_CHARS = 4000
PLAIN = "plain"  # in what a result carries beside its text: the text without what only a model is told


def called_name(name: str, arguments: Mapping[str, Any]) -> str:
    """The tool, or the agent when the call delegates."""
    if name == DELEGATION_TOOL:
        return str(arguments.get("subagent_type") or UNKNOWN_AGENT)
    return name


def outcome_fields(message: ToolMessage, *, delegates: bool) -> dict[str, Any]:
    """The outcome of a call for its last event."""
    outcome: ToolOutcome = message.additional_kwargs.get("outcome") or (
        "error" if message.status == "error" else "ok"
    )
    return {
        "outcome": outcome,
        "error": None if outcome == "ok" else _opening(message.text, 500),
        "result": None
        if delegates
        else _opening(message.text, PREVIEW_CHARS),  # what an agent said has been delivered as its text
    }


def plain_result(message: ToolMessage) -> str:
    """What a call gave, for whoever is no model."""
    return str(message.additional_kwargs.get(PLAIN) or message.text)


def _opening(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}…"
