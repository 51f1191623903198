"""The run log: the rows that are stored of a run, and the interface that every storage implements."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from pydantic import JsonValue

from ai_platform_engineering.a2a.codec import TaskRef
from ai_platform_engineering.core.events import AnyEvent, InputRequested, Part, RunStarted, StoredEvent

RunStatus = Literal["running", "paused", "ended"]
CallState = Literal["intent", "done", "unknown", "withdrawn"]
RequestStatus = Literal["pending", "claimed", "resolved", "expired", "withdrawn"]
FeedbackScore = Literal["up", "down"]
# How far the last process came with a run: it is the first one; the run waited, or was worked on; it was
# stopped in an orderly way.
Attempt = Literal["first", "waiting", "working", "handed_over"]


# Bytes of a stored message; what a longer one says is not looked for in `list_person_input`.
MAX_PERSON_INPUT = 512 * 1024


def make_thread_id(owner: str, context_id: str) -> str:
    """The id of a conversation's LangGraph thread. With the owner: anybody may send any id."""
    return json.dumps([owner, context_id])


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be stored. `digest` is of its message: the same message id with another one is an error."""

    run_id: str
    context_id: str
    owner: str
    message_id: str
    digest: str
    started: RunStarted
    lasting_id: bool  # False: the message id is recognised only while the run works
    attempt: Literal["first", "working"] = "first"  # working: nothing is before it in any queue


@dataclass(frozen=True, slots=True)
class RunRow:
    """The current state of a run. `epoch` fences its writers: a write with an older one is refused.

    `crashes` is how often a process died while it worked on the run.
    """

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
    crashes: int = 0

    @property
    def ref(self) -> TaskRef:
        return TaskRef(self.run_id, self.context_id)

    @property
    def thread_id(self) -> str:
        return make_thread_id(self.owner, self.context_id)


@dataclass(frozen=True, slots=True)
class AnswerMessage:
    """A message that continued a paused run; stored so that it is recognised when it is sent again.

    `before` is the sequence number before its turn.
    """

    run_id: str
    message_id: str
    digest: str
    before: int


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation: the runs of an owner in one context. `updated` is when the last of them began."""

    owner: str
    context_id: str
    created: datetime
    updated: datetime


@dataclass(frozen=True, slots=True)
class Marker:
    """A checkpoint of the graph that is stored together with events: its namespace and id."""

    ns: str
    checkpoint_id: str


@dataclass(frozen=True, slots=True)
class StoredMarker:
    """A checkpoint, and the sequence number of the run's last event when it was stored."""

    ns: str
    checkpoint_id: str
    after_seq: int


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events to be stored of one run."""

    run_id: str
    epoch: int
    events: Sequence[AnyEvent]


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A tool call with effects: the intent is stored before the call, the outcome after it."""

    key: str
    tool: str
    arguments: JsonValue
    state: CallState
    epoch: int
    outcome: JsonValue = None
    settled_by: str = ""  # the person who reported an unknown outcome

    @property
    def may_run(self) -> bool:
        """Whether the call may be made, after `begin`; otherwise it has an outcome, or an unknown one."""
        return self.state == "intent"


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request to a person. One answer claims it; an event of the run then resolves it."""

    request_id: str
    run_id: str
    event: InputRequested
    status: RequestStatus = "pending"
    answer: JsonValue = None
    by: str = ""
    at: datetime | None = None  # when it was answered

    @property
    def is_open(self) -> bool:
        return self.status in ("pending", "claimed")

    def waits(self, now: datetime) -> bool:
        """Whether it can still be answered: it is pending, and not past its expiry."""
        expires_at = self.event.asked.expires_at
        return self.status == "pending" and (expires_at is None or now < expires_at)


@dataclass(frozen=True, slots=True)
class PersonInput:
    """What people wrote for one run: the message that began it, and its requests with their answers."""

    run_id: str
    parts: tuple[Part, ...]
    requests: tuple[PendingRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class Allowance:
    """A tool (`agent/tool`) that a person allowed without approvals, in one conversation."""

    tool: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Feedback:
    """A person's rating of a run."""

    by: str
    score: FeedbackScore
    reason: str | None
    at: datetime


