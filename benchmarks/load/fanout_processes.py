"""The processes of `benchmarks.fanout`: one that writes events with group commit, one that follows the runs.

    python -m benchmarks.load.fanout_processes write|read '{"engine": "redis", ...}'

A process prints `ready`, and at its end one line of JSON with what it saw.
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from benchmarks.load.notes import LISTENERS, SENDERS, Note

TICK = 0.005  # these are the run log's own: `runtime/log/group_commit.py`, `runtime/log/postgres_log.py`
BUSY_BATCH = 4
POLL_SECONDS = 0.5
POLLED_AT_ONCE = 500
READ_CONNECTIONS = 4
START_SECONDS = 60.0  # in which the writers start

BODY = "x" * 120  # JSON of a piece of text of 40 characters
ADVANCE = (
    "UPDATE runs SET last_seq = greatest(last_seq, added.seq)"
    " FROM unnest(%s::text[], %s::bigint[]) AS added(run_id, seq) WHERE runs.run_id = added.run_id"
)
INSERT = (
    "INSERT INTO events(run_id, seq, at, body) SELECT * FROM"
    " unnest(%s::text[], %s::bigint[], %s::float8[], %s::text[]) ON CONFLICT DO NOTHING"
)
SCHEMA = (
    "CREATE TABLE runs(run_id TEXT PRIMARY KEY, last_seq BIGINT NOT NULL) WITH (fillfactor = 70)",
    "CREATE TABLE events(run_id TEXT, seq BIGINT, at FLOAT8, body TEXT, PRIMARY KEY(run_id, seq))",
)


@dataclass(frozen=True, slots=True)
class Load:
    """What a process does: which runs, how many events of each, how fast, over which engine."""

    engine: str
    database: str
    engine_url: str
    carries_events: bool
    runs: list[str]
    events: int
    rate: float
    idle: int = 0
    patience: float = 8.0  # seconds for which a reader waits for a next event before it gives up

    def dump(self) -> str:
        return json.dumps(asdict(self))


class Writer:
    """Appends of all runs share commits; an append returns when it is committed."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._sender = SENDERS[load.engine](load.engine_url)
        self._submitted: list[tuple[Note, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self.commits = 0

    async def write_runs(self) -> None:
        committing = asyncio.create_task(self._commit_all())
        await asyncio.gather(*(self._write_run(run_id) for run_id in self._load.runs))
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)

    async def connect(self) -> psycopg.AsyncConnection[Any]:
        while self._connection is None or self._connection.closed:
            try:
                self._connection = await psycopg.AsyncConnection.connect(
                    self._load.database, autocommit=True, connect_timeout=2
                )
            except psycopg.OperationalError:
                await asyncio.sleep(0.2)
        return self._connection

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _write_run(self, run_id: str) -> None:
        interval = 1 / self._load.rate
        position = self._load.runs.index(run_id) / len(self._load.runs)
        next_at = time.monotonic() + position * interval
        for seq in range(1, self._load.events + 1):
            await asyncio.sleep(next_at - time.monotonic())
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._submitted.append(([run_id, seq, time.time(), BODY], future))
            self._wake.set()
            await future
            next_at = max(next_at + interval, time.monotonic())

    async def _commit_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch = self._submitted
            self._submitted = []
            await self._commit([note for note, _ in batch])
            for _, future in batch:
                future.set_result(None)
            if len(batch) >= BUSY_BATCH:
                await asyncio.sleep(TICK)

    async def _commit(self, rows: Sequence[Note]) -> None:
        notes = rows
        if not self._load.carries_events:
            notes = [row[:2] for row in rows]
        while True:
            connection = await self.connect()
            try:
                async with connection.transaction():
                    columns = [list(column) for column in zip(*rows, strict=True)]
                    await connection.execute(ADVANCE, columns[:2])
                    await connection.execute(INSERT, columns)
                    if self._sender.in_transaction:
                        await self._sender.send(connection, notes)
            except psycopg.Error:  # whether it was committed or not: the numbers are given here
                await connection.close()
                await asyncio.sleep(0.1)
            else:
                break
        self.commits += 1
        if not self._sender.in_transaction:
            await self._sender.send(connection, notes)


@dataclass(slots=True)
class FollowedRun:
    """What a reader has of a run, and which number it was told."""

    last_read: int = 0
    last_told: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, seq: int) -> None:
        if seq > self.last_told:
            self.last_told = seq
            self.news.set()


