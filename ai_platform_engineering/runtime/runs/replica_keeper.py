"""Keeps the lease of this replica, and takes the runs that no replica works on."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.task_cancellation import cancel_and_wait
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.databases.sql_connections import Note
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.replica_store import EVENT, WORK, ReplicaStore, RoomForRuns
from ai_platform_engineering.runtime.log.run_log import RunLog

log = logging.getLogger(__name__)

LEASE_SECONDS = 6.0
_RENEW_SECONDS = 1.5
_LOOK_SECONDS = 1.0
_IDLE_SECONDS = 15.0  # after which a run that is held here and has no task is given up
_MAX_TAKEN = 25  # runs in one transaction: other replicas take the next ones meanwhile
_PROMPT_SECONDS = 2.0  # a database that takes longer was away, for the other replicas as well


@dataclass(frozen=True, slots=True)
class RunsOfReplica:
    """What a keeper needs of the runs of its process."""

    run_ids: Callable[[], list[str]]  # those that have a task
    has_task: Callable[[str], bool]
    room: Callable[[], RoomForRuns]
    start: Callable[[RunRow], Awaitable[None]]  # a run that was taken over
    stop: Callable[[str], Awaitable[None]]  # the task of a run that has ended, or that another replica has


class ReplicaKeeper:
    """Renews the lease, and looks for runs without a holder.

    They are new, or their replica has died or was stopped."""

    def __init__(self, run_log: RunLog, replicas: ReplicaStore, runs: RunsOfReplica) -> None:
        self._log = run_log
        self._replicas = replicas
        self._runs = runs
        self._work = asyncio.Event()  # there may be runs without a holder
        self._waits_for_room = False  # at the last look, some run could not have been taken
        self._frees_dead_at = 0.0  # when leases of others that have ended are believed again
        self._renewing: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._stopping: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Takes the lease and the runs that wait; returns how many."""
        await self._replicas.renew(LEASE_SECONDS)
        self._replicas.subscribe(self._receive)
        self._renewing = asyncio.create_task(self._renew(), name="lease of this replica")
        count = await self.look()
        self._looking = asyncio.create_task(self._look(), name="runs without a replica")
        return count

    async def stop_taking(self) -> None:
        """Takes no more runs; those that are here go on."""
        if self._looking is not None:
            await cancel_and_wait(self._looking)

    async def leave(self) -> None:
        """Gives the lease and all runs up."""
        await self.stop_taking()
        if self._renewing is not None:
            await cancel_and_wait(self._renewing, *self._stopping)
        await self._replicas.leave()

    async def look(self) -> int:
        """Takes runs that nobody works on, as far as there is room; returns how many."""
        # Submitted together, these share a transaction.
        _, _, taken_count = await asyncio.gather(
            self._free_dead(),
            self._replicas.release_idle(self._runs.run_ids(), _IDLE_SECONDS),
            self._take(),
        )
        count = taken_count
        while taken_count:
            taken_count = await self._take()
            count += taken_count
        return count

    async def _free_dead(self) -> None:
        if time.monotonic() >= self._frees_dead_at:
            await self._replicas.free_dead(_PROMPT_SECONDS)

    async def _take(self) -> int:
        room = self._runs.room()
        self._waits_for_room = room.is_full()
        if room.in_all <= 0:
            return 0
        taken_rows = await self._replicas.take_unheld(room, _MAX_TAKEN)
        await asyncio.gather(*(self._runs.start(row) for row in taken_rows))
        return len(taken_rows)

    def note_room(self) -> None:
        """A run here has ended: one that waits may be taken at once."""
        if self._waits_for_room:
            self._work.set()

    async def _look(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._work.wait()
            except TimeoutError:
                pass
            self._work.clear()
            try:
                await self.look()
            except CaipeError as error:
                log.warning("runs of other replicas are not looked for: %s", error)
            except Exception as error:  # noqa: BLE001 - the next look may work
                log.error("runs of other replicas are not looked for: %s", format_traceback(error))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                if not await self._replicas.renew(LEASE_SECONDS):
                    log.warning("the lease of this replica had ended; others may have taken its runs")
                    # If the database was away, the others have to renew theirs, too.
                    self._frees_dead_at = time.monotonic() + LEASE_SECONDS
                    for run_id in await self._replicas.find_lost(self._runs.run_ids()):
                        await self._stop_if_lost(run_id)
            except CaipeError as error:
                log.warning("the lease of this replica is not renewed: %s", error)
            except Exception as error:  # noqa: BLE001 - the next attempt may work
                log.error("the lease of this replica is not renewed: %s", format_traceback(error))

    def _receive(self, note: Note) -> None:
        if note[0] == WORK:
            self._work.set()
        elif note[0] == EVENT and len(note) > 1 and self._runs.has_task(str(note[1])):
            # Another replica wrote to a run that works here: it was cancelled or taken over, or answered.
            task = asyncio.create_task(self._stop_if_lost(str(note[1])))
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    async def _stop_if_lost(self, run_id: str) -> None:
        row = await self._log.get(run_id)
        if row is None or row.status == "ended" or row.holder != self._replicas.replica_id:
            await self._runs.stop(run_id)
