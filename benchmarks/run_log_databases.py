"""What the run log costs on PostgreSQL beside SQLite, and how long an event takes to a reader elsewhere.

    .venv/bin/python -m benchmarks.run_log_databases postgresql://... [--seconds 5] [--idle 10000]

The schema `bench` of the database is used. Writers await the commit of each event. The latency is from the
call of `append` in one process to the reader in another, which has read the event; both have the clock of
this machine.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from ai_platform_engineering.core.events import Notice, RunStarted, TextDelta, TextPart
from ai_platform_engineering.databases.postgres_database import PostgresAddress
from ai_platform_engineering.runtime.log.log_rows import NewRun, RunRow
from ai_platform_engineering.runtime.log.postgres_log import PostgresLog
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog

WRITERS = 50
DELTA = "x" * 40
LATENCY_EVENTS = 200
EVENTS_PER_SECOND = 50


async def create_run(log: RunLog, context: str) -> RunRow:
    run_id = str(uuid.uuid4())
    started = RunStarted(message_id=run_id, parts=(TextPart(text="?"),), owner="bench", principal="bench")
    row, _ = await log.create(NewRun(run_id, context, "bench", run_id, "d", started, lasting_id=True))
    return row


async def measure_throughput(log: RunLog, seconds: float) -> float:
    """Events per second of many runs, each of which writes as fast as it can."""
    rows = [await create_run(log, f"c{number}") for number in range(WRITERS)]
    end = time.monotonic() + seconds
    counts = await asyncio.gather(*(_write_until(log, row, end) for row in rows))
    return sum(counts) / seconds


async def _write_until(log: RunLog, row: RunRow, end: float) -> int:
    count = 0
    while time.monotonic() < end:
        event = TextDelta(message_id="m", text=DELTA, offset=count * len(DELTA), agent="supervisor")
        await log.append(row.run_id, row.epoch, [event])
        count += 1
    return count


async def write_stamped(address: PostgresAddress, run_id: str) -> None:
    """The other process: events with the time of their append."""
    log = PostgresLog.open(address)
    for _ in range(LATENCY_EVENTS):
        await log.append(run_id, 1, [Notice(code="info", text=repr(time.time()))])
        await asyncio.sleep(1 / EVENTS_PER_SECOND)
    await log.close()


async def measure_latency(address: PostgresAddress, idle: int) -> list[float]:
    """Milliseconds from append to a reader in this process, beside idle readers."""
    log = PostgresLog.open(address)
    quiet_runs = [await create_run(log, f"quiet{number}") for number in range(min(idle, 500))]
    waiting = [
        asyncio.create_task(log.wait_for_event(quiet_runs[number % len(quiet_runs)].run_id, 1))
        for number in range(idle)
    ]
    row = await create_run(log, "latency")
    await log.read(row.run_id)
    command = [sys.executable, "-m", "benchmarks.run_log_databases", "--write", row.run_id]
    writer = await asyncio.create_subprocess_exec(*command, address.url)
    latencies: list[float] = []
    after = 1
    while after <= LATENCY_EVENTS:
        await log.wait_for_event(row.run_id, after)
        for item in await log.read(row.run_id, after):
            assert isinstance(item.event, Notice)
            latencies.append((time.time() - float(item.event.text)) * 1000)
            after = item.seq
    await writer.wait()
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await log.close()
    return latencies


def describe(latencies: Sequence[float]) -> str:
    ordered = sorted(latencies)
    p95 = ordered[int(0.95 * len(ordered))]
    return f"p50 {statistics.median(ordered):.1f} ms, p95 {p95:.1f} ms"


async def run(address: PostgresAddress, seconds: float, idle: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        figures: dict[str, list[float]] = {"SQLite": [], "PostgreSQL": []}
        for number in range(3):
            for name in figures:
                log: RunLog = PostgresLog.open(address)
                if name == "SQLite":
                    await log.close()
                    log = SqliteLog.open(Path(folder) / f"{number}.db")
                async with contextlib.AsyncExitStack() as stack:
                    stack.push_async_callback(log.close)
                    figures[name].append(await measure_throughput(log, seconds))
        for name, rates in figures.items():
            print(f"{name}: {statistics.median(rates):,.0f} events/s of {WRITERS} writers")
        ratio = statistics.median(figures["PostgreSQL"]) / statistics.median(figures["SQLite"])
        print(f"PostgreSQL / SQLite: {ratio:.2f}")
        print(f"append to a reader in another process: {describe(await measure_latency(address, 0))}")
        print(f"the same beside {idle:,} idle readers: {describe(await measure_latency(address, idle))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--write", help="the run that the writing process writes")
    parser.add_argument("url", help="of a PostgreSQL database")
    arguments = parser.parse_args()
    address = PostgresAddress(arguments.url, "bench")
    if arguments.write:
        asyncio.run(write_stamped(address, arguments.write))
    else:
        asyncio.run(run(address, arguments.seconds, arguments.idle))


if __name__ == "__main__":
    main()