class Reader:
    """One task for each followed run, which is woken and reads rows; while notes do not come, it polls."""

    def __init__(self, load: Load, pool: AsyncConnectionPool[Any]) -> None:
        self._load = load
        self._pool = pool
        self._runs = {run_id: FollowedRun() for run_id in [*load.runs, *idle_runs(load.idle)]}
        self._is_listening = False
        self._look_again = asyncio.Event()
        self.listening = asyncio.Event()  # for the first time
        self.latencies: list[tuple[float, float]] = []  # time of the append, and seconds until it was read
        self.queries = 0
        self.repeated = 0
        self.cpu_before = 0.0
        self._last_event_at = time.monotonic() + START_SECONDS

    async def follow(self) -> None:
        tasks = [asyncio.create_task(self._follow_idle(run_id)) for run_id in idle_runs(self._load.idle)]
        listener = LISTENERS[self._load.engine]
        tasks.append(asyncio.create_task(listener(self._load.engine_url, self._receive, self._change)))
        tasks.append(asyncio.create_task(self._poll()))
        if self._load.engine != "polling":
            await self.listening.wait()
        print("ready", flush=True)
        self.cpu_before = time.process_time()
        followers = [asyncio.create_task(self._follow_run(run_id)) for run_id in self._load.runs]
        while not all(follower.done() for follower in followers):
            await asyncio.wait(followers, timeout=0.2)
            if time.monotonic() - self._last_event_at > self._load.patience:
                break
        for task in [*tasks, *followers]:
            task.cancel()

    async def _follow_idle(self, run_id: str) -> None:
        run = self._runs[run_id]
        await run.news.wait()

    async def _follow_run(self, run_id: str) -> None:
        run = self._runs[run_id]
        while run.last_read < self._load.events:
            await run.news.wait()
            run.news.clear()
            if run.last_read >= run.last_told:
                continue
            query = "SELECT seq, at FROM events WHERE run_id = %s AND seq > %s ORDER BY seq LIMIT 256"
            for seq, at in await self._query(query, (run_id, run.last_read)):
                self._deliver(run, seq, at)

    def _deliver(self, run: FollowedRun, seq: int, at: float) -> None:
        if seq != run.last_read + 1:
            self.repeated += 1
            return
        run.last_read = seq
        self.latencies.append((at, time.time() - at))
        self._last_event_at = time.monotonic()

    def _receive(self, notes: Sequence[Note]) -> None:
        for run_id, seq, *event in notes:
            run = self._runs.get(run_id)
            if run is None:
                continue
            if event and seq == run.last_read + 1:
                self._deliver(run, seq, event[0])
                if seq == self._load.events:
                    run.news.set()
            run.tell(seq)

    def _change(self, is_listening: bool) -> None:
        self._is_listening = is_listening
        self._look_again.set()
        if is_listening:
            self.listening.set()

    async def _poll(self) -> None:
        """Looks all runs up while notes do not come, and once after they come again."""
        while True:
            if self._is_listening:
                await self._look_again.wait()
            self._look_again.clear()
            run_ids = list(self._runs)
            for start in range(0, len(run_ids), POLLED_AT_ONCE):
                query = "SELECT run_id, last_seq FROM runs WHERE run_id = ANY(%s)"
                for run_id, last_seq in await self._query(query, (run_ids[start : start + POLLED_AT_ONCE],)):
                    self._runs[run_id].tell(last_seq)
            if not self._is_listening:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._look_again.wait(), POLL_SECONDS)

    async def _query(self, query: str, values: Sequence[Any]) -> list[Any]:
        self.queries += 1
        while True:
            try:
                async with self._pool.connection(timeout=2) as connection:
                    cursor = await connection.execute(query.encode(), values)
                    return await cursor.fetchall()
            except (psycopg.Error, PoolTimeout):
                await asyncio.sleep(0.1)


def idle_runs(count: int) -> list[str]:
    return [f"idle-{number:030d}" for number in range(count)]


async def write(load: Load) -> None:
    writer = Writer(load)
    await writer.connect()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    cpu = time.process_time()
    await writer.write_runs()
    cpu = time.process_time() - cpu
    await writer.close()
    _end({"cpu": cpu, "commits": writer.commits})


async def read(load: Load) -> None:
    async with AsyncConnectionPool[Any](
        load.database, min_size=READ_CONNECTIONS, open=False, kwargs={"autocommit": True}
    ) as pool:
        await pool.wait()
        reader = Reader(load, pool)
        await reader.follow()
        _end(
            {
                "cpu": time.process_time() - reader.cpu_before,
                "latencies": reader.latencies,
                "queries": reader.queries,
                "repeated": reader.repeated,
            }
        )


def _end(result: dict[str, Any]) -> NoReturn:
    """Prints the result, and ends: clients of an engine may wait for one that is away."""
    print(json.dumps(result), flush=True)
    os._exit(0)


def main() -> None:
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it tells of each lost connection
    role, text = sys.argv[1:]
    load = Load(**json.loads(text))
    asyncio.run(write(load) if role == "write" else read(load))


if __name__ == "__main__":
    main()
