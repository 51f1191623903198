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

_PLAN_LINES = 8


class TurnView:
    """Draws events; the plan and what runs stand below the text until the turn is over."""

    def __init__(self, screen: LiveScreen) -> None:
        self._screen, self.transcript = screen, Transcript()
        self._plan_printed = False

    def apply_silently(self, event: AnyEvent) -> None:
        """What was there before the turn: known, and not drawn again."""
        self.transcript = self.transcript.apply(event)

    def show(self, event: AnyEvent) -> None:
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
                self._screen.print_line(
                    notification_text.tool_finished(event), style="dim" if event.outcome == "ok" else "red"
                )
                if event.error:
                    self._screen.print_line(f"   {event.error}", style="red")
            case Notice(text=text):
                self._screen.print_line(f"({text})", style="yellow")
            case InputRequested():
                self._screen.print_line("Input is needed.", style="yellow")
            case _:
                pass
        self._screen.set_status("" if self._plan_printed else self._plan())

    def finish(self) -> None:
        """Says how the turn ended, unless the answer did."""
        self._print_plan()
        match self.transcript.state:
            case "failed":
                self._screen.print_line(self.transcript.error or "There was no answer.", style="red")
            case "canceled":
                self._screen.print_line("Stopped.", style="yellow")
            case "input-required":
                self._screen.print_line(self.transcript.waiting_for, style="yellow")
            case "completed" if self.transcript.citations:
                self._screen.print_line(
                    notification_text.format_sources(self.transcript.citations), style="dim"
                )
            case _:
                pass

    def _print_plan(self) -> None:
        if self.transcript.plan is not None and not self._plan_printed:
            self._plan_printed = True
            self._screen.print_line(notification_text.plan(self.transcript.plan.to_event()))

    def _plan(self) -> str:
        if self.transcript.plan is None:
            return ""
        lines = notification_text.plan(self.transcript.plan.to_event()).splitlines()
        return "\n".join(lines[: _PLAN_LINES + 1] + (["…"] if len(lines) > _PLAN_LINES + 1 else []))
