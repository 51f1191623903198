"""Prints the report of `caipe doctor`: settings, findings, and how to correct what is wrong."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console

from ai_platform_engineering.core.settings_report import SettingRow
from ai_platform_engineering.terminal.screen import print_plain

_MARKS = {"ok": "✅", "note": "ℹ️ ", "wrong": "❌", "unused": "·"}


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One result of a check, and how to correct it. `unused`: what could be configured, and is not."""

    state: Literal["ok", "note", "wrong", "unused"]
    message: str
    remedy: str = ""


def print_report(
    console: Console,
    findings: Sequence[DoctorFinding],
    settings: Sequence[SettingRow],
    *,
    show_all: bool,
    command: str,
) -> None:
    """Prints the problems first, then what is not at its default; the rest, or how to see it."""
    problems = [finding for finding in findings if finding.state == "wrong"]
    notes = [finding for finding in findings if finding.state == "note"]
    rest = [finding for finding in findings if finding.state not in ("wrong", "note")]
    changed = [row for row in settings if row.source != "default"]
    defaults = [row for row in settings if row.source == "default"]
    console.print("Problems" if problems else "No problems found.", style="bold")
    _print_findings(console, [*problems, *notes])
    print_settings(console, "Settings that differ from the default", changed)
    if show_all:
        console.print("\nOther findings", style="bold")
        _print_findings(console, rest)
        print_settings(console, "Settings at their default", defaults)
    else:
        hint = f"{len(rest)} other findings and {len(defaults)} settings at their default: {command} --all"
        print_plain(console, f"\n{hint}", "dim")


def print_settings(console: Console, heading: str, rows: Sequence[SettingRow]) -> None:
    console.print(f"\n{heading}", style="bold")
    if not rows:
        print_plain(console, "  none", "dim")
    for row in rows:
        print_plain(console, f"  {row.name:32} {row.value:40} {row.source}")


def _print_findings(console: Console, findings: Iterable[DoctorFinding]) -> None:
    for finding in findings:
        print_finding(console, finding)


def print_finding(console: Console, finding: DoctorFinding) -> None:
    print_plain(console, f"{_MARKS[finding.state]} {finding.message}")
    if finding.remedy:
        print_plain(console, f"   {finding.remedy}", "dim")
