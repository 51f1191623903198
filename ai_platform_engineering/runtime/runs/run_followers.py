"""Who follows a run: streams that are open, requests that wait for its end, and clients that ask for it.

Whoever is notified by push follows it, too. A run that nobody follows may be given less time by a setting.
Since when nobody does is stored with the run, so that a restart gives it no time anew, and so that followers
on other replicas than that of the run count: they begin the time anew again and again.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime

from ai_platform_engineering.a2a.message_parts import has_budget
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import RunStarted
from ai_platform_engineering.runtime.log.replica_store import ReplicaStore
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.runs.turn import Turn


class RunFollowers:
    """Counts the followers of the runs that work, and stores since when a run has none."""

    def __init__(self, run_log: RunLog, unfollowed_seconds: float | None) -> None:
        """`unfollowed_seconds`: how long a run works without followers; None for as long as it takes."""
        self._log = run_log
        self._enabled = unfollowed_seconds is not None
        self._replicas = run_log.replicas if self._enabled else None
        self._refresh_seconds = (unfollowed_seconds or 0.0) / 3
        self._counts: Counter[str] = Counter()
        self._unfollowed_since: dict[str, datetime | None] = {}  # of the runs that work and are watched
        self._pushed: set[str] = set()  # of these, those whose states are pushed to somebody
        self._unsaved: set[str] = set()
        self._writers: dict[str, asyncio.Task[None]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._touching: set[asyncio.Task[None]] = set()

    async def begin_turn(self, turn: Turn) -> None:
        """Watches a run from the beginning of its turn on.

        A delegation to a service is not watched: whether anybody still waits for it is known where the
        question was asked, and the supervisor bounds it.
        """
        run_id = turn.row.run_id
        if not self._enabled or await self._is_delegation(run_id):
            return
        if await self._has_receiver(run_id):
            await self._log.mark_unfollowed(run_id, None)
            return
        since: datetime | None = datetime.now(UTC)
        if turn.takes_over:
            since = await self._log.find_unfollowed_since(run_id) or since
        if self._counts[run_id]:
            since = None
        self._change(run_id, since)

    async def _is_delegation(self, run_id: str) -> bool:
        [first_event] = await self._log.read(run_id, 0, 1)
        return isinstance(first_event.event, RunStarted) and has_budget(first_event.event.parts)

    async def _has_receiver(self, run_id: str) -> bool:
        return bool(await self._log.push.list_configs(run_id, limit=1))

    async def end_turn(self, run_id: str) -> None:
        """Watches the run no more; what was to be stored is stored."""
        self._unfollowed_since.pop(run_id, None)
        self._pushed.discard(run_id)
        writer = self._writers.get(run_id)
        if writer is not None:
            await asyncio.wait({writer})

    @contextlib.contextmanager
    def following(self, run_id: str) -> Iterator[None]:
        """A block in which somebody follows the run."""
        self._counts[run_id] += 1
        if run_id in self._unfollowed_since:
            self._change(run_id, None)
        else:
            self._start_refreshing()
        try:
            yield
        finally:
            self._counts[run_id] -= 1
            if not self._counts[run_id]:
                del self._counts[run_id]
                self.touch(run_id)

    def add_receiver(self, run_id: str) -> None:
        """Somebody is notified of the run from now on, and follows this turn to its end."""
        if run_id in self._unfollowed_since:
            self._pushed.add(run_id)
            self._change(run_id, None)
        elif self._replicas is not None:
            self._touch(self._log.mark_unfollowed(run_id, None))

    def touch(self, run_id: str) -> None:
        """Somebody has looked at the run, as clients do that ask for it again and again: the time without
        followers begins anew."""
        if run_id in self._pushed:
            return
        if run_id in self._unfollowed_since and not self._counts[run_id]:
            self._change(run_id, datetime.now(UTC))
        elif self._replicas is not None and run_id not in self._unfollowed_since:
            self._touch(self._replicas.touch_unfollowed([run_id]))

    def _touch(self, write: Coroutine[None, None, None]) -> None:
        async def store() -> None:
            with contextlib.suppress(CaipeError):  # the run is deleted, or the log is closed
                await write

        task = asyncio.create_task(store())
        self._touching.add(task)
        task.add_done_callback(self._touching.discard)

    def _start_refreshing(self) -> None:
        if self._replicas is None or (self._refreshing is not None and not self._refreshing.done()):
            return
        refreshing = self._refresh(self._replicas)
        self._refreshing = asyncio.create_task(refreshing, name="followers of runs elsewhere")

    async def _refresh(self, replicas: ReplicaStore) -> None:
        """As long as runs of other replicas are followed here, their time without followers does not end."""
        while run_ids := [run_id for run_id in self._counts if run_id not in self._unfollowed_since]:
            with contextlib.suppress(CaipeError):
                await replicas.touch_unfollowed(run_ids)
            await asyncio.sleep(self._refresh_seconds)

    def _change(self, run_id: str, since: datetime | None) -> None:
        self._unfollowed_since[run_id] = since
        self._unsaved.add(run_id)
        if run_id not in self._writers:
            # A task: whoever leaves is being cancelled, and cannot wait for the database.
            self._writers[run_id] = asyncio.create_task(self._save(run_id), name=f"followers:{run_id}")

    async def _save(self, run_id: str) -> None:
        try:
            while run_id in self._unsaved:
                self._unsaved.discard(run_id)
                if run_id in self._unfollowed_since:
                    with contextlib.suppress(CaipeError):  # the run is deleted, or the log is closed
                        await self._store(run_id, self._unfollowed_since[run_id])
        finally:
            del self._writers[run_id]

    async def _store(self, run_id: str, since: datetime | None) -> None:
        if since is not None and self._replicas is not None and await self._has_receiver(run_id):
            since = None  # another replica was told of the receiver
        await self._log.mark_unfollowed(run_id, since)
