"""The run log on PostgreSQL: several processes write and follow the runs of one database."""

import asyncio
import contextlib
import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ai_platform_engineering.core.events import AnyEvent, StoredEvent
from ai_platform_engineering.databases.group_commit import BUSY_BATCH, TICK
from ai_platform_engineering.databases.postgres_database import PostgresAddress, PostgresDatabase
from ai_platform_engineering.databases.postgres_listener import PostgresListener
from ai_platform_engineering.databases.sql_connections import (
    Note,
    NotifyingConnection,
    SqlConnection,
    StorageFailed,
)
from ai_platform_engineering.runtime.log.database_log import CACHE_BYTES, DatabaseLog
from ai_platform_engineering.runtime.log.log_rows import EventBatch, Marker, RunRow
from ai_platform_engineering.runtime.log.postgres_appends import (
    AppendError,
    AppendQueue,
    ProgressAppend,
    append_progress,
    is_progress,
)
from ai_platform_engineering.runtime.log.postgres_push import PostgresPush
from ai_platform_engineering.runtime.log.postgres_schema import TABLES
from ai_platform_engineering.runtime.log.replica_store import EVENT, ReplicaStore, note_unheld
from ai_platform_engineering.runtime.log.run_rows import Batch

log = logging.getLogger(__name__)

_MAX_FOLLOWED = 4096  # runs without a waiter whose last number is remembered
_POLL_SECONDS = 0.5
_POLLED_AT_ONCE = 500  # runs in one query


@dataclass(slots=True)
class _FollowedRun:
    """The last number of a run that is known, and the waiters for the next one.

    In its `generation` the listener has missed nothing: the number is the last one, or a note is on its way.
    """

    last_seq: int = 0
    generation: int | None = None
    waiters: set[asyncio.Future[None]] = field(default_factory=set)


