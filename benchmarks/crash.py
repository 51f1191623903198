"""Kills servers with SIGKILL: does each run go on in the next process, with nothing lost or done twice?

    .venv/bin/python benchmarks/crash.py [--kills 200] [--stratum mid-text] [--together 5] [--seed 1] [--keep]

The server is `caipe serve` (for "paused for input" the same with one more tool, which asks), with an
in-process agent whose tools are an MCP server on stdio, and a remote agent in another process. This
process has the model and the ledger, which holds runs at the point where they are killed and counts
what is written. A reader reconnects after the kill. Several runs die with one kill; each counts.
Nothing leaves loopback, and nothing is written but the databases of the servers, in a folder that is
removed.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.crash.checks import Verdict
from tests.support.crash.stage import Stage, spread, staged
from tests.support.crash.strata import STRATA, Stratum, one_kill

MAX_RECOVERY_SECONDS = 5.0  # seconds in which recovery is to begin
MINUTES = 60.0


@dataclass(slots=True)
class Row:
    """What was seen in one stratum."""

    stratum: Stratum
    kills: int = 0
    verdicts: list[Verdict] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return sum(bool(verdict.wrong) for verdict in self.verdicts)

    @property
    def took(self) -> list[float]:
        return [verdict.took for verdict in self.verdicts if verdict.took is not None]


async def kill(stage: Stage, row: Row, together: int, rng: random.Random) -> None:
    launch, point, runs = await one_kill(stage, row.stratum, together, rng)
    row.kills += 1
    row.starts.append(launch.healthy)
    row.verdicts += [verdict for _, verdict in runs]
    for reader, verdict in runs:
        for problem in verdict.wrong:
            print(f"FAILED {row.stratum.name}, at {point}, {reader.tag}: {problem}", flush=True)


async def kill_in_turn(options: argparse.Namespace, folder: Path) -> list[Row]:
    """One kill of each stratum in turn, until all have their number of runs or the time is over."""
    rng, until = random.Random(options.seed), time.monotonic() + options.minutes * 60
    chosen = [stratum for stratum in STRATA if options.stratum in (None, stratum.name)]
    each = -(-options.kills // len(chosen))
    rows = [Row(stratum) for stratum in chosen]
    async with staged(folder) as stage:
        while time.monotonic() < until and (open_rows := [row for row in rows if len(row.verdicts) < each]):
            for row in open_rows:
                await kill(stage, row, min(options.together, each - len(row.verdicts)), rng)
    return rows


def print_table(rows: Sequence[Row], together: int) -> None:
    print(f"{'killed':32} {'runs':>5} {'kills':>6} {'right':>6} {'unknown (written)':>18} {'failed':>7}")
    for row in [*rows, sum_rows(rows)]:
        unknown = [verdict for verdict in row.verdicts if verdict.unknown and not verdict.wrong]
        right = len(row.verdicts) - row.failed - len(unknown)
        unknown_cell = f"{len(unknown)} ({sum(verdict.written for verdict in unknown)})"
        counts = f"{len(row.verdicts):5} {row.kills:6} {right:6} {unknown_cell:>18} {row.failed:7}"
        print(f"{row.stratum.name:32} {counts}")
    print(
        f"Up to {together} runs died with one kill."
        " Unknown: the write's outcome is unknown, and the answer says so; it was not repeated."
    )
    totals = sum_rows(rows)
    if took := totals.took:
        in_time = sum(seconds <= MAX_RECOVERY_SECONDS for seconds in took)
        print(
            f"start of the process to the first new event: {format_percentiles(took)},"
            f" {in_time} of {len(took)} within 5 s"
        )
        print(f"start of the process to /health:             {format_percentiles(totals.starts)}")
        print(f"ratio of the medians: {spread(took, 0.5) / spread(totals.starts, 0.5):.2f}")


def sum_rows(rows: Sequence[Row]) -> Row:
    totals = Row(Stratum("all"))
    for row in rows:
        totals.kills += row.kills
        totals.verdicts += row.verdicts
        totals.starts += row.starts
    return totals


def format_percentiles(seconds: Sequence[float]) -> str:
    return f"p50 {spread(seconds, 0.5):.2f} s, p95 {spread(seconds, 0.95):.2f} s, max {max(seconds):.2f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--kills", type=int, default=200, help="runs that are killed, divided among the strata"
    )
    parser.add_argument("--stratum", choices=[stratum.name for stratum in STRATA], help="only this one")
    parser.add_argument("--together", type=int, default=5, help="runs that die with one kill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="no kill begins after this time")
    parser.add_argument("--keep", action="store_true", help="leave the folder with the databases and logs")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="crash-"))
    try:
        rows = asyncio.run(kill_in_turn(options, folder))
    finally:
        if options.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print_table(rows, options.together)
    return int(any(row.failed for row in rows) or any(not row.verdicts for row in rows))


if __name__ == "__main__":
    sys.exit(main())
