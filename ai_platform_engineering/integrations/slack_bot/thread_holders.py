"""Which process of the bot works on which thread: leases in the bot's database, by its clock.

A thread with an open turn or an unhandled message has a holder, which draws its turns and handles its
messages in order. What reaches another process is stored, and the holder is told. A process renews one lease
for all its threads; when it ends, any other process takes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ai_platform_engineering.databases.sql_connections import (
    NotifyingConnection,
    SqlConnection,
    lock_key,
    row_lock,
)
from ai_platform_engineering.databases.timers import claim_timer
from ai_platform_engineering.integrations.slack_bot.bot_database import BotDatabase, execute_count
from ai_platform_engineering.integrations.slack_bot.turn_rows import ThreadKey

# The kinds of notes to other processes
WORK = "work"  # there are threads without a holder
THREAD = "thread"  # a thread, whose key follows, has something for its holder
STOP = "stop"  # a turn is to be stopped: its id, and who stops it

_HAS_WORK = (
    "(EXISTS (SELECT 1 FROM turns WHERE turns.channel = holders.channel"
    " AND turns.thread_ts = holders.thread_ts AND turns.state = 'open')"
    " OR EXISTS (SELECT 1 FROM messages WHERE messages.channel = holders.channel"
    " AND messages.thread_ts = holders.thread_ts))"
)

_OF_HOLDER = (
    " JOIN holders ON holders.channel = work.channel AND holders.thread_ts = work.thread_ts WHERE holder = ?"
)
_MESSAGES_OF_HOLDER = f"SELECT DISTINCT work.channel, work.thread_ts FROM messages work{_OF_HOLDER}"  # noqa: S608
_TURNS_OF_HOLDER = (
    f"SELECT work.channel, work.thread_ts, work.turn_id FROM turns work{_OF_HOLDER} AND work.state = 'open'"  # noqa: S608
)


class ThreadTaken(Exception):
    """Another process works on the thread: this one was away for too long."""


@dataclass(frozen=True, slots=True)
class HeldWork:
    """The threads of this process, those of them with an unhandled message, and their open turns by id."""

    threads: frozenset[ThreadKey]
    with_messages: frozenset[ThreadKey]
    open_turns: Mapping[str, ThreadKey]


@dataclass(frozen=True, slots=True)
class Refreshed:
    """How many processes have a lease, how many were dead, and the threads that this one has claimed."""

    processes: int
    freed: int
    threads: list[ThreadKey]


@dataclass(frozen=True, slots=True)
class ThreadHolders:
    """The leases of processes, and who holds which thread."""

    database: BotDatabase

    @property
    def process_id(self) -> str:
        return self.database.process_id

    async def renew(self, seconds: float) -> int:
        """Renews the lease of this process; how many processes have one."""
        return await self.database.transact(lambda db, now: _renew(db, now, self.process_id, seconds))

    async def refresh(self, seconds: float, limit: int) -> Refreshed:
        """Renews the lease, takes the threads of dead processes away from them, and claims unheld ones."""

        def refresh(db: SqlConnection, now: int) -> Refreshed:
            freed = _free_dead(db, now)
            threads = _claim_unheld(db, self.process_id, limit)
            return Refreshed(_renew(db, now, self.process_id, seconds), freed, threads)

        return await self.database.transact(refresh)

    async def leave(self) -> None:
        """Ends the lease of this process, and gives its threads up."""
        await self.database.transact(lambda db, now: _free(db, self.process_id))

    async def free_dead(self) -> int:
        """Takes the threads of processes whose lease has ended away from them; how many processes."""
        return await self.database.transact(_free_dead)

    async def free_all(self) -> None:
        """Takes all threads away from earlier processes, for a database that has one process at a time."""
        await self.database.transact(lambda db, now: db.execute("UPDATE holders SET holder = ''"))

    async def claim_unheld(self, limit: int) -> list[ThreadKey]:
        """Makes this process the holder of threads with work that nobody does, at most so many."""
        return await self.database.transact(lambda db, _: _claim_unheld(db, self.process_id, limit))

    async def list_work(self) -> HeldWork:
        """What this process has to do."""

        def read(db: SqlConnection) -> HeldWork:
            mine = (self.process_id,)
            threads = db.execute("SELECT channel, thread_ts FROM holders WHERE holder = ?", mine).fetchall()
            messages = db.execute(_MESSAGES_OF_HOLDER, mine).fetchall()
            turns = db.execute(_TURNS_OF_HOLDER, mine).fetchall()
            return HeldWork(
                frozenset(ThreadKey(row[0], row[1]) for row in threads),
                frozenset(ThreadKey(row[0], row[1]) for row in messages),
                {str(row[2]): ThreadKey(row[0], row[1]) for row in turns},
            )

        return await self.database.read(read)

    async def release(self, thread: ThreadKey) -> bool:
        """Gives a thread up, unless there is work in it."""

        def release(db: SqlConnection, now: int) -> bool:
            lock_thread(db, thread)
            statement = (
                "DELETE FROM holders WHERE channel = ? AND thread_ts = ? AND holder = ?"  # noqa: S608
                f" AND NOT {_HAS_WORK}"
            )
            return execute_count(db, statement, *thread, self.process_id) > 0

        return await self.database.transact(release)

    async def claim_timer(self, name: str, seconds: float) -> bool:
        """Whether this process does what is to be done once in so many seconds by one of all."""
        return await self.database.transact(lambda db, now: claim_timer(db, now, name, seconds))


def lock_thread(db: SqlConnection, thread: ThreadKey) -> None:
    """Lets one transaction at a time change who holds a thread."""
    lock_key(db, "thread", *thread)


def claim_thread(db: SqlConnection, thread: ThreadKey, process_id: str) -> bool:
    """Whether this process holds the thread; it takes one that nobody holds, and tells another holder.

    The thread is locked, and what is to be done was stored.
    """
    db.execute("INSERT INTO holders VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (*thread, process_id))
    if _take(db, thread, process_id) or find_holder(db, thread) == process_id:
        return True
    notify(db, THREAD, *thread)
    return False


def check_holder(db: SqlConnection, thread: ThreadKey, process_id: str) -> None:
    """Raises ThreadTaken when this process does not hold the thread; it stays so until the commit."""
    query = f"SELECT holder FROM holders WHERE channel = ? AND thread_ts = ?{row_lock(db)}"  # noqa: S608
    row = db.execute(query, thread).fetchone()
    if row is None or row[0] != process_id:
        raise ThreadTaken


def find_holder(db: SqlConnection, thread: ThreadKey) -> str | None:
    """The process that holds a thread, "" when nobody does; None when there was no work in it."""
    query = "SELECT holder FROM holders WHERE channel = ? AND thread_ts = ?"
    row = db.execute(query, thread).fetchone()
    if row is None:
        return None
    return str(row[0])


def notify(db: SqlConnection, kind: str, *details: str) -> None:
    """Tells the other processes something, if there can be any and this is committed."""
    if isinstance(db, NotifyingConnection):
        db.note(kind, *details)


def _renew(db: SqlConnection, now: int, process_id: str, seconds: float) -> int:
    db.execute(
        "INSERT INTO processes(process_id, lease_until) VALUES (?, ?)"
        " ON CONFLICT(process_id) DO UPDATE SET lease_until = excluded.lease_until",
        (process_id, now + round(seconds * 1_000_000)),
    )
    return int(db.execute("SELECT count(*) FROM processes", ()).fetchone()[0])


def _free_dead(db: SqlConnection, now: int) -> int:
    query = f"SELECT process_id FROM processes WHERE lease_until < ?{_skip_locked(db)}"  # noqa: S608
    dead = db.execute(query, (now,)).fetchall()
    for row in dead:
        _free(db, row[0])
    return len(dead)


def _claim_unheld(db: SqlConnection, process_id: str, limit: int) -> list[ThreadKey]:
    # Those without work are nobody's business.
    db.execute(f"DELETE FROM holders WHERE holder = '' AND NOT {_HAS_WORK}")  # noqa: S608
    query = f"SELECT channel, thread_ts FROM holders WHERE holder = '' LIMIT ?{_skip_locked(db)}"  # noqa: S608
    threads = [ThreadKey(row[0], row[1]) for row in db.execute(query, (limit,)).fetchall()]
    return [thread for thread in threads if _take(db, thread, process_id)]


def _skip_locked(db: SqlConnection) -> str:
    """The end of a SELECT that leaves rows alone with which another process is busy."""
    lock = row_lock(db)
    return f"{lock} SKIP LOCKED" if lock else ""


def _take(db: SqlConnection, thread: ThreadKey, process_id: str) -> bool:
    statement = "UPDATE holders SET holder = ? WHERE channel = ? AND thread_ts = ? AND holder = ''"
    return execute_count(db, statement, process_id, *thread) > 0


def _free(db: SqlConnection, process_id: str) -> None:
    db.execute("UPDATE holders SET holder = '' WHERE holder = ?", (process_id,))
    db.execute("DELETE FROM processes WHERE process_id = ?", (process_id,))
    notify(db, WORK)
