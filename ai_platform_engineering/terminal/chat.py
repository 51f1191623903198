"""`caipe chat`: a conversation in the terminal.

Ctrl-C stops the turn, not the session; scrollback and copying work.
"""

import asyncio
import re
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Collection, Sequence
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, Unreachable
from ai_platform_engineering.a2a.codec import decode_snapshot
from ai_platform_engineering.a2a.rest_client import rest_api_for_client
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import AnyEvent
from ai_platform_engineering.core.forms import next_request_id
from ai_platform_engineering.core.terminals import command_name
from ai_platform_engineering.core.transcript import PendingInput, Transcript, fold
from ai_platform_engineering.terminal.activity import Activity
from ai_platform_engineering.terminal.catalog_view import (
    name_skills,
    print_agent_list,
    print_skill_list,
    print_workflow_list,
)
from ai_platform_engineering.terminal.exit_codes import INTERRUPTED, OK
from ai_platform_engineering.terminal.interruption import ChatLeft, interruptible_turn
from ai_platform_engineering.terminal.live_region import hidden_input
from ai_platform_engineering.terminal.prompts import AllRequestsPostponed, RequestPostponed, RequestPrompter
from ai_platform_engineering.terminal.question_prompt import COMMANDS, HELP, QuestionPrompt
from ai_platform_engineering.terminal.request_text import render_headline, render_request
from ai_platform_engineering.terminal.run_ids import find_context_id
from ai_platform_engineering.terminal.run_view import show_run
from ai_platform_engineering.terminal.screen import LiveScreen, print_plain
from ai_platform_engineering.terminal.server_info import ServerInfo, fetch_server_info
from ai_platform_engineering.terminal.task_list_view import RunSummary, list_runs
from ai_platform_engineering.terminal.turn_view import TurnView

_POSTPONED_NOTE = "Left open. Answer with /pending here, or with `caipe pending`."
_NO_QUESTION = "You have not asked anything yet."
_SKILLS_TIMEOUT = 5.0  # seconds; a chat does not wait longer for names to complete
_PACKAGE = "ai-platform-engineering"
_MAX_QUESTION_CHARS = 60
_COMMAND_LIKE = re.compile(r"/[a-z][a-z0-9-]*")  # not a path such as /etc/hosts


