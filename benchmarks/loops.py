"""Models that never stop: what each kind of loop costs, in each placement and dialect, and how it ends.

    PYTHONPATH=tests/support/guard .venv/bin/python -m benchmarks.loops [--kind "the same call"]
        [--dialect bedrock] [--place remote] [--limits 40,120]

The supervisor and two agents with models behind a scripted server, over HTTP through the libraries of the
providers. Without `--limits` a run has the budget that it has by default. Nothing leaves loopback.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ai_platform_engineering.core.settings import LimitSettings
from tests.support.providers import DIALECTS, Provider
from tests.support.runaway_loops import LOOPS, LoopFigures, Where, measure_loop

PLACES: tuple[Where, ...] = ("in-process", "remote")


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of loop in one place and dialect, and what it cost."""

    kind: str
    where: Where
    provider: Provider
    figures: LoopFigures

    @property
    def ending(self) -> str:
        """How the run ended: the reason in its answer, where it was stopped."""
        last_frame = self.figures.stream.last
        if last_frame.state != "completed":
            return f"{last_frame.state}: {last_frame.status_text}"
        answer = self.figures.stream.answer
        stopped, _, reason = answer.partition("complete answer: ")
        if reason:
            return f"findings: {reason.splitlines()[0]}"
        return f"answer: {stopped.splitlines()[0]}"


def render_row(row: Row) -> str:
    figures = row.figures
    counts = f"{figures.model_calls:6} {figures.tool_calls:6} {figures.seconds:8.2f}"
    return f"{row.kind:40} {row.where:11} {row.provider.name:10} {counts}  {row.ending}"


def print_summary(rows: Sequence[Row], limits: LimitSettings) -> None:
    model_calls = [row.figures.model_calls for row in rows]
    seconds = sorted(row.figures.seconds for row in rows)
    completed = sum(row.figures.stream.last.state == "completed" for row in rows)
    print(
        f"\n{len(rows)} runs, {completed} ended with an answer; model calls {min(model_calls)} to "
        f"{max(model_calls)} of {limits.run_model_calls}, tool calls at most "
        f"{max(row.figures.tool_calls for row in rows)} of {limits.run_tool_calls}; seconds: median "
        f"{seconds[len(seconds) // 2]:.2f}, most {seconds[-1]:.2f}"
    )


async def measure(options: argparse.Namespace) -> int:
    variables: dict[str, str] = {}
    if options.limits:
        model_calls, tool_calls = options.limits.split(",")
        variables = {"RUN_MODEL_CALL_LIMIT": model_calls, "RUN_TOOL_CALL_LIMIT": tool_calls}
    limits = LimitSettings.model_validate(variables, by_alias=True, by_name=False)
    print(f"{'kind':40} {'place':11} {'dialect':10} {'models':>6} {'tools':>6} {'seconds':>8}  how it ended")
    rows: list[Row] = []
    for kind, loop in LOOPS.items():
        for where in PLACES:
            for provider in DIALECTS:
                if options.kind not in (None, kind) or options.place not in (None, where):
                    continue
                if options.dialect not in (None, provider.name):
                    continue
                row = Row(kind, where, provider, await measure_loop(loop, where, provider, variables))
                rows.append(row)
                print(render_row(row), flush=True)
    if not rows:
        print("No loop is of this kind.", file=sys.stderr)
        return 2
    print_summary(rows, limits)
    return int(any(row.figures.stream.last.state != "completed" for row in rows))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=LOOPS)
    parser.add_argument("--place", choices=PLACES)
    parser.add_argument("--dialect", choices=[provider.name for provider in DIALECTS])
    parser.add_argument("--limits", help="model calls and tool calls of a run, as in 40,120")
    logging.disable(logging.WARNING)
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
