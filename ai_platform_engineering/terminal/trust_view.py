"""Prints the tools that a server has changed since it was trusted: what they were, and what they are now."""

import unicodedata
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import islice

from rich.console import Console

_STYLES = {" ": "", "-": "red", "+": "green"}  # by the mark of a line in a difference
# Control, format, private-use and unassigned characters, and separators of lines: they could hide a text.
_INVISIBLE = frozenset(("Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"))


@dataclass(frozen=True, slots=True)
class ToolText:
    """What people see of a tool."""

    title: str
    description: str
    hints: dict[str, bool] = field(default_factory=dict)
    input_schema: str = ""

    def parts(self) -> dict[str, str]:
        hints = ", ".join(f"{name}={str(value).lower()}" for name, value in sorted(self.hints.items()))
        return {
            "title": self.title,
            "description": self.description,
            "hints": hints or "(none)",
            "arguments": self.input_schema,
        }


@dataclass(frozen=True, slots=True)
class ToolChange:
    """A held tool; `old` is None for a new one."""

    agent: str
    server: str
    tool: str
    old: ToolText | None
    new: ToolText


def print_change(console: Console, change: ToolChange) -> None:
    """Prints a new tool whole, and of a changed one what differs."""
    kind = "changed" if change.old else "new"
    heading = f"{change.agent}: the tool {change.tool} of {change.server} is {kind}"
    _print(console, heading, style="bold")
    if change.old == change.new:
        _print(
            console, "  It differs in what is too long to be shown: look at its server before you trust it."
        )
        return
    old_parts = change.old.parts() if change.old else {}
    for name, text in change.new.parts().items():
        old_text = old_parts.get(name, "")
        if text != old_text:
            _print(console, f"  {name}:")
            _print_difference(console, old_text, text)


def make_visible(text: str) -> str:
    """The text with its invisible characters written as escapes; a server could hide words with them."""
    return "".join(_escape(character) for character in text)


def _escape(character: str) -> str:
    if unicodedata.category(character) not in _INVISIBLE:
        return character
    return f"\\u{{{ord(character):04X}}}"


def _print_difference(console: Console, old: str, new: str) -> None:
    lines = unified_diff(old.split("\n"), new.split("\n"), lineterm="", n=2)
    for line in islice(lines, 2, None):  # after the names of files
        if line[:1] in _STYLES:
            _print(console, f"    {line}", style=_STYLES[line[:1]])


def _print(console: Console, line: str, style: str = "") -> None:
    console.print(make_visible(line), style=style, markup=False, highlight=False, soft_wrap=True)
