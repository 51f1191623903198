"""Writes the events of a run as plain lines while they come: where stderr is a file or a pipe."""

from typing import TextIO

from ai_platform_engineering.core.events import (
    AnyEvent,
    Notice,
    PlanUpdated,
    TextDelta,
    TextDiscarded,
    TextEnded,
    ToolFinished,
    ToolStarted,
)
from ai_platform_engineering.core.plan import Plan
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.terminal.call_times import CallTimes
from ai_platform_engineering.terminal.notice_lines import render_discard, render_notice
from ai_platform_engineering.terminal.screen import sanitize_text
from ai_platform_engineering.terminal.tool_lines import render_call, render_failure
from ai_platform_engineering.terminal.turn_view import render_plan


class ProgressLines:
    """Writes text as it comes, and a line for each call, step and notice."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._message_id = ""
        self._column = 0
        self._step_states: dict[str, str] = {}
        self._times = CallTimes()

    def show(self, event: AnyEvent, transcript: Transcript, at: float | None) -> None:
        """Writes the event; `transcript` is the run's after it, `at` when it happened."""
        self._times.note(event, at)
        match event:
            case TextDelta(parent_call=None):
                if event.message_id != self._message_id:
                    self.end_line()
                    self._message_id = event.message_id
                self._write(event.text)
            case TextEnded(parent_call=None):
                self.end_line()
            case TextDiscarded(parent_call=None):
                self.write_line(render_discard(event))
            case ToolStarted() | ToolFinished():
                self._write_call(event.call_id, transcript)
            case PlanUpdated():
                self._write_plan(event)
            case Notice():
                self.write_line(render_notice(event))
            case _:
                pass

    def end_line(self) -> None:
        if self._column:
            self._write("\n")
        self._column = 0
        self._message_id = ""

    def write_line(self, text: str) -> None:
        self.end_line()
        self._write(text.rstrip("\n") + "\n")
        self._column = 0

    def _write_call(self, call_id: str, transcript: Transcript) -> None:
        for call in transcript.calls:
            if call.call_id == call_id:
                self.write_line(render_call(call, transcript.calls, self._times.duration(call_id)))
                failure = render_failure(call, transcript.calls)
                if failure:
                    self.write_line(failure)

    def _write_plan(self, event: PlanUpdated) -> None:
        """Writes the whole plan when its steps are new, else only the steps that changed."""
        states = {step.step_id: f"{step.title}\n{step.status}" for step in event.steps}
        plan = Plan(title=event.title, steps=event.steps)
        heading, *lines = [line.plain for line in render_plan(plan, max_steps=len(event.steps))]
        if states.keys() != self._step_states.keys():
            self.write_line("\n".join([heading, *lines]))
        else:
            for line, (step_id, state) in zip(lines, states.items(), strict=False):
                if self._step_states[step_id] != state:
                    self.write_line(line)
        self._step_states = states

    def _write(self, text: str) -> None:
        printable = sanitize_text(text)
        self._out.write(printable)
        self._out.flush()
        if printable.endswith("\n"):
            self._column = 0
        else:
            self._column += len(printable)
