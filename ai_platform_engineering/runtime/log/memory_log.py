"""The run log in memory: for tests, for `LANGGRAPH_DEV`, and where nothing has to survive the process."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from ai_platform_engineering.core.errors import Fenced, MessageConflict, Refused, RunNotFound
from ai_platform_engineering.core.events import AnyEvent, StoredEvent, clean_json
from ai_platform_engineering.runtime.log.run_log import (
    Allowance,
    AnswerMessage,
    ConversationRow,
    Feedback,
    FeedbackScore,
    JournalEntry,
    Marker,
    NewRun,
    PendingRequest,
    RunRow,
    StoredMarker,
    begun,
    can_settle,
    changes_requests,
    requests_after,
    status_after,
)


@dataclass(slots=True)
class _Stored:
    row: RunRow
    digest: str
    lasting_id: bool
    events: list[StoredEvent] = field(default_factory=list)
    markers: dict[Marker, StoredMarker] = field(default_factory=dict)
    orders: dict[str, tuple[str, str]] = field(default_factory=dict)
    journal: dict[str, JournalEntry] = field(default_factory=dict)
    feedback: dict[str, Feedback] = field(default_factory=dict)
    waiting: set[asyncio.Future[None]] = field(default_factory=set)


class MemoryLog:
    """Keeps every run until `most` runs are held; then the oldest ended ones go."""

    def __init__(self, most: int = 10_000) -> None:
        self._runs: dict[str, _Stored] = {}
        self._messages: dict[tuple[str, str, str], str] = {}
        self._answers: dict[tuple[str, str, str], AnswerMessage] = {}
        self._requests: dict[str, PendingRequest] = {}
        self._allowances: dict[tuple[str, str], dict[str, Allowance]] = {}
        self._most = most

    async def create(self, new: NewRun) -> tuple[RunRow, bool]:
        # No await in here: two equal messages at once must not both pass.
        key = (new.owner, new.context_id if new.lasting_id else "", new.message_id)
        known = self._runs.get(self._messages.get(key, ""))
        if known is not None and (new.lasting_id or known.row.status == "running"):
            if known.digest == new.digest:
                return known.row, False
            if new.lasting_id:
                raise MessageConflict()
        if new.run_id in self._runs:
            raise Refused("There is a task with this id already.")
        now = datetime.now(UTC)
        row = RunRow(
            run_id=new.run_id,
            context_id=new.context_id,
            owner=new.owner,
            principal=new.started.principal,
            message_id=new.message_id,
            status="running",
            last_seq=0,
            epoch=1,
            created=now,
            updated=now,
        )
        self._forget_oldest()
        self._runs[new.run_id] = _Stored(row, new.digest, new.lasting_id)
        self._messages[key] = new.run_id
        self._store(self._runs[new.run_id], [new.started])
        return self._runs[new.run_id].row, True

    async def get(self, run_id: str) -> RunRow | None:
        stored = self._runs.get(run_id)
        if stored:
            return stored.row
        return None

    async def store_answer(self, answer: AnswerMessage) -> None:
        row = self._stored(answer.run_id).row
        self._answers[row.owner, row.context_id, answer.message_id] = answer

    async def find_answer(self, owner: str, context_id: str, message_id: str) -> AnswerMessage | None:
        return self._answers.get((owner, context_id, message_id))

    async def find_runs(self, owner: str, context_id: str | None = None) -> list[RunRow]:
        rows = [stored.row for stored in self._runs.values() if stored.row.owner == owner]
        return [row for row in reversed(rows) if context_id is None or row.context_id == context_id]

    async def conversations(self, owner: str) -> list[ConversationRow]:
        found: dict[str, ConversationRow] = {}
        for row in await self.find_runs(owner):
            talk = found.setdefault(
                row.context_id, ConversationRow(owner, row.context_id, row.created, updated=row.created)
            )
            found[row.context_id] = replace(talk, created=row.created)
        return list(found.values())

    async def find_unfinished(self) -> list[RunRow]:
        return [stored.row for stored in self._runs.values() if stored.row.status != "ended"]

    async def advance_epoch(self, run_id: str) -> int:
        stored = self._stored(run_id)
        stored.row = replace(stored.row, epoch=stored.row.epoch + 1)
        return stored.row.epoch

    async def lease(self, run_id: str, holder: str, seconds: float, *, force: bool = False) -> int | None:
        stored, now = self._stored(run_id), datetime.now(UTC)
        held = stored.row.lease_until is not None and stored.row.lease_until > now
        if stored.row.status == "ended" or (held and not force):
            return None
        stored.row = replace(
            stored.row,
            epoch=stored.row.epoch + 1,
            holder=holder,
            lease_until=now + timedelta(seconds=seconds),
        )
        return stored.row.epoch

    async def append(
        self, run_id: str, epoch: int, events: Sequence[AnyEvent], markers: Sequence[Marker] = ()
    ) -> int:
        stored = self._writable(run_id, epoch)
        self._store(stored, events)
        for marker in markers:
            stored.markers.setdefault(
                marker, StoredMarker(marker.ns, marker.checkpoint_id, stored.row.last_seq)
            )
        return stored.row.last_seq

    async def read(self, run_id: str, after: int = 0, limit: int = 256) -> list[StoredEvent]:
        return self._stored(run_id).events[after : after + limit]

    async def wait_for_event(self, run_id: str, after: int) -> None:
        stored = self._stored(run_id)
        while stored.row.last_seq <= after:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            stored.waiting.add(waiter)
            try:
                await waiter
            finally:
                stored.waiting.discard(waiter)

    async def markers(self, run_id: str) -> list[StoredMarker]:
        return list(self._stored(run_id).markers.values())

    async def find_remote_task(self, run_id: str, key: str) -> str | None:
        found = self._stored(run_id).orders.get(key)
        if found:
            return found[1]
        return None

    async def list_remote_tasks(self, run_id: str) -> list[tuple[str, str]]:
        return list(self._stored(run_id).orders.values())

    async def store_remote_task(self, run_id: str, epoch: int, key: str, agent: str, task_id: str) -> None:
        self._writable(run_id, epoch).orders[key] = agent, task_id

    async def begin(
        self, run_id: str, epoch: int, key: str, tool: str, arguments: Mapping[str, Any], *, idempotent: bool
    ) -> JournalEntry:
        journal = self._writable(run_id, epoch).journal
        call = JournalEntry(key, tool, clean_json(arguments), "intent", epoch)
        journal[key] = begun(journal.get(key), call, idempotent=idempotent)
        return journal[key]

    async def finish(
        self, run_id: str, epoch: int, key: str, state: Literal["done", "withdrawn"], outcome: Any = None
    ) -> None:
        journal = self._writable(run_id, epoch).journal
        if key not in journal:
            raise Refused("The call was never begun.")
        if journal[key].state in ("intent", "unknown"):
            journal[key] = replace(journal[key], state=state, outcome=clean_json(outcome))

    async def settle(self, run_id: str, key: str, outcome: Any, by: str) -> bool:
        stored = self._stored(run_id)
        entry = stored.journal.get(key)
        if entry is None or not can_settle(entry, stored.row.status):
            return False
        stored.journal[key] = replace(entry, state="done", outcome=clean_json(outcome), settled_by=by)
        return True

    async def journal(self, run_id: str) -> list[JournalEntry]:
        return list(self._stored(run_id).journal.values())

    async def find_settled_calls(self, owner: str, context_id: str) -> list[tuple[str, JournalEntry]]:
        runs = [
            stored
            for stored in self._runs.values()
            if (stored.row.owner, stored.row.context_id) == (owner, context_id)
        ]
        return [
            (stored.row.run_id, entry)
            for stored in runs
            for entry in stored.journal.values()
            if entry.settled_by
        ]

    async def request(self, request_id: str) -> PendingRequest | None:
        return self._requests.get(request_id)

    async def requests(self, run_id: str) -> list[PendingRequest]:
        self._stored(run_id)
        return self._asked(run_id)

    async def claim_requests(self, message: AnswerMessage, values: Mapping[str, Any], by: str) -> list[str]:
        self._stored(message.run_id)
        now = datetime.now(UTC)
        waiting = [
            request
            for request in self._asked(message.run_id)
            if request.request_id in values and request.waits(now)
        ]
        for request in waiting:
            answer = clean_json(values[request.request_id])
            self._requests[request.request_id] = replace(
                request, status="claimed", answer=answer, by=by, at=now
            )
        if waiting:
            await self.store_answer(message)
        return [request.request_id for request in waiting]

    async def open_requests(self, owner: str | None = None) -> list[PendingRequest]:
        waiting = [request for request in self._requests.values() if request.status == "pending"]
        return [
            request for request in waiting if owner is None or self._stored(request.run_id).row.owner == owner
        ]

    async def allow(self, run_id: str, epoch: int, tool: str, by: str) -> None:
        row = self._writable(run_id, epoch).row
        self._allowances.setdefault((row.owner, row.context_id), {}).setdefault(
            tool, Allowance(tool, by, datetime.now(UTC))
        )

    async def list_allowances(self, owner: str, context_id: str) -> list[Allowance]:
        return list(self._allowances.get((owner, context_id), {}).values())

    async def disallow(self, owner: str, context_id: str, tool: str) -> bool:
        return self._allowances.get((owner, context_id), {}).pop(tool, None) is not None

    async def rate(self, run_id: str, by: str, score: FeedbackScore, reason: str | None = None) -> Feedback:
        said = self._stored(run_id).feedback[by] = Feedback(by, score, reason, datetime.now(UTC))
        return said

    async def feedback(self, run_id: str) -> list[Feedback]:
        return list(self._stored(run_id).feedback.values())

    async def unrate(self, run_id: str, by: str) -> bool:
        return self._stored(run_id).feedback.pop(by, None) is not None

    async def find_expired_conversations(self, older_than: datetime) -> list[tuple[str, str]]:
        gone = self._old(older_than)
        kept = {
            (stored.row.owner, stored.row.context_id)
            for run_id, stored in self._runs.items()
            if run_id not in gone
        }
        old = dict.fromkeys(
            (self._runs[run_id].row.owner, self._runs[run_id].row.context_id) for run_id in gone
        )
        return [conversation for conversation in old if conversation not in kept]

    async def delete_runs(self, older_than: datetime) -> int:
        gone = self._old(older_than)
        self._remove(gone)
        return len(gone)

    async def close(self) -> None:
        """Nothing is kept anywhere."""

    def _writable(self, run_id: str, epoch: int) -> _Stored:
        stored = self._stored(run_id)
        if epoch != stored.row.epoch:
            raise Fenced("The run has another owner now.")
        if stored.row.status == "ended":
            raise Fenced("The run has ended.")
        return stored

    def _stored(self, run_id: str) -> _Stored:
        if run_id not in self._runs:
            raise RunNotFound(f"There is no run {run_id}.")
        return self._runs[run_id]

    def _asked(self, run_id: str) -> list[PendingRequest]:
        return [request for request in self._requests.values() if request.run_id == run_id]

    def _store(self, stored: _Stored, events: Sequence[AnyEvent]) -> None:
        now, first = datetime.now(UTC), stored.row.last_seq + 1
        stored.events += [StoredEvent(seq, now, event) for seq, event in enumerate(events, first)]
        status = status_after(events, stored.row.status)
        stored.row = replace(stored.row, last_seq=len(stored.events), status=status, updated=now)
        if changes_requests(events):
            changed = requests_after(stored.row.run_id, events, self._asked(stored.row.run_id), now)
            self._requests |= {request.request_id: request for request in changed}
        waiting, stored.waiting = stored.waiting, set()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _forget_oldest(self) -> None:
        if len(self._runs) < self._most:
            return
        ended = [
            run_id
            for run_id, stored in self._runs.items()
            if stored.row.status == "ended" and not stored.waiting
        ]
        self._remove(set(ended[: max(1, self._most // 10)]))

    def _old(self, older_than: datetime) -> set[str]:
        return {
            run_id
            for run_id, stored in self._runs.items()
            if stored.row.status == "ended" and stored.row.updated < older_than
        }

    def _remove(self, gone: set[str]) -> None:
        self._runs = {run_id: stored for run_id, stored in self._runs.items() if run_id not in gone}
        self._messages = {key: run_id for key, run_id in self._messages.items() if run_id not in gone}
        self._answers = {key: answer for key, answer in self._answers.items() if answer.run_id not in gone}
        self._requests = {
            key: request for key, request in self._requests.items() if request.run_id not in gone
        }
        left = {(stored.row.owner, stored.row.context_id) for stored in self._runs.values()}
        self._allowances = {key: tools for key, tools in self._allowances.items() if key in left}
