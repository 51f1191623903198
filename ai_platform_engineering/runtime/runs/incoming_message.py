"""A user's message on its way to a run."""

from dataclasses import dataclass
from typing import Literal

from ai_platform_engineering.a2a.message_parts import UserPart, digest
from ai_platform_engineering.runtime.log.run_log import Answer, RunRow

Busy = Literal["enqueue", "reject", "interrupt"]


@dataclass(frozen=True, slots=True)
class Incoming:
    """A user's message as it came in, checked and readable."""

    message_id: str
    parts: tuple[UserPart, ...]
    owner: str = ""
    principal: str = ""
    context_id: str | None = None
    task_id: str | None = None  # of the run that it continues
    run_id: str | None = None  # that a new run must have, when somebody else has given the id
    seconds: float | None = None  # how long its sender will wait
    busy: Busy | None = None  # what it wants when its conversation works on something else
    new_question: bool = False  # no answer, whatever the conversation waits for

    def answer(self, row: RunRow) -> Answer:
        """The message as one that continues a run."""
        return Answer(row.run_id, self.message_id, digest(self.parts), row.last_seq)
