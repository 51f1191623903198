"""One turn of a conversation, drawn while it happens."""

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.core.events import (
    AnyEvent,
    InputRequested,
    Notice,
    TextDelta,
    TextDiscarded,
    TextEnded,
    ToolFinished,
    ToolStarted,
)
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.terminal.screen import LiveScreen

_MAX_PLAN_LINES = 9  # the title and eight steps


class TurnView:
    """Draws events; the plan stands below the text until the answer begins or the turn ends."""

    def __init__(self, screen: LiveScreen) -> None:
        self.transcript = Transcript()
        self._screen = screen
        self._plan_printed = False

    def apply_silently(self, event: AnyEvent) -> None:
        """Applies an event from before the turn: it was drawn then."""
        self.transcript = self.transcript.apply(event)

    def show(self, event: AnyEvent) -> None:
        """Applies an event of the turn and draws it."""
        self.transcript = self.transcript.apply(event)
        match event:
            case TextDelta(parent_call=None):
                if event.offset == 0 and self.transcript.answering:
                    self._print_plan()
                self._screen.write(event.text)
            case TextEnded(parent_call=None):
                self._screen.end_text()
            case TextDiscarded(parent_call=None):
                self._screen.discard_text()
            case ToolStarted():
                self._screen.print_line(notification_text.tool_started(event))
            case ToolFinished():
                self._print_finished_tool(event)
            case Notice(text=text):
                self._screen.print_line(f"({text})", style="yellow")
            case InputRequested():
                self._screen.print_line("Input is needed.", style="yellow")
            case _:
                pass
        self._screen.set_status(self._render_plan_status())

    def finish(self) -> None:
        """Prints how the turn ended, unless the answer did."""
        self._print_plan()
        match self.transcript.state:
            case "failed":
                self._screen.print_line(self.transcript.error or "There was no answer.", style="red")
            case "canceled":
                self._screen.print_line("Stopped.", style="yellow")
            case "input-required":
                self._screen.print_line(self.transcript.waiting_for, style="yellow")
            case "completed" if self.transcript.citations:
                sources = notification_text.format_sources(self.transcript.citations)
                self._screen.print_line(sources, style="dim")
            case _:
                pass

    def _print_finished_tool(self, event: ToolFinished) -> None:
        style = "dim" if event.outcome == "ok" else "red"
        self._screen.print_line(notification_text.tool_finished(event), style=style)
        if event.error:
            self._screen.print_line(f"   {event.error}", style="red")

    def _print_plan(self) -> None:
        if self.transcript.plan is not None and not self._plan_printed:
            self._plan_printed = True
            self._screen.print_line(notification_text.plan(self.transcript.plan.to_event()))

    def _render_plan_status(self) -> str:
        """The beginning of the plan, while it was not printed for good."""
        if self._plan_printed or self.transcript.plan is None:
            return ""
        lines = notification_text.plan(self.transcript.plan.to_event()).splitlines()
        if len(lines) > _MAX_PLAN_LINES:
            lines = [*lines[:_MAX_PLAN_LINES], "…"]
        return "\n".join(lines)
