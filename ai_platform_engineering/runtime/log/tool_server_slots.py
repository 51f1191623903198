"""Slots of the tool servers that replicas run as processes: rows in the database of the run log.

A slot is claimed for a few seconds and renewed; that of a replica that has died expires.
"""

from collections.abc import Collection
from dataclasses import dataclass

from ai_platform_engineering.databases.sql_connections import SqlConnection, lock_key
from ai_platform_engineering.runtime.log.log_database import LogDatabase

SLOT_SECONDS = 10.0
_WAIT_SECONDS = 2.0

_CLAIM = "INSERT INTO tool_servers(slot_id, replica_id, held_until) VALUES (?, ?, ?)"
_RENEW = (
    "INSERT INTO tool_servers(slot_id, replica_id, held_until) SELECT unnest(?1::text[]), ?2, ?3"
    " ON CONFLICT(slot_id) DO UPDATE SET held_until = excluded.held_until"
)
_WAIT = (
    "INSERT INTO tool_server_waits(slot_id, replica_id, held_until) VALUES (?, ?, ?)"
    " ON CONFLICT(slot_id) DO UPDATE SET held_until = excluded.held_until"
)
_TAKE_WAITING = (
    "DELETE FROM tool_server_waits WHERE slot_id IN (SELECT slot_id FROM tool_server_waits"
    " WHERE replica_id <> ? AND held_until >= ? LIMIT 1 FOR UPDATE SKIP LOCKED)"
)


@dataclass(frozen=True, slots=True)
class ToolServerSlots:
    """The slots of all replicas, as the sessions with tool servers need them."""

    database: LogDatabase
    replica_id: str

    async def claim(self, slot_id: str, limit: int) -> bool:
        """Takes a slot if fewer than `limit` are taken; else the other replicas see that one waits."""

        def claim(db: SqlConnection, now: int) -> bool:
            lock_key(db, "tool servers")
            for table in ("tool_servers", "tool_server_waits"):
                db.execute(f"DELETE FROM {table} WHERE held_until < ?", (now,))  # noqa: S608
            [count] = db.execute("SELECT count(*) FROM tool_servers").fetchone()
            if count >= limit:
                db.execute(_WAIT, (slot_id, self.replica_id, _end(now, _WAIT_SECONDS)))
                return False
            _delete_wait(db, slot_id)
            db.execute(_CLAIM, (slot_id, self.replica_id, _end(now, SLOT_SECONDS)))
            return True

        return await self.database.submit(claim)

    async def renew(self, slot_ids: Collection[str], *, has_idle: bool) -> bool:
        """Keeps these slots, and takes those again that have expired meanwhile: their servers run.

        True when this replica should close a server that is idle: it alone was told that one waits.
        """

        def renew(db: SqlConnection, now: int) -> bool:
            db.execute(_RENEW, (list(slot_ids), self.replica_id, _end(now, SLOT_SECONDS)))
            return has_idle and db.execute(_TAKE_WAITING, (self.replica_id, now)).rowcount > 0

        return await self.database.submit(renew)

    async def release(self, slot_id: str) -> None:
        """Gives a slot back, or waits for none any more."""

        def release(db: SqlConnection, now: int) -> None:
            db.execute("DELETE FROM tool_servers WHERE slot_id = ?", (slot_id,))
            _delete_wait(db, slot_id)

        await self.database.submit(release)


def _delete_wait(db: SqlConnection, slot_id: str) -> None:
    db.execute("DELETE FROM tool_server_waits WHERE slot_id = ?", (slot_id,))


def _end(now: int, seconds: float) -> int:
    return now + round(seconds * 1_000_000)
