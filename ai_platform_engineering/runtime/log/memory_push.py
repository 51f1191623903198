"""Push notifications of the run log in memory."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from ai_platform_engineering.core.transcript import TranscriptState
from ai_platform_engineering.runtime.log.database_push import QUEUE_FULL
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.push_rules import check_config_count, is_news
from ai_platform_engineering.runtime.log.push_store import (
    DEFAULT_LIMITS,
    DueNotification,
    PushConfig,
    PushTarget,
)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Queued:
    seq: int
    state: TranscriptState
    at: datetime
    attempts: int = 0


@dataclass(slots=True)
class _StoredConfig:
    config: PushConfig
    owner: str
    notified_state: str
    due_at: datetime | None = None
    queue: list[_Queued] = field(default_factory=list)


class MemoryPush:
    """The push configs of runs in memory, and their queues."""

    def __init__(self, find_run: Callable[[str], RunRow]) -> None:
        """`find_run` raises RunNotFound."""
        self.limits = DEFAULT_LIMITS
        self._find_run = find_run
        self._configs: dict[str, dict[str, _StoredConfig]] = {}  # by run and by id
        self._waiting: dict[int, _StoredConfig] = {}  # those with a queue, by number
        self._numbers = itertools.count(1)
        self._changed = asyncio.Event()

    def queue_state(self, run: RunRow) -> None:
        """Queues a change of state for the configs of the run."""
        for stored in self._configs.get(run.run_id, {}).values():
            if stored.notified_state != run.state:
                self._queue(stored, run)

    def remove_runs(self, run_ids: set[str]) -> None:
        for run_id in run_ids & self._configs.keys():
            for stored in self._configs.pop(run_id).values():
                self._waiting.pop(stored.config.number, None)

    def insert(self, run: RunRow, target: PushTarget, notified_state: str) -> _StoredConfig:
        target = target.for_run(run.run_id)
        configs = self._configs.setdefault(run.run_id, {})
        stored = configs.get(target.config_id)
        if stored is None:
            config = PushConfig(next(self._numbers), run.run_id, target)
            stored = configs[target.config_id] = _StoredConfig(config, run.owner, notified_state)
        else:
            stored.config = replace(stored.config, target=target)
        return stored

    async def set_config(self, run_id: str, target: PushTarget, *, notify_after: int = 0) -> PushConfig:
        run = self._find_run(run_id)
        check_config_count(self._configs.get(run_id, {}).keys(), target.for_run(run_id), self.limits)
        stored = self.insert(run, target, run.state if run.status == "running" else "")
        if is_news(run, stored.notified_state, notify_after):
            self._queue(stored, run)
        return stored.config

    async def find_config(self, run_id: str, config_id: str) -> PushConfig | None:
        stored = self._configs.get(run_id, {}).get(config_id)
        if stored is None:
            return None
        return stored.config

    async def list_configs(self, run_id: str, *, after: int = 0, limit: int) -> list[PushConfig]:
        configs = [stored.config for stored in self._configs.get(run_id, {}).values()]
        return [config for config in configs if config.number > after][:limit]

    async def delete_config(self, run_id: str, config_id: str) -> bool:
        configs = self._configs.get(run_id, {})
        stored = configs.pop(config_id, None)
        if not configs:
            self._configs.pop(run_id, None)
        if stored is None:
            return False
        self._waiting.pop(stored.config.number, None)
        return True

    async def find_due(
        self, *, busy_configs: Collection[int], busy_hosts: Collection[str], limit: int
    ) -> list[DueNotification]:
        now = datetime.now(UTC)
        due: list[tuple[datetime, DueNotification]] = []
        for stored in self._waiting.values():
            config = stored.config
            if stored.due_at is None or stored.due_at > now:
                continue
            if config.number in busy_configs or config.target.host in busy_hosts:
                continue
            first = stored.queue[0]
            notification = DueNotification(config, first.seq, first.state, first.at, first.attempts)
            due.append((stored.due_at, notification))
        due.sort(key=lambda item: item[0])
        return [notification for _, notification in due[:limit]]

    async def next_due_at(self, after: datetime) -> datetime | None:
        later: list[datetime] = []
        for stored in self._waiting.values():
            if stored.due_at is not None and stored.due_at > after:
                later.append(stored.due_at)
        return min(later, default=None)

    async def remove(self, notification: DueNotification) -> None:
        stored = self._find(notification)
        if stored is not None:
            stored.queue = [item for item in stored.queue if item.seq != notification.seq]
            stored.due_at = datetime.now(UTC)
            if not stored.queue:
                stored.due_at = None
                self._waiting.pop(stored.config.number, None)
        self._changed.set()

    async def postpone(self, notification: DueNotification, until: datetime) -> None:
        stored = self._find(notification)
        if stored is not None:
            for item in stored.queue:
                if item.seq == notification.seq:
                    item.attempts += 1
            stored.due_at = until
        self._changed.set()

    def wake(self) -> None:
        self._changed.set()

    async def wait_for_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    def _find(self, notification: DueNotification) -> _StoredConfig | None:
        config = notification.config
        stored = self._configs.get(config.run_id, {}).get(config.target.config_id)
        if stored is None or stored.config.number != config.number:
            return None  # it was deleted meanwhile
        return stored

    def _queue(self, stored: _StoredConfig, run: RunRow) -> None:
        """Queues the state, without the oldest of too many for one config, unless too many wait in all."""
        total = 0
        of_owner = 0
        for other in self._waiting.values():
            total += len(other.queue)
            if other.owner == run.owner:
                of_owner += len(other.queue)
        if total >= self.limits.queue or of_owner >= self.limits.queue_per_owner:
            log.warning(QUEUE_FULL, run.run_id)
            return
        now = datetime.now(UTC)
        stored.queue.append(_Queued(run.last_seq, run.state, now))
        del stored.queue[: -self.limits.queue_per_config]
        stored.notified_state = run.state
        stored.due_at = stored.due_at or now
        self._waiting[stored.config.number] = stored
        self._changed.set()
