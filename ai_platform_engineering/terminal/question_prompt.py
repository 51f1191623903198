"""The prompt of `caipe chat`: questions of one or more lines, with history, completion and pasting."""

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ai_platform_engineering.terminal.key_bindings import newline_key_bindings
from ai_platform_engineering.terminal.prompt_output import prompt_output
from ai_platform_engineering.terminal.question_history import open_history

COMMANDS = {
    "/help": "commands and keys",
    "/agents": "agents, and what the others need",
    "/workflows": "workflows to start by their title",
    "/skills": "procedures to start a question with",
    "/pending": "answer the open requests of this conversation",
    "/show": "the last run in detail",
    "/new": "start a new conversation",
    "/context": "the id of this conversation",
    "/task": "the id of the last run",
    "/quit": "leave",
    "/exit": "leave",
}
HELP = """/agents, /workflows and /skills list what you can use.
/pending shows the open requests of this conversation and lets you answer them.
/show prints the last run in detail, /task its id.
/new starts a new conversation, /context prints its id, /quit leaves (Ctrl-D too).
/SKILL followed by a question makes the supervisor follow that skill.
Enter sends; Esc-Enter, Ctrl-J, or a backslash before Enter starts a new line.
Up and Ctrl-R find earlier questions; Tab completes commands and skills.
Ctrl-C stops the answer; press it again to leave."""
_PROMPT = "› "
_CONTINUATION = "  "
_LEAVE_HINT = "(Press Ctrl-C again or Ctrl-D to leave.)"
_SECONDS_TO_LEAVE = 2.0


class QuestionPrompt:
    """Reads questions from the terminal."""

    def __init__(self, history: Path | None, *, has_colors: bool) -> None:
        """`has_colors`: without colours a suggestion could not be told from what was typed."""
        self._commands = _CommandCompleter()
        self._session: PromptSession[str] = PromptSession(
            history=open_history(history),
            auto_suggest=AutoSuggestFromHistory() if has_colors else None,
            completer=self._commands,
            key_bindings=newline_key_bindings(),
            prompt_continuation=_CONTINUATION,
            output=prompt_output(),
        )
        self._interrupted_at = float("-inf")

    def set_skills(self, skills: Mapping[str, str]) -> None:
        """Completes these names, too, with their descriptions."""
        self._commands.skills = {f"/{name}": description for name, description in skills.items()}

    async def questions(self) -> AsyncIterator[str]:
        """Yields each question; ends at Ctrl-D, and at the second Ctrl-C in a row."""
        while True:
            try:
                text = await self._session.prompt_async(_PROMPT)
            except KeyboardInterrupt:
                if self._is_second_interrupt():
                    return
                continue
            except EOFError:
                return
            if text.strip():
                yield text.strip()

    def _is_second_interrupt(self) -> bool:
        """Whether Ctrl-C was pressed twice with nothing to clear; the first time says so."""
        if self._session.default_buffer.text:
            self._interrupted_at = float("-inf")  # it cleared what was typed
            return False
        now = time.monotonic()
        if now - self._interrupted_at < _SECONDS_TO_LEAVE:
            return True
        self._interrupted_at = now
        print(_LEAVE_HINT, flush=True)
        return False


class _CommandCompleter(Completer):
    """Completes the first word of a question: a command of the chat, or a skill."""

    def __init__(self) -> None:
        self.skills: Mapping[str, str] = {}

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        if not typed.startswith("/"):
            return
        for name, description in {**self.skills, **COMMANDS}.items():
            if name.startswith(typed):
                yield Completion(name, start_position=-len(typed), display_meta=description)
