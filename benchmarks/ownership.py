"""Who works on a run, and who continues after a kill: rows with leases, DBOS, and the SDK's cluster store.

    .venv/bin/uv pip install --target .venv/owners dbos==3.4.0 'a2a-sdk[postgresql]==1.3.0'
    .venv/bin/python -m benchmarks.ownership [--runs 1000] [--only-rows]

Three workers claim the runs, one is killed, and the time is taken until the others have its runs. Statements
are those in PostgreSQL's log. DBOS does not notice that an executor is dead: after `--wait` seconds this
script says so to a worker. The SDK's store has no owner of a task; what a save and an idle subscriber cost is
counted.
"""

import argparse
import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg

from ai_platform_engineering.core.events import RunStarted, TextPart
from ai_platform_engineering.databases.postgres_database import PostgresAddress
from ai_platform_engineering.runtime.log.log_rows import NewRun
from ai_platform_engineering.runtime.log.postgres_log import PostgresLog
from benchmarks.load.engines import EngineProcess, run_postgres
from benchmarks.load.ownership_workers import POLLS_SECONDS, SCHEMA, SUBSCRIBERS

WORKERS = 3
LIMIT_SECONDS = 120.0
PARKED = "nobody"  # holds the runs until all workers are there
PACKAGES = Path(".venv/owners")
_STATEMENT = re.compile(r"LOG:  (statement|execute [^:]*): (.*)")

Worker = subprocess.Popen[str]


def start_worker(kind: str, url: str, name: str = "", count: int = 0) -> tuple[Worker, str]:
    """The process, and the name that it has in the database."""
    paths = ["."]
    if kind != "rows":
        paths.insert(0, str(PACKAGES))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "benchmarks.load.ownership_workers", kind, url, name, str(count)]
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("ready"):
        raise SystemExit(f"a worker ended: {line!r}")
    return process, line.removeprefix("ready").strip()


