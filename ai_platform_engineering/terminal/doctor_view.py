"""Prints the report of `caipe doctor`: settings, findings, and how to correct what is wrong."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rich.console import Console

from ai_platform_engineering.core.settings_report import SettingRow
from ai_platform_engineering.terminal.screen import print_plain, sanitize_text

_MARKS = {"ok": "✅", "note": "ℹ️ ", "wrong": "❌"}


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One result of a check, and how to correct it."""

    state: Literal["ok", "note", "wrong"]
    message: str
    remedy: str = ""


def print_settings(console: Console, rows: Iterable[SettingRow]) -> None:
    console.print("Settings", style="bold")
    for row in rows:
        line = f"  {row.name:32} {row.value:40} {row.source}"
        style = "dim" if row.source == "default" else ""
        console.print(sanitize_text(line), markup=False, highlight=False, style=style)


def print_findings(console: Console, findings: Iterable[DoctorFinding]) -> None:
    console.print("\nFindings", style="bold")
    for finding in findings:
        print_finding(console, finding)


def print_finding(console: Console, finding: DoctorFinding) -> None:
    print_plain(console, f"{_MARKS[finding.state]} {finding.message}")
    if finding.remedy:
        print_plain(console, f"   {finding.remedy}", "dim")
