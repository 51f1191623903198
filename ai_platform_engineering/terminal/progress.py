"""What a run says while it happens, on stderr, and how a command that showed it ends."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TextIO

import httpx

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.a2a.client import Conversation, Unreachable
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
from ai_platform_engineering.terminal.request_text import request_text
from ai_platform_engineering.terminal.screen import printable

OK, FAILED, UNREACHABLE, INPUT_REQUIRED, TIMED_OUT, INTERRUPTED = 0, 1, 3, 4, 124, 130


Server = AbstractAsyncContextManager[str]


class Report:
    """Events as they come and the end as an exit code: the answer on stdout, all else on stderr, or one event per line on stdout."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json, self._progress = as_json, _Progress(sys.stderr)

    async def follow(self, events: AsyncIterator[AnyEvent], talk: Conversation) -> Transcript:
        """Shows what comes of a message; what the task had come to before is only taken in."""
        view = Transcript()
        async for event in events:
            view = view.apply(event)
            if talk.seq > talk.before:
                self.show(event)
        return view

    def show(self, event: AnyEvent) -> None:
        if self._as_json:
            print(_line(event), flush=True)
        else:
            self._progress.show(event)

    def finish(self, view: Transcript, talk: Conversation) -> int:
        self._progress.end_line()
        match view.state:
            case "completed":
                # On a terminal the answer has just been written, live; anywhere else stdout gets it now, and nothing but it.
                if not self._as_json and not (self._progress.on_screen and self._progress.written == view.answer):
                    print(printable(view.answer or ""), flush=True)
                if not self._as_json and view.citations:
                    print(f"\n{printable(notification_text.sources(view.citations))}", flush=True)
                return OK
            case "input-required":
                for request in view.requests:
                    self.say(request_text(request), INPUT_REQUIRED)
                return self.say(f"{view.waiting_for} (task {talk.task_id}, context {talk.context_id})", INPUT_REQUIRED)
            case "canceled":
                return self.say("The task was stopped.", INTERRUPTED)
            case _:
                return self.say(view.error or "There was no answer.", FAILED)

    def refuse(self, error: CaipeError) -> int:
        """The end when the server did not do what it was asked."""
        if isinstance(error, Unreachable):
            return self.say(f"{error} Is the server running? Start it with: caipe serve", UNREACHABLE)
        return self.say(str(error), FAILED)

    def say(self, text: str, code: int) -> int:
        self._progress.end_line()
        print(printable(text), file=sys.stderr, flush=True)
        return code


class _Progress:
    """Draws what happens, as it happens, on stderr."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._message, self._column = out, "", 0
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
        shown = printable(text)
        self._out.write(shown)
        self._out.flush()
        self._column = 0 if shown.endswith("\n") else self._column + len(shown)


def check_address(address: str) -> None:
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
