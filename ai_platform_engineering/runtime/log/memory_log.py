"""The run log in memory: for tests, for `LANGGRAPH_DEV`, and where nothing has to survive the process."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

from ai_platform_engineering.core.errors import Fenced, MessageConflict, Refused, RunNotFound
from ai_platform_engineering.core.events import AnyEvent, RunStarted, StoredEvent, clean_json
from ai_platform_engineering.runtime.log.conversation_rows import (
    make_search_text,
    make_title,
    read_question,
)
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
    RunRow,
    StoredMarker,
)
from ai_platform_engineering.runtime.log.memory_push import MemoryPush
from ai_platform_engineering.runtime.log.memory_queries import MemoryQueries, StoredConversation, StoredRun
from ai_platform_engineering.runtime.log.memory_results import MemoryResults
from ai_platform_engineering.runtime.log.memory_shares import MemoryShares
from ai_platform_engineering.runtime.log.run_details import MAX_AGENTS, find_agents
from ai_platform_engineering.runtime.log.run_log_rules import (
    begin_entry,
    can_settle,
    changes_requests,
    check_epoch,
    died_at_work,
    requests_after,
    state_after,
    status_of,
    update_entry,
)


class MemoryLog(MemoryQueries, MemoryShares):
    """A run log in memory. It holds at most `most` runs: then the oldest ended ones are removed."""

    def __init__(self, most: int = 10_000) -> None:
        MemoryQueries.__init__(self)
        MemoryShares.__init__(self)
        self._messages: dict[tuple[str, str, str], str] = {}
        self._answers: dict[tuple[str, str, str], AnswerMessage] = {}
        self._numbers = itertools.count(1)
        self._run_numbers = itertools.count(1)
        self._allowances: dict[tuple[str, str], dict[str, Allowance]] = {}
        self._most = most
        self.push = MemoryPush(lambda run_id: self._find_run(run_id).row)
        self.results = MemoryResults(lambda run_id: self._find_run(run_id).row)

    async def create(self, new: NewRun) -> tuple[RunRow, bool]:
        # No await in here: two equal messages at once must not both pass.
        context_id = new.context_id if new.lasting_id else ""
        key = (new.owner, context_id, new.message_id)
        existing = self._runs.get(self._messages.get(key, ""))
        if existing is not None and (new.lasting_id or existing.row.status == "running"):
            if existing.digest == new.digest:
                return existing.row, False
            if new.lasting_id:
                raise MessageConflict()
        if new.run_id in self._runs:
            raise Refused("A task with this id already exists.")
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
            state="working",
            state_at=now,
        )
        self._remove_oldest()
        run = StoredRun(row, new.digest, new.lasting_id, new.attempt, next(self._run_numbers))
        self._runs[new.run_id] = run
        self._messages[key] = new.run_id
        if new.push is not None:
            self.push.insert(row, new.push, "")
        self._store_events(run, [new.started])
        self._store_question(run.conversation, read_question(new.started))
        return run.row, True

    async def get(self, run_id: str) -> RunRow | None:
        run = self._runs.get(run_id)
        if run is None:
            return None
        return run.row

    async def store_answer(self, answer: AnswerMessage) -> None:
        row = self._find_run(answer.run_id).row
        self._answers[row.owner, row.context_id, answer.message_id] = answer

    async def find_answer(self, owner: str, context_id: str, message_id: str) -> AnswerMessage | None:
        return self._answers.get((owner, context_id, message_id))

    async def rename_conversation(self, owner: str, context_id: str, title: str) -> bool:
        stored = self._conversations.get((owner, context_id))
        if stored is None:
            return False
        stored.title = title
        stored.search_text += "\n" + make_search_text(title)
        return True

    async def delete_conversation(self, owner: str, context_id: str) -> int:
        ended = {row.run_id for row in self._runs_of(owner, context_id) if row.status == "ended"}
        self._remove(ended)
        return len(ended)

    async def advance_epoch(self, run_id: str) -> int:
        run = self._find_run(run_id)
        run.row = replace(run.row, epoch=run.row.epoch + 1)
        return run.row.epoch

    async def take_over(self, run_id: str) -> RunRow:
        run = self._find_run(run_id)
        crashed = died_at_work(run.row.status, run.attempt, has_checkpoint=bool(run.markers))
        run.row = replace(run.row, epoch=run.row.epoch + 1, crashes=run.row.crashes + int(crashed))
        run.attempt = "waiting"
        return run.row

    async def mark_attempt(self, run_id: str, attempt: Literal["waiting", "working", "handed_over"]) -> None:
        self._find_run(run_id).attempt = attempt

    async def mark_unfollowed(self, run_id: str, since: datetime | None) -> None:
        self._find_run(run_id).unfollowed_since = since

    async def find_unfollowed_since(self, run_id: str) -> datetime | None:
        return self._find_run(run_id).unfollowed_since

    async def append(
        self, run_id: str, epoch: int, events: Sequence[AnyEvent], markers: Sequence[Marker] = ()
    ) -> int:
        run = self._find_writable_run(run_id, epoch)
        self._store_events(run, events)
        last_seq = run.row.last_seq
        for marker in markers:
            run.markers.setdefault(marker, StoredMarker(marker.ns, marker.checkpoint_id, last_seq))
        return last_seq

    def append_all(self, batches: Sequence[EventBatch]) -> asyncio.Future[list[Exception | None]]:
        errors: list[Exception | None] = []
        for batch in batches:
            try:
                self._store_events(self._find_writable_run(batch.run_id, batch.epoch), batch.events)
                errors.append(None)
            except (Fenced, RunNotFound) as error:
                errors.append(error)
        stored: asyncio.Future[list[Exception | None]] = asyncio.get_running_loop().create_future()
        stored.set_result(errors)
        return stored

    async def read(self, run_id: str, after: int = 0, limit: int = 256) -> list[StoredEvent]:
        return self._find_run(run_id).events[after : after + limit]

    async def wait_for_event(self, run_id: str, after: int) -> None:
        run = self._find_run(run_id)
        while run.row.last_seq <= after:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            run.waiters.add(waiter)
            try:
                await waiter
            finally:
                run.waiters.discard(waiter)

    async def markers(self, run_id: str) -> list[StoredMarker]:
        return list(self._find_run(run_id).markers.values())

    async def find_remote_task(self, run_id: str, key: str) -> str | None:
        remote_task = self._find_run(run_id).remote_tasks.get(key)
        if remote_task is None:
            return None
        return remote_task[1]

    async def list_remote_tasks(self, run_id: str) -> list[tuple[str, str]]:
        return list(self._find_run(run_id).remote_tasks.values())

    async def store_remote_task(self, run_id: str, epoch: int, key: str, agent: str, task_id: str) -> None:
        self._find_writable_run(run_id, epoch).remote_tasks[key] = agent, task_id

    async def begin(
        self, run_id: str, epoch: int, key: str, tool: str, arguments: Mapping[str, Any], *, idempotent: bool
    ) -> JournalEntry:
        journal = self._find_writable_run(run_id, epoch).journal
        call = JournalEntry(key, tool, clean_json(arguments), "intent", epoch)
        journal[key] = begin_entry(journal.get(key), call, idempotent=idempotent)
        return journal[key]

    async def finish(
        self, run_id: str, epoch: int, key: str, state: NextCallState, outcome: Any = None
    ) -> None:
        journal = self._find_writable_run(run_id, epoch).journal
        journal[key] = update_entry(journal.get(key), state, clean_json(outcome))

    async def settle(self, run_id: str, key: str, outcome: Any, by: str) -> bool:
        run = self._find_run(run_id)
        entry = run.journal.get(key)
        if entry is None or not can_settle(entry, run.row.status):
            return False
        run.journal[key] = replace(entry, state="done", outcome=clean_json(outcome), settled_by=by)
        return True

    async def journal(self, run_id: str) -> list[JournalEntry]:
        return list(self._find_run(run_id).journal.values())

    async def find_settled_calls(self, owner: str, context_id: str) -> list[tuple[str, JournalEntry]]:
        calls: list[tuple[str, JournalEntry]] = []
        for run in self._runs.values():
            if run.conversation != (owner, context_id):
                continue
            for entry in run.journal.values():
                if entry.settled_by:
                    calls.append((run.row.run_id, entry))
        return calls

    async def request(self, request_id: str) -> PendingRequest | None:
        return self._requests.get(request_id)

    async def requests(self, run_id: str) -> list[PendingRequest]:
        self._find_run(run_id)
        return self._requests_of(run_id)

    async def claim_requests(self, message: AnswerMessage, values: Mapping[str, Any], by: str) -> list[str]:
        self._find_run(message.run_id)
        now = datetime.now(UTC)
        claimed: list[str] = []
        for request in self._requests_of(message.run_id):
            if request.request_id not in values or not request.waits(now):
                continue
            answer = clean_json(values[request.request_id])
            self._requests[request.request_id] = replace(
                request, status="claimed", answer=answer, by=by, at=now
            )
            claimed.append(request.request_id)
        if claimed:
            await self.store_answer(message)
        return claimed

    async def list_person_input(self, owner: str, context_id: str, limit: int) -> list[PersonInput]:
        inputs: list[PersonInput] = []
        for row in self._runs_of(owner, context_id)[:limit]:
            started = self._find_run(row.run_id).events[0].event
            if isinstance(started, RunStarted):
                inputs.append(PersonInput(row.run_id, started.parts, tuple(self._requests_of(row.run_id))))
        return inputs

    async def allow(self, run_id: str, epoch: int, tool: str, by: str) -> None:
        conversation = self._find_writable_run(run_id, epoch).conversation
        allowances = self._allowances.setdefault(conversation, {})
        allowances.setdefault(tool, Allowance(tool, by, datetime.now(UTC)))

    async def list_allowances(self, owner: str, context_id: str) -> list[Allowance]:
        return list(self._allowances.get((owner, context_id), {}).values())

    async def disallow(self, owner: str, context_id: str, tool: str) -> bool:
        return self._allowances.get((owner, context_id), {}).pop(tool, None) is not None

    async def rate(self, run_id: str, by: str, score: FeedbackScore, reason: str | None = None) -> Feedback:
        feedback = Feedback(by, score, reason, datetime.now(UTC))
        self._find_run(run_id).feedback[by] = feedback
        return feedback

    async def feedback(self, run_id: str) -> list[Feedback]:
        return list(self._find_run(run_id).feedback.values())

    async def unrate(self, run_id: str, by: str) -> bool:
        return self._find_run(run_id).feedback.pop(by, None) is not None

    async def add_missing_details(self) -> None:
        """Does nothing: every run in memory has them."""

    async def delete_runs(self, older_than: datetime) -> int:
        old_ids = self._find_old(older_than)
        self._remove(old_ids)
        return len(old_ids)

    async def check_writable(self) -> str | None:
        """Memory can always be written."""
        return None

    async def close(self) -> None:
        """There is nothing to store."""

    def _store_question(self, conversation: tuple[str, str], question: str) -> None:
        stored = self._conversations.setdefault(conversation, StoredConversation(make_title(question), ""))
        stored.search_text += "\n" + make_search_text(question)

    def _find_writable_run(self, run_id: str, epoch: int) -> StoredRun:
        """Raises RunNotFound and Fenced."""
        run = self._find_run(run_id)
        check_epoch(run.row, epoch)
        return run

    def _requests_of(self, run_id: str) -> list[PendingRequest]:
        return [request for request in self._requests.values() if request.run_id == run_id]

    def _store_events(self, run: StoredRun, events: Sequence[AnyEvent]) -> None:
        now = datetime.now(UTC)
        for seq, event in enumerate(events, run.row.last_seq + 1):
            run.events.append(StoredEvent(seq, now, event))
        run.row = replace(run.row, last_seq=len(run.events), updated=now)
        for agent in find_agents(events):
            if len(run.agents) < MAX_AGENTS:
                run.agents[agent] = None
        state = state_after(events)
        if state is not None:
            run.row = replace(run.row, status=status_of(state), state=state, state_at=now)
            self.push.queue_state(run.row)
        if changes_requests(events):
            run_id = run.row.run_id
            for request in requests_after(run_id, events, self._requests_of(run_id), now):
                self._requests[request.request_id] = request
                if request.request_id not in self._request_numbers:
                    self._request_numbers[request.request_id] = next(self._numbers)
        waiters = run.waiters
        run.waiters = set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _remove_oldest(self) -> None:
        if len(self._runs) < self._most:
            return
        ended: list[str] = []
        for run_id, run in self._runs.items():
            if run.row.status == "ended" and not run.waiters:
                ended.append(run_id)
        self._remove(set(ended[: max(1, self._most // 10)]))

    def _remove(self, run_ids: set[str]) -> None:
        """Removes runs, with all that belongs to them."""
        self._runs = {run_id: run for run_id, run in self._runs.items() if run_id not in run_ids}
        self.push.remove_runs(run_ids)
        self.results.remove_runs(run_ids)
        self._messages = {key: run_id for key, run_id in self._messages.items() if run_id not in run_ids}
        self._answers = {key: answer for key, answer in self._answers.items() if answer.run_id not in run_ids}
        self._requests = {key: item for key, item in self._requests.items() if item.run_id not in run_ids}
        self._request_numbers = {key: self._request_numbers[key] for key in self._requests}
        remaining = {run.conversation for run in self._runs.values()}
        self._allowances = {key: tools for key, tools in self._allowances.items() if key in remaining}
        self._conversations = {key: item for key, item in self._conversations.items() if key in remaining}
        self._remove_ended_shares()
