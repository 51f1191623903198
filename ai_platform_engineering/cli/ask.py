"""`caipe ask`: one question, one answer, drawn from the transcript."""

import asyncio
import json
import re
import sys
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
from ai_platform_engineering.core.settings import is_loopback
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.utils.a2a_common import words
from ai_platform_engineering.utils.a2a_common.client import A2AClient, Conversation, Unreachable

OK, FAILED, UNREACHABLE, INPUT_REQUIRED, TIMED_OUT, INTERRUPTED = 0, 1, 3, 4, 124, 130

# Terminal control sequences from a model or a tool must not reach the terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def ask_once(text: str, *, url: str, token: str | None, context_id: str | None, as_json: bool, timeout: float | None) -> int:
    """Asks and prints; the exit code."""
    talk = Conversation(context_id) if context_id else Conversation()
    asking = _Asking(url, token, talk, as_json=as_json)
    try:
        return asyncio.run(asking.run(text, timeout))
    except KeyboardInterrupt:
        return INTERRUPTED


class _Asking:
    def __init__(self, url: str, token: str | None, talk: Conversation, *, as_json: bool) -> None:
        self._url, self._token, self._talk, self._as_json = url, token, talk, as_json
        self._progress = _Progress(sys.stderr)

    async def run(self, text: str, timeout: float | None) -> int:
        host = _host(self._url)
        if host is None:
            return self._say(f"{self._url} is not the address of a server. Start one on this machine with: caipe serve", UNREACHABLE)
        # A proxy of the environment is for the way out, not for a server on this machine.
        async with httpx.AsyncClient(trust_env=not is_loopback(host)) as http:
            client = A2AClient(self._url, http, token=self._token)
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
                if not self._as_json:
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

    def show(self, event: AnyEvent) -> None:
        match event:
            case TextDelta(parent_call=None):
                if event.message_id != self._message:
                    self.end_line()
                    self._message = event.message_id
                self._write(event.text)
            case TextEnded(parent_call=None):
                self.end_line()
            case TextDiscarded(parent_call=None):
                self._line("(starting that again)")
            case ToolStarted():
                self._line(words.tool_started(event))
            case ToolFinished():
                self._line(words.tool_finished(event))
            case PlanUpdated():
                self._line(words.plan(event))
            case Notice(text=text):
                self._line(f"({text})")
            case InputRequested():
                self._line("Input is needed.")
            case _:
                pass

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


def _host(address: str) -> str | None:
    """The host of an address; none when it cannot be one."""
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        return None
    return url.host if (url.port or 0) < 65536 else None


def _line(event: AnyEvent) -> str:
    """The event as one line of ASCII, so that no terminal acts on it and no reader sees two lines."""
    return json.dumps(event.model_dump(mode="json")).replace("\x7f", "\\u007f")


def printable(text: str) -> str:
    return _CONTROL.sub("", text.replace("\r\n", "\n"))