class ChatSession:
    """A conversation in the terminal; its context can be changed with `/new`."""

    def __init__(
        self, client: A2AClient, console: Console, history: Path | None, *, was_started: bool
    ) -> None:
        """`was_started`: the server was started for this session, and ends with it."""
        self._client = client
        self._console = console
        self._was_started = was_started
        self._info = ServerInfo()
        self._conversation = ClientConversation()
        self._has_asked = False
        self._postponed_ids = set[str]()
        self._last_run: RunSummary | None = None  # of the conversation that goes on
        self._prompt: QuestionPrompt | None = None
        self._prompter: RequestPrompter | None = None
        if sys.stdin.isatty():
            self._prompt = QuestionPrompt(history, has_colors=not console.no_color)
            self._prompter = RequestPrompter(console)

    async def open(self, context_id: str | None, *, latest: bool = False) -> None:
        """Finds out who answers, and which conversation is meant; `latest` is the one of the newest run.

        Raises CaipeError.
        """
        self._info = await fetch_server_info(self._client)
        context: str | None = None
        if context_id:
            context = await find_context_id(self._client, context_id)
        if context or latest:
            newest = await list_runs(self._client, context_id=context, state=None, limit=1)
            self._last_run = next(iter(newest.runs), None)
        if self._last_run is not None:
            context = self._last_run.context_id
        elif latest:
            raise CaipeError("There is no conversation to continue yet.")
        if context:
            self._conversation.context_id = context
        if self._prompt is not None:
            self._prompt.set_skills(await self._fetch_skills())

    async def run(self) -> int:
        """Answers questions until the end of input; the exit code."""
        if self._prompt is not None:
            self._print_banner()
        code = OK
        with hidden_input():  # between two prompts, too: no key is lost or means something else
            try:
                async for text in self._read_questions():
                    if await self._handle(text):
                        break
            except ChatLeft:
                code = INTERRUPTED
        self._print_return_hint()
        return code

    async def _handle(self, text: str) -> bool:
        """Answers a question or runs a command; True when the session ends."""
        try:
            if text.split()[0] in COMMANDS:
                ends = await self._run_command(text)
                if not ends:
                    self._print("")
                return ends
            if await self._is_misspelled(text):
                return False
            self._has_asked = True
            self._conversation.task_id = None  # that of the last question is not to be stopped
            transcript = await self._show_turn(self._client.ask(text, self._conversation))
            if not self._repeats_postponed(transcript):
                await self._answer_requests(transcript)
        except CaipeError as error:
            self._print_error(error)
        return False

    async def _show_turn(self, events: AsyncIterator[AnyEvent]) -> Transcript:
        activity = Activity("Sending")
        activity.set_hint("Ctrl-C stops")
        conversation = self._conversation
        was_stopped = False
        with LiveScreen(self._console) as screen:
            view = TurnView(screen, activity, model=self._info.model)
            if self._info.is_offline:
                view.hide_offline_notice()  # the banner has said it
            view.begin_turn()
            conversation.on_retry = lambda problem, attempt: activity.set_label(
                f"The server {problem}; trying again ({attempt})"
            )

            def show_stop() -> None:
                nonlocal was_stopped
                was_stopped = True
                activity.set_hint("stopping; Ctrl-C again leaves")

            async with interruptible_turn(self._client, conversation, show_stop):
                async for event in events:
                    if conversation.seq > conversation.seq_at_send:
                        view.show(event, time.monotonic())
                    else:
                        view.apply_silently(event)
            view.finish()
        if was_stopped and view.transcript.state in ("submitted", "working"):
            self._print_unstopped_run()
        self._print("")
        return view.transcript

    async def _fetch_skills(self) -> dict[str, str]:
        """The skills of the server by name; none of a server that does not list them."""
        try:
            async with asyncio.timeout(_SKILLS_TIMEOUT):
                return name_skills(await rest_api_for_client(self._client)("GET", "/skills"))
        except (CaipeError, TimeoutError):
            return {}

    async def _is_misspelled(self, text: str) -> bool:
        """Whether the text begins like a command and is neither that nor a skill; says so."""
        word = text.split()[0]
        if self._prompt is None or not _COMMAND_LIKE.fullmatch(word):
            return False
        skills = await self._fetch_skills()
        if not skills or word.removeprefix("/") in skills:
            return False
        self._prompt.set_skills(skills)
        self._print(f"There is no command or skill {word}. See /help and /skills.", "yellow")
        self._print("")
        return True

    # --- requests of the run ------------------------------------------------------------------------------

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
            self._postponed_ids = postponed_ids
            self._print_note(_POSTPONED_NOTE)

    def _repeats_postponed(self, transcript: Transcript) -> bool:
        """Whether the run only waits for what was postponed; its reply says how to answer or drop it."""
        request_ids = {request.request_id for request in _open_requests(transcript, ())}
        return bool(request_ids) and request_ids <= self._postponed_ids

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
            self._print_note("There are no open requests in this conversation.")

    # --- commands -----------------------------------------------------------------------------------------

    async def _run_command(self, text: str) -> bool:
        """Runs a command of the chat; True when it ends the session."""
        match text.split()[0]:
            case "/quit" | "/exit":
                return True
            case "/pending":
                await self._show_pending()
            case "/agents":
                self._info = await fetch_server_info(self._client)
                print_agent_list(self._console, self._info.agents)
            case "/workflows":
                api = rest_api_for_client(self._client)
                print_workflow_list(self._console, await api("GET", "/workflows"))
            case "/skills":
                api = rest_api_for_client(self._client)
                print_skill_list(self._console, await api("GET", "/skills"))
            case "/show":
                await self._show_last_run()
            case "/new":
                self._conversation = ClientConversation()
                self._print_note("This is a new conversation.")
            case "/context":
                self._print_note(self._conversation.context_id)
            case "/task":
                self._print_note(self._conversation.task_id or _NO_QUESTION)
            case _:
                self._print_note(HELP)
        return False

    async def _show_last_run(self) -> None:
        if self._conversation.task_id is None:
            self._print_note(_NO_QUESTION)
            return
        task = await self._client.call("GetTask", {"id": self._conversation.task_id})
        show_run(self._console, decode_snapshot(task), with_answer=False)

    # --- what is printed ----------------------------------------------------------------------------------

    def _print_banner(self) -> None:
        """Says which server and which model answer."""
        server = "server started for this chat" if self._was_started else self._client.url.rstrip("/")
        self._print_note(f"caipe {version(_PACKAGE)} · {server}")
        if self._info.problem:
            self._print(f"The model cannot be used: {self._info.problem}", "yellow")
        elif self._info.is_offline:
            self._print(
                "No language model is set, so the embedded router answers. Set LLM_MODEL to use a model.",
                "yellow",
            )
        elif self._info.model:
            self._print_note(f"model {self._info.model}")
        if self._last_run is not None:
            question = textwrap.shorten(self._last_run.question, _MAX_QUESTION_CHARS, placeholder=" …")
            self._print_note(f"continuing after: {question} ({self._last_run.state})")
        self._print_note("Ask in plain words; /help for more.")

    def _print_return_hint(self) -> None:
        if self._has_asked and self._prompt is not None:
            command = f"{command_name()} chat --context {self._conversation.context_id}"
            self._print_note(f"Continue later with: {command}")

    def _print_unstopped_run(self) -> None:
        """Says what became of a run that Ctrl-C could not stop, because its server is away."""
        self._print("Stopped waiting; the server cannot be reached.", "yellow")
        if self._conversation.task_id:
            self._print_come_back_hint()

    def _print_come_back_hint(self) -> None:
        command = f"{command_name()} follow {self._conversation.task_id}"
        self._print_note(f"The run may still be working. Follow it with: {command}")

    def _print_note(self, text: str) -> None:
        self._print(text, "dim")

    def _print_error(self, error: CaipeError) -> None:
        self._print(str(error), "red")
        if isinstance(error, Unreachable) and self._conversation.task_id:
            self._print_come_back_hint()

    def _print(self, text: str, style: str = "") -> None:
        print_plain(self._console, text, style)

    def _print_headlines(self, requests: Sequence[PendingInput]) -> None:
        lines = [f"{len(requests)} requests are open:"]
        for request in requests:
            lines.append(f"- {render_headline(request)}")
        self._print("\n".join(lines))

    async def _read_questions(self) -> AsyncIterator[str]:
        if self._prompt is not None:
            async for question in self._prompt.questions():
                yield question
            return
        for line in sys.stdin:
            if line.strip():
                yield line.strip()


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
