"""The run log: what is stored of a run, and the interface that every storage implements."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from ai_platform_engineering.core.events import AnyEvent, Numbered, RunStarted
from ai_platform_engineering.utils.a2a_common.codec import TaskRef

RunStatus = Literal["running", "paused", "ended"]


@dataclass(frozen=True, slots=True)
class NewRun:
    """A message that starts a run. `digest` is of its content: the same id with other content is an error."""

    run_id: str
    context_id: str
    owner: str
    message_id: str
    digest: str
    started: RunStarted
    lasting_id: bool  # a message without a context of its own is recognised only while its run works


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as it stands. `epoch` fences its writers: a write with an older one is refused."""

    run_id: str
    context_id: str
    owner: str
    principal: str
    message_id: str
    status: RunStatus
    last_seq: int
    epoch: int
    created: datetime
    updated: datetime

    @property
    def ref(self) -> TaskRef:
        return TaskRef(self.run_id, self.context_id)


@dataclass(frozen=True, slots=True)
class Answer:
    """A message that continued a paused run, so that it is known when it is sent again. `before` is the number before its turn."""

    run_id: str
    message_id: str
    digest: str
    before: int


class RunLog(Protocol):
    """Where runs live. A number is given by the commit that stores the event, and readers see only stored events."""

    async def create(self, new: NewRun) -> tuple[RunRow, bool]:
        """The run of the message and whether it is new; its first event is `RunStarted`. One transaction: a message sent
        twice at once starts one run. Raises MessageConflict when the id is known with other content."""
        ...

    async def get(self, run_id: str) -> RunRow | None: ...

    async def remember(self, answer: Answer) -> None:
        """Keeps an answer with its run."""
        ...

    async def recall(self, owner: str, context_id: str, message_id: str) -> Answer | None:
        """The answer that was taken under this id."""
        ...

    async def find(self, owner: str, context_id: str | None = None) -> list[RunRow]:
        """The runs of an owner, newest first."""
        ...

    async def claim(self, run_id: str) -> int:
        """A new epoch for the run: whoever wrote it before cannot write any more."""
        ...

    async def append(self, run_id: str, epoch: int, events: Sequence[AnyEvent]) -> int:
        """Stores the events, in the order of the calls, and returns the last number. Raises Fenced."""
        ...

    async def read(self, run_id: str, after: int = 0, limit: int = 256) -> list[Numbered]:
        """The stored events above a number."""
        ...

    async def changed(self, run_id: str, after: int) -> None:
        """Returns when an event above the number is stored."""
        ...


def status_after(events: Sequence[AnyEvent], before: RunStatus) -> RunStatus:
    """What the events make of a run's status."""
    status = before
    for event in events:
        if event.kind in ("answered", "failed", "cancelled"):
            status = "ended"
        elif event.kind == "paused":
            status = "paused"
        elif event.kind == "input_resolved":
            status = "running"
    return status
