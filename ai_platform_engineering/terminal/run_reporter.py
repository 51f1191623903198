"""What a run says while it happens, on stderr, and how a command that showed it ends."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TextIO

import httpx

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.a2a.client import ClientConversation, Unreachable
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import (
    AnyEvent,
    InputRequested,
    Notice,
    PlanUpdated,
    TextDelta,
    TextDiscarded,
    TextEnded,
    ToolFinished,
    ToolStarted,
)
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.terminal.request_text import render_request
from ai_platform_engineering.terminal.screen import sanitize_text

OK = 0
FAILED = 1
UNREACHABLE = 3
INPUT_REQUIRED = 4
TIMED_OUT = 124
INTERRUPTED = 130


ServerContext = AbstractAsyncContextManager[str]


class RunReporter:
    """Events as they come and the end as an exit code: the answer on stdout, all else on stderr, or one event per line on stdout."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json, self._progress = as_json, _Progress(sys.stderr)

    async def show_events(self, events: AsyncIterator[AnyEvent], talk: ClientConversation) -> Transcript:
        """Shows what comes of a message; what the task had come to before is only taken in."""
        view = Transcript()
        async for event in events:
            view = view.apply(event)
            if talk.seq > talk.seq_at_send:
                self.show_event(event)
        return view

    def show_event(self, event: AnyEvent) -> None:
        if self._as_json:
            print(_line(event), flush=True)
        else:
            self._progress.show(event)

    def print_result(self, view: Transcript, talk: ClientConversation) -> int:
        self._progress.end_line()
        match view.state:
            case "completed":
                # On a terminal the answer has just been written, live; anywhere else stdout gets it now, and nothing but it.
                if not self._as_json and not (
                    self._progress.on_screen and self._progress.written == view.answer
                ):
                    print(sanitize_text(view.answer or ""), flush=True)
                if not self._as_json and view.citations:
                    print(f"\n{sanitize_text(notification_text.format_sources(view.citations))}", flush=True)
                return OK
            case "input-required":
                for request in view.requests:
                    self.print_message(render_request(request), INPUT_REQUIRED)
                return self.print_message(
                    f"{view.waiting_for} (task {talk.task_id}, context {talk.context_id})", INPUT_REQUIRED
                )
            case "canceled":
                return self.print_message("The task was stopped.", INTERRUPTED)
            case _:
                return self.print_message(view.error or "There was no answer.", FAILED)

    def report_error(self, error: CaipeError) -> int:
        """The end when the server did not do what it was asked."""
        if isinstance(error, Unreachable):
            return self.print_message(
                f"{error} Is the server running? Start it with: caipe serve", UNREACHABLE
            )
        return self.print_message(str(error), FAILED)

    def print_message(self, text: str, code: int) -> int:
        self._progress.end_line()
        print(sanitize_text(text), file=sys.stderr, flush=True)
        return code


class _Progress:
    """Draws what happens, as it happens, on stderr."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._message = ""
        self._column = 0
        self.written = ""  # the last text, as far as it was shown
        self._plan: dict[str, str] = {}

    @property
    def on_screen(self) -> bool:
        """Progress and answer go to the same terminal."""
        return self._out.isatty() and sys.stdout.isatty()

    def show(self, event: AnyEvent) -> None:
        match event:
            case TextDelta(parent_call=None):
                if event.message_id != self._message:
                    self.end_line()
                    self._message, self.written = event.message_id, ""
                self.written += event.text
                self._write(event.text)
            case TextEnded(parent_call=None):
                self.end_line()
            case TextDiscarded(parent_call=None):
                self.written = ""
                self._line("(starting that again)")
            case ToolStarted():
                self._line(notification_text.tool_started(event))
            case ToolFinished():
                self._line(notification_text.tool_finished(event))
            case PlanUpdated():
                self._show_plan(event)
            case Notice(text=text):
                self._line(f"({text})")
            case InputRequested():
                self._line("Input is needed.")
            case _:
                pass

    def _show_plan(self, event: PlanUpdated) -> None:
        """The whole plan when its steps are new, else only what changed."""
        states = {step.step_id: f"{step.title}\n{step.status}" for step in event.steps}
        heading, *lines = notification_text.plan(event).splitlines()
        if states.keys() != self._plan.keys():
            self._line("\n".join([heading, *lines]))
        for line, (step_id, state) in zip(lines, states.items(), strict=False):
            if step_id in self._plan and self._plan[step_id] != state and states.keys() == self._plan.keys():
                self._line(line)
        self._plan = states

    def end_line(self) -> None:
        if self._column:
            self._write("\n")
        self._column, self._message = 0, ""

    def _line(self, text: str) -> None:
        self.end_line()
        self._write(text.rstrip("\n") + "\n")
        self._column = 0

    def _write(self, text: str) -> None:
        shown = sanitize_text(text)
        self._out.write(shown)
        self._out.flush()
        self._column = 0 if shown.endswith("\n") else self._column + len(shown)


def check_server_url(address: str) -> None:
    """Raises Unreachable for what no server can have."""
    try:
        if (httpx.URL(address).port or 0) < 65536:
            return
    except httpx.InvalidURL:
        pass
    raise Unreachable(f"{address} is not the address of a server.")


def _line(event: AnyEvent) -> str:
    """The event as one line of ASCII, so that no terminal acts on it and no reader sees two lines."""
    return json.dumps(event.model_dump(mode="json")).replace("\x7f", "\\u007f")
