"""`caipe show`: a run afterwards, with plan, tool calls, arguments, durations, tokens and answer."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.core.display_text import reveal_json
from ai_platform_engineering.core.events import StoredEvent, Usage
from ai_platform_engineering.core.transcript import ToolCallView, Transcript, fold
from ai_platform_engineering.terminal.call_times import CallTimes
from ai_platform_engineering.terminal.notice_lines import render_notice
from ai_platform_engineering.terminal.screen import print_markdown, print_plain, sanitize_text
from ai_platform_engineering.terminal.tool_lines import call_style, find_depth, render_call, render_failure
from ai_platform_engineering.terminal.turn_view import render_plan

_MAX_ARGUMENT_CHARS = 400


def show_run(
    console: Console, items: Sequence[StoredEvent], *, results: bool = False, with_answer: bool = True
) -> None:
    """Prints the run of the events; with results also what the tools returned."""
    transcript = fold(item.event for item in items)
    _print_header(console, transcript, items)
    if transcript.plan is not None and transcript.plan.steps:
        steps = render_plan(transcript.plan, max_steps=len(transcript.plan.steps))
        _print(console, "\n".join(line.plain for line in steps))
    times = CallTimes()
    for item in items:
        times.note(item.event, item.stored_at.timestamp())
    for call in transcript.calls:
        _print_call(console, call, transcript.calls, times.duration(call.call_id), results=results)
    for notice in transcript.notices:
        _print(console, render_notice(notice), "yellow")
    if transcript.error:
        _print(console, transcript.error, "red")
    text = transcript.answer or transcript.partial
    if text and with_answer:
        print_plain(console, "")
        print_markdown(console, text)
    if transcript.citations:
        _print(console, notification_text.format_sources(transcript.citations), "dim")


def _print_header(console: Console, transcript: Transcript, items: Sequence[StoredEvent]) -> None:
    duration = "0 s"
    if items:
        seconds = (items[-1].stored_at - items[0].stored_at).total_seconds()
        duration = f"{seconds:.1f} s"
    tokens = ""
    if transcript.usage:
        tokens = f", {_describe_usage(transcript.usage)}"
    trace_id = transcript.trace_id or "-"
    _print(console, f"{transcript.state}, {duration}{tokens}, trace {trace_id}", "bold")


def _describe_usage(usage: Usage) -> str:
    cached = f" ({usage.cache_read_tokens} cached)" if usage.cache_read_tokens else ""
    return f"{usage.input_tokens} tokens in{cached}, {usage.output_tokens} out"


def _print_call(
    console: Console,
    call: ToolCallView,
    calls: Sequence[ToolCallView],
    seconds: float | None,
    *,
    results: bool,
) -> None:
    named_call = replace(call, arguments={})  # the arguments stand below, at length
    _print(console, render_call(named_call, calls, seconds), call_style(call))
    indent = "  " * (find_depth(call, calls) + 1)
    if call.arguments:
        arguments = reveal_json(call.arguments)
        if len(arguments) > _MAX_ARGUMENT_CHARS:
            arguments = f"{arguments[:_MAX_ARGUMENT_CHARS]}…"
        _print(console, f"{indent}{arguments}", "dim")
    failure = render_failure(call, calls)
    if failure:
        _print(console, failure, "red")
    elif results and call.result:
        _print(console, f"{indent}{call.result}", "dim")


def _print(console: Console, text: str, style: str = "") -> None:
    print_plain(console, sanitize_text(text).rstrip("\n"), style)
