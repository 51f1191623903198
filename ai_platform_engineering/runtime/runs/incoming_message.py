"""A user's message on its way to a run."""

from dataclasses import dataclass
from typing import Literal

from ai_platform_engineering.a2a.message_parts import UserPart, hash_parts
from ai_platform_engineering.runtime.log.run_log import AnswerMessage, RunRow

BusyPolicy = Literal["enqueue", "reject", "interrupt"]


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A user's message as it came in, checked and readable."""

    message_id: str
    parts: tuple[UserPart, ...]
    owner: str = ""
    principal: str = ""
    context_id: str | None = None
    task_id: str | None = None  # of the run that it continues
    run_id: str | None = None  # that a new run must have, when somebody else has given the id
    seconds: float | None = None  # how long its sender will wait
    busy: BusyPolicy | None = None  # what it wants when its conversation works on something else
    new_question: bool = False  # no answer, whatever the conversation waits for

    def answer(self, row: RunRow) -> AnswerMessage:
        """The message as one that continues a run."""
        return AnswerMessage(row.run_id, self.message_id, hash_parts(self.parts), row.last_seq)
