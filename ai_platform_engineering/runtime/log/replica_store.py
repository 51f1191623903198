"""Which replica works on which run: leases in the database of the run log, by the clock of the database.

A replica renews one lease for all its runs. The runs of a replica whose lease has ended belong to nobody, and
any other takes them, under a new epoch: should the first one still live, its writes are refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ai_platform_engineering.core.errors import RunNotFound
from ai_platform_engineering.databases.sql_connections import Note, NotifyingConnection, SqlConnection
from ai_platform_engineering.runtime.log import run_rows
from ai_platform_engineering.runtime.log.log_database import LogDatabase
from ai_platform_engineering.runtime.log.log_rows import RunRow

WORK = "work"  # the kind of a note: there are runs without a holder
EVENT = "event"  # the kind of a note: a run, whose id follows, has events

_UNHELD = "SELECT * FROM runs WHERE holder = '' AND status = 'running' ORDER BY number LIMIT ?"
_ANSWERED = (
    "SELECT * FROM runs WHERE holder = '' AND status = 'paused'"
    " AND run_id IN (SELECT run_id FROM pending WHERE status = 'claimed') ORDER BY number LIMIT ?"
)
_DEAD = "SELECT replica_id FROM replicas WHERE lease_until < ? FOR UPDATE SKIP LOCKED"
_BEFORE = (
    "SELECT * FROM runs WHERE owner = ?1 AND context_id = ?2 AND status <> 'ended'"
    " AND number < (SELECT number FROM runs WHERE run_id = ?3) ORDER BY number DESC"
)


@dataclass(frozen=True, slots=True)
class ReplicaStore:
    """The leases of replicas, and who holds which run."""

    database: LogDatabase
    replica_id: str
    subscribe: Callable[[Callable[[Note], None]], None]  # for what the other replicas tell

    async def renew(self, seconds: float) -> bool:
        """Renews the lease of this replica; false when it had ended, so that others may have its runs."""

        def renew(db: SqlConnection, now: int) -> bool:
            lease_until = now + round(seconds * 1_000_000)
            renewed = db.execute(
                "UPDATE replicas SET lease_until = ? WHERE replica_id = ? AND lease_until >= ?",
                (lease_until, self.replica_id, now),
            )
            if renewed.rowcount:
                return True
            db.execute(
                "INSERT INTO replicas(replica_id, lease_until) VALUES (?, ?)"
                " ON CONFLICT(replica_id) DO UPDATE SET lease_until = excluded.lease_until",
                (self.replica_id, lease_until),
            )
            return False

        return await self.database.submit(renew)

    async def leave(self) -> None:
        """Ends the lease of this replica, and gives up what it still holds."""
        await self.database.submit(lambda db, now: _free(db, self.replica_id))

    async def free_dead(self) -> int:
        """Takes the runs of replicas whose lease has ended away from them; returns how many replicas."""

        def free(db: SqlConnection, now: int) -> int:
            dead = db.execute(_DEAD, (now,)).fetchall()
            for (replica_id,) in dead:
                _free(db, replica_id)
            return len(dead)

        return await self.database.submit(free)

    async def find_unheld(self, limit: int) -> list[RunRow]:
        """Runs that nobody works on and somebody should, oldest first."""

        def find(db: SqlConnection) -> list[RunRow]:
            rows = [*db.execute(_UNHELD, (limit,)), *db.execute(_ANSWERED, (limit,))]
            return [run_rows.read_run(row) for row in rows]

        return await self.database.read(find)

    async def count_unheld(self, principal: str | None, limit: int) -> int:
        """How many runs wait for a replica, of one person or of all; at most the limit."""
        query = (
            "SELECT count(*) FROM (SELECT 1 FROM runs WHERE holder = '' AND status = 'running'"
            " AND (?1 = '' OR principal = ?1) LIMIT ?2) AS waiting"
        )
        [row] = await self.database.query(query, principal or "", limit)
        return int(row[0])

    async def take_over(self, row: RunRow) -> RunRow | None:
        """Makes this replica the holder of a run that nobody holds; None when another one was faster."""

        def take(db: SqlConnection, now: int) -> RunRow | None:
            current = _lock_existing(db, row.run_id)
            if current is None or current.holder or current.epoch != row.epoch or current.status == "ended":
                return None
            _set_holder(db, row.run_id, self.replica_id)
            return run_rows.take_over(db, row.run_id)

        return await self.database.submit(take)

    async def acquire(self, run_id: str) -> RunRow | None:
        """Makes this replica the holder of a run that waits for people, under a new epoch; None when another
        replica still works on it."""

        def acquire(db: SqlConnection, now: int) -> RunRow | None:
            row = _lock_existing(db, run_id)
            if row is None or row.holder not in ("", self.replica_id):
                return None
            _set_holder(db, run_id, self.replica_id)
            return run_rows.advance_epoch(db, run_id)

        return await self.database.submit(acquire)

    async def release(self, run_id: str, epoch: int) -> None:
        """Gives a run up that waits for people, unless it was taken meanwhile."""

        def release(db: SqlConnection, now: int) -> None:
            db.execute(
                "UPDATE runs SET holder = '' WHERE run_id = ? AND epoch = ? AND holder = ?",
                (run_id, epoch, self.replica_id),
            )
            _note_work(db)

        await self.database.submit(release)

    async def release_idle(self, working_ids: Sequence[str], seconds: float) -> None:
        """Gives up runs that this replica holds without a task, for so long: something went wrong there."""
        placeholders = ", ".join("?" * (len(working_ids) + 1))

        def release(db: SqlConnection, now: int) -> None:
            released = db.execute(
                "UPDATE runs SET holder = '' WHERE holder = ? AND status <> 'ended' AND updated < ?"  # noqa: S608
                f" AND run_id NOT IN ({placeholders})",
                (self.replica_id, now - round(seconds * 1_000_000), "", *working_ids),
            )
            if released.rowcount:
                _note_work(db)

        await self.database.submit(release)

    async def find_lost(self, run_ids: Sequence[str]) -> list[str]:
        """Those of the runs that this replica does not hold."""
        if not run_ids:
            return []
        placeholders = ", ".join("?" * len(run_ids))
        query = f"SELECT run_id FROM runs WHERE holder = ? AND run_id IN ({placeholders})"  # noqa: S608
        rows = await self.database.query(query, self.replica_id, *run_ids)
        held_ids = {row["run_id"] for row in rows}
        return [run_id for run_id in run_ids if run_id not in held_ids]

    async def find_before(self, row: RunRow) -> list[RunRow]:
        """The runs of the conversation that came before and have not ended, the last one first."""
        rows = await self.database.query(_BEFORE, row.owner, row.context_id, row.run_id)
        return [run_rows.read_run(earlier) for earlier in rows]

    async def claim_timer(self, name: str, seconds: float) -> bool:
        """Whether this replica does what is to be done once in so many seconds by one of all."""

        def claim(db: SqlConnection, now: int) -> bool:
            claimed = db.execute(
                "INSERT INTO timers(name, next_at) VALUES (?1, ?2) ON CONFLICT(name) DO UPDATE"
                " SET next_at = excluded.next_at WHERE timers.next_at <= ?3",
                (name, now + round(seconds * 1_000_000), now),
            )
            return claimed.rowcount > 0

        return await self.database.submit(claim)


def note_unheld(db: SqlConnection, row: RunRow) -> None:
    """Tells the other replicas of a run that was stored without a holder."""
    if not row.holder:
        _note_work(db)


def _free(db: SqlConnection, replica_id: str) -> None:
    db.execute("UPDATE runs SET holder = '' WHERE holder = ? AND status <> 'ended'", (replica_id,))
    db.execute("DELETE FROM replicas WHERE replica_id = ?", (replica_id,))
    _note_work(db)


def _note_work(db: SqlConnection) -> None:
    assert isinstance(db, NotifyingConnection)
    db.note(WORK)


def _lock_existing(db: SqlConnection, run_id: str) -> RunRow | None:
    try:
        return run_rows.lock_run(db, run_id)
    except RunNotFound:
        return None


def _set_holder(db: SqlConnection, run_id: str, replica_id: str) -> None:
    db.execute("UPDATE runs SET holder = ? WHERE run_id = ?", (replica_id, run_id))
