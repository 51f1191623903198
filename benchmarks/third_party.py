"""Agents made with the frameworks of others behind our supervisor: a table of what a person sees of them.

    make peers
    PYTHONPATH=tests/support/guard .venv/bin/python -m benchmarks.third_party [--peer strands-default]

Each is a process in an environment of its own, with a scripted model inside its framework, and answers over
A2A as the framework's own server does. The supervisor is ours, with the limits that it has by itself. Nothing
leaves loopback. `docs/placement.md` has the table.
"""

import argparse
import asyncio
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.support.peer_checks import check_cancel, check_delegation, check_error, check_kill
from tests.support.peers import PEERS, Peer, RunningPeer, run_peer

FRAMEWORKS = {"strands": "Strands", "adk": "Google ADK", "fasta2a": "FastA2A (Pydantic AI)"}
MODES = {
    "strands-default": "default: a status message for each token",
    "strands-compliant": "`enable_a2a_compliant_streaming`",
    "strands-no-stream": "without streaming",
    "adk-default": "default",
    "adk-sse": "SSE: a status message for each token",
    "adk-sse-0.3": "SSE, protocol 0.3",
    "adk-new": "newer executor",
    "adk-new-sse": "newer executor, SSE",
    "adk-no-stream": "without streaming",
    "fasta2a-default": "default",
    "fasta2a-whole": "a model that does not stream",
}
HEADER = (
    "agent",
    "mode",
    "delegation shown",
    "its tools",
    "text once",
    "error shown",
    "cancel",
    "killed in the middle",
)


@dataclass(slots=True)
class Row:
    """One peer and what was wrong with it; a cell for each column."""

    peer: Peer
    cells: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, problems: list[str], right: str) -> None:
        self.problems += problems
        self.cells.append("**no**" if problems else right)


async def fill(row: Row, running: RunningPeer) -> None:
    peer = row.peer
    delegation_problems, text_problems = await check_delegation(running)
    row.add(delegation_problems, "yes")
    row.add(delegation_problems, "yes" if peer.tells_tools else "tells of none")
    row.add(text_problems, "yes, narration and answer as one" if peer.joins_narration else "yes")
    row.add(await check_error(running), "yes" if peer.tells_errors else "yes, without a reason")
    stops = "reaches it, it stops" if peer.stops_when_cancelled else "reaches it, it works on"
    row.add(await check_cancel(running), stops)
    problems, seconds = await check_kill(running)
    row.add(problems, f"failed step after {seconds:.0f} s")


def format_line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


async def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", choices=[str(peer) for peer in PEERS], help="only this one")
    chosen = parser.parse_args().peer
    print(f"Seen on {datetime.now(UTC):%Y-%m-%d}:\n")
    print(format_line(list(HEADER)))
    print(format_line(["---"] * len(HEADER)), flush=True)
    problems: list[str] = []
    for peer in PEERS:
        if chosen and str(peer) != chosen:
            continue
        row = Row(peer)
        with run_peer(peer) as running:
            await fill(row, running)
        title = f"{FRAMEWORKS[peer.framework]} {peer.version}"
        print(format_line([title, MODES[str(peer)], *row.cells]), flush=True)
        problems += [f"{peer}: {problem}" for problem in row.problems]
    for problem in problems:
        print(problem, file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
