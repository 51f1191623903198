"""Reports a run on stdout and stderr while it happens, and its end as an exit code."""

import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Self

import httpx

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.a2a.client import ClientConversation, Unreachable
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import AnyEvent
from ai_platform_engineering.core.terminals import command_name
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.terminal.activity import Activity
from ai_platform_engineering.terminal.connection_screen import STARTING
from ai_platform_engineering.terminal.exit_codes import FAILED, INPUT_REQUIRED, INTERRUPTED, OK, UNREACHABLE
from ai_platform_engineering.terminal.live_region import can_redraw
from ai_platform_engineering.terminal.pauses import describe_pause
from ai_platform_engineering.terminal.progress_lines import ProgressLines
from ai_platform_engineering.terminal.request_text import render_request
from ai_platform_engineering.terminal.screen import LiveScreen, create_console, print_markdown, sanitize_text
from ai_platform_engineering.terminal.turn_view import TurnView

ServerContext = AbstractAsyncContextManager[str]  # yields the server's URL


class RunReporter:
    """Reports events and the result of a run, between entering and leaving its context.

    On a terminal the run is drawn as in `caipe chat`. Elsewhere the answer goes to stdout and everything else
    to stderr, as plain text; as JSON, one event per line goes to stdout.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._progress = ProgressLines(sys.stderr)
        self._activity = Activity("Connecting")
        self._activity.set_hint("Ctrl-C stops")
        self._view: TurnView | None = None
        self._redraws = False
        self._transcript = Transcript()
        self._before = Transcript()  # the transcript when the message was sent
        self._resources = contextlib.ExitStack()
        self._shows_answer = sys.stdout.isatty()

    def __enter__(self) -> Self:
        console = create_console() if self._shows_answer else create_console(stderr=True)
        if not self._as_json and sys.stderr.isatty():
            self._redraws = can_redraw(console)
            screen = LiveScreen(console, holds_text=not self._shows_answer)
            self._view = TurnView(screen, self._activity, shows_answer=self._shows_answer)
            self._resources.enter_context(screen)
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def set_activity(self, text: str) -> None:
        """Says what is waited for, before the run begins or while its server is away."""
        if self._redraws:
            self._activity.set_label(text)
        elif not self._as_json:
            self._progress.write_line(f"{text} …")

    def show_server_start(self) -> None:
        """Says that no server was found and one is started."""
        self.set_activity(STARTING)

    def show_retry(self, problem: str, attempt: int) -> None:
        """Says that the connection to the server is lost and opened again."""
        if self._redraws:
            self.set_activity(f"The server {problem}; trying again ({attempt})")
        elif attempt == 1:
            self.set_activity(f"The server {problem}; trying again")

    def set_hint(self, text: str) -> None:
        """Says which key does what while the run is shown."""
        self._activity.set_hint(text)

    def set_model(self, model: str) -> None:
        """Names the model that answers."""
        if self._view is not None:
            self._view.set_model(model)

    @property
    def is_live(self) -> bool:
        """Whether the run is drawn on a terminal."""
        return self._view is not None

    async def show_events(
        self, events: AsyncIterator[AnyEvent], conversation: ClientConversation
    ) -> Transcript:
        """Shows the events that a message led to; those from before it are only applied."""
        self._begin_turn()
        async for event in events:
            if conversation.seq > conversation.seq_at_send:
                self.show_event(event, conversation, time.monotonic())
            else:
                self.apply_silently(event)
                self._before = self._transcript
        return self._transcript

    def show_event(self, event: AnyEvent, conversation: ClientConversation, at: float | None) -> None:
        """Shows one event; `at` is when it happened, None where that is not known."""
        self._transcript = self._transcript.apply(event)
        if self._as_json:
            print(_event_line(event, conversation), flush=True)
        elif self._view is not None:
            self._view.show(event, at)
        else:
            self._progress.show(event, self._transcript, at)

    def print_result(self, transcript: Transcript, conversation: ClientConversation) -> int:
        """Prints how the run ended; the exit code."""
        code = self._print_end(transcript)
        if not self._as_json:
            self._print_ids(conversation)
        return code

    def _print_end(self, transcript: Transcript) -> int:
        view = self._view
        if view is not None:
            view.finish()
        self._stop_drawing()
        match transcript.state:
            case "completed":
                if view is None or not self._shows_answer:
                    self._print_answer(transcript)
                return FAILED if transcript.is_unanswered else OK
            case "input-required":
                reply = describe_pause(self._before, transcript)
                if reply and view is None:
                    self.print_message(reply, INPUT_REQUIRED)
                for request in transcript.requests:
                    self.print_message(render_request(request), INPUT_REQUIRED)
                return INPUT_REQUIRED
            case "canceled":
                return self._end_with("The run was stopped.", INTERRUPTED, told=view is not None)
            case _:
                reason = transcript.error or "There was no answer."
                return self._end_with(reason, FAILED, told=view is not None)

    def _end_with(self, text: str, code: int, *, told: bool) -> int:
        if told:
            return code
        return self.print_message(text, code)

    def _print_ids(self, conversation: ClientConversation) -> None:
        if conversation.task_id:
            ids = f"task {conversation.task_id}, context {conversation.context_id}"
            create_console(stderr=True, soft_wrap=True).print(
                f"({ids})", style="dim", markup=False, highlight=False
            )

    def _print_answer(self, transcript: Transcript) -> None:
        if self._as_json:
            return
        print_markdown(create_console(), transcript.answer or "")
        if transcript.citations:
            sources = notification_text.format_sources(transcript.citations)
            print(f"\n{sanitize_text(sources)}", flush=True)

    def report_error(self, error: CaipeError, conversation: ClientConversation | None = None) -> int:
        """Prints why the server did not do what it was asked; the exit code."""
        if not isinstance(error, Unreachable):
            return self.print_message(str(error), FAILED)
        if conversation is not None and conversation.task_id:
            command = f"{command_name()} follow {conversation.task_id}"
            hint = f"The run may still be working. Follow it with: {command}"
        else:
            hint = f"Is the server running? Start it with: {command_name()} serve"
        return self.print_message(f"{error} {hint}", UNREACHABLE)

    def print_message(self, text: str, code: int) -> int:
        """Prints a message on stderr and returns the exit code that goes with it."""
        self._stop_drawing()
        self._progress.end_line()
        print(sanitize_text(text), file=sys.stderr, flush=True)
        return code

    def _stop_drawing(self) -> None:
        """Erases what is drawn below the text: nothing is waited for any more."""
        self._progress.end_line()
        self._resources.close()
        self._view = None

    def _begin_turn(self) -> None:
        self._transcript = Transcript()
        self._before = Transcript()
        if self._view is not None:
            self._view.begin_turn()

    def apply_silently(self, event: AnyEvent) -> None:
        """Applies an event that was shown before."""
        self._transcript = self._transcript.apply(event)
        if self._view is not None:
            self._view.apply_silently(event)


def check_server_url(address: str) -> None:
    """Raises Unreachable for a URL that no server can have."""
    try:
        if (httpx.URL(address).port or 0) < 65536:
            return
    except httpx.InvalidURL:
        pass
    raise Unreachable(f"{address} is not a valid server URL.")


def _event_line(event: AnyEvent, conversation: ClientConversation) -> str:
    """The event as one line of ASCII JSON, so that no terminal acts on it and no reader sees two lines."""
    ids = {"task_id": conversation.task_id, "context_id": conversation.context_id, "seq": conversation.seq}
    return json.dumps({**event.model_dump(mode="json"), **ids}).replace("\x7f", "\\u007f")
