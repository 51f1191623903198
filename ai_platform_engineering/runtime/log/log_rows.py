"""The rows that are stored of runs: events, requests, the journal, conversations."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from ai_platform_engineering.a2a.codec import TaskRef
from ai_platform_engineering.core.events import AnyEvent, InputRequested, Part, RunStarted
from ai_platform_engineering.core.transcript import TranscriptState
from ai_platform_engineering.runtime.log.push_store import PushTarget

RunStatus = Literal["running", "paused", "ended"]
CallState = Literal["intent", "waiting", "done", "unknown", "withdrawn"]
"""Waiting: the call has begun, and its server waits for people; the outcome tells for what."""
NextCallState = Literal["intent", "waiting", "done", "withdrawn"]
RequestStatus = Literal["pending", "claimed", "resolved", "expired", "withdrawn"]
FeedbackScore = Literal["up", "down"]
# How far the last process came with a run: it is the first one; the run waited, or was worked on; it was
# stopped in an orderly way.
Attempt = Literal["first", "waiting", "working", "handed_over"]


# Bytes of a stored message; what a longer one says is not looked for in `list_person_input`.
MAX_PERSON_INPUT = 512 * 1024
LAST_RUNS = 100  # of a conversation, in which `find_asking_run` looks


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
    push: PushTarget | None = None  # who is notified of its states, from the first one on


@dataclass(frozen=True, slots=True)
class RunRow:
    """The current state of a run. `epoch` fences its writers: a write with an older one is refused.

    `state` is what clients see, since `state_at`. `crashes` is how often a process died while it worked on
    the run.
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
    state: TranscriptState
    state_at: datetime
    crashes: int = 0

    @property
    def ref(self) -> TaskRef:
        return TaskRef(self.run_id, self.context_id)

    @property
    def thread_id(self) -> str:
        return make_thread_id(self.owner, self.context_id)


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs of an owner are listed: of one conversation, in one state, in their state since a time."""

    owner: str
    context_id: str | None = None
    state: TranscriptState | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunPosition:
    """A position in a list of runs: that of a run in its state. It stays valid when runs change."""

    state_at: datetime
    run_id: str

    @classmethod
    def of(cls, row: RunRow) -> "RunPosition":
        return cls(row.state_at, row.run_id)


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of a list of runs, the latest change of state first; `total` counts the runs of all pages."""

    rows: list[RunRow]
    total: int
    has_more: bool


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
class RequestPage:
    """A page of a list of requests with their runs. `next_after`: the position of the next page."""

    items: list[tuple[PendingRequest, RunRow]]
    next_after: int | None = None


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
