"""Push notifications in the database of the run log."""

import asyncio
import logging
import time
from collections.abc import Collection
from datetime import datetime

from ai_platform_engineering.databases.sql_connections import SqlConnection
from ai_platform_engineering.files.sqlite_file import microseconds, moment
from ai_platform_engineering.runtime.log import push_rows, run_rows
from ai_platform_engineering.runtime.log.log_database import LogDatabase
from ai_platform_engineering.runtime.log.log_rows import NewRun, RunRow
from ai_platform_engineering.runtime.log.push_store import (
    DEFAULT_LIMITS,
    DueNotification,
    PushConfig,
    PushTarget,
)

log = logging.getLogger(__name__)

QUEUE_FULL = (
    "a push notification of task %s is not queued: A2A_PUSH_QUEUE_PER_USER or A2A_PUSH_QUEUE_LIMIT is reached"
)


class DatabasePush:
    """The push configs of runs and their queues. Nothing is looked up while no run has a config."""

    def __init__(self, database: LogDatabase, *, has_configs: bool) -> None:
        self.limits = DEFAULT_LIMITS
        self._database = database
        self._changed = asyncio.Event()
        self._has_configs = has_configs
        if self._has_configs:
            self._changed.set()

    # --- inside the transactions of the run log, in the writer's thread -------------------------------------

    def create(self, db: SqlConnection, now: int, run: RunRow, new: NewRun) -> None:
        """Stores the config that came with the message of a new run."""
        if new.push is None:
            return
        push_rows.insert(db, run, new.push, "")
        self._has_configs = True
        self.queue_state(db, now, run)

    def queue_state(self, db: SqlConnection, now: int, run: RunRow) -> None:
        """Queues a change of state. Most runs have no config, and most changes are none of the state."""
        if not self._has_configs or run.state_at != run.updated or not self.limits.queue:
            return
        if push_rows.queue_state(db, now, run, self.limits):
            log.warning(QUEUE_FULL, run.run_id)

    # --- in the event loop ----------------------------------------------------------------------------------

    def note_change(self, run: RunRow) -> None:
        """Tells whoever delivers that a state was committed."""
        if self._has_configs and run.state_at == run.updated:
            self._changed.set()

    async def set_config(self, run_id: str, target: PushTarget, *, notify_after: int = 0) -> PushConfig:
        def store(db: SqlConnection, now: int) -> PushConfig:
            run = run_rows.lock_run(db, run_id)
            self._has_configs = True
            return push_rows.store(db, now, run, target, notify_after, self.limits)

        return await self._database.submit(store, stored=self.wake)

    async def find_config(self, run_id: str, config_id: str) -> PushConfig | None:
        query = "SELECT * FROM push_configs WHERE run_id = ? AND config_id = ?"
        for row in await self._database.query(query, run_id, config_id):
            return push_rows.read_config(row)
        return None

    async def list_configs(self, run_id: str, *, after: int = 0, limit: int) -> list[PushConfig]:
        query = "SELECT * FROM push_configs WHERE run_id = ? AND number > ? ORDER BY number LIMIT ?"
        return [push_rows.read_config(row) for row in await self._database.query(query, run_id, after, limit)]

    async def delete_config(self, run_id: str, config_id: str) -> bool:
        return await self._database.submit(lambda db, now: push_rows.delete(db, run_id, config_id))

    async def find_due(
        self, *, busy_configs: Collection[int], busy_hosts: Collection[str], limit: int
    ) -> list[DueNotification]:
        if not self._has_configs:
            return []
        now = time.time_ns() // 1000
        return await self._database.read(
            lambda db: push_rows.find_due(db, now, busy_configs, busy_hosts, limit)
        )

    async def next_due_at(self, after: datetime) -> datetime | None:
        if not self._has_configs:
            return None
        query = "SELECT min(due_at) FROM push_configs WHERE due_at > ?"
        [row] = await self._database.query(query, microseconds(after))
        if row[0] is None:
            return None
        return moment(row[0])

    async def remove(self, notification: DueNotification) -> None:
        number = notification.config.number
        await self._database.submit(
            lambda db, now: push_rows.remove(db, now, number, notification.seq), stored=self.wake
        )

    async def postpone(self, notification: DueNotification, until: datetime) -> None:
        number = notification.config.number
        due_at = microseconds(until)
        await self._database.submit(
            lambda db, now: push_rows.postpone(db, number, notification.seq, due_at), stored=self.wake
        )

    def wake(self) -> None:
        self._changed.set()

    async def wait_for_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()
