"""The prompt of `caipe chat`: questions of one or more lines, with history, completion and pasting."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, InMemoryHistory

from ai_platform_engineering.terminal.key_bindings import newline_key_bindings

COMMANDS = (
    "/help",
    "/agents",
    "/workflows",
    "/skills",
    "/pending",
    "/show",
    "/new",
    "/context",
    "/task",
    "/quit",
    "/exit",
)
HELP = """/agents, /workflows and /skills list what there is.
/pending shows and answers what waits for you in this conversation.
/show has the last run in detail, /task its id.
/new starts a new conversation, /context shows its id, /quit leaves (Ctrl-D too).
Any other /name begins a question: the skill of that name is followed.
Enter sends; Esc-Enter, Ctrl-J, or a backslash before Enter makes a new line.
Up and Ctrl-R find earlier questions.
Ctrl-C stops the answer; a second one leaves."""
_PROMPT = "› "
_CONTINUATION = "  "
_LEAVE_HINT = "(Ctrl-C again leaves, or Ctrl-D.)"
_SECONDS_TO_LEAVE = 2.0


class QuestionPrompt:
    """Reads questions from the terminal."""

    def __init__(self, history: Path | None) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(history)) if history else InMemoryHistory(),
            auto_suggest=AutoSuggestFromHistory(),
            completer=WordCompleter(list(COMMANDS), sentence=True),
            key_bindings=newline_key_bindings(),
            prompt_continuation=_CONTINUATION,
        )
        self._interrupted_at = float("-inf")

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
