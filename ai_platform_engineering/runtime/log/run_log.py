"""The run log: what is stored of a run, the rules that every storage shares, and the interface that every storage implements."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from pydantic import JsonValue

from ai_platform_engineering.a2a.codec import TaskRef
from ai_platform_engineering.core.events import AnyEvent, InputRequested, RunStarted, StoredEvent

RunStatus = Literal["running", "paused", "ended"]
CallState = Literal["intent", "done", "unknown", "withdrawn"]
RequestStatus = Literal["pending", "claimed", "resolved", "expired", "withdrawn"]
FeedbackScore = Literal["up", "down"]


def make_thread_id(owner: str, context_id: str) -> str:
    """The graph's thread of a conversation. The owner is part of it: a context id is free text and may be sent by anybody."""
    return json.dumps([owner, context_id])


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
    holder: str = ""  # who took the run by a lease, and until when nobody else may
    lease_until: datetime | None = None

    @property
    def ref(self) -> TaskRef:
        return TaskRef(self.run_id, self.context_id)

    @property
    def thread_id(self) -> str:
        return make_thread_id(self.owner, self.context_id)


@dataclass(frozen=True, slots=True)
class AnswerMessage:
    """A message that continued a paused run, so that it is known when it is sent again. `before` is the number before its turn."""

    run_id: str
    message_id: str
    digest: str
    before: int


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """The runs of an owner in one context. `updated` is when the last of them began."""

    owner: str
    context_id: str
    created: datetime
    updated: datetime


@dataclass(frozen=True, slots=True)
class Marker:
    """A checkpoint of the graph, in its namespace."""

    ns: str
    checkpoint_id: str


@dataclass(frozen=True, slots=True)
class StoredMarker:
    """A checkpoint, and the number of the run's last event when it was stored."""

    ns: str
    checkpoint_id: str
    after_seq: int


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A call that changes something outside: the intent is stored before it, the outcome after it."""

    key: str
    tool: str
    arguments: JsonValue
    state: CallState
    epoch: int
    outcome: JsonValue = None
    settled_by: str = ""  # the person who said what became of a call with an unknown outcome

    @property
    def may_run(self) -> bool:
        """Said by `begin`: the call is to be made. Otherwise its outcome is known, or known to be unknown."""
        return self.state == "intent"


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """What people are asked for. The answer is claimed once, and then resolved by an event of the run."""

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
        """Somebody may still answer it: it has expired when its time has come, whether that has been told or not."""
        expires_at = self.event.asked.expires_at
        return self.status == "pending" and (expires_at is None or now < expires_at)


@dataclass(frozen=True, slots=True)
class Allowance:
    """A tool (`agent/tool`) that a person lets run without asking, in one conversation."""

    tool: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Feedback:
    """A person's last word on a run."""

    by: str
    score: FeedbackScore
    reason: str | None
    at: datetime