def tell(worker: Worker, line: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(f"{line}\n")
    worker.stdin.flush()


def read_line(worker: Worker) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().strip()


@contextlib.contextmanager
def three_workers(kind: str, url: str, room: int = 0) -> Iterator[dict[str, Worker]]:
    with contextlib.ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for number in range(WORKERS):
            process, name = start_worker(kind, url, f"worker-{number}", room)
            stack.callback(process.wait)
            stack.callback(process.kill)
            workers[name] = process
        yield workers


def count_owners(url: str, query: str) -> dict[str, int]:
    with psycopg.connect(url, autocommit=True) as connection:
        return dict(connection.execute(query.encode()).fetchall())


def count_statements(engine: EngineProcess) -> int:
    """How many statements workers sent until now."""
    return sum(1 for line in _STATEMENT.finditer(engine.read_output()) if "bench_ignore" not in line[2])


def wait_for_owners(url: str, query: str, names: Mapping[str, Worker], total: int) -> float:
    """Seconds until the named workers own all runs; as often as they look, not so often that it costs."""
    begun = time.monotonic()
    while time.monotonic() - begun < LIMIT_SECONDS:
        owners = count_owners(url, query)
        if sum(owners.get(name, 0) for name in names) >= total:
            return time.monotonic() - begun
        time.sleep(0.1)
    raise SystemExit(f"not all of {total} runs have an owner: {owners}")


async def create_runs(url: str, count: int) -> None:
    run_log = PostgresLog.open(PostgresAddress(url, SCHEMA))
    for number in range(count):
        run_id = str(uuid.uuid4())
        started = RunStarted(message_id=run_id, parts=(TextPart(text="?"),), owner="b", principal="b")
        new = NewRun(run_id, f"c{number}", "b", run_id, "d", started, lasting_id=True, holder=PARKED)
        await run_log.create(new)
    await run_log.close()


def measure_rows(url: str, engine: EngineProcess, count: int) -> None:
    asyncio.run(create_runs(url, count))
    query = f"SELECT holder, count(*) AS bench_ignore FROM {SCHEMA}.runs GROUP BY holder"  # noqa: S608
    with three_workers("rows", url, room=count // 2 + 1) as workers:
        before = count_statements(engine)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"UPDATE {SCHEMA}.runs SET holder = ''".encode())  # noqa: S608
        seconds = wait_for_owners(url, query, workers, count)
        statements = count_statements(engine) - before
        print(f"rows: {count} runs claimed in {seconds:.1f} s, {statements / count:.1f} statements each")
        _measure_idle("rows", engine)
        owners = count_owners(url, query)
        dead = max(workers, key=lambda name: owners.get(name, 0))
        process = workers.pop(dead)
        lost = owners[dead]
        process.kill()
        process.wait()
        before = count_statements(engine)
        seconds = wait_for_owners(url, query, workers, count)
        statements = count_statements(engine) - before
        print(f"rows: {lost} runs of a killed worker claimed after {seconds:.1f} s,", end=" ")
        print(f"{statements / lost:.1f} statements each")


def measure_dbos(url: str, engine: EngineProcess, count: int, wait_seconds: float) -> None:
    query = "SELECT executor_id, count(*) AS bench_ignore FROM dbos.workflow_status GROUP BY executor_id"
    pending = query.replace(" GROUP", " WHERE status = 'PENDING' GROUP")
    with three_workers("dbos", url) as workers:
        before = count_statements(engine)
        start_worker("enqueue", url, count=count)[0].wait()
        enqueued = count_statements(engine)
        seconds = wait_for_owners(url, pending, workers, count)
        statements = count_statements(engine)
        print(f"DBOS: {count} workflows claimed {seconds:.1f} s after they were enqueued, with", end=" ")
        print(f"{(enqueued - before) / count:.1f} + {(statements - enqueued) / count:.1f} statements each")
        _measure_idle("DBOS", engine)
        owners = count_owners(url, pending)
        dead = max(workers, key=lambda name: owners.get(name, 0))
        process = workers.pop(dead)
        lost = owners[dead]
        process.kill()
        process.wait()
        time.sleep(wait_seconds)
        remaining = count_owners(url, pending).get(dead, 0)
        print(f"DBOS: {remaining} of {lost} still belong to the killed worker after {wait_seconds:.0f} s")
        before = count_statements(engine)
        tell(next(iter(workers.values())), dead)
        seconds = wait_for_owners(url, pending, workers, count)
        statements = count_statements(engine) - before
        print(f"DBOS: told that it is dead, claimed after {seconds:.1f} s,", end=" ")
        print(f"{statements / lost:.1f} statements each")


def _measure_idle(name: str, engine: EngineProcess) -> None:
    before = count_statements(engine)
    time.sleep(POLLS_SECONDS)
    statements = count_statements(engine) - before
    print(
        f"{name}: {statements / POLLS_SECONDS / WORKERS:.1f} statements a second of a worker with nothing new"
    )


def measure_a2a(url: str, engine: EngineProcess, count: int) -> None:
    worker, _ = start_worker("a2a", url, count=count)
    before = count_statements(engine)
    for step in ("first save", "save with an event"):
        tell(worker, "go")
        read_line(worker)
        after = count_statements(engine)
        print(f"a2a.server.cluster: {step}: {(after - before) / count:.1f} statements")
        before = after
    tell(worker, "go")
    conflict = read_line(worker)
    statements = count_statements(engine) - before
    rate = statements / POLLS_SECONDS / SUBSCRIBERS
    print(f"a2a.server.cluster: a stale save raises {conflict};", end=" ")
    print(f"{rate:.1f} statements a second of an idle subscriber")
    worker.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--wait", type=float, default=15.0)
    parser.add_argument("--only-rows", action="store_true", help="not the other engines")
    arguments = parser.parse_args()
    with run_postgres("fsync=off", "log_statement=all", "max_connections=200") as (url, engine):
        measure_rows(url, engine, arguments.runs)
        if arguments.only_rows:
            return
        measure_a2a(url, engine, min(arguments.runs, 100))
        measure_dbos(url, engine, arguments.runs, arguments.wait)


if __name__ == "__main__":
    main()
