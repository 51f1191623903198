"""`caipe chat`: a conversation in the terminal.

Ctrl-C stops the turn, not the session; scrollback and copying work.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Collection, Sequence
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
from ai_platform_engineering.core.transcript import PendingInput, Transcript, fold
from ai_platform_engineering.terminal.exit_codes import OK
from ai_platform_engineering.terminal.key_bindings import newline_key_bindings
from ai_platform_engineering.terminal.prompts import AllRequestsPostponed, RequestPostponed, RequestPrompter
from ai_platform_engineering.terminal.request_text import render_headline, render_request
from ai_platform_engineering.terminal.screen import LiveScreen, print_plain
from ai_platform_engineering.terminal.turn_view import TurnView

_HELP = """/pending shows and answers what waits for you in this conversation.
/new starts a new conversation, /context shows its id, /task shows the last task's id, /help this, \
/quit leaves (Ctrl-D too).
Any other /name begins a question: the skill of that name is followed (`caipe skills list`).
Enter sends, Esc-Enter makes a new line, Ctrl-C stops the answer."""
_COMMANDS = ["/help", "/pending", "/new", "/context", "/task", "/quit", "/exit"]
_POSTPONED_NOTE = "Open for later: /pending here, or `caipe pending`."


class ChatSession:
    """A conversation in the terminal; its context can be changed with `/new`."""

    def __init__(
        self, client: A2AClient, console: Console, conversation: ClientConversation, history: Path | None
    ) -> None:
        self._client = client
        self._console = console
        self._conversation = conversation
        self._history = history
        self._prompter = RequestPrompter(console) if sys.stdin.isatty() else None

    async def run(self) -> int:
        """Answers questions until the end of input; the exit code."""
        async for text in self._read_questions():
            try:
                if text.split()[0] not in _COMMANDS:
                    transcript = await self._show_turn(self._client.ask(text, self._conversation))
                    await self._answer_requests(transcript)
                elif await self._run_command(text):
                    return OK
            except CaipeError as error:
                self._print_error(error)
        return OK

    async def _show_turn(self, events: AsyncIterator[AnyEvent]) -> Transcript:
        with LiveScreen(self._console) as screen:
            view = TurnView(screen)
            async with self._interruptible():
                async for event in events:
                    if self._conversation.seq > self._conversation.seq_at_send:
                        view.show(event)
                    else:
                        view.apply_silently(event)
            view.finish()
        return view.transcript

    async def _answer_requests(self, transcript: Transcript) -> None:
        """Asks for the answers that the run waits for, one request after the other; each is sent at once.

        Requests that the person postpones stay open.
        """
        postponed_ids = set[str]()
        skipped_ids = set[str]()
        listed_ids = set[str]()
        while True:
            requests = _open_requests(transcript, postponed_ids | skipped_ids)
            if not requests:
                break
            if self._prompter is None:
                self._print("\n\n".join(map(render_request, requests)))
                return
            request_ids = {request.request_id for request in requests}
            if len(requests) > 1 and not request_ids <= listed_ids:
                self._print_headlines(requests)
                listed_ids |= request_ids
            request = requests[0]
            problems = transcript.wrong.get(request.request_id, {})
            try:
                answer = await self._prompter.ask_for_answer(request, problems)
                answers = {request.request_id: answer}
                transcript = await self._show_turn(self._client.answer(answers, self._conversation))
            except AllRequestsPostponed:
                postponed_ids |= request_ids
            except RequestPostponed:
                postponed_ids.add(request.request_id)
            except CaipeError as error:  # somebody else was faster, for example
                self._print_error(error)
                skipped_ids.add(request.request_id)
            if _has_expired(transcript, request.request_id):
                self._prompter.move_draft(request.request_id, next_request_id(request.request_id))
        if transcript.state == "input-required" and postponed_ids:
            self._print_note(_POSTPONED_NOTE)

    async def _show_pending(self) -> None:
        """Asks for the answers to all open requests of this conversation, from any client."""
        parameters = {
            "contextId": self._conversation.context_id,
            "status": "TASK_STATE_INPUT_REQUIRED",
            "includeArtifacts": True,
        }
        tasks = (await self._client.call("ListTasks", parameters)).get("tasks") or ()
        for task in tasks:
            self._conversation.task_id = str(task["id"])
            await self._answer_requests(fold(item.event for item in decode_snapshot(task)))
        if not tasks:
            self._print_note("Nothing waits for you in this conversation.")

    @contextlib.asynccontextmanager
    async def _interruptible(self) -> AsyncIterator[None]:
        """Lets Ctrl-C cancel the task on the server, whose stream then ends; a second one leaves at once."""
        loop = asyncio.get_running_loop()
        turn = asyncio.current_task()
        cancellations: list[asyncio.Task[None]] = []

        def interrupt() -> None:
            if cancellations and turn is not None:
                turn.cancel()
            elif self._conversation.task_id:
                cancellation = self._cancel_task(self._conversation.task_id)
                cancellations.append(asyncio.create_task(cancellation))

        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            yield
        except asyncio.CancelledError:
            if not cancellations or turn is None or turn.uncancel() > 0:
                raise
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            await asyncio.gather(*cancellations)

    async def _cancel_task(self, task_id: str) -> None:
        with contextlib.suppress(CaipeError):  # it ended by itself in the meantime
            await self._client.cancel(task_id)

    async def _run_command(self, text: str) -> bool:
        """Runs a command of the chat; True when it ends the session."""
        match text.split()[0]:
            case "/quit" | "/exit":
                return True
            case "/pending":
                await self._show_pending()
            case "/new":
                self._conversation = ClientConversation()
                self._print_note("A new conversation.")
            case "/context":
                self._print_note(self._conversation.context_id)
            case "/task":
                self._print_note(self._conversation.task_id or "There was no question yet.")
            case _:
                self._print_note(_HELP)
        return False

    def _print_note(self, text: str) -> None:
        self._print(text, "dim")

    def _print_error(self, error: CaipeError) -> None:
        self._print(str(error), "red")

    def _print(self, text: str, style: str = "") -> None:
        print_plain(self._console, text, style)

    def _print_headlines(self, requests: Sequence[PendingInput]) -> None:
        lines = [f"{len(requests)} requests are open:"]
        for request in requests:
            lines.append(f"- {render_headline(request)}")
        self._print("\n".join(lines))

    async def _read_questions(self) -> AsyncIterator[str]:
        if not sys.stdin.isatty():
            for line in sys.stdin:
                if line.strip():
                    yield line.strip()
            return
        history = FileHistory(str(self._history)) if self._history else InMemoryHistory()
        session: PromptSession[str] = PromptSession(
            history=history,
            completer=WordCompleter(_COMMANDS, sentence=True),
            key_bindings=newline_key_bindings(),
        )
        self._print_note("Ask in plain words; /help for more.")
        while True:
            try:
                text = await session.prompt_async("› ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text.strip():
                yield text.strip()


def _open_requests(transcript: Transcript, left_out_ids: Collection[str]) -> list[PendingInput]:
    """The requests that the run waits for, without those that the person left out."""
    if transcript.state != "input-required":
        return []
    return [request for request in transcript.requests if request.request_id not in left_out_ids]


def _has_expired(transcript: Transcript, request_id: str) -> bool:
    for resolved in transcript.resolved:
        if resolved.request_id == request_id and resolved.resolution == "expired":
            return True
    return False
