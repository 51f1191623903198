"""Push notifications of a run log that several processes share: each is sent by one of them."""

from collections.abc import Collection

from ai_platform_engineering.databases.sql_connections import SqlConnection
from ai_platform_engineering.runtime.log import push_rows
from ai_platform_engineering.runtime.log.database_push import DatabasePush
from ai_platform_engineering.runtime.log.log_database import LogDatabase
from ai_platform_engineering.runtime.log.push_store import DueNotification

CLAIM_SECONDS = 330.0  # an attempt is shorter
_MAX_CLAIMED = 500  # configs at a time
_CLAIM = (
    "UPDATE push_configs SET claimed_by = ?1, claimed_until = ?2 WHERE due_at <= ?3 AND (claimed_by = ?1 OR"
    " claimed_until <= ?3) AND number IN (SELECT number FROM push_configs WHERE due_at <= ?3"
    " AND (claimed_by = ?1 OR claimed_until <= ?3) ORDER BY due_at, number LIMIT ?4 FOR UPDATE SKIP LOCKED)"
)


class PostgresPush(DatabasePush):
    """The push configs of runs and their queues, for several processes.

    What is due is claimed first. After a while, another process sends what is still due."""

    def __init__(self, database: LogDatabase, sender: str) -> None:
        """`sender`: the name of this process."""
        super().__init__(database, has_configs=True)  # another process may have stored some
        self._sender = sender

    async def find_due(
        self, *, busy_configs: Collection[int], busy_hosts: Collection[str], limit: int
    ) -> list[DueNotification]:
        def claim(db: SqlConnection, now: int) -> list[DueNotification]:
            claimed_until = now + round(CLAIM_SECONDS * 1_000_000)
            db.execute(_CLAIM, (self._sender, claimed_until, now, _MAX_CLAIMED))
            mine = f" AND claimed_by = '{self._sender}'"
            return push_rows.find_due(db, now, busy_configs, busy_hosts, limit, mine)

        return await self._database.submit(claim)
