"""The queue of each conversation: its runs work one at a time, in the order they came."""

import asyncio
import contextlib
from weakref import WeakValueDictionary

from ai_platform_engineering.core.errors import RunNotFound
from ai_platform_engineering.core.events import Notice
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.replica_store import ReplicaStore
from ai_platform_engineering.runtime.log.run_log import RunLog

_LOOK_SECONDS = 0.1  # between two looks at a conversation whose earlier run writes many events

ConversationKey = tuple[str, str]  # owner and context id


class ConversationQueues:
    """The queues of all conversations, and a lock for each: whoever accepts a message holds it."""

    def __init__(self, run_log: RunLog) -> None:
        self._log = run_log
        self._queues: dict[ConversationKey, list[str]] = {}
        self._changes: dict[ConversationKey, asyncio.Condition] = {}
        self._locks: WeakValueDictionary[ConversationKey, asyncio.Lock] = WeakValueDictionary()

    def lock(self, owner: str, context_id: str) -> asyncio.Lock:
        """The lock of a conversation."""
        return self._locks.setdefault((owner, context_id), asyncio.Lock())

    def add(self, row: RunRow) -> None:
        """Puts the run at the end of its conversation's queue."""
        self._queues.setdefault(_key_of(row), []).append(row.run_id)

    def is_empty(self, owner: str, context_id: str) -> bool:
        """Whether nothing works or waits in the conversation."""
        return (owner, context_id) not in self._queues

    def is_first(self, row: RunRow) -> bool:
        """Whether no run is before this one."""
        queue = self._queues.get(_key_of(row), [])
        return row.run_id not in queue or queue[0] == row.run_id

    async def wait_until_first(self, row: RunRow, *, notify: bool) -> None:
        """Returns when every run before this one has left the queue. With `notify` its readers are told."""
        if self.is_first(row):
            return
        key = _key_of(row)
        if notify:
            queue = self._queues[key]
            await self._notify(row, await self._count_unended(queue[: queue.index(row.run_id)]))
        change = self._changes.setdefault(key, asyncio.Condition())
        async with change:
            await change.wait_for(lambda: self._queues.get(key, [row.run_id])[0] == row.run_id)

    async def has_unended(self, owner: str, context_id: str) -> bool:
        """Whether a new run of the conversation would wait for one that has not ended."""
        return await self._count_unended(self._queues.get((owner, context_id), [])) > 0

    async def _count_unended(self, run_ids: list[str]) -> int:
        """How many of the runs have not ended. One that has and is cleaning up is waited for, too, but nobody
        need know."""
        count = 0
        for run_id in list(run_ids):
            row = await self._log.get(run_id)
            if row is not None and row.status != "ended":
                count += 1
        return count

    async def _notify(self, row: RunRow, ahead: int) -> None:
        if ahead == 0:
            return
        questions = "question" if ahead == 1 else "questions"
        text = f"Queued: {ahead} {questions} of this conversation before this one."
        notice = Notice(code="queue", text=text, position=ahead)
        await self._log.append(row.run_id, row.epoch, [notice])

    async def remove(self, row: RunRow) -> None:
        """Takes the run out of its queue, and lets the next one work."""
        key = _key_of(row)
        queue = self._queues.get(key, [])
        if row.run_id in queue:
            queue.remove(row.run_id)
        if not queue:
            self._queues.pop(key, None)
        change = self._changes.get(key)
        if change is None:
            return
        async with change:
            change.notify_all()
        if not queue:
            self._changes.pop(key, None)


class SharedConversationQueues(ConversationQueues):
    """The queues of conversations that several replicas work on: their order is that in the database."""

    def __init__(self, run_log: RunLog, replicas: ReplicaStore) -> None:
        super().__init__(run_log)
        self._replicas = replicas

    def add(self, row: RunRow) -> None:
        """The run is in the database."""

    async def remove(self, row: RunRow) -> None:
        """Its end is in the database."""

    def is_empty(self, owner: str, context_id: str) -> bool:
        """False: another replica may work in the conversation."""
        return False

    async def has_unended(self, owner: str, context_id: str) -> bool:
        return bool(await self._log.find_open_runs(owner, context_id))

    async def wait_until_first(self, row: RunRow, *, notify: bool) -> None:
        while earlier := await self._replicas.find_before(row):
            if notify:
                await self._notify(row, len(earlier))
                notify = False
            await self._wait_for_event(earlier[0])

    async def _wait_for_event(self, earlier: RunRow) -> None:
        with contextlib.suppress(RunNotFound):
            await self._log.wait_for_event(earlier.run_id, earlier.last_seq)
        await asyncio.sleep(_LOOK_SECONDS)


def make_queues(run_log: RunLog) -> ConversationQueues:
    """The queues of a process, or of all replicas that share the log."""
    if run_log.replicas is None:
        return ConversationQueues(run_log)
    return SharedConversationQueues(run_log, run_log.replicas)


def _key_of(row: RunRow) -> ConversationKey:
    return row.owner, row.context_id