class RunLog(Protocol):
    """Where runs live. A number is given by the commit that stores the event, and readers see only stored events.

    An operation on a run that is not there raises RunNotFound. One that takes an epoch raises Fenced when the run has another
    owner or has ended.
    """

    async def create(self, new: NewRun) -> tuple[RunRow, bool]:
        """The run of the message and whether it is new; its first event is `RunStarted`. One transaction: a message sent
        twice at once starts one run. Raises MessageConflict when the id is known with other content."""
        ...

    async def get(self, run_id: str) -> RunRow | None: ...

    async def store_answer(self, answer: AnswerMessage) -> None:
        """Keeps an answer with its run."""
        ...

    async def find_answer(self, owner: str, context_id: str, message_id: str) -> AnswerMessage | None:
        """The answer that was taken under this id."""
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
        """A new epoch for the run: whoever wrote it before cannot write any more."""
        ...

    async def lease(self, run_id: str, holder: str, seconds: float, *, force: bool = False) -> int | None:
        """A new epoch for the holder, or None: the run has ended, or is leased and not taken by force."""
        ...

    async def append(
        self, run_id: str, epoch: int, events: Sequence[AnyEvent], markers: Sequence[Marker] = ()
    ) -> int:
        """Stores the events, in the order of the calls, and returns the last number. Raises Fenced. Requests that the events
        ask or resolve, and the markers, are part of the same commit."""
        ...

    async def read(self, run_id: str, after: int = 0, limit: int = 256) -> list[StoredEvent]:
        """The stored events above a number."""
        ...

    async def wait_for_event(self, run_id: str, after: int) -> None:
        """Returns when an event above the number is stored."""
        ...

    async def markers(self, run_id: str) -> list[StoredMarker]:
        """The checkpoints of the run, as they were stored; a checkpoint keeps its first number."""
        ...

    async def find_remote_task(self, run_id: str, key: str) -> str | None:
        """The remote task that the delegation of this key has ordered."""
        ...

    async def list_remote_tasks(self, run_id: str) -> list[tuple[str, str]]:
        """Every remote task that the run has ordered, with the agent's name."""
        ...

    async def store_remote_task(self, run_id: str, epoch: int, key: str, agent: str, task_id: str) -> None:
        """Records the remote task of a delegation, before it is followed. Raises Fenced."""
        ...

    async def begin(
        self, run_id: str, epoch: int, key: str, tool: str, arguments: Mapping[str, Any], *, idempotent: bool
    ) -> JournalEntry:
        """Stores that a call is about to be made; see `begun`. Raises Fenced."""
        ...

    async def finish(
        self, run_id: str, epoch: int, key: str, state: Literal["done", "withdrawn"], outcome: Any = None
    ) -> None:
        """Stores what became of a call that was begun. Raises Fenced."""
        ...

    async def settle(self, run_id: str, key: str, outcome: Any, by: str) -> bool:
        """A person's word on a call with an unknown outcome. False when its outcome is known or may still come."""
        ...

    async def journal(self, run_id: str) -> list[JournalEntry]:
        """The calls of the run, in the order in which they began."""
        ...

    async def find_settled_calls(self, owner: str, context_id: str) -> list[tuple[str, JournalEntry]]:
        """The calls of a conversation on which a person had the last word, each with its run."""
        ...

    async def request(self, request_id: str) -> PendingRequest | None:
        """The request of the run that asked last under this id."""
        ...

    async def requests(self, run_id: str) -> list[PendingRequest]:
        """What the run asked, answered or not, in the order in which it first did."""
        ...

    async def claim_requests(self, message: AnswerMessage, values: Mapping[str, Any], by: str) -> list[str]:
        """The requests of the run for which this answer is the first one, and in time. The message is kept with its run when it was
        so for any of them; all in one commit."""
        ...

    async def open_requests(self, owner: str | None = None) -> list[PendingRequest]:
        """What waits for people in any run of the owner, or of anybody, oldest first."""
        ...

    async def allow(self, run_id: str, epoch: int, tool: str, by: str) -> None:
        """Notes that a person lets the tool run without being asked again in the conversation of the run. Raises Fenced."""
        ...

    async def list_allowances(self, owner: str, context_id: str) -> list[Allowance]:
        """The tools that need no approval in the conversation any more."""
        ...

    async def disallow(self, owner: str, context_id: str, tool: str) -> bool:
        """Takes an allowance back. False when there is none."""
        ...

    async def rate(self, run_id: str, by: str, score: FeedbackScore, reason: str | None = None) -> Feedback:
        """Keeps what a person thinks of the run, in the place of what the same one has said before."""
        ...

    async def feedback(self, run_id: str) -> list[Feedback]:
        """What people think of the run, in the order in which they first said so."""
        ...

    async def unrate(self, run_id: str, by: str) -> bool:
        """Takes a person's word back. False when there is none."""
        ...

    async def find_expired_conversations(self, older_than: datetime) -> list[tuple[str, str]]:
        """The conversations (owner and context) of which `forget` would leave no run."""
        ...

    async def delete_runs(self, older_than: datetime) -> int:
        """Removes the runs that ended before, with all that belongs to them, and returns how many."""
        ...

    async def close(self) -> None:
        """Stores what was submitted; afterwards nothing is taken any more."""
        ...
