"""Questions of tool servers: asked with interrupts, and answered when the graph is resumed."""

from collections.abc import Iterator
from contextlib import contextmanager

from langgraph.types import interrupt

from ai_platform_engineering.mcp_client.elicitation import (
    CallPause,
    ElicitationAnswer,
    ResumableCall,
    read_answer,
    resumable_call,
)


class PausedQuestions:
    """The questions of one tool call, over all times that its graph was resumed.

    LangGraph gives the answers of a task in the order of its interrupts, from the first one on.
    """

    def __init__(self, pause: CallPause | None, asked_count: int) -> None:
        """`pause`: what the call waited for before the graph was resumed. `asked_count`: how many questions
        of a call that a crash has interrupted had been answered."""
        self._pause = pause
        self._asked_count = asked_count
        self._read_count = 0  # answers that this task has read

    def add(self, pause: CallPause) -> None:
        """What the call waits for now."""
        self._pause = pause

    def ask(self, key: str, run_id: str, is_repeatable: bool) -> ResumableCall:
        """The call with the answers to what it waited for; interrupts the graph while one is missing."""
        if self._pause is None:
            return ResumableCall(key, run_id, is_repeatable, self._asked_count)
        pause = self._pause
        while self._read_count < pause.asked_before:
            interrupt(None)  # answered in an earlier round
            self._read_count += 1
        answers = list[ElicitationAnswer]()
        for question in pause.questions:
            answers.append(read_answer(question, interrupt(question.form.model_dump(mode="json"))))
            self._read_count += 1
        self._asked_count = pause.asked_before + len(answers)
        return ResumableCall(key, run_id, is_repeatable, self._asked_count, pause, tuple(answers))


@contextmanager
def resuming(call: ResumableCall) -> Iterator[None]:
    """Lets the tool that runs inside ask people."""
    token = resumable_call.set(call)
    try:
        yield
    finally:
        resumable_call.reset(token)
