"""What each part of a deployment would carry for so many conversations: arithmetic from measured unit costs.

    .venv/bin/python -m benchmarks.scaling_model [--conversations 100,1000,10000,100000] [--simulate]

Nothing is measured here. The unit costs are figures of `benchmarks/README.md`; each has its source beside it,
and those without one are assumptions that the command line changes. `--simulate` plays the commits of many
replicas behind the lock that NOTIFY takes, to see how large the groups and how late the events get.
"""

import argparse
import heapq
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, fields

# --- unit costs, in microseconds of one core unless said otherwise ------------------------------------------

TOKEN_CPU = 36.0  # bench.py: CPU per token, 50 streams at full speed
RUN_CPU = 22_000.0  # bench.py: a question with a delegation, in-process
APPEND_CPU = 227.0  # fanout.py: the writing process, NOTIFY, about three events in a commit
REMOTE_READ_CPU = 234.0  # fanout.py: the reading process, NOTIFY
NOTE_CPU = 1.0  # one-off, README: a note of another replica, beside 200 runs: 0.5 µs in groups of 50, 1 alone
DATABASE_WRITE_CPU = 147.0  # fanout.py: PostgreSQL's processes, polling (nearly all of it is writing)
DATABASE_READ_CPU = 36.0  # fanout.py: PostgreSQL's processes, NOTIFY less polling
NOTIFY_COMMITS = 424.0  # fanout.py: commits a second with NOTIFY, fsync on, 8 connections, busy disk
READY_MIB = 125.0  # bench.py: memory when ready
STREAM_KIB = 105.0  # bench.py: memory for each of 200 streams
EVENT_BYTES = 316.0  # fanout.py: a row of an event with its index
REPLICA_CONNECTIONS = 16  # docs/scaling.md

REPLICA_SHARE = 0.6  # of a core that a replica may use steadily; its event loop is one thread
COMMIT_TICK = 0.005  # seconds between the group commits of a busy replica


@dataclass(frozen=True, slots=True)
class Assumptions:
    """How people use it; change them on the command line."""

    working: float = 0.1  # share of the conversations in which a run works at a moment
    run_seconds: float = 30.0
    tokens: float = 50.0  # a second of a working run
    events: float = 20.0  # a second of a working run, as the log merges tokens
    streams: float = 0.2  # open streams of a conversation
    max_streams: float = 500.0  # A2A_MAX_STREAMS
    max_working: float = 200.0  # RUNS_MAX_WORKING
    database_cores: float = 16.0
    notify_commits: float = NOTIFY_COMMITS
    max_connections: float = 100.0  # PostgreSQL's default
    note_cpu: float = NOTE_CPU
    cells: float = 1.0  # databases, each with replicas of its own; people are divided among them
    retention_days: float = 30.0
    hours: float = 8.0  # of a day, at this load


@dataclass(frozen=True, slots=True)
class Demand:
    """What a number of conversations needs."""

    conversations: int
    replicas: int
    events: float  # a second
    replica_cpu: float  # share of a core of each replica
    notes_cpu: float  # the part of it that goes into notes of other replicas
    replica_mib: float
    connections: int
    database_cores: float
    commits: float  # a second, wanted by the replicas
    commit_wait: float  # seconds between two commits of one replica, when the lock is the limit
    disk_gib: float  # of events in the retention time


def compute(conversations: int, use: Assumptions) -> Demand:
    """The least number of replicas whose share of a core suffices, and what they need."""
    working = conversations * use.working
    events = working * use.events
    least = max(
        1, math.ceil(conversations * use.streams / use.max_streams), math.ceil(working / use.max_working)
    )
    for replicas in range(least, least + 2000):
        own_cpu = _work_cpu(working, use, replicas) / replicas
        notes_cpu = events * (1 - 1 / replicas) * use.note_cpu / 1e6
        if own_cpu + notes_cpu <= REPLICA_SHARE:
            break
    else:
        own_cpu = math.inf
    remote_share = 1 - 1 / replicas
    database = events * (DATABASE_WRITE_CPU + remote_share * DATABASE_READ_CPU) / 1e6
    commits = replicas * min(1 / COMMIT_TICK, events / replicas)
    return Demand(
        conversations,
        replicas,
        events,
        own_cpu + notes_cpu,
        notes_cpu,
        READY_MIB + conversations * use.streams / replicas * STREAM_KIB / 1024,
        replicas * REPLICA_CONNECTIONS,
        database,
        commits,
        max(COMMIT_TICK, replicas / use.notify_commits),
        events * EVENT_BYTES * 3600 * use.hours * use.retention_days / 2**30,
    )


def _work_cpu(working: float, use: Assumptions, replicas: int) -> float:
    """Cores of all replicas for the runs and their streams, without notes."""
    remote_share = 1 - 1 / replicas  # no stickiness: a stream is seldom where its run works
    event_cpu = APPEND_CPU + remote_share * REMOTE_READ_CPU
    each = use.tokens * TOKEN_CPU + use.events * event_cpu + RUN_CPU / use.run_seconds
    return working * each / 1e6


