"""Three replicas on one PostgreSQL in trouble: does each run end once, with nothing lost or written twice?

    .venv/bin/python -m benchmarks.replicas_crash [--runs 200] [--trouble NAME] [--together 3] [--seed 1]
    .venv/bin/python -m benchmarks.replicas_crash --upgrade-from REVISION [--minutes 3]

Each run is brought to one of the moments of `benchmarks/crash.py` through a load balancer that goes round
by request; then a replica is killed, stopped, paused or cut off, or the database is restarted or away. Two
readers follow each run through the load balancer. With `--upgrade-from` three replicas of another revision
are replaced one by one while questions are asked. Nothing leaves loopback, and nothing is written but the
database and the homes of the servers, in folders that are removed.
"""

import argparse
import asyncio
import contextlib
import itertools
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load.engines import EngineProcess, run_postgres, wait_for_postgres
from tests.support.crash.checks import Verdict, judged
from tests.support.crash.fleet import REPLICAS, TROUBLES, Fleet, fleet_of_replicas, one_trouble
from tests.support.crash.stage import Reader, spread
from tests.support.crash.strata import STRATA

ROOT = Path(__file__).resolve().parent.parent
MAX_RECOVERY_SECONDS = 10.0  # in which the runs of a killed replica are to go on elsewhere
ASKING_AT_ONCE = 4  # conversations during an upgrade
DATABASE_AWAY_SECONDS = 2.0
_KILLS = ("one killed", "two killed", "killed and started again")


@dataclass(slots=True)
class Row:
    """What was seen with one kind of trouble."""

    name: str
    runs: int = 0
    unknown: int = 0
    taken_over: list[float] = field(default_factory=list)
    failed: int = 0

    def add(self, verdicts: Sequence[Verdict], runs: int) -> None:
        self.runs += runs
        self.unknown += sum(verdict.unknown for verdict in verdicts[:runs])
        self.taken_over += [verdict.took for verdict in verdicts if verdict.took is not None]
        self.failed += sum(bool(verdict.wrong) for verdict in verdicts)


async def make_trouble(options: argparse.Namespace, folder: Path) -> list[Row]:
    """Each kind of trouble in each stratum, in turn, until all runs were made or the time is over."""
    rng = random.Random(options.seed)
    names = [options.trouble] if options.trouble else list(TROUBLES)
    rows = {name: Row(name) for name in names}
    strata = [stratum for stratum in STRATA if options.stratum in (None, stratum.name)]
    rounds = [(stratum, name) for stratum in strata for name in names]
    rng.shuffle(rounds)
    until = time.monotonic() + options.minutes * 60
    with run_postgres("fsync=off") as (database_url, engine):
        async with fleet_of_replicas(folder, database_url, forked=True) as fleet:
            fleet.restart_database = lambda: restart_postgres(engine, database_url)
            made = 0
            for stratum, name in itertools.cycle(rounds):
                if made >= options.runs or time.monotonic() > until:
                    break
                outcome = await one_trouble(fleet, stratum, TROUBLES[name], options.together, rng)
                made += options.together
                rows[name].add([verdict for _, verdict in outcome.verdicts], options.together)
                for reader, verdict in outcome.verdicts:
                    report(f"{name}, {stratum.name}, at {outcome.point}", reader, verdict)
                for refusal in fleet.front.model.refusals:
                    print(f"the model refused a request: {refusal}", flush=True)
                fleet.front.model.refusals.clear()
                if options.verbose:
                    print(f"{made}: {name}, {stratum.name}, at {outcome.point}", flush=True)
    return list(rows.values())


async def restart_postgres(engine: EngineProcess, database_url: str) -> None:
    await asyncio.to_thread(engine.stop)
    await asyncio.sleep(DATABASE_AWAY_SECONDS)
    await asyncio.to_thread(engine.start)
    await asyncio.to_thread(wait_for_postgres, database_url)


def report(where: str, reader: Reader, verdict: Verdict) -> None:
    for problem in verdict.wrong:
        print(f"FAILED {where}, {reader.tag}: {problem}", flush=True)


