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
from rich.console import Console

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation
from ai_platform_engineering.a2a.codec import decode_snapshot
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import AnyEvent
from ai_platform_engineering.core.forms import next_request_id
from ai_platform_engineering.core.transcript import Transcript, fold
from ai_platform_engineering.terminal.key_bindings import newline_key_bindings
from ai_platform_engineering.terminal.prompts import AllRequestsPostponed, RequestPostponed, RequestPrompter
from ai_platform_engineering.terminal.request_text import render_headline, render_request
from ai_platform_engineering.terminal.screen import LiveScreen, sanitize_text
from ai_platform_engineering.terminal.turn_view import TurnView

_HELP = """/pending shows and answers what waits for you in this conversation.
/new starts a new conversation, /context shows its id, /task shows the last task's id, /help this, /quit leaves (Ctrl-D too).
Any other /name begins a question: the skill of that name is followed (`caipe skills list`).
Enter sends, Esc-Enter makes a new line, Ctrl-C stops the answer."""
_COMMANDS = ["/help", "/pending", "/new", "/context", "/task", "/quit", "/exit"]
_OPEN = "Open for later: /pending here, or `caipe pending`."


class ChatSession:
    def __init__(
        self, client: A2AClient, console: Console, talk: ClientConversation, history: Path | None
    ) -> None:
        self._client = client
        self._console = console
        self._talk = talk
        self._history = history
        self._person = RequestPrompter(console) if sys.stdin.isatty() else None

    async def run(self) -> int:
        """Reads questions until the end of input; the exit code."""
        async for text in self._questions():
            try:
                if text.split()[0] not in _COMMANDS:
                    await self._people(await self._turn(self._client.ask(text, self._talk)))
                elif await self._command(text):
                    return 0
            except CaipeError as error:
                self._complain(error)
        return 0

    async def _turn(self, events: AsyncIterator[AnyEvent]) -> Transcript:
        with LiveScreen(self._console) as screen:
            view = TurnView(screen)
            async with self._interruptible():
                async for event in events:
                    (view.show if self._talk.seq > self._talk.seq_at_send else view.apply_silently)(event)
            view.finish()
        return view.transcript

    async def _people(self, view: Transcript) -> None:
        """Asks for what the run waits for, one request after the other; each answer is sent at once. What is left stays open."""
        left = set[str]()
        gone = set[str]()
        listed = set[str]()
        while view.state == "input-required" and (
            waiting := [one for one in view.requests if one.request_id not in left | gone]
        ):
            if self._person is None:
                self._print("\n\n".join(map(render_request, waiting)))
                return
            if len(waiting) > 1 and not listed.issuperset(one.request_id for one in waiting):
                self._print(
                    "\n".join(
                        [
                            f"{len(waiting)} requests are open:",
                            *(f"- {render_headline(one)}" for one in waiting),
                        ]
                    )
                )
                listed.update(one.request_id for one in waiting)
            request = waiting[0]
            try:
                given = await self._person.ask_for_answer(request, view.wrong.get(request.request_id, {}))
                view = await self._turn(self._client.answer({request.request_id: given}, self._talk))
            except RequestPostponed as later:
                left.update(
                    one.request_id
                    for one in (waiting if isinstance(later, AllRequestsPostponed) else waiting[:1])
                )
            except CaipeError as error:  # somebody else was faster, for example
                self._complain(error)
                gone.add(request.request_id)
            if any(
                one.request_id == request.request_id and one.resolution == "expired" for one in view.resolved
            ):
                self._person.move_draft(request.request_id, next_request_id(request.request_id))
        if view.state == "input-required" and left:
            self._say(_OPEN)

    async def _pending(self) -> None:
        """What is open in this conversation, from any client."""
        wanted = {
            "contextId": self._talk.context_id,
            "status": "TASK_STATE_INPUT_REQUIRED",
            "includeArtifacts": True,
        }
        tasks = (await self._client.call("ListTasks", wanted)).get("tasks") or ()
        for task in tasks:
            self._talk.task_id = str(task["id"])
            await self._people(fold(item.event for item in decode_snapshot(task)))
        if not tasks:
            self._say("Nothing waits for you in this conversation.")

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

    async def _command(self, text: str) -> bool:
        """True when the command ends the session."""
        match text.split()[0]:
            case "/quit" | "/exit":
                return True
            case "/pending":
                await self._pending()
            case "/new":
                self._talk = ClientConversation()
                self._say("A new conversation.")
            case "/context":
                self._say(self._talk.context_id)
            case "/task":
                self._say(self._talk.task_id or "There was no question yet.")
            case _:
                self._say(_HELP)
        return False

    def _say(self, text: str) -> None:
        self._print(text, "dim")

    def _complain(self, error: CaipeError) -> None:
        self._print(str(error), "red")

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(sanitize_text(text), style=style, markup=False, highlight=False, emoji=False)

    async def _questions(self) -> AsyncIterator[str]:
        if not sys.stdin.isatty():
            for line in sys.stdin:
                if line.strip():
                    yield line.strip()
            return
        session: PromptSession[str] = PromptSession(
            history=FileHistory(str(self._history)) if self._history else InMemoryHistory(),
            completer=WordCompleter(_COMMANDS, sentence=True),
            key_bindings=newline_key_bindings(),
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
