"""Tool calls and delegations as lines of a terminal: real names, arguments that matter, and durations."""

import json
from collections.abc import Iterable, Mapping

from ai_platform_engineering.core.display_text import remove_controls
from ai_platform_engineering.core.events import SUPERVISOR
from ai_platform_engineering.core.transcript import ToolCallView
from ai_platform_engineering.terminal.durations import format_seconds

_MAX_VALUE_CHARS = 60
_MAX_ARGUMENTS_CHARS = 160
_MAX_DEPTH = 6
MARKS = {"ok": "✓", "error": "✗", "unknown": "?", None: "→"}
_STYLES = {"ok": "dim", "error": "red", "unknown": "yellow", None: "dim"}


def call_style(call: ToolCallView) -> str:
    """The style of a call's line."""
    return _STYLES[call.outcome]


def render_call(call: ToolCallView, calls: Iterable[ToolCallView], seconds: float | None) -> str:
    """The call on one line, indented below the delegation it was made in."""
    parts = [describe_call(call, with_task=_shares_agent(call, calls))]
    if call.outcome == "unknown":
        parts.append("it is unknown whether it took effect")
    if seconds is not None:
        parts.append(format_seconds(seconds))
    indent = "  " * find_depth(call, calls)
    return f"{indent}{MARKS[call.outcome]} {' · '.join(parts)}"


def render_failure(call: ToolCallView, calls: Iterable[ToolCallView]) -> str:
    """Why the call failed, below its line; empty if it did not."""
    if call.outcome != "error":
        return ""
    reason = " ".join(remove_controls(call.error or call.result or "no reason given").split())
    indent = "  " * find_depth(call, calls)
    return f"{indent}  {reason}"


def describe_call(call: ToolCallView, *, with_task: bool = False) -> str:
    """The agent, the tool and its arguments; a delegation is the agent, and its task while it runs.

    `with_task`: name the task of a delegation that has ended, too.
    """
    if call.delegates:
        task = call.arguments.get("description")
        is_named = call.outcome is None or with_task
        if is_named and isinstance(task, str) and task.strip():
            return f"{_clean(call.tool)}: {_shorten(task, _MAX_ARGUMENTS_CHARS)}"
        return _clean(call.tool)
    name = _clean(call.tool)
    if call.agent != SUPERVISOR:
        name = f"{_clean(call.agent)} · {name}"
    arguments = describe_arguments(call.arguments)
    return f"{name} {arguments}" if arguments else name


def _shares_agent(call: ToolCallView, calls: Iterable[ToolCallView]) -> bool:
    """Whether the run delegates to this agent more than once, so that its name alone says too little."""
    if not call.delegates:
        return False
    return sum(other.delegates and other.tool == call.tool for other in calls) > 1


def describe_arguments(arguments: Mapping[str, object]) -> str:
    """The arguments as `name=value`; long ones are shortened, and whole in `caipe show`."""
    pairs: list[str] = []
    for name, value in arguments.items():
        if value is None or value == "" or value == [] or value == {}:
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        short_text = _shorten(text, _MAX_VALUE_CHARS)
        if " " in short_text:
            short_text = f'"{short_text}"'
        pairs.append(f"{_clean(name)}={short_text}")
    return _shorten(" ".join(pairs), _MAX_ARGUMENTS_CHARS)


def find_depth(call: ToolCallView, calls: Iterable[ToolCallView]) -> int:
    """How many delegations the call is nested in."""
    parents = {candidate.call_id: candidate.parent_call for candidate in calls}
    depth = 0
    parent = call.parent_call
    while parent is not None and depth < _MAX_DEPTH:
        depth += 1
        parent = parents.get(parent)
    return depth


def _shorten(text: str, limit: int) -> str:
    line = _clean(text)
    if len(line) <= limit:
        return line
    return f"{line[: limit - 1]}…"


def _clean(text: str) -> str:
    return " ".join(remove_controls(text).split())
