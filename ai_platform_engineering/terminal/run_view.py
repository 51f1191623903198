"""`caipe show`: a run afterwards: plan, calls with arguments, timing, tokens, answer."""

import json
from collections.abc import Sequence
from datetime import datetime

from rich.console import Console

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.core.events import StoredEvent, ToolFinished, ToolStarted
from ai_platform_engineering.core.transcript import ToolCallView, Transcript, fold
from ai_platform_engineering.terminal.screen import LiveScreen, sanitize_text

_ARGUMENT_CHARS = 400
_MARKS = {"ok": "✅", "error": "❌", "unknown": "❔", None: "🔄"}


def show_run(console: Console, items: Sequence[StoredEvent], *, results: bool = False) -> None:
    """Prints the run that the events tell of."""
    seen = fold(item.event for item in items)
    _header(console, seen, items)
    if seen.plan is not None:
        _plain(console, notification_text.plan(seen.plan.to_event()))
    times = _times(items)
    for call in seen.calls:
        _call(console, call, _depth(call, seen.calls), times.get(call.call_id), results=results)
    for notice in seen.notices:
        _plain(console, f"({notice.text})", "yellow")
    if seen.error:
        _plain(console, seen.error, "red")
    if text := seen.answer or seen.partial:
        with LiveScreen(console) as screen:
            screen.write(text)
    if seen.citations:
        _plain(console, notification_text.format_sources(seen.citations), "dim")


def _header(console: Console, seen: Transcript, items: Sequence[StoredEvent]) -> None:
    took = f"{(items[-1].stored_at - items[0].stored_at).total_seconds():.1f} s" if items else "0 s"
    tokens = f", {seen.usage.input_tokens} tokens in, {seen.usage.output_tokens} out" if seen.usage else ""
    _plain(console, f"{seen.state}, {took}{tokens}, trace {seen.trace_id or '-'}", "bold")


def _call(console: Console, call: ToolCallView, depth: int, seconds: float | None, *, results: bool) -> None:
    name = (
        f"Agent {notification_text.title_case(call.tool)}"
        if call.delegates
        else notification_text.title_case(call.tool)
    )
    took = f" {seconds:.2f} s" if seconds is not None else ""
    indent = "  " * depth
    _plain(
        console, f"{indent}{_MARKS[call.outcome]} {notification_text.title_case(call.agent)}: {name}{took}"
    )
    if call.arguments:
        given = json.dumps(call.arguments, ensure_ascii=False)
        _plain(
            console,
            f"{indent}   {given[:_ARGUMENT_CHARS]}{'…' if len(given) > _ARGUMENT_CHARS else ''}",
            "dim",
        )
    if call.error:
        _plain(console, f"{indent}   {call.error}", "red")
    elif results and call.result:
        _plain(console, f"{indent}   {call.result}", "dim")


def _times(items: Sequence[StoredEvent]) -> dict[str, float]:
    """How long each call took, in seconds."""
    started: dict[str, datetime] = {}
    took: dict[str, float] = {}
    for item in items:
        if isinstance(item.event, ToolStarted):
            started[item.event.call_id] = item.stored_at
        elif isinstance(item.event, ToolFinished) and item.event.call_id in started:
            took[item.event.call_id] = (item.stored_at - started[item.event.call_id]).total_seconds()
    return took


def _depth(call: ToolCallView, calls: Sequence[ToolCallView]) -> int:
    parents = {one.call_id: one.parent_call for one in calls}
    depth, parent = 0, call.parent_call
    while parent is not None and depth < 10:
        depth, parent = depth + 1, parents.get(parent)
    return depth


def _plain(console: Console, text: str, style: str = "") -> None:
    console.print(sanitize_text(text).rstrip("\n"), style=style, markup=False, highlight=False, emoji=False)
