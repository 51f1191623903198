"""The words on the wire: what a foreign client shows a person. Written here, never read back."""

import re
from collections.abc import Sequence

from ai_platform_engineering.core.events import SUPERVISOR, Citation, PlanUpdated, StepStatus, ToolFinished, ToolStarted

_WORD = re.compile(r"(^|[_\-\s])([a-z])")
_MARKS: dict[StepStatus, str] = {"pending": "⏳", "in_progress": "🔄", "completed": "✅", "failed": "❌", "skipped": "⏭️"}


def title_form(name: str) -> str:
    """`version_service__version` as `Version_Service__Version`."""
    return _WORD.sub(lambda found: found[1] + found[2].upper(), name)


def tool_started(event: ToolStarted) -> str:
    what = f"Calling Agent {title_form(event.tool)}..." if event.delegates else f"Calling tool: {title_form(event.tool)}"
    return f"🔧 {title_form(event.agent)}: {what}\n"


def tool_finished(event: ToolFinished) -> str:
    mark, verb = ("✅", "completed") if event.outcome == "ok" else ("❌", "failed")
    what = title_form(event.tool) if event.delegates else f"Tool {title_form(event.tool)}"
    return f"{mark} {title_form(event.agent)}: {what} {verb}\n"


def plan(event: PlanUpdated) -> str:
    lines = [f"{_MARKS[step.status]} {_tag(step.agent)}{step.title}" for step in event.steps]
    return "\n".join([f"⟦🎯 Execution Plan: {event.title}⟧", *lines]) + "\n"


def sources(citations: Sequence[Citation]) -> str:
    """The sources of an answer, by their numbers."""
    lines = [f"[{number}] {one.title}{f' <{one.url}>' if one.url else ''}" for number, one in enumerate(citations, 1)]
    return "\n".join(["Sources:", *lines]) if lines else ""


def _tag(agent: str) -> str:
    return "" if agent in ("", SUPERVISOR) else f"[{title_form(agent)}] "
