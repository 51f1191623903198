"""Scheduled refreshes: a datasource with an interval is looked at again when it is due, one at a time.

The next time is stored, so that it survives a restart; of several processes one takes it.
"""

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from ai_platform_engineering.core.errors import CaipeError, Refused
from ai_platform_engineering.core.task_cancellation import cancel_and_wait
from ai_platform_engineering.knowledge_bases.stores.job_store import IngestJob
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore, RefreshSchedule

log = logging.getLogger(__name__)

MIN_INTERVAL = 300  # seconds
MAX_INTERVAL = 30 * 86_400
_JITTER = 0.1  # of the interval, so that datasources of one time do not stay together
_MAX_DOUBLINGS = 6
_LONGEST_BACKOFF = 86_400.0  # or the interval, if that is longer
_LOOK_SECONDS = 60.0  # another process may change a schedule
_INTERVAL = re.compile(r"([1-9][0-9]{0,6})([mhd])")
_UNITS = {"m": 60, "h": 3600, "d": 86_400}

RunRefresh = Callable[[IngestJob], Awaitable[IngestJob]]


def parse_interval(text: str) -> int:
    """Seconds of an interval as people write it: 30m, 6h, 1d. Raises Refused."""
    match = _INTERVAL.fullmatch(text.strip().lower())
    if match is None:
        raise Refused("An interval is a number followed by m, h or d, for example 30m, 6h or 1d.")
    seconds = int(match[1]) * _UNITS[match[2]]
    if not MIN_INTERVAL <= seconds <= MAX_INTERVAL:
        raise Refused("The refresh interval must be between 5m and 30d.")
    return seconds


def compute_delay(every: int, failures: int) -> timedelta:
    """The time to the next refresh: twice as long after each failure, within limits, and a little more."""
    seconds = float(every)
    if failures:
        longest = max(seconds, _LONGEST_BACKOFF)
        seconds = min(longest, seconds * 2 ** min(failures, _MAX_DOUBLINGS))
    jitter = random.uniform(0, _JITTER * every)
    return timedelta(seconds=seconds + jitter)


class RefreshScheduler:
    """Refreshes datasources when they are due. `run_refresh` follows a job to its end."""

    def __init__(
        self,
        store: KnowledgeStore,
        run_refresh: RunRefresh,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._run_refresh = run_refresh
        self._now = now
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="scheduled refreshes")

    async def aclose(self) -> None:
        if self._task is not None:
            await cancel_and_wait(self._task)

    async def set_interval(self, name: str, every: int | None) -> None:
        """Refreshes a datasource so often from now on, or no more."""
        due = None
        if every is not None:
            due = self._now() + compute_delay(every, 0)
        await self._store.set_schedule(name, every, due)
        self._changed.set()

    async def run_due(self) -> None:
        """Refreshes what is due, one after the other."""
        for schedule in await self._store.list_schedules():
            if schedule.due > self._now():
                return
            next_due = self._now() + compute_delay(schedule.every, schedule.failures)
            # Stored together with the job: if this process dies, another one does it, and nobody twice.
            job = await self._store.jobs.claim_refresh(schedule.datasource, schedule.due, next_due)
            if job is not None:
                await self._refresh(replace(schedule, due=next_due), job)

    async def _refresh(self, schedule: RefreshSchedule, job: IngestJob) -> None:
        name = schedule.datasource
        failures = schedule.failures
        try:
            job = await self._run_refresh(job)
            if job.state == "done":
                failures = 0
            elif job.state == "failed":
                failures += 1
        except CaipeError as error:
            failures += 1
            log.warning("the scheduled refresh of %s failed: %s", name, error)
        # Somebody may have changed the schedule meanwhile.
        if schedule in await self._store.list_schedules():
            next_due = self._now() + compute_delay(schedule.every, failures)
            await self._store.set_schedule(name, schedule.every, next_due, failures)

    async def _run(self) -> None:
        while True:
            seconds = _LOOK_SECONDS
            try:
                await self.run_due()
                schedules = await self._store.list_schedules()
                if schedules:
                    until_due = (schedules[0].due - self._now()).total_seconds()
                    seconds = min(_LOOK_SECONDS, max(0.0, until_due))
            # A database that is away now may be back later.
            except Exception as error:  # noqa: BLE001
                log.warning("scheduled refreshes could not be looked at: %s", type(error).__name__)
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
