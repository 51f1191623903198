"""Reports a run on stdout and stderr while it happens, and its end as an exit code."""

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
from ai_platform_engineering.terminal.exit_codes import FAILED, INPUT_REQUIRED, INTERRUPTED, OK, UNREACHABLE
from ai_platform_engineering.terminal.request_text import render_request
from ai_platform_engineering.terminal.screen import sanitize_text

ServerContext = AbstractAsyncContextManager[str]  # yields the server's URL


class RunReporter:
    """Reports events and the result of a run.

    The answer goes to stdout and everything else to stderr; as JSON, one event per line goes to stdout.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._progress = _ProgressWriter(sys.stderr)

    async def show_events(
        self, events: AsyncIterator[AnyEvent], conversation: ClientConversation
    ) -> Transcript:
        """Shows the events that a message led to; those from before it are only applied."""
        transcript = Transcript()
        async for event in events:
            transcript = transcript.apply(event)
            if conversation.seq > conversation.seq_at_send:
                self.show_event(event)
        return transcript

    def show_event(self, event: AnyEvent) -> None:
        if self._as_json:
            print(_event_line(event), flush=True)
        else:
            self._progress.show(event)

    def print_result(self, transcript: Transcript, conversation: ClientConversation) -> int:
        """Prints how the run ended; the exit code."""
        self._progress.end_line()
        match transcript.state:
            case "completed":
                if not self._as_json:
                    self._print_answer(transcript)
                return OK
            case "input-required":
                for request in transcript.requests:
                    self.print_message(render_request(request), INPUT_REQUIRED)
                ids = f"task {conversation.task_id}, context {conversation.context_id}"
                return self.print_message(f"{transcript.waiting_for} ({ids})", INPUT_REQUIRED)
            case "canceled":
                return self.print_message("The task was stopped.", INTERRUPTED)
            case _:
                return self.print_message(transcript.error or "There was no answer.", FAILED)

    def _print_answer(self, transcript: Transcript) -> None:
        # On a terminal the answer was just written, live; otherwise stdout gets it now, and nothing but it.
        was_written = self._progress.on_screen and self._progress.written == transcript.answer
        if not was_written:
            print(sanitize_text(transcript.answer or ""), flush=True)
        if transcript.citations:
            sources = notification_text.format_sources(transcript.citations)
            print(f"\n{sanitize_text(sources)}", flush=True)

    def report_error(self, error: CaipeError) -> int:
        """Prints why the server did not do what it was asked; the exit code."""
        if isinstance(error, Unreachable):
            hint = "Is the server running? Start it with: caipe serve"
            return self.print_message(f"{error} {hint}", UNREACHABLE)
        return self.print_message(str(error), FAILED)

    def print_message(self, text: str, code: int) -> int:
        """Prints a message on stderr and returns the exit code that goes with it."""
        self._progress.end_line()
        print(sanitize_text(text), file=sys.stderr, flush=True)
        return code


class _ProgressWriter:
    """Writes events on stderr as they come."""

    def __init__(self, out: TextIO) -> None:
        self.written = ""  # the last text, as far as it was shown
        self._out = out
        self._message_id = ""
        self._column = 0
        self._step_states: dict[str, str] = {}

    @property
    def on_screen(self) -> bool:
        """Whether progress and answer go to the same terminal."""
        return self._out.isatty() and sys.stdout.isatty()

    def show(self, event: AnyEvent) -> None:
        match event:
            case TextDelta(parent_call=None):
                if event.message_id != self._message_id:
                    self.end_line()
                    self._message_id = event.message_id
                    self.written = ""
                self.written += event.text
                self._write(event.text)
            case TextEnded(parent_call=None):
                self.end_line()
            case TextDiscarded(parent_call=None):
                self.written = ""
                self._write_line("(starting that again)")
            case ToolStarted():
                self._write_line(notification_text.tool_started(event))
            case ToolFinished():
                self._write_line(notification_text.tool_finished(event))
            case PlanUpdated():
                self._show_plan(event)
            case Notice(text=text):
                self._write_line(f"({text})")
            case InputRequested():
                self._write_line("Input is needed.")
            case _:
                pass

    def _show_plan(self, event: PlanUpdated) -> None:
        """Writes the whole plan when its steps are new, else only the steps that changed."""
        states = {step.step_id: f"{step.title}\n{step.status}" for step in event.steps}
        heading, *lines = notification_text.plan(event).splitlines()
        if states.keys() != self._step_states.keys():
            self._write_line("\n".join([heading, *lines]))
        else:
            for line, (step_id, state) in zip(lines, states.items(), strict=False):
                if self._step_states[step_id] != state:
                    self._write_line(line)
        self._step_states = states

    def end_line(self) -> None:
        if self._column:
            self._write("\n")
        self._column = 0
        self._message_id = ""

    def _write_line(self, text: str) -> None:
        self.end_line()
        self._write(text.rstrip("\n") + "\n")
        self._column = 0

    def _write(self, text: str) -> None:
        printable = sanitize_text(text)
        self._out.write(printable)
        self._out.flush()
        if printable.endswith("\n"):
            self._column = 0
        else:
            self._column += len(printable)


def check_server_url(address: str) -> None:
    """Raises Unreachable for a URL that no server can have."""
    try:
        if (httpx.URL(address).port or 0) < 65536:
            return
    except httpx.InvalidURL:
        pass
    raise Unreachable(f"{address} is not the address of a server.")


def _event_line(event: AnyEvent) -> str:
    """The event as one line of ASCII JSON, so that no terminal acts on it and no reader sees two lines."""
    return json.dumps(event.model_dump(mode="json")).replace("\x7f", "\\u007f")
