"""Queries of the run log in memory: finding and listing runs, conversations and requests."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ai_platform_engineering.a2a.codec import TaskRef
from ai_platform_engineering.core.errors import RunNotFound
from ai_platform_engineering.core.events import RunStarted, StoredEvent
from ai_platform_engineering.runtime.log.conversation_rows import (
    ConversationPage,
    ConversationPosition,
    ConversationRow,
    make_search_text,
)
from ai_platform_engineering.runtime.log.log_rows import (
    LAST_RUNS,
    Attempt,
    Feedback,
    JournalEntry,
    Marker,
    PendingRequest,
    RequestPage,
    RunFilter,
    RunPage,
    RunPosition,
    RunRow,
    StoredMarker,
)
from ai_platform_engineering.runtime.log.run_details import (
    DetailsFilter,
    DetailsPage,
    RunDetails,
    find_usage,
    shorten_question,
)
from ai_platform_engineering.runtime.log.run_log_rules import (
    PROGRESS_KINDS,
    matches,
)


@dataclass(slots=True)
class StoredRun:
    row: RunRow
    digest: str
    lasting_id: bool
    attempt: Attempt = "first"
    number: int = 0
    agents: dict[str, None] = field(default_factory=dict)  # in the order in which they were called
    unfollowed_since: datetime | None = None
    events: list[StoredEvent] = field(default_factory=list)
    markers: dict[Marker, StoredMarker] = field(default_factory=dict)
    remote_tasks: dict[str, tuple[str, str]] = field(default_factory=dict)  # by key: agent and task id
    journal: dict[str, JournalEntry] = field(default_factory=dict)
    feedback: dict[str, Feedback] = field(default_factory=dict)
    waiters: set[asyncio.Future[None]] = field(default_factory=set)

    @property
    def conversation(self) -> tuple[str, str]:
        return self.row.owner, self.row.context_id


@dataclass(slots=True)
class StoredConversation:
    title: str
    search_text: str


class MemoryQueries:
    """The queries of a run log in memory, and what they read."""

    def __init__(self) -> None:
        self._runs: dict[str, StoredRun] = {}
        self._requests: dict[str, PendingRequest] = {}
        self._request_numbers: dict[str, int] = {}  # by request id, in the order in which they were asked
        self._conversations: dict[tuple[str, str], StoredConversation] = {}

    async def list_runs(
        self, run_filter: RunFilter, *, after: RunPosition | None = None, limit: int
    ) -> RunPage:
        rows = [run.row for run in self._runs.values() if matches(run_filter, run.row)]
        rows.sort(key=_list_key, reverse=True)
        total = len(rows)
        if after is not None:
            rows = [row for row in rows if _list_key(row) < (after.state_at, after.run_id)]
        return RunPage(rows[:limit], total, has_more=len(rows) > limit)

    async def list_details(
        self, details_filter: DetailsFilter, *, after: int | None = None, limit: int
    ) -> DetailsPage:
        items: list[RunDetails] = []
        for run in reversed(self._runs.values()):
            if after is not None and run.number >= after:
                continue
            if run.row.owner == details_filter.owner and _matches_details(run, details_filter):
                items.append(_describe_run(run))
            if len(items) > limit:
                break
        return DetailsPage(items[:limit], has_more=len(items) > limit)

    async def find_runs_by_prefix(self, owner: str, prefix: str, limit: int) -> list[TaskRef]:
        refs = [run.row.ref for run in self._runs.values() if run.row.owner == owner]
        matching = [ref for ref in refs if ref.task_id.startswith(prefix)]
        return sorted(matching, key=lambda ref: ref.task_id)[:limit]

    async def find_contexts_by_prefix(self, owner: str, prefix: str, limit: int) -> list[str]:
        contexts = {run.row.context_id for run in self._runs.values() if run.row.owner == owner}
        return sorted(context for context in contexts if context.startswith(prefix))[:limit]

    async def find_open_runs(self, owner: str, context_id: str) -> list[RunRow]:
        return [row for row in self._runs_of(owner, context_id) if row.status != "ended"]

    async def find_run_of_message(self, owner: str, context_id: str, message_id: str) -> RunRow | None:
        rows = self._runs_of(owner, context_id)
        return next((row for row in rows if row.message_id == message_id), None)

    async def find_asking_run(self, owner: str, context_id: str) -> RunRow | None:
        asking = {request.run_id for request in self._requests.values()}
        rows = self._runs_of(owner, context_id)[:LAST_RUNS]
        return next((row for row in rows if row.run_id in asking), None)

    async def has_conversation(self, owner: str, context_id: str) -> bool:
        return bool(self._runs_of(owner, context_id))

    async def list_conversations(
        self, owner: str, *, query: str = "", after: ConversationPosition | None = None, limit: int
    ) -> ConversationPage:
        words = make_search_text(query.strip())
        rows: list[ConversationRow] = []
        for (row_owner, context_id), stored in self._conversations.items():
            runs = self._runs_of(row_owner, context_id)
            if row_owner != owner or words not in stored.search_text or not runs:
                continue
            rows.append(
                ConversationRow(
                    owner, context_id, stored.title, runs[-1].created, runs[0].created, runs[0].state
                )
            )
        rows.sort(key=lambda row: (row.updated, row.context_id), reverse=True)
        if after is not None:
            rows = [row for row in rows if (row.updated, row.context_id) < (after.updated, after.context_id)]
        return ConversationPage(rows[:limit], has_more=len(rows) > limit)

    async def find_unfinished(self) -> list[RunRow]:
        return [run.row for run in self._runs.values() if run.row.status != "ended"]

    async def read_outlines(self, run_ids: Sequence[str]) -> dict[str, list[StoredEvent]]:
        outlines: dict[str, list[StoredEvent]] = {}
        for run_id in run_ids:
            events = self._find_run(run_id).events
            outlines[run_id] = [item for item in events if item.event.kind not in PROGRESS_KINDS]
        return outlines

    async def list_open_requests(self, owner: str, *, after: int = 0, limit: int) -> RequestPage:
        now = datetime.now(UTC)
        items: list[tuple[PendingRequest, RunRow]] = []
        last_number = after
        for request_id, number in self._request_numbers.items():
            request = self._requests[request_id]
            row = self._find_run(request.run_id).row
            if number <= after or row.owner != owner or row.status == "ended":
                continue
            if not request.waits(now):
                continue
            if len(items) == limit:
                return RequestPage(items, last_number)
            items.append((request, row))
            last_number = number
        return RequestPage(items)

    async def find_overdue_runs(self, limit: int) -> list[str]:
        now = datetime.now(UTC)
        overdue: dict[str, datetime] = {}  # when the first request of a run expired
        for request in self._requests.values():
            expires_at = request.event.asked.expires_at
            if request.status == "pending" and expires_at is not None and expires_at <= now:
                overdue[request.run_id] = min(expires_at, overdue.get(request.run_id, expires_at))
        return sorted(overdue, key=lambda run_id: overdue[run_id])[:limit]

    async def find_expired_conversations(
        self, older_than: datetime, *, after: tuple[str, str] = ("", ""), limit: int
    ) -> list[tuple[str, str]]:
        old_ids = self._find_old(older_than)
        current = {run.conversation for run_id, run in self._runs.items() if run_id not in old_ids}
        expired = {self._runs[run_id].conversation for run_id in old_ids} - current
        return sorted(conversation for conversation in expired if conversation > after)[:limit]

    async def has_run_since(self, owner: str, context_id: str, moment: datetime) -> bool:
        rows = self._runs_of(owner, context_id)
        return any(row.status != "ended" or row.updated >= moment for row in rows)

    def _runs_of(self, owner: str, context_id: str | None = None) -> list[RunRow]:
        """The runs of an owner, newest first."""
        rows: list[RunRow] = []
        for run in reversed(self._runs.values()):
            if run.row.owner == owner and context_id in (None, run.row.context_id):
                rows.append(run.row)
        return rows

    def _find_run(self, run_id: str) -> StoredRun:
        """Raises RunNotFound."""
        if run_id not in self._runs:
            raise RunNotFound(f"There is no run {run_id}.")
        return self._runs[run_id]

    def _find_old(self, older_than: datetime) -> set[str]:
        run_ids: set[str] = set()
        for run_id, run in self._runs.items():
            if run.row.status == "ended" and run.row.updated < older_than:
                run_ids.add(run_id)
        return run_ids


def _list_key(row: RunRow) -> tuple[datetime, str]:
    return row.state_at, row.run_id


def _matches_details(run: StoredRun, details_filter: DetailsFilter) -> bool:
    if details_filter.state not in (None, run.row.state):
        return False
    if details_filter.agent is not None and details_filter.agent not in run.agents:
        return False
    return details_filter.words in make_search_text(_question_of(run))


def _question_of(run: StoredRun) -> str:
    started = run.events[0].event
    assert isinstance(started, RunStarted)
    return shorten_question(started)


def _describe_run(run: StoredRun) -> RunDetails:
    usage = find_usage([run.events[-1].event])
    return RunDetails(run.row, run.number, _question_of(run), tuple(sorted(run.agents)), usage)
