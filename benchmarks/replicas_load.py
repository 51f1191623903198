"""Throughput and latency of the whole product on SQLite, on PostgreSQL, and with two replicas, in one run.

    .venv/bin/python -m benchmarks.replicas_load [--turns 4] [--rounds 3] [--readers 10000]

`caipe serve` as processes, the scripted model and a load balancer that goes round by request are processes
of their own, PostgreSQL commits to the disk. Half of the turns delegate to an in-process agent. Read the
ratios; the CPU of each process shows what the machine was too small for. An event's latency is from the
transaction that stores it to the SSE frame at the reader. Needs `make backends`.
"""

import argparse
import asyncio
import os
import resource
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql

from benchmarks.load.a2a_streams import Question, at_quantile, open_streams
from benchmarks.load.engines import EngineProcess, run_postgres
from benchmarks.load.event_readers import IdleReaders, TimedReader, make_message
from benchmarks.load.processes import (
    Server,
    model_url,
    run_model_server,
    run_round_robin,
    run_supervisor,
)

TOKENS = 100
LIMIT_SECONDS = 600.0  # for each part
IDLE_RUNS = 100
IDLE_SECONDS = 30.0  # over which the CPU of idle readers is measured: two intervals of keep-alive comments
STREAMS = 5  # whose events are timed, at EVENTS_PER_SECOND each
EVENTS_PER_SECOND = 20
SETTINGS = {
    "ENABLE_RAG": "false",
    "MCP_CHECK_SERVERS": "false",
    "ASK_ON_UNTRUSTED_CONTENT": "false",
    "LLM_TIMEOUT_SECONDS": "3600",
    "A2A_MAX_STREAMS": "30000",
    "A2A_MAX_STREAMS_PER_USER": "30000",
    "A2A_MAX_CONNECTIONS": "30000",
}


@dataclass(slots=True)
class Deployment:
    """Replicas behind a load balancer."""

    name: str
    replicas: list[Server]
    balancer: Server
    seconds: list[float] = field(default_factory=list)  # of each round
    cpu: dict[str, list[float]] = field(default_factory=dict)  # by process, in each round

    def add_cpu(self, name: str, seconds: float) -> None:
        self.cpu.setdefault(name, []).append(seconds)


@contextmanager
def deploy(name: str, count: int, model: Server, variables: Mapping[str, str]) -> Iterator[Deployment]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "echo.yaml").write_text("name: echo\ndescription: Echoes.\nprompt: Echo.\n")
        settings = {**SETTINGS, "AGENTS_CONFIG": str(folder), **variables}
        replicas = [stack.enter_context(run_supervisor(model_url(model), settings)) for _ in range(count)]
        balancer = stack.enter_context(run_round_robin(replicas))
        yield Deployment(name, replicas, balancer)


def create_database(url: str) -> str:
    """A new database on the server; its URL."""
    name = f"bench{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return url.replace("/postgres", f"/{name}")


# --- throughput ---------------------------------------------------------------------------------------------


async def converse(port: int, number: int, turns: int) -> None:
    """One conversation; ends the benchmark when an answer is wrong."""
    context_id = str(uuid.uuid4())
    for turn in range(turns):
        delegate = "echo" if (number + turn) % 2 else ""
        question = Question(TOKENS, delegate=delegate, context_id=context_id)
        result = await open_streams(port, [question], limit=LIMIT_SECONDS)
        if result.failures:
            raise SystemExit(f"a turn failed: {result.failures[0]}")


async def hold_conversations(port: int, conversations: int, turns: int) -> None:
    await asyncio.gather(*(converse(port, number, turns) for number in range(conversations)))


def measure_round(
    deployment: Deployment, model: Server, postgres: EngineProcess, conversations: int, turns: int
) -> None:
    def read_cpu() -> dict[str, float]:
        return {
            "replicas": sum(server.cpu_seconds() for server in deployment.replicas),
            "PostgreSQL": postgres.cpu_seconds(),
            "model": model.cpu_seconds(),
            "balancer": deployment.balancer.cpu_seconds(),
            "clients": time.process_time(),
        }

    before = read_cpu()
    began_at = time.perf_counter()
    asyncio.run(hold_conversations(deployment.balancer.port, conversations, turns))
    deployment.seconds.append(time.perf_counter() - began_at)
    for name, seconds in read_cpu().items():
        deployment.add_cpu(name, seconds - before[name])


