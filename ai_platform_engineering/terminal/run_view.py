"""`caipe show`: a run afterwards, with plan, tool calls, arguments, durations, tokens and answer."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Console

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.core.display_text import reveal_json
from ai_platform_engineering.core.events import StoredEvent, ToolFinished, ToolStarted
from ai_platform_engineering.core.transcript import ToolCallView, Transcript, fold
from ai_platform_engineering.terminal.screen import LiveScreen, print_plain, sanitize_text

_MAX_ARGUMENT_CHARS = 400
_MAX_DEPTH = 10
_MARKS = {"ok": "✅", "error": "❌", "unknown": "❔", None: "🔄"}


def show_run(console: Console, items: Sequence[StoredEvent], *, results: bool = False) -> None:
    """Prints the run of the events; with results also what the tools returned."""
    transcript = fold(item.event for item in items)
    _print_header(console, transcript, items)
    if transcript.plan is not None:
        _print(console, notification_text.plan(transcript.plan.to_event()))
    durations = _measure_calls(items)
    for call in transcript.calls:
        depth = _find_depth(call, transcript.calls)
        _print_call(console, call, depth, durations.get(call.call_id), results=results)
    for notice in transcript.notices:
        _print(console, f"({notice.text})", "yellow")
    if transcript.error:
        _print(console, transcript.error, "red")
    text = transcript.answer or transcript.partial
    if text:
        with LiveScreen(console) as screen:
            screen.write(text)
    if transcript.citations:
        _print(console, notification_text.format_sources(transcript.citations), "dim")


def _print_header(console: Console, transcript: Transcript, items: Sequence[StoredEvent]) -> None:
    duration = "0 s"
    if items:
        seconds = (items[-1].stored_at - items[0].stored_at).total_seconds()
        duration = f"{seconds:.1f} s"
    tokens = ""
    if transcript.usage:
        usage = transcript.usage
        tokens = f", {usage.input_tokens} tokens in, {usage.output_tokens} out"
    trace_id = transcript.trace_id or "-"
    _print(console, f"{transcript.state}, {duration}{tokens}, trace {trace_id}", "bold")


def _print_call(
    console: Console, call: ToolCallView, depth: int, seconds: float | None, *, results: bool
) -> None:
    indent = "  " * depth
    agent = notification_text.title_case(call.agent)
    tool = notification_text.title_case(call.tool)
    if call.delegates:
        tool = f"Agent {tool}"
    duration = f" {seconds:.2f} s" if seconds is not None else ""
    _print(console, f"{indent}{_MARKS[call.outcome]} {agent}: {tool}{duration}")
    if call.arguments:
        arguments = reveal_json(call.arguments)
        if len(arguments) > _MAX_ARGUMENT_CHARS:
            arguments = f"{arguments[:_MAX_ARGUMENT_CHARS]}…"
        _print(console, f"{indent}   {arguments}", "dim")
    if call.error:
        _print(console, f"{indent}   {call.error}", "red")
    elif results and call.result:
        _print(console, f"{indent}   {call.result}", "dim")


def _measure_calls(items: Sequence[StoredEvent]) -> dict[str, float]:
    """The duration of each finished call, in seconds."""
    started_at: dict[str, datetime] = {}
    durations: dict[str, float] = {}
    for item in items:
        if isinstance(item.event, ToolStarted):
            started_at[item.event.call_id] = item.stored_at
        elif isinstance(item.event, ToolFinished) and item.event.call_id in started_at:
            duration = item.stored_at - started_at[item.event.call_id]
            durations[item.event.call_id] = duration.total_seconds()
    return durations


def _find_depth(call: ToolCallView, calls: Sequence[ToolCallView]) -> int:
    """How many calls the call is nested in."""
    parents = {candidate.call_id: candidate.parent_call for candidate in calls}
    depth = 0
    parent = call.parent_call
    while parent is not None and depth < _MAX_DEPTH:
        depth += 1
        parent = parents.get(parent)
    return depth


def _print(console: Console, text: str, style: str = "") -> None:
    print_plain(console, sanitize_text(text).rstrip("\n"), style)
