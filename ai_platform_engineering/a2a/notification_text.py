"""Texts of tool, plan and source notifications, for clients that show text only. Never parsed by us."""

import re
from collections.abc import Sequence

from ai_platform_engineering.core.events import (
    SUPERVISOR,
    Citation,
    PlanUpdated,
    StepStatus,
    ToolFinished,
    ToolStarted,
    number_sources,
)

_WORD_START = re.compile(r"(^|[_\-\s])([a-z])")
_MARKS: dict[StepStatus, str] = {
    "pending": "⏳",
    "in_progress": "🔄",
    "completed": "✅",
    "failed": "❌",
    "skipped": "⏭️",
}


def title_case(name: str) -> str:
    """`version_service__version` as `Version_Service__Version`."""
    return _WORD_START.sub(lambda match: match[1] + match[2].upper(), name)


def tool_started(event: ToolStarted) -> str:
    tool = title_case(event.tool)
    action = f"Calling Agent {tool}..." if event.delegates else f"Calling tool: {tool}"
    return f"🔧 {title_case(event.agent)}: {action}\n"


def tool_finished(event: ToolFinished) -> str:
    tool = title_case(event.tool)
    if not event.delegates:
        tool = f"Tool {tool}"
    if event.outcome == "ok":
        return f"✅ {title_case(event.agent)}: {tool} completed\n"
    return f"❌ {title_case(event.agent)}: {tool} failed\n"


def plan(event: PlanUpdated) -> str:
    lines = [f"{_MARKS[step.status]} {_agent_tag(step.agent)}{step.title}" for step in event.steps]
    return "\n".join([_plan_heading(event.title.strip()), *lines]) + "\n"


def _plan_heading(title: str) -> str:
    if not title:
        return "⟦🎯 Execution Plan⟧"
    return f"⟦🎯 Execution Plan: {title}⟧"


def format_sources(citations: Sequence[Citation]) -> str:
    """The numbered sources of an answer; empty without citations."""
    if not citations:
        return ""
    lines = ["Sources:"]
    for number, citation in number_sources(citations):
        line = f"[{number}] {citation.title}"
        if citation.url:
            line += f" <{citation.url}>"
        lines.append(line)
    return "\n".join(lines)


def _agent_tag(agent: str) -> str:
    if agent in ("", SUPERVISOR):
        return ""
    return f"[{title_case(agent)}] "
