"""Questions of tool servers: asked with interrupts, and answered when the graph is resumed."""

from collections.abc import Iterator
from contextlib import contextmanager

from langgraph.types import interrupt

from ai_platform_engineering.mcp_client.elicitation import (
    AnsweredQuestion,
    CallPause,
    ElicitationAnswer,
    ResumableCall,
    ServerQuestion,
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
        self._answered: list[AnsweredQuestion] = []

    def add(self, pause: CallPause) -> None:
        """What the call waits for now."""
        self._pause = pause

    def ask(self, key: str, run_id: str, is_repeatable: bool) -> ResumableCall:
        """The call with the answers to what it waited for; interrupts the graph while one is missing."""
        if self._pause is None:
            return ResumableCall(key, run_id, is_repeatable, self._asked_count)
        pause = self._pause
        self._read_earlier(pause)
        earlier = tuple(self._answered)
        answers = tuple(self._ask(question) for question in pause.questions)
        self._asked_count = pause.asked_before + len(answers)
        return ResumableCall(key, run_id, is_repeatable, self._asked_count, pause, answers, earlier)

    def _read_earlier(self, pause: CallPause) -> None:
        """Reads the answers of earlier rounds, which this task has not read when it was started again."""
        first_known = pause.asked_before - len(pause.earlier)
        while self._read_count < first_known:
            interrupt(None)
            self._read_count += 1
        while self._read_count < pause.asked_before:
            self._ask(pause.earlier[self._read_count - first_known])

    def _ask(self, question: ServerQuestion) -> ElicitationAnswer:
        answer = read_answer(question, interrupt(question.form.model_dump(mode="json")))
        self._read_count += 1
        self._answered.append(AnsweredQuestion(question, answer))
        return answer


@contextmanager
def resuming(call: ResumableCall) -> Iterator[None]:
    """Lets the tool that runs inside ask people."""
    token = resumable_call.set(call)
    try:
        yield
    finally:
        resumable_call.reset(token)
