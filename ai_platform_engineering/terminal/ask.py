"""`caipe ask`: one question, one answer, drawn from the transcript."""

import asyncio
import json
import sys
from contextlib import AbstractAsyncContextManager
from typing import TextIO

import httpx

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
from ai_platform_engineering.terminal.screen import printable
from ai_platform_engineering.utils.a2a_common import words
from ai_platform_engineering.utils.a2a_common.client import A2AClient, Conversation, Unreachable, http_for

OK, FAILED, UNREACHABLE, INPUT_REQUIRED, TIMED_OUT, INTERRUPTED = 0, 1, 3, 4, 124, 130


Server = AbstractAsyncContextManager[str]


def ask_once(text: str, *, server: Server, token: str | None, context_id: str | None, as_json: bool, timeout: float | None) -> int:
    """Asks the server and prints; the exit code."""
    talk = Conversation(context_id) if context_id else Conversation()
    try:
        return asyncio.run(_ask(text, server, _Asking(token, talk, as_json=as_json), timeout))
    except KeyboardInterrupt:
        return INTERRUPTED


async def _ask(text: str, server: Server, asking: "_Asking", timeout: float | None) -> int:
    async with server as url:
        return await asking.run(url, text, timeout)


class _Asking:
    def __init__(self, token: str | None, talk: Conversation, *, as_json: bool) -> None:
        self._token, self._talk, self._as_json = token, talk, as_json
        self._progress = _Progress(sys.stderr)

    async def run(self, url: str, text: str, timeout: float | None) -> int:
        if not _is_address(url):
            return self._say(f"{url} is not the address of a server. Start one on this machine with: caipe serve", UNREACHABLE)
        async with http_for(url) as http:
            client = A2AClient(url, http, token=self._token)
            try:
                async with asyncio.timeout(timeout):
                    return await self._answer(client, text)
            except TimeoutError:
                await self._stop(client)
                return self._say(f"No answer within {timeout:g} s; the task was stopped.", TIMED_OUT)
            except asyncio.CancelledError:
                await self._stop(client)
                raise
            except Unreachable as error:
                return self._say(f"{error} Is the server running? Start it with: caipe serve", UNREACHABLE)
            except CaipeError as error:
                return self._say(str(error), FAILED)

    async def _answer(self, client: A2AClient, text: str) -> int:
        view = Transcript()
        async for event in client.ask(text, self._talk):
            view = view.apply(event)
            if self._as_json:
                print(_line(event), flush=True)
            else:
                self._progress.show(event)
        self._progress.end_line()
        return self._finish(view)

    def _finish(self, view: Transcript) -> int:
        match view.state:
            case "completed":
                # On a terminal the answer has just been written, live; anywhere else stdout gets it now, and nothing but it.
                if not self._as_json and not (self._progress.on_screen and self._progress.written == view.answer):
                    print(printable(view.answer or ""), flush=True)
                return OK
            case "input-required":
                return self._say(f"{view.waiting_for} (task {self._talk.task_id}, context {self._talk.context_id})", INPUT_REQUIRED)
            case "canceled":
                return self._say("The task was stopped.", INTERRUPTED)
            case _:
                return self._say(view.error or "There was no answer.", FAILED)

    async def _stop(self, client: A2AClient) -> None:
        if self._talk.task_id:
            try:
                await client.cancel(self._talk.task_id)
            except CaipeError as error:
                self._say(f"The task could not be stopped: {error}", FAILED)

    def _say(self, text: str, code: int) -> int:
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
                self._line(words.tool_started(event))
            case ToolFinished():
                self._line(words.tool_finished(event))
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
        heading, *lines = words.plan(event).splitlines()
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


def _is_address(address: str) -> bool:
    try:
        return (httpx.URL(address).port or 0) < 65536
    except httpx.InvalidURL:
        return False


def _line(event: AnyEvent) -> str:
    """The event as one line of ASCII, so that no terminal acts on it and no reader sees two lines."""
    return json.dumps(event.model_dump(mode="json")).replace("\x7f", "\\u007f")
