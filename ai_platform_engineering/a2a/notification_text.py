"""The words on the wire: what a foreign client shows a person. Written here, never read back."""

import re
from collections.abc import Sequence

from ai_platform_engineering.core.events import (
    SUPERVISOR,
    Citation,
    PlanUpdated,
    StepStatus,
    ToolFinished,
    ToolStarted,
)

_WORD = re.compile(r"(^|[_\-\s])([a-z])")
_MARKS: dict[StepStatus, str] = {
    "pending": "⏳",
    "in_progress": "🔄",
    "completed": "✅",
    "failed": "❌",
    "skipped": "⏭️",
}


def title_case(name: str) -> str:
    """`version_service__version` as `Version_Service__Version`."""
    return _WORD.sub(lambda found: found[1] + found[2].upper(), name)


def tool_started(event: ToolStarted) -> str:
    what = (
        f"Calling Agent {title_case(event.tool)}..."
        if event.delegates
        else f"Calling tool: {title_case(event.tool)}"
    )
    return f"🔧 {title_case(event.agent)}: {what}\n"


def tool_finished(event: ToolFinished) -> str:
    mark, verb = ("✅", "completed") if event.outcome == "ok" else ("❌", "failed")
    what = title_case(event.tool) if event.delegates else f"Tool {title_case(event.tool)}"
    return f"{mark} {title_case(event.agent)}: {what} {verb}\n"


def plan(event: PlanUpdated) -> str:
    lines = [f"{_MARKS[step.status]} {_tag(step.agent)}{step.title}" for step in event.steps]
    return "\n".join([f"⟦🎯 Execution Plan: {event.title}⟧", *lines]) + "\n"


def format_sources(citations: Sequence[Citation]) -> str:
    """The sources of an answer, by their numbers."""
    lines = [
        f"[{number}] {one.title}{f' <{one.url}>' if one.url else ''}"
        for number, one in enumerate(citations, 1)
    ]
    if lines:
        return "\n".join(["Sources:", *lines])
    return ""


def _tag(agent: str) -> str:
    if agent in ("", SUPERVISOR):
        return ""
    return f"[{title_case(agent)}] "
