"""Prints agents in a terminal: the list with what each needs, and the tools of one agent."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from ai_platform_engineering.terminal.screen import sanitize_line

_STATUS_STYLES = {
    "ready": "green",
    "not_configured": "yellow",
    "not_installed": "red",
    "not_signed_in": "yellow",
    "disabled": "dim",
    "unreachable": "red",
    "no_address": "red",
    "failing": "red",
}
_MAX_DESCRIPTION_CHARS = 100


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent in the list: its status, what it needs, and where it runs."""

    name: str
    status: str
    needs: str
    placement: str


def print_agents(console: Console, rows: Sequence[AgentRow]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("agent", "status", "needs", "runs"):
        table.add_column(column, overflow="fold")
    for row in rows:
        status = f"[{_STATUS_STYLES[row.status]}]{row.status.replace('_', ' ')}[/]"
        table.add_row(row.name, status, sanitize_line(row.needs), sanitize_line(row.placement))
    console.print(table)


def print_tool(console: Console, name: str, description: str, *, needs_approval: bool) -> None:
    note = " (needs approval)" if needs_approval else ""
    first_line = description.strip().splitlines()[0][:_MAX_DESCRIPTION_CHARS]
    line = sanitize_line(f"{name}{note}: {first_line}")
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_probed_call(console: Console, server: str, tool: str, problem: str | None) -> None:
    """Prints whether the call that was tried on a server worked."""
    if problem is None:
        line = sanitize_line(f"{server} works: {tool} was called.")
        console.print(line, style="green", markup=False, highlight=False, soft_wrap=True)
    else:
        line = sanitize_line(f"{server} does not work: {tool} fails: {problem}.")
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)


def print_untried_server(console: Console, server: str) -> None:
    text = "lists its tools; none was called: no tool is known to be read-only and to need no arguments"
    line = sanitize_line(f"{server} {text}.")
    console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)


def print_server_problem(console: Console, server: str, reason: str) -> None:
    line = sanitize_line(f"{server} lists no tools: {reason}")
    console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
