"""Which replica works on a run; a process that shares its log with no other works on all of them."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from ai_platform_engineering.core.errors import Overloaded
from ai_platform_engineering.runtime.log.log_rows import NewRun, RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.runs.admission import Admission

_ALL_BUSY = "The servers are busy: too many questions are waiting. Try again in a few minutes."
_PERSON_BUSY = "Too many of your questions are waiting. Wait for their answers, or cancel some."


class RunHolders:
    """Gives new runs to this replica, or to the first one with room."""

    def __init__(self, run_log: RunLog, admission: Admission) -> None:
        self._replicas = run_log.replicas
        self._admission = admission

    async def choose(self, new: NewRun) -> NewRun:
        """The run with this replica as its holder; with none while there is no room here, so that the first
        replica with room takes it. Raises Overloaded when too many wait."""
        if self._replicas is None or self._admission.has_room(new.started.principal):
            return self.hold(new)
        in_all, of_person = self._admission.waiting_limits
        if await self._replicas.count_unheld(None, in_all) >= in_all:
            raise Overloaded(_ALL_BUSY)
        if await self._replicas.count_unheld(new.started.principal, of_person) >= of_person:
            raise Overloaded(_PERSON_BUSY)
        return new

    def hold(self, new: NewRun) -> NewRun:
        """The run with this replica as its holder."""
        if self._replicas is None:
            return new
        return replace(new, holder=self._replicas.replica_id)

    def is_here(self, row: RunRow) -> bool:
        """Whether this replica works on the run."""
        return self._replicas is None or row.holder == self._replicas.replica_id

    @contextlib.asynccontextmanager
    async def holding(self, run_id: str) -> AsyncIterator[bool]:
        """A block in which no other replica writes a run that waits for people. False when one does."""
        if self._replicas is None:
            yield True
            return
        row = await self._replicas.acquire(run_id)
        try:
            yield row is not None
        finally:
            if row is not None:
                await self._replicas.release(run_id, row.epoch)