def measure_throughput(model: Server, url: str, postgres: EngineProcess, options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        one, two = create_database(url), create_database(url)
        deployments = [
            stack.enter_context(deploy("SQLite", 1, model, {})),
            stack.enter_context(deploy("PostgreSQL, one replica", 1, model, {"DATABASE_URL": one})),
            stack.enter_context(deploy("PostgreSQL, two replicas", 2, model, {"DATABASE_URL": two})),
        ]
        time.sleep(3)  # what is imported after the start
        for deployment in deployments:
            asyncio.run(hold_conversations(deployment.balancer.port, 8, 2))
        for _ in range(options.rounds):
            for deployment in deployments:
                measure_round(deployment, model, postgres, options.conversations, options.turns)
    print_throughput(deployments, options.conversations * options.turns)


def print_throughput(deployments: Sequence[Deployment], turns: int) -> None:
    processes = list(deployments[0].cpu)
    print(f"\n| {turns} turns | turns/s | CPU seconds: all | {' | '.join(processes)} | cores in use |")
    print(f"|---|--:|--:|{'--:|' * len(processes)}--:|")
    rates: list[float] = []
    replica_cpu: list[float] = []
    total_cpu: list[float] = []
    for deployment in deployments:
        seconds = statistics.median(deployment.seconds)
        medians = [statistics.median(deployment.cpu[name]) for name in processes]
        total = sum(medians)
        rates.append(turns / seconds)
        replica_cpu.append(statistics.median(deployment.cpu["replicas"]))
        total_cpu.append(total)
        rounds = ", ".join(f"{turns / value:.1f}" for value in deployment.seconds)
        cells = " | ".join(f"{value:.1f}" for value in medians)
        rate = f"{rates[-1]:.1f} ({rounds})"
        print(f"| {deployment.name} | {rate} | {total:.1f} | {cells} | {total / seconds:.2f} |")
    print(f"PostgreSQL / SQLite: {rates[1] / rates[0]:.2f} (to reach: 0.5)")
    print(f"two replicas / one: {rates[2] / rates[1]:.2f} (to reach: 1.6 where the cores allow)")
    print(f"CPU of all processes, PostgreSQL / SQLite: {total_cpu[1] / total_cpu[0]:.2f}")
    print(f"CPU of all processes, two replicas / one: {total_cpu[2] / total_cpu[1]:.2f}")
    bound = 2 * replica_cpu[1] / replica_cpu[2]
    print(f"two / one by their own CPU, were each replica bound by a core of its own: {bound:.2f}")


# --- latency ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Latencies:
    """Milliseconds from the storing transaction of an event to a reader."""

    same_replica: list[float]
    other_replica: list[float]


async def time_events(ports: Sequence[int], url: str, seconds: float) -> Latencies:
    """Runs at one replica, each read there and through the other one."""
    question = Question(round(EVENTS_PER_SECOND * seconds), rate=EVENTS_PER_SECOND)
    asking = [TimedReader() for _ in range(STREAMS)]
    following = [TimedReader() for _ in range(STREAMS)]

    async def follow(number: int) -> None:
        own, other = ports[number % len(ports)], ports[(number + 1) % len(ports)]
        asked = asyncio.create_task(asking[number].read(own, "message/stream", make_message(question)))
        await asking[number].has_task.wait()
        await following[number].read(other, "tasks/resubscribe", {"id": asking[number].task_id})
        await asked

    async with asyncio.timeout(LIMIT_SECONDS):
        await asyncio.gather(*(follow(number) for number in range(STREAMS)))
    latencies = Latencies([], [])
    for first, second in zip(asking, following, strict=True):
        stored_at = await asyncio.to_thread(read_event_times, url, first.task_id)
        latencies.same_replica.extend(_find_latencies(first, stored_at))
        latencies.other_replica.extend(_find_latencies(second, stored_at))
    return latencies


def read_event_times(url: str, run_id: str) -> dict[int, float]:
    with psycopg.connect(url) as db:
        rows = db.execute("SELECT seq, at FROM caipe_supervisor.events WHERE run_id = %s", (run_id,))
        return {seq: at / 1e6 for seq, at in rows}


def _find_latencies(reader: TimedReader, stored_at: Mapping[int, float]) -> list[float]:
    """Those of events that were stored while it read."""
    latencies: list[float] = []
    for seq, arrived_at in reader.arrivals.items():
        if stored_at[seq] > reader.opened_at:
            latencies.append(1000 * (arrived_at - stored_at[seq]))
    return latencies


async def measure_latency(deployment: Deployment, url: str, options: argparse.Namespace) -> None:
    ports = [server.port for server in deployment.replicas]
    await time_events(ports, url, 2.0)  # the first runs import and connect
    await print_latency("alone", ports, url, options.seconds)
    readers = IdleReaders()
    idle_runs = [TimedReader() for _ in range(IDLE_RUNS)]
    silent = Question(2, rate=0.0001)  # its second token comes after hours
    before = [server.own_resident_mib() for server in deployment.replicas]
    waiting = [
        asyncio.create_task(reader.read(ports[number % len(ports)], "message/stream", make_message(silent)))
        for number, reader in enumerate(idle_runs)
    ]
    await asyncio.gather(*(reader.has_task.wait() for reader in idle_runs))
    runs_mib = [server.own_resident_mib() for server in deployment.replicas]
    began_at = time.perf_counter()
    async with asyncio.timeout(LIMIT_SECONDS):
        await readers.open(ports, [reader.task_id for reader in idle_runs], options.readers - IDLE_RUNS)
    opening_seconds = time.perf_counter() - began_at
    await asyncio.sleep(5)
    after = [server.own_resident_mib() for server in deployment.replicas]
    of_each = (options.readers - IDLE_RUNS) / len(ports)
    kib = [1024 * (new - old) / of_each for new, old in zip(after, runs_mib, strict=True)]
    print(f"{options.readers:,} idle readers of {IDLE_RUNS} runs, opened in {opening_seconds:.0f} s")
    print(f"MiB of each replica before, with the runs: {_join(before)}; {_join(runs_mib)}")
    print(f"with the readers: {_join(after)}; KiB of a reader: {_join(kib)}")
    cpu_before = [server.cpu_seconds() for server in deployment.replicas]
    await asyncio.sleep(IDLE_SECONDS)
    used = [server.cpu_seconds() - cpu for server, cpu in zip(deployment.replicas, cpu_before, strict=True)]
    shares = [100 * seconds / IDLE_SECONDS for seconds in used]
    print(f"CPU of each replica while nothing happens, percent of a core: {_join(shares)}", flush=True)
    await print_latency(f"beside {options.readers:,} idle readers", ports, url, options.seconds)
    print(f"idle readers whose stream ended: {readers.count_lost()}")
    readers.close()
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def print_latency(name: str, ports: Sequence[int], url: str, seconds: float) -> None:
    latencies = await time_events(ports, url, seconds)
    print(
        f"latency {name}, {len(latencies.other_replica):,} events: reader at the other replica"
        f" {_describe(latencies.other_replica)}; at the same {_describe(latencies.same_replica)}",
        flush=True,
    )


def _describe(latencies: Sequence[float]) -> str:
    return f"p50 {at_quantile(latencies, 0.5):.1f}, p95 {at_quantile(latencies, 0.95):.1f} ms"


def _join(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.0f}" for value in values)


def describe_machine() -> str:
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    return f"{os.cpu_count()} cores, load average {loads}"


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--conversations", type=int, default=50)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--readers", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement of latency")
    parser.add_argument("--only", choices=("throughput", "latency"))
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(f"before: {describe_machine()}", flush=True)
    with run_postgres() as (url, postgres), run_model_server() as model:
        if options.only != "latency":
            measure_throughput(model, url, postgres, options)
            print(f"after the throughput: {describe_machine()}", flush=True)
        if options.only != "throughput":
            database = create_database(url)
            with deploy("two replicas", 2, model, {"DATABASE_URL": database}) as deployment:
                asyncio.run(measure_latency(deployment, database, options))
            print(f"after the latency: {describe_machine()}", flush=True)


if __name__ == "__main__":
    main()