class RunLog(Protocol):
    """The store of runs and their events. Commits assign sequence numbers; readers see only committed events.

    An operation on an unknown run raises RunNotFound. One that takes an epoch raises Fenced when the run has
    another owner or has ended.
    """

    async def create(self, new: NewRun) -> tuple[RunRow, bool]:
        """The run of the message, and whether it is new; its first event is `RunStarted`.

        It is one transaction: a message sent twice at once starts one run. Raises MessageConflict when the
        message id was used with other content.
        """
        ...

    async def get(self, run_id: str) -> RunRow | None: ...

    async def store_answer(self, answer: AnswerMessage) -> None:
        """Stores a message that continued its run."""
        ...

    async def find_answer(self, owner: str, context_id: str, message_id: str) -> AnswerMessage | None:
        """The message that continued a run under this id."""
        ...

    async def find_runs(self, owner: str, context_id: str | None = None) -> list[RunRow]:
        """The runs of an owner, newest first."""
        ...

    async def conversations(self, owner: str) -> list[ConversationRow]:
        """The conversations of an owner, the one with the newest run first."""
        ...

    async def find_unfinished(self) -> list[RunRow]:
        """Every run that has not ended, oldest first."""
        ...

    async def advance_epoch(self, run_id: str) -> int:
        """Gives the run a new epoch, so that earlier writers are fenced, and returns it."""
        ...

    async def take_over(self, run_id: str) -> RunRow:
        """Gives the run of an earlier process a new epoch, and counts the crash if it died at work."""
        ...

    async def mark_attempt(self, run_id: str, attempt: Literal["waiting", "working", "handed_over"]) -> None:
        """Stores that the run waits in this process, is worked on, or was stopped in an orderly way."""
        ...

    async def append(
        self, run_id: str, epoch: int, events: Sequence[AnyEvent], markers: Sequence[Marker] = ()
    ) -> int:
        """Stores the events, in the order of the calls, and returns the last sequence number. Raises Fenced.

        Requests that the events open or resolve, and the markers, are part of the same commit.
        """
        ...

    def append_all(self, batches: Sequence[EventBatch]) -> asyncio.Future[list[Exception | None]]:
        """Stores events of several runs in one commit, in the order of the calls, also before it is awaited.

        The result has an error for each run that was refused; the others are stored.
        """
        ...

    async def read(self, run_id: str, after: int = 0, limit: int = 256) -> list[StoredEvent]:
        """The stored events after a sequence number."""
        ...

    async def wait_for_event(self, run_id: str, after: int) -> None:
        """Returns when an event after the sequence number is stored."""
        ...

    async def markers(self, run_id: str) -> list[StoredMarker]:
        """The checkpoints of the run in the order they were stored; each keeps its first sequence number."""
        ...

    async def find_remote_task(self, run_id: str, key: str) -> str | None:
        """The id of the remote task of a delegation."""
        ...

    async def list_remote_tasks(self, run_id: str) -> list[tuple[str, str]]:
        """Every remote task of the run: the agent's name and the task id."""
        ...

    async def store_remote_task(self, run_id: str, epoch: int, key: str, agent: str, task_id: str) -> None:
        """Records the remote task of a delegation, before it is followed. Raises Fenced."""
        ...

    async def begin(
        self, run_id: str, epoch: int, key: str, tool: str, arguments: Mapping[str, Any], *, idempotent: bool
    ) -> JournalEntry:
        """Stores that a call is about to be made; see `begin_entry`. Raises Fenced."""
        ...

    async def finish(
        self, run_id: str, epoch: int, key: str, state: Literal["done", "withdrawn"], outcome: Any = None
    ) -> None:
        """Stores the outcome of a call that has begun. Raises Fenced."""
        ...

    async def settle(self, run_id: str, key: str, outcome: Any, by: str) -> bool:
        """Stores the outcome that a person reports. False when the outcome is known or may still come."""
        ...

    async def journal(self, run_id: str) -> list[JournalEntry]:
        """The calls of the run, in the order in which they began."""
        ...

    async def find_settled_calls(self, owner: str, context_id: str) -> list[tuple[str, JournalEntry]]:
        """The calls of a conversation whose outcome a person reported, each with its run id."""
        ...

    async def request(self, request_id: str) -> PendingRequest | None:
        """The request with this id, of the last run that used it."""
        ...

    async def requests(self, run_id: str) -> list[PendingRequest]:
        """All requests of the run, answered or not, oldest first."""
        ...

    async def claim_requests(self, message: AnswerMessage, values: Mapping[str, Any], by: str) -> list[str]:
        """Claims the requests that have no answer yet and are not expired, and returns their ids.

        The message is stored in the same commit when it claimed any.
        """
        ...

    async def open_requests(self, owner: str | None = None) -> list[PendingRequest]:
        """The pending requests in all runs of the owner, or of everybody, oldest first."""
        ...

    async def list_person_input(self, owner: str, context_id: str, limit: int) -> list[PersonInput]:
        """What people wrote in the last runs of a conversation, the newest first; very long messages not."""
        ...

    async def allow(self, run_id: str, epoch: int, tool: str, by: str) -> None:
        """Stores that a tool needs no approval any more in the run's conversation. Raises Fenced."""
        ...

    async def list_allowances(self, owner: str, context_id: str) -> list[Allowance]:
        """The tools that need no approval any more in the conversation."""
        ...

    async def disallow(self, owner: str, context_id: str, tool: str) -> bool:
        """Removes an allowance. False when there is none."""
        ...

    async def rate(self, run_id: str, by: str, score: FeedbackScore, reason: str | None = None) -> Feedback:
        """Stores a person's rating of the run; it replaces an earlier one of the same person."""
        ...

    async def feedback(self, run_id: str) -> list[Feedback]:
        """The ratings of the run, in the order in which people first gave them."""
        ...

    async def unrate(self, run_id: str, by: str) -> bool:
        """Removes a person's rating. False when there is none."""
        ...

    async def find_expired_conversations(self, older_than: datetime) -> list[tuple[str, str]]:
        """The conversations (owner and context id) of which `delete_runs` would leave no run."""
        ...

    async def delete_runs(self, older_than: datetime) -> int:
        """Deletes the runs that ended before, with all that belongs to them, and returns how many."""
        ...

    async def close(self) -> None:
        """Commits what was submitted; afterwards every operation is refused."""
        ...
