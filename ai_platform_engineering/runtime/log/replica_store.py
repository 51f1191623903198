"""Which replica works on which run: leases in the database of the run log, by the clock of the database.

A replica renews one lease for all its runs. The runs of a replica whose lease has ended belong to nobody, and
any other takes them, under a new epoch: should the first one still live, its writes are refused.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ai_platform_engineering.core.errors import RunNotFound
from ai_platform_engineering.databases.sql_connections import Note, NotifyingConnection, Row, SqlConnection
from ai_platform_engineering.databases.timers import claim_timer
from ai_platform_engineering.runtime.log import run_rows
from ai_platform_engineering.runtime.log.log_database import LogDatabase
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.run_log_rules import died_at_work

WORK = "work"  # the kind of a note: there are runs without a holder
EVENT = "event"  # the kind of a note: a run, whose id follows, has events

_UNHELD = (
    "SELECT run_id, principal, status, attempt,"
    " EXISTS (SELECT 1 FROM markers WHERE markers.run_id = runs.run_id) AS has_checkpoint FROM runs"
    " WHERE holder = '' AND {condition}{not_of_persons} ORDER BY number LIMIT ? FOR UPDATE SKIP LOCKED"
)
_RUNNING = "status = 'running'"
_ANSWERED = "status = 'paused' AND run_id IN (SELECT run_id FROM pending WHERE status = 'claimed')"
_TAKE = (
    "UPDATE runs SET holder = ?, epoch = epoch + 1, crashes = crashes + ?, attempt = 'waiting'"
    " WHERE run_id IN ({run_ids}) RETURNING *"
)
_DEAD = "SELECT replica_id FROM replicas WHERE lease_until < ? AND replica_id <> ? FOR UPDATE SKIP LOCKED"
_BEFORE = (
    "SELECT * FROM runs WHERE owner = ?1 AND context_id = ?2 AND status <> 'ended'"
    " AND number < (SELECT number FROM runs WHERE run_id = ?3) ORDER BY number DESC"
)


@dataclass(frozen=True, slots=True)
class RoomForRuns:
    """How many more runs a replica may work on, in all and of one person."""

    in_all: int
    of_person: int
    used: Mapping[str, int] = field(default_factory=dict)  # of the persons who have runs there

    def full_persons(self) -> list[str]:
        """The persons of whom no more runs are taken."""
        return [person for person, count in self.used.items() if count >= self.of_person]

    def is_full(self) -> bool:
        """Whether there is a run for which there would be no room."""
        return self.in_all <= 0 or bool(self.full_persons())

    def select(self, runs: Iterable[Row]) -> list[Row]:
        """The first of the runs for which there is room."""
        selected: list[Row] = []
        used = dict(self.used)
        for run in runs:
            person = run["principal"]
            if len(selected) >= self.in_all:
                break
            if used.get(person, 0) < self.of_person:
                used[person] = used.get(person, 0) + 1
                selected.append(run)
        return selected


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

    async def free_dead(self, within: float) -> int:
        """Takes the runs of replicas whose lease has ended away from them; returns how many replicas.

        Nothing is done when the database takes longer than `within` seconds: it was away, so that the
        others could not renew their leases either.
        """
        submitted_at = time.monotonic()

        def free(db: SqlConnection, now: int) -> int:
            if time.monotonic() - submitted_at > within:
                return 0
            dead = db.execute(_DEAD, (now, self.replica_id)).fetchall()
            for (replica_id,) in dead:
                _free(db, replica_id)
            return len(dead)

        return await self.database.submit(free)

    async def take_unheld(self, room: RoomForRuns, limit: int) -> list[RunRow]:
        """Makes this replica the holder of runs that nobody works on and somebody should, oldest first.

        Replicas that look at the same moment take different runs.
        """

        def take(db: SqlConnection, now: int) -> list[RunRow]:
            unheld = [
                *_lock_unheld(db, _RUNNING, room, limit),
                *_lock_unheld(db, _ANSWERED, room, limit),
            ]
            crashed: list[str] = []
            others: list[str] = []
            for run in room.select(unheld):
                died = died_at_work(run["status"], run["attempt"], has_checkpoint=run["has_checkpoint"])
                run_ids = crashed if died else others
                run_ids.append(run["run_id"])
            return [*self._take(db, crashed, crashes=1), *self._take(db, others, crashes=0)]

        return await self.database.submit(take)

    def _take(self, db: SqlConnection, run_ids: Sequence[str], *, crashes: int) -> list[RunRow]:
        if not run_ids:
            return []
        statement = _TAKE.format(run_ids=_placeholders(run_ids))
        rows = db.execute(statement, (self.replica_id, crashes, *run_ids)).fetchall()
        return [run_rows.read_run(row) for row in rows]

    async def count_unheld(self, principal: str | None, limit: int) -> int:
        """How many runs wait for a replica, of one person or of all; at most the limit."""
        query = (
            "SELECT count(*) FROM (SELECT 1 FROM runs WHERE holder = '' AND status = 'running'"
            " AND (?1 = '' OR principal = ?1) LIMIT ?2) AS waiting"
        )
        [row] = await self.database.query(query, principal or "", limit)
        return int(row[0])

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
        placeholders = _placeholders(["", *working_ids])

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
        placeholders = _placeholders(run_ids)
        query = f"SELECT run_id FROM runs WHERE holder = ? AND run_id IN ({placeholders})"  # noqa: S608
        rows = await self.database.query(query, self.replica_id, *run_ids)
        held_ids = {row["run_id"] for row in rows}
        return [run_id for run_id in run_ids if run_id not in held_ids]

    async def touch_unfollowed(self, run_ids: Sequence[str]) -> None:
        """Begins the time without followers of runs anew, where nobody follows on the replica of the run."""
        if not run_ids:
            return
        statement = (
            "UPDATE runs SET unfollowed_since = ? WHERE unfollowed_since IS NOT NULL"  # noqa: S608
            f" AND status = 'running' AND run_id IN ({_placeholders(run_ids)})"
        )

        def touch(db: SqlConnection, now: int) -> None:
            db.execute(statement, (now, *run_ids))

        await self.database.submit(touch)

    async def find_before(self, row: RunRow) -> list[RunRow]:
        """The runs of the conversation that came before and have not ended, the last one first."""
        rows = await self.database.query(_BEFORE, row.owner, row.context_id, row.run_id)
        return [run_rows.read_run(earlier) for earlier in rows]

    async def claim_timer(self, name: str, seconds: float) -> bool:
        """Whether this replica does what is to be done once in so many seconds by one of all."""
        return await self.database.submit(lambda db, now: claim_timer(db, now, name, seconds))


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


def _lock_unheld(db: SqlConnection, condition: str, room: RoomForRuns, limit: int) -> list[Row]:
    """Runs that nobody holds and that no other replica takes at this moment."""
    full_persons = room.full_persons()
    not_of_persons = ""
    if full_persons:  # otherwise their runs would hide those of others
        not_of_persons = f" AND principal NOT IN ({_placeholders(full_persons)})"
    query = _UNHELD.format(condition=condition, not_of_persons=not_of_persons)
    return db.execute(query, (*full_persons, limit)).fetchall()


def _placeholders(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _lock_existing(db: SqlConnection, run_id: str) -> RunRow | None:
    try:
        return run_rows.lock_run(db, run_id)
    except RunNotFound:
        return None


def _set_holder(db: SqlConnection, run_id: str, replica_id: str) -> None:
    db.execute("UPDATE runs SET holder = ? WHERE run_id = ?", (replica_id, run_id))
