"""Keeps this process one of those that share the work: renews its lease, takes threads over, hears notes."""

import asyncio
import logging
import time
from dataclasses import dataclass, field

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.task_cancellation import cancel_and_wait
from ai_platform_engineering.databases.sql_connections import Note
from ai_platform_engineering.integrations.slack_bot.bot_store import BotStore
from ai_platform_engineering.integrations.slack_bot.rate_limits import RateLimiter
from ai_platform_engineering.integrations.slack_bot.thread_holders import STOP, THREAD, ThreadHolders
from ai_platform_engineering.integrations.slack_bot.thread_worker import ThreadWorker
from ai_platform_engineering.integrations.slack_bot.turn_rows import ThreadKey

log = logging.getLogger(__name__)

LEASE_SECONDS = 6.0
_RENEWAL_SECONDS = 1.5
_CLEANUP_SECONDS = 3600.0
_CLAIMED_AT_ONCE = 50  # threads


@dataclass(slots=True)
class ProcessKeeper:
    holders: ThreadHolders
    store: BotStore
    worker: ThreadWorker
    rate_limiter: RateLimiter
    _clean_at: float = 0.0  # when this process asks next whether it is the one that cleans up
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Takes what earlier processes have left, and goes on doing so; how many threads that were.

        Raises StorageFailed.
        """
        if self.holders.database.is_shared:
            await self._renew()
        else:
            await self.holders.free_all()
        await self.store.delete_expired()
        count = await self._claim_all()
        self.holders.database.listen(self._receive, self._wake.set)
        self._task = asyncio.create_task(self._run(), name="lease of the Slack bot")
        return count

    async def close(self) -> None:
        """Leaves the threads to other processes; nothing is drawn any more."""
        if self._task is not None:
            await cancel_and_wait(self._task)
        try:
            await self.holders.leave()
        except CaipeError as error:
            log.warning("other processes take over when the lease ends: %s", error)

    async def _run(self) -> None:
        is_shared = self.holders.database.is_shared
        while True:
            self._wake.clear()
            try:
                if is_shared:
                    await self._refresh()
                if time.monotonic() >= self._clean_at:
                    self._clean_at = time.monotonic() + _CLEANUP_SECONDS / 4
                    await self._clean()
            except CaipeError as error:
                log.warning("the work is not shared for now: %s", error)
            seconds = _RENEWAL_SECONDS if is_shared else _CLEANUP_SECONDS
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _refresh(self) -> None:
        """Renews the lease, and finds what this process has to do, whether or not it was told."""
        sent_at = time.monotonic()
        refreshed = await self.holders.refresh(LEASE_SECONDS, _CLAIMED_AT_ONCE)
        if refreshed.freed:
            log.info("a process of the bot is gone; its threads go on in others")
        for thread in refreshed.threads:
            self.worker.begin(thread)
        if refreshed.threads:
            await self._claim_all()
        claims_before = self.worker.leases.snapshot()
        work = await self.holders.list_work()
        claims = self.worker.leases.snapshot()
        for thread, claim in claims_before.items():
            if thread not in work.threads and claims.get(thread) == claim:  # not claimed again meanwhile
                self.worker.lose(thread)
        # Not before: after a pause, others may have had the threads.
        self._apply_lease(sent_at, refreshed.processes)
        for thread in work.threads - claims.keys():
            self.worker.begin_again(thread)
        for thread in work.with_messages:
            self.worker.begin_again(thread)
        for turn_id, thread in work.open_turns.items():
            if not self.worker.turns.is_active(turn_id):
                self.worker.begin_again(thread)
        await self.worker.turns.apply_stops()

    async def _renew(self) -> None:
        sent_at = time.monotonic()
        self._apply_lease(sent_at, await self.holders.renew(LEASE_SECONDS))

    def _apply_lease(self, sent_at: float, processes: int) -> None:
        self.worker.leases.extend(LEASE_SECONDS, since=sent_at)
        self.rate_limiter.share_among(processes)

    async def _claim_all(self) -> int:
        """Takes the threads that have work and no holder."""
        count = 0
        while threads := await self.holders.claim_unheld(_CLAIMED_AT_ONCE):
            count += len(threads)
            for thread in threads:
                self.worker.begin(thread)
        return count

    async def _clean(self) -> None:
        """Deletes what is too old, in one process of all."""
        if await self.holders.claim_timer("cleanup", _CLEANUP_SECONDS):
            await self.store.delete_expired()

    def _receive(self, note: Note) -> None:
        """Hears what another process tells."""
        kind, *details = map(str, note)
        match kind, details:
            case _ if kind == THREAD and len(details) == 2:
                thread = ThreadKey(*details)
                if self.worker.leases.is_held(thread):
                    self.worker.begin(thread)
            case _ if kind == STOP and len(details) == 2:
                self.worker.tasks.spawn(self.worker.turns.stop_here(*details))
            case _:
                self._wake.set()
