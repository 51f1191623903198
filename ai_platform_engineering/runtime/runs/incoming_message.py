"""A user's message on its way to a run."""

from dataclasses import dataclass
from typing import Literal

from a2a.types import Message

from ai_platform_engineering.a2a.message_parts import (
    UserPart,
    hash_parts,
    is_new_question,
    read_busy_policy,
    read_origin_run,
    read_parts,
    read_timeout,
)
from ai_platform_engineering.runtime.log.log_rows import AnswerMessage, RunRow
from ai_platform_engineering.runtime.log.push_store import PushTarget

BusyPolicy = Literal["enqueue", "reject", "interrupt"]


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A user's message, validated and parsed."""

    message_id: str
    parts: tuple[UserPart, ...]
    owner: str = ""
    principal: str = ""
    context_id: str | None = None
    task_id: str | None = None  # of the run that it continues
    run_id: str | None = None  # that a new run must have, when the sender has chosen the id
    seconds: float | None = None  # how long its sender will wait
    busy: BusyPolicy | None = None  # what to do when its conversation works on another question
    new_question: bool = False  # never an answer, whatever the conversation waits for
    text_decisions: bool = False  # its text may decide on approvals
    push: PushTarget | None = None  # who is notified of the states of a new run

    def to_answer(self, row: RunRow) -> AnswerMessage:
        """The message as an answer that continues a run."""
        return AnswerMessage(row.run_id, self.message_id, hash_parts(self.parts), row.last_seq)


def read_message(
    message: Message, *, owner: str, principal: str, max_file_bytes: int, text_decisions: bool = False
) -> IncomingMessage:
    """The incoming message of an A2A message. Raises Refused and UnsupportedPart.

    `text_decisions`: the client's texts may decide on approvals. Those of a supervisor never do: a model
    wrote them."""
    parts = read_parts(message, max_file_bytes)
    return IncomingMessage(
        message_id=message.message_id,
        parts=parts,
        text_decisions=text_decisions and read_origin_run(parts) is None,
        owner=owner,
        principal=principal,
        context_id=message.context_id or None,
        task_id=message.task_id or None,
        seconds=read_timeout(message),
        busy=read_busy_policy(message),
        new_question=is_new_question(message),
    )
