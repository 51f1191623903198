"""The run log: the interface that every storage implements."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

from ai_platform_engineering.core.events import AnyEvent, StoredEvent
from ai_platform_engineering.runtime.log.conversation_rows import ConversationPage, ConversationPosition
from ai_platform_engineering.runtime.log.id_search import IdSearch
from ai_platform_engineering.runtime.log.log_rows import (
    Allowance,
    AnswerMessage,
    EventBatch,
    Feedback,
    FeedbackScore,
    JournalEntry,
    Marker,
    NewRun,
    NextCallState,
    PendingRequest,
    PersonInput,
    RequestPage,
    RunFilter,
    RunPage,
    RunPosition,
    RunRow,
    StoredMarker,
)
from ai_platform_engineering.runtime.log.push_store import PushStore
from ai_platform_engineering.runtime.log.result_store import ResultStore
from ai_platform_engineering.runtime.log.run_details import DetailsFilter, DetailsPage
from ai_platform_engineering.runtime.log.shares import ShareStore


class RunLog(IdSearch, ShareStore, Protocol):
    """The store of runs and their events. Commits assign sequence numbers; readers see only committed events.

    An operation on an unknown run raises RunNotFound. One that takes an epoch raises Fenced when the run has
    another owner or has ended.
    """

    @property
    def push(self) -> PushStore:
        """The push notifications of runs."""
        ...

    @property
    def results(self) -> ResultStore:
        """The tool results of runs that are too long for messages; they are deleted with their runs."""
        ...

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

    async def list_runs(
        self, run_filter: RunFilter, *, after: RunPosition | None = None, limit: int
    ) -> RunPage:
        """A page of the runs that match, from a position on. Its cost does not depend on the other pages."""
        ...

    async def list_details(
        self, details_filter: DetailsFilter, *, after: int | None = None, limit: int
    ) -> DetailsPage:
        """A page of the runs that match, the one that began last first, from behind a run's number on."""
        ...

    async def add_missing_details(self) -> None:
        """Adds the details of runs that an older version of this program stored without them."""
        ...

    async def find_open_runs(self, owner: str, context_id: str) -> list[RunRow]:
        """The runs of a conversation that have not ended, newest first."""
        ...

    async def find_run_of_message(self, owner: str, context_id: str, message_id: str) -> RunRow | None:
        """The newest run of a conversation that began with this message."""
        ...

    async def find_asking_run(self, owner: str, context_id: str) -> RunRow | None:
        """The newest run of a conversation that had requests, of its last runs."""
        ...

    async def has_conversation(self, owner: str, context_id: str) -> bool:
        """Whether the owner has runs in this conversation."""
        ...

    async def list_conversations(
        self, owner: str, *, query: str = "", after: ConversationPosition | None = None, limit: int
    ) -> ConversationPage:
        """A page of an owner's conversations, those whose title or questions contain the words."""
        ...

    async def rename_conversation(self, owner: str, context_id: str, title: str) -> bool:
        """Gives a conversation another title. False when there is none."""
        ...

    async def delete_conversation(self, owner: str, context_id: str) -> int:
        """Deletes the ended runs of a conversation with all that belongs to them, and returns how many."""
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

    async def mark_unfollowed(self, run_id: str, since: datetime | None) -> None:
        """Stores since when nobody follows the run; None while somebody does."""
        ...

    async def find_unfollowed_since(self, run_id: str) -> datetime | None:
        """Since when nobody follows the run; None while somebody does, or while nobody watches that."""
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

    async def read_outlines(self, run_ids: Sequence[str]) -> dict[str, list[StoredEvent]]:
        """The events of several runs without their texts, tool calls and plans: what their states and
        messages are made of."""
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
        self, run_id: str, epoch: int, key: str, state: NextCallState, outcome: Any = None
    ) -> None:
        """Stores the outcome of a call that has begun, or what it waits for. Raises Fenced."""
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

    async def list_open_requests(self, owner: str, *, after: int = 0, limit: int) -> RequestPage:
        """A page of the owner's requests that can be answered now, oldest first, from a position on."""
        ...

    async def find_overdue_runs(self, limit: int) -> list[str]:
        """Runs with a request that is past its expiry and still marked as pending, the longest overdue
        first."""
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

    async def find_expired_conversations(
        self, older_than: datetime, *, after: tuple[str, str] = ("", ""), limit: int
    ) -> list[tuple[str, str]]:
        """The conversations (owner and context id) of which `delete_runs` would leave no run; in this order,
        from a position on."""
        ...

    async def has_run_since(self, owner: str, context_id: str, moment: datetime) -> bool:
        """Whether a run of the conversation has not ended, or not before this moment."""
        ...

    async def delete_runs(self, older_than: datetime) -> int:
        """Deletes the runs that ended before, with all that belongs to them, and returns how many."""
        ...

    async def check_writable(self) -> str | None:
        """Why nothing can be stored now; None if it can."""
        ...

    async def close(self) -> None:
        """Commits what was submitted; afterwards every operation is refused."""
        ...
