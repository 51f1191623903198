"""`caipe chat`: a conversation in the terminal. Ctrl-C stops the turn, not the session; scrollback and copying work."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import Console

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.terminal.screen import Screen, printable
from ai_platform_engineering.terminal.turn import TurnView
from ai_platform_engineering.utils.a2a_common.client import A2AClient, Conversation

_HELP = """/new starts a new conversation, /context shows its id, /task shows the last task's id, /help this, /quit leaves (Ctrl-D too).
Enter sends, Esc-Enter makes a new line, Ctrl-C stops the answer."""
_COMMANDS = ["/help", "/new", "/context", "/task", "/quit"]


class Chat:
    def __init__(self, client: A2AClient, console: Console, talk: Conversation, history: Path | None) -> None:
        self._client, self._console, self._talk, self._history = client, console, talk, history

    async def run(self) -> int:
        """Reads questions until the end of input; the exit code."""
        async for text in self._questions():
            if text.startswith("/"):
                if self._command(text):
                    return 0
                continue
            try:
                await self._turn(text)
            except CaipeError as error:
                self._console.print(printable(str(error)), style="red", markup=False, highlight=False)
        return 0

    async def _turn(self, text: str) -> None:
        with Screen(self._console) as screen:
            view = TurnView(screen)
            async with self._interruptible():
                async for event in self._client.ask(text, self._talk):
                    view.show(event)
            view.finish()

    @contextlib.asynccontextmanager
    async def _interruptible(self) -> AsyncIterator[None]:
        """Ctrl-C asks the server to stop; the stream then ends by itself. A second one leaves the turn at once."""
        loop, turn = asyncio.get_running_loop(), asyncio.current_task()
        stopping: list[asyncio.Task[None]] = []

        def stop() -> None:
            if stopping and turn is not None:
                turn.cancel()
            elif self._talk.task_id:
                stopping.append(asyncio.create_task(self._stop(self._talk.task_id)))

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            yield
        except asyncio.CancelledError:
            if not stopping or turn is None or turn.uncancel() > 0:
                raise
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            await asyncio.gather(*stopping)

    async def _stop(self, task_id: str) -> None:
        with contextlib.suppress(CaipeError):  # it ended by itself in the meantime
            await self._client.cancel(task_id)

    def _command(self, text: str) -> bool:
        """True when the command ends the session."""
        match text.split()[0]:
            case "/quit" | "/exit":
                return True
            case "/new":
                self._talk = Conversation()
                self._say("A new conversation.")
            case "/context":
                self._say(self._talk.context_id)
            case "/task":
                self._say(self._talk.task_id or "There was no question yet.")
            case _:
                self._say(_HELP)
        return False

    def _say(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False, highlight=False)

    async def _questions(self) -> AsyncIterator[str]:
        if not sys.stdin.isatty():
            for line in sys.stdin:
                if line.strip():
                    yield line.strip()
            return
        session: PromptSession[str] = PromptSession(
            history=FileHistory(str(self._history)) if self._history else InMemoryHistory(),
            completer=WordCompleter(_COMMANDS, sentence=True),
            key_bindings=_keys(),
        )
        self._say("Ask in plain words; /help for more.")
        while True:
            try:
                text = await session.prompt_async("› ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text.strip():
                yield text.strip()


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
