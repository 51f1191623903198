"""The run log in memory: for tests, for `LANGGRAPH_DEV`, and where nothing has to survive the process."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from ai_platform_engineering.core.errors import Fenced, MessageConflict, RunNotFound
from ai_platform_engineering.core.events import AnyEvent, Numbered
from ai_platform_engineering.runtime.log import Answer, NewRun, RunRow, status_after


@dataclass(slots=True)
class _Stored:
    row: RunRow
    digest: str
    lasting_id: bool
    events: list[Numbered] = field(default_factory=list)
    waiting: set[asyncio.Future[None]] = field(default_factory=set)


class MemoryLog:
    """Keeps every run until `most` runs are held; then the oldest ended ones go."""

    def __init__(self, most: int = 10_000) -> None:
        self._runs: dict[str, _Stored] = {}
        self._messages: dict[tuple[str, str, str], str] = {}
        self._answers: dict[tuple[str, str, str], Answer] = {}
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
        return stored.row if stored else None

    async def remember(self, answer: Answer) -> None:
        row = self._stored(answer.run_id).row
        self._answers[row.owner, row.context_id, answer.message_id] = answer

    async def recall(self, owner: str, context_id: str, message_id: str) -> Answer | None:
        return self._answers.get((owner, context_id, message_id))

    async def find(self, owner: str, context_id: str | None = None) -> list[RunRow]:
        rows = [stored.row for stored in self._runs.values() if stored.row.owner == owner]
        return [row for row in reversed(rows) if context_id is None or row.context_id == context_id]

    async def claim(self, run_id: str) -> int:
        stored = self._stored(run_id)
        stored.row = replace(stored.row, epoch=stored.row.epoch + 1)
        return stored.row.epoch

    async def append(self, run_id: str, epoch: int, events: Sequence[AnyEvent]) -> int:
        stored = self._stored(run_id)
        if epoch != stored.row.epoch:
            raise Fenced("The run has another owner now.")
        if stored.row.status == "ended":
            raise Fenced("The run has ended.")
        self._store(stored, events)
        return stored.row.last_seq

    async def read(self, run_id: str, after: int = 0, limit: int = 256) -> list[Numbered]:
        return self._stored(run_id).events[after : after + limit]

    async def changed(self, run_id: str, after: int) -> None:
        stored = self._stored(run_id)
        while stored.row.last_seq <= after:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            stored.waiting.add(waiter)
            try:
                await waiter
            finally:
                stored.waiting.discard(waiter)

    def _stored(self, run_id: str) -> _Stored:
        if run_id not in self._runs:
            raise RunNotFound(f"There is no run {run_id}.")
        return self._runs[run_id]

    def _store(self, stored: _Stored, events: Sequence[AnyEvent]) -> None:
        now, first = datetime.now(UTC), stored.row.last_seq + 1
        stored.events += [Numbered(seq, now, event) for seq, event in enumerate(events, first)]
        status = status_after(events, stored.row.status)
        stored.row = replace(stored.row, last_seq=len(stored.events), status=status, updated=now)
        waiting, stored.waiting = stored.waiting, set()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _forget_oldest(self) -> None:
        if len(self._runs) < self._most:
            return
        ended = [run_id for run_id, stored in self._runs.items() if stored.row.status == "ended" and not stored.waiting]
        gone = set(ended[: max(1, self._most // 10)])
        self._runs = {run_id: stored for run_id, stored in self._runs.items() if run_id not in gone}
        self._messages = {key: run_id for key, run_id in self._messages.items() if run_id not in gone}
        self._answers = {key: answer for key, answer in self._answers.items() if answer.run_id not in gone}