class PostgresLog(DatabaseLog):
    """A run log in a schema of a PostgreSQL database.

    Readers of runs that this process works on are served from memory, those of others are woken by NOTIFY.
    While that does not work, the runs that they follow are looked up again and again.
    """

    def __init__(
        self, database: PostgresDatabase, address: PostgresAddress, sender: str, *, cache_bytes: int
    ) -> None:
        super().__init__(database, PostgresPush(database, sender), cache_bytes)
        self._followed: OrderedDict[str, _FollowedRun] = OrderedDict()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._polling: asyncio.Task[None] | None = None
        self._listener = PostgresListener(address, sender, self._receive_in_thread, self._note_change)
        self.replicas: ReplicaStore | None = ReplicaStore(database, sender, self._subscribe)
        self._appends = AppendQueue(database, self._append_progress, self._publish)
        self._subscriber: Callable[[Note], None] | None = None

    @classmethod
    def open(
        cls,
        address: PostgresAddress,
        *,
        tick: float = TICK,
        busy_batch: int = BUSY_BATCH,
        cache_bytes: int = CACHE_BYTES,
    ) -> "PostgresLog":
        """Raises psycopg.Error, and ConfigurationError when this program is too old for the tables."""
        sender = str(uuid.uuid4())
        database = PostgresDatabase(address, TABLES, sender=sender, tick=tick, busy_batch=busy_batch)
        return cls(database, address, sender, cache_bytes=cache_bytes)

    async def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._polling
        await asyncio.to_thread(self._listener.close)
        await super().close()

    def _subscribe(self, subscriber: Callable[[Note], None]) -> None:
        """Calls the subscriber, in the event loop, with what other processes tell."""
        self._subscriber = subscriber
        self._start_listening()

    async def add_missing_details(self) -> None:
        """There are none: every version that stores runs here stores their details."""

    # --- writers --------------------------------------------------------------------------------------------

    async def append(
        self, run_id: str, epoch: int, events: Sequence[AnyEvent], markers: Sequence[Marker] = ()
    ) -> int:
        if markers or not is_progress(events):
            return await super().append(run_id, epoch, events, markers)
        run = await self._appends.submit(ProgressAppend(run_id, epoch, Batch.encode(events)))
        return run.last_seq

    def _append_batches(
        self, db: SqlConnection, now: int, batches: Sequence[EventBatch], encoded: Sequence[Batch]
    ) -> list[RunRow | AppendError]:
        run_ids = {batch.run_id for batch in batches}
        if len(run_ids) < len(batches) or not all(is_progress(batch.events) for batch in batches):
            return super()._append_batches(db, now, batches, encoded)
        appends = [
            ProgressAppend(batch.run_id, batch.epoch, encoded_batch)
            for batch, encoded_batch in zip(batches, encoded, strict=True)
        ]
        return self._append_progress(db, now, appends)

    def _append_progress(
        self, db: SqlConnection, now: int, appends: Sequence[ProgressAppend]
    ) -> list[RunRow | AppendError]:
        results = append_progress(db, now, appends)
        for result in results:
            if isinstance(result, RunRow):
                self._tell_others(db, result)
        return results

    # --- readers --------------------------------------------------------------------------------------------

    async def read(self, run_id: str, after: int = 0, limit: int = 256) -> list[StoredEvent]:
        recent = self._recent.read(run_id, after, limit)
        if recent:  # behind these, another process may have stored more
            return recent
        if self._is_up_to_date(run_id, after):
            return []
        return await super().read(run_id, after, limit)

    async def wait_for_event(self, run_id: str, after: int) -> None:
        self._start_listening()
        followed = self._follow(run_id)
        while True:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            followed.waiters.add(waiter)  # before the check: an event that is stored in between wakes it
            try:
                if await self._known_seq(run_id, followed) > after:
                    return
                self._poll_if_deaf()
                await waiter
            finally:
                followed.waiters.discard(waiter)

    def _is_up_to_date(self, run_id: str, after: int) -> bool:
        """Whether it is known without a query that a followed run has no event above the number."""
        followed = self._followed.get(run_id)
        if followed is None or followed.generation is None:
            return False
        return followed.generation == self._listener.generation and followed.last_seq <= after

    async def _known_seq(self, run_id: str, followed: _FollowedRun) -> int:
        """The last number of the run. Raises RunNotFound."""
        generation = self._listener.generation
        if generation is None or followed.generation != generation:
            last_seq = await self._last_seq(run_id)
            followed.last_seq = max(followed.last_seq, last_seq)
            followed.generation = generation  # of before the query: what came later is told
        return followed.last_seq

    def _follow(self, run_id: str) -> _FollowedRun:
        followed = self._followed.setdefault(run_id, _FollowedRun())
        self._followed.move_to_end(run_id)
        if len(self._followed) > _MAX_FOLLOWED:
            self._forget_oldest()
        return followed

    def _forget_oldest(self) -> None:
        """Forgets the run that was looked at longest ago, unless somebody waits for it."""
        oldest_id, oldest = next(iter(self._followed.items()))
        if oldest.waiters:
            self._followed.move_to_end(oldest_id)
        else:
            del self._followed[oldest_id]

    # --- what was committed ---------------------------------------------------------------------------------

    def _tell_others(self, db: SqlConnection, run: RunRow) -> None:
        assert isinstance(db, NotifyingConnection)
        db.note(EVENT, run.run_id, run.last_seq)
        if run.last_seq == 1:
            note_unheld(db, run)

    def _wake(self, run: RunRow) -> None:
        self._note_seq(run.run_id, run.last_seq)

    def _note_seq(self, run_id: str, last_seq: int) -> None:
        followed = self._followed.get(run_id)
        if followed is None:
            return
        followed.last_seq = max(followed.last_seq, last_seq)
        _wake_all(followed.waiters)

    # --- what other processes tell --------------------------------------------------------------------------

    def _start_listening(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._listener.start()

    def _receive_in_thread(self, notes: list[Note]) -> None:
        self._call_in_loop(lambda: self._receive(notes))

    def _note_change(self) -> None:
        """The listener has a connection again, or has none any more."""
        self._call_in_loop(self._look_again)

    def _look_again(self) -> None:
        """Looks all followed runs up: notes may have been missed."""
        for followed in self._followed.values():
            followed.generation = None
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll(), name="polling for events")

    def _call_in_loop(self, callback: Callable[[], None]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it everyone who waited
            self._loop.call_soon_threadsafe(callback)

    def _receive(self, notes: Iterable[Note]) -> None:
        for note in notes:
            if note[0] == EVENT and len(note) == 3:
                self._note_seq(str(note[1]), int(note[2]))
            elif note[0] == EVENT:  # of a run whose id was too long to be told
                self._look_again()
            if self._subscriber is not None:
                self._subscriber(note)

    def _poll_if_deaf(self) -> None:
        if self._listener.generation is None and (self._polling is None or self._polling.done()):
            self._polling = asyncio.create_task(self._poll(), name="polling for events")

    async def _poll(self) -> None:
        """Looks for events of all followed runs until it has done so while the listener has a connection."""
        while True:
            generation = self._listener.generation
            try:
                await self._look_up_all(generation)
            except StorageFailed as error:
                log.warning("events are not looked for: %s", error)
            if generation is not None and generation == self._listener.generation:
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _look_up_all(self, generation: int | None) -> None:
        run_ids = [run_id for run_id, followed in self._followed.items() if followed.waiters]
        for start in range(0, len(run_ids), _POLLED_AT_ONCE):
            await self._look_up(run_ids[start : start + _POLLED_AT_ONCE], generation)

    async def _look_up(self, run_ids: list[str], generation: int | None) -> None:
        placeholders = ", ".join("?" * len(run_ids))
        query = f"SELECT run_id, last_seq FROM runs WHERE run_id IN ({placeholders})"  # noqa: S608
        for row in await self._database.query(query, *run_ids):
            followed = self._followed.get(row["run_id"])
            if followed is None:
                continue
            followed.generation = generation
            if row["last_seq"] > followed.last_seq:
                self._note_seq(row["run_id"], row["last_seq"])


def _wake_all(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