def find_limits(use: Assumptions) -> list[tuple[float, str]]:
    """At how many conversations each limit is reached, the lowest first."""

    def search(is_over: Callable[[Demand], bool]) -> float:
        low, high = 1, 10_000_000
        if not is_over(compute(high, use)):
            return math.inf
        while low < high:
            middle = (low + high) // 2
            if is_over(compute(middle, use)):
                high = middle
            else:
                low = middle + 1
        return float(low)

    limits = [
        (search(lambda demand: demand.replicas > 1), "the core of one replica: add replicas"),
        (
            search(lambda demand: demand.connections > use.max_connections),
            "connections of PostgreSQL: raise max_connections",
        ),
        (
            search(lambda demand: demand.commits > use.notify_commits),
            "the lock of NOTIFY: groups grow, events come later",
        ),
        (search(lambda demand: demand.commit_wait > 0.1), "the same lock costs 0.1 s for each event"),
        (search(lambda demand: demand.database_cores > use.database_cores), "cores of the database"),
        (
            search(lambda demand: demand.notes_cpu > REPLICA_SHARE / 2),
            "notes of all others take half of each replica",
        ),
        (
            search(lambda demand: math.isinf(demand.replica_cpu)),
            "no number of replicas suffices: notes take what each has",
        ),
    ]
    return sorted(limits)


# --- simulation of group commits behind one lock ------------------------------------------------------------


def simulate(
    replicas: int, events: float, commits: float, seconds: float = 5.0
) -> tuple[float, float, float]:
    """Median and 95th percentile of the milliseconds from append to commit, and events in a commit.

    Each replica has one connection. A commit waits for the lock of all replicas, in the order of arrival, and
    holds it for 1/commits seconds; what comes meanwhile is in the replica's next commit.
    """
    source = random.Random(1)
    rate = events / replicas
    waiting: list[list[float]] = [[] for _ in range(replicas)]
    upcoming = [source.expovariate(rate) for _ in range(replicas)]
    requests = [(at, number) for number, at in enumerate(upcoming)]  # when a replica wants the lock
    heapq.heapify(requests)
    lock_free_at = 0.0
    latencies: list[float] = []
    sizes: list[int] = []
    while requests:
        wanted_at, number = heapq.heappop(requests)
        if wanted_at > seconds:
            continue
        begun = max(wanted_at, lock_free_at)
        while upcoming[number] <= wanted_at:  # the group is closed before the lock is there
            waiting[number].append(upcoming[number])
            upcoming[number] += source.expovariate(rate)
        lock_free_at = begun + 1 / commits
        latencies += [(lock_free_at - at) * 1000 for at in waiting[number]]
        sizes.append(len(waiting[number]))
        waiting[number] = []
        heapq.heappush(requests, (max(lock_free_at + COMMIT_TICK, upcoming[number]), number))
    latencies.sort()
    return statistics.median(latencies), latencies[int(0.95 * len(latencies))], statistics.mean(sizes)


# --- output -------------------------------------------------------------------------------------------------


def print_demand(demand: Demand) -> None:
    if math.isinf(demand.replica_cpu):
        print(f"| {demand.conversations:,} | no number suffices | {demand.events:,.0f} |" + " |" * 8)
        return
    print(
        f"| {demand.conversations:,} | {demand.replicas} | {demand.events:,.0f} | {demand.replica_cpu:.2f} |"
        f" {demand.notes_cpu:.2f} | {demand.replica_mib:,.0f} | {demand.connections} |"
        f" {demand.database_cores:.1f} | {demand.commits:,.0f} | {demand.commit_wait * 1000:.0f} |"
        f" {demand.disk_gib:,.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversations", default="100,1000,3000,10000,30000,100000")
    parser.add_argument("--simulate", action="store_true")
    for field in fields(Assumptions):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=float, default=field.default)
    arguments = vars(parser.parse_args())
    use = Assumptions(**{field.name: arguments[field.name] for field in fields(Assumptions)})
    counts = [round(int(text) / use.cells) for text in arguments["conversations"].split(",")]
    demands = [compute(count, use) for count in counts]
    if use.cells > 1:
        print(f"in each of {use.cells:g} cells:\n")
    print(
        "| conversations | replicas | events/s | cores of each | of these notes | MiB of each | connections |"
        " cores of the database | commits/s wanted | ms between commits | GiB of events |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for demand in demands:
        print_demand(demand)
    print("\nreached at conversations:")
    for number, name in find_limits(use):
        print(f"  {number:>12,.0f}  {name}")
    if arguments["simulate"]:
        print("\nsimulated from append to commit, behind one lock:")
        for demand in demands:
            if math.isinf(demand.replica_cpu):
                continue
            median, late, size = simulate(demand.replicas, demand.events, use.notify_commits)
            commit = f"{size:.0f} events in a commit"
            print(f"  {demand.conversations:>9,}: p50 {median:.0f}, p95 {late:.0f} ms, {commit}")


if __name__ == "__main__":
    main()
