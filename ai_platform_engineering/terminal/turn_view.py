"""One turn of a conversation, drawn while it happens."""

import time
from collections.abc import Sequence

from rich.text import Text

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.core.events import (
    AnyEvent,
    Notice,
    TextDelta,
    TextDiscarded,
    TextEnded,
    ToolFinished,
    ToolStarted,
)
from ai_platform_engineering.core.plan import Plan
from ai_platform_engineering.core.transcript import ToolCallView, Transcript
from ai_platform_engineering.terminal.activity import Activity
from ai_platform_engineering.terminal.call_times import CallTimes
from ai_platform_engineering.terminal.durations import format_seconds
from ai_platform_engineering.terminal.notice_lines import render_discard, render_notice
from ai_platform_engineering.terminal.pauses import describe_pause
from ai_platform_engineering.terminal.screen import LiveScreen, sanitize_line
from ai_platform_engineering.terminal.tool_lines import call_style, describe_call, render_call, render_failure

_MAX_PLAN_STEPS = 8
_MAX_RUNNING_CALLS = 4
_STEP_MARKS = {"pending": "○", "in_progress": "◐", "completed": "✓", "failed": "✗", "skipped": "–"}
_STEP_STYLES = {"in_progress": "bold", "failed": "red"}


class TurnView:
    """Draws events; what runs, the plan and the activity stand below the text until the turn ends."""

    def __init__(
        self, screen: LiveScreen, activity: Activity, *, model: str = "", shows_answer: bool = True
    ) -> None:
        """`shows_answer`: False where the answer goes somewhere else, and only the way to it is shown."""
        self.transcript = Transcript()
        self._before = Transcript()  # the transcript when the turn began
        self._screen = screen
        self._activity = activity
        self._model = model
        self._shows_answer = shows_answer
        self._times = CallTimes()
        self._shown_texts = set[str]()
        self._offline_told = False
        self._plan_printed = False
        screen.set_status(self._render_status)

    def set_model(self, model: str) -> None:
        """The name of the model that answers."""
        self._model = model
        self._name_activity()

    def hide_offline_notice(self) -> None:
        """Leaves out that no model is configured: it was said before."""
        self._offline_told = True

    def begin_turn(self) -> None:
        """Begins with an empty transcript: the server sends the run from its beginning."""
        self.transcript = Transcript()
        self._before = Transcript()
        self._name_activity()

    def apply_silently(self, event: AnyEvent) -> None:
        """Applies an event from before the turn: it was drawn then."""
        self.transcript = self.transcript.apply(event)
        self._before = self.transcript

    def show(self, event: AnyEvent, at: float | None) -> None:
        """Applies an event of the turn and draws it. `at`: when it happened, on the monotonic clock."""
        self.transcript = self.transcript.apply(event)
        self._times.note(event, at)
        match event:
            case TextDelta(parent_call=None):
                if event.offset == 0 and self.transcript.answering:
                    self._print_plan()
                self._screen.write(event.text)
            case TextEnded(parent_call=None):
                self._end_text(event)
            case TextDiscarded(parent_call=None):
                self._screen.discard_text(render_discard(event))
            case ToolStarted(delegates=True):
                self._print_call(event.call_id)
            case ToolFinished():
                self._print_call(event.call_id)
            case Notice():
                self._print_notice(event)
            case _:
                pass
        self._name_activity()

    def finish(self) -> None:
        """Prints the end of the turn, as far as the answer has not said it."""
        match self.transcript.state:
            case "completed":
                self._finish_answer()
            case "failed":
                self._print_plan()
                self._screen.print_line(self.transcript.error or "There was no answer.", style="red")
            case "canceled":
                self._print_plan()
                self._screen.print_line("Stopped.", style="yellow")
            case _:
                self._screen.end_text()
                reply = describe_pause(self._before, self.transcript)
                if reply:
                    self._screen.print_line(reply, style="yellow")

    def _end_text(self, event: TextEnded) -> None:
        if not self._shows_answer and event.role == "answer":
            self._screen.drop_text()
            return
        for span in self.transcript.spans:
            if span.message_id == event.message_id:
                self._shown_texts.add(span.text.strip())
        self._screen.end_text()

    def _finish_answer(self) -> None:
        plan = self.transcript.plan
        if plan is not None and plan.open_steps():
            self._print_plan()  # what was not done is to be seen; the rest is in `caipe show`
        if not self._shows_answer:
            self._screen.drop_text()
            return
        answer = (self.transcript.answer or "").strip()
        if answer not in self._shown_texts:
            self._screen.end_text()
            self._screen.write(answer)
        self._screen.end_text()
        if self.transcript.citations:
            self._screen.print_line(notification_text.format_sources(self.transcript.citations))

    def _print_notice(self, notice: Notice) -> None:
        if notice.code == "offline_model":
            if self._offline_told:
                return
            self._offline_told = True
        self._screen.print_line(render_notice(notice), style="yellow")

    def _print_call(self, call_id: str) -> None:
        calls = self.transcript.calls
        for call in calls:
            if call.call_id == call_id:
                seconds = self._times.duration(call_id)
                self._screen.print_line(render_call(call, calls, seconds), style=call_style(call))
                failure = render_failure(call, calls)
                if failure:
                    self._screen.print_line(failure, style="red")

    def _print_plan(self) -> None:
        """Prints the plan for good, once."""
        plan = self.transcript.plan
        if plan is not None and plan.steps and not self._plan_printed:
            self._plan_printed = True
            for line in render_plan(plan, max_steps=len(plan.steps)):
                self._screen.print_line(line.plain, style=str(line.style))

    # --- what stands below the text -----------------------------------------------------------------------

    def _name_activity(self) -> None:
        if self.transcript.state == "submitted":
            verb = "Waiting"
        elif self.transcript.unfinished_text():
            verb = "Writing"
        elif self.transcript.running:
            verb = "Working"
        else:
            verb = "Thinking"
        self._activity.set_label(f"{verb} · {self._model}" if self._model else verb)

    def _render_status(self) -> Sequence[Text]:
        lines: list[Text] = []
        plan = self.transcript.plan
        if plan is not None and plan.steps and not self._plan_printed:
            lines += render_plan(plan)
        for call in self._innermost_calls()[:_MAX_RUNNING_CALLS]:
            lines.append(Text(self._describe_running(call), style="dim"))
        lines.append(self._activity.render(self._screen.width))
        return lines

    def _innermost_calls(self) -> list[ToolCallView]:
        """The running calls that no other running call was made in."""
        running = self.transcript.running
        outer_ids = {call.parent_call for call in running}
        return [call for call in running if call.call_id not in outer_ids]

    def _describe_running(self, call: ToolCallView) -> str:
        parts = [describe_call(call)]
        if call.progress.strip():
            parts.append(sanitize_line(call.progress))
        elapsed = self._times.elapsed(call.call_id, time.monotonic())
        if elapsed is not None:
            parts.append(format_seconds(elapsed))
        return f"  {' · '.join(parts)}"


def render_plan(plan: Plan, max_steps: int = _MAX_PLAN_STEPS) -> list[Text]:
    """The plan as lines; of a long one the steps around the one that is worked on."""
    steps = list(plan.steps)
    current = next((number for number, step in enumerate(steps) if step.status == "in_progress"), 0)
    first = max(0, min(current - max_steps // 2, len(steps) - max_steps))
    shown_steps = steps[first : first + max_steps]
    done_count = sum(step.status in ("completed", "skipped") for step in steps)
    title = sanitize_line(plan.title) or "Plan"
    lines = [Text(f"{title} ({done_count} of {len(steps)})", style="bold")]
    for step in shown_steps:
        agent = f"{sanitize_line(step.agent)}: " if step.agent not in ("", "supervisor") else ""
        text = f"  {_STEP_MARKS[step.status]} {agent}{sanitize_line(step.title)}"
        lines.append(Text(text, style=_STEP_STYLES.get(step.status, "dim")))
    hidden_count = len(steps) - len(shown_steps)
    if hidden_count:
        lines.append(Text(f"  … {hidden_count} more", style="dim"))
    return lines