def print_table(rows: Sequence[Row], together: int) -> None:
    print(f"{'trouble':28} {'runs':>5} {'taken over':>11} {'p50 / max s':>14} {'unknown':>8} {'failed':>7}")
    for row in rows:
        seconds = ""
        if row.taken_over:
            seconds = f"{spread(row.taken_over, 0.5):.1f} / {max(row.taken_over):.1f}"
        counts = f"{row.runs:5} {len(row.taken_over):11} {seconds:>14} {row.unknown:8} {row.failed:7}"
        print(f"{row.name:28} {counts}")
    print(f"{together} runs at a time, each with two readers; failed counts readers.")
    after_kills = [seconds for row in rows if row.name in _KILLS for seconds in row.taken_over]
    if after_kills:
        in_time = sum(seconds <= MAX_RECOVERY_SECONDS for seconds in after_kills)
        print(f"runs of killed replicas: {in_time} of {len(after_kills)} went on within 10 s")


# --- upgrade ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Upgrade:
    """What was seen of the questions that were asked during an upgrade."""

    questions: int = 0
    failed: int = 0


@contextlib.contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """The repository at a revision, in a folder that is removed."""
    folder = Path(tempfile.mkdtemp(prefix="revision-"))
    try:
        with subprocess.Popen(["git", "archive", revision], stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "-C", folder], stdin=archive.stdout, check=True)
        if archive.returncode:
            raise SystemExit(f"git has no revision {revision}")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def upgrade(options: argparse.Namespace, folder: Path) -> Upgrade:
    """Replaces replicas of another revision one by one, back and forth, while questions are asked."""
    seen = Upgrade()
    over = asyncio.Event()
    with checked_out(options.upgrade_from) as old, run_postgres("fsync=off") as (database_url, _):
        variables = [{"PYTHONPATH": str(old), "SHUTDOWN_SECONDS": "5"} for _ in range(REPLICAS)]
        async with fleet_of_replicas(folder, database_url, forked=False, variables=variables) as fleet:
            await fleet.serve_all()
            asking = [asyncio.create_task(ask_until(fleet, over, seen)) for _ in range(ASKING_AT_ONCE)]
            await replace_replicas(fleet, str(ROOT))
            print(f"replicas are of this revision after {seen.questions} questions", flush=True)
            await replace_replicas(fleet, str(old))
            print(
                f"replicas are of {options.upgrade_from} again after {seen.questions} questions", flush=True
            )
            over.set()
            await asyncio.gather(*asking)
    return seen


async def replace_replicas(fleet: Fleet, source: str) -> None:
    for stage in fleet.replicas:
        await asyncio.sleep(2)
        await stage.stop(signal.SIGTERM)
        stage.variables["PYTHONPATH"] = source
        await stage.serve(asking=True)
    await asyncio.sleep(2)


async def ask_until(fleet: Fleet, over: asyncio.Event, seen: Upgrade) -> None:
    """Asks one question after the other; a request that fails is repeated as clients do."""
    front = fleet.front
    while not over.is_set():
        asks = seen.questions % 3 == 0
        reader = front.reader(asks=asks)
        seen.questions += 1
        await front.follow(reader)
        if reader.paused:
            reader.answer()
            await front.follow(reader)
        verdict = judged(front, reader)
        seen.failed += bool(verdict.wrong)
        report("upgrade", reader, verdict)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--trouble", choices=list(TROUBLES), help="only this one")
    parser.add_argument("--stratum", choices=[stratum.name for stratum in STRATA], help="only this moment")
    parser.add_argument("--together", type=int, default=3, help="runs that are in trouble together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60, help="no trouble begins after this time")
    parser.add_argument("--upgrade-from", metavar="REVISION", help="replace replicas of this revision")
    parser.add_argument("--keep", action="store_true", help="leave the folder with the logs")
    parser.add_argument("--verbose", action="store_true", help="a line for each trouble")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="replicas-"))
    try:
        if options.upgrade_from:
            seen = asyncio.run(upgrade(options, folder))
            print(f"{seen.questions} questions during two rolling upgrades, {seen.failed} failed")
            return int(seen.failed > 0 or not seen.questions)
        rows = asyncio.run(make_trouble(options, folder))
    finally:
        if options.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print_table(rows, options.together)
    return int(any(row.failed for row in rows) or not any(row.runs for row in rows))


if __name__ == "__main__":
    sys.exit(main())
