"""Text on a terminal: sanitized, so that no model or tool controls it; markdown drawn block by block."""

import sys
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Self

from markdown_it import MarkdownIt
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markdown import Markdown
from rich.table import Table

from ai_platform_engineering.core.display_text import remove_controls

_PIPED_WIDTH = 1000  # wide enough that a row stays one line where a program reads it


def sanitize_text(text: str) -> str:
    """Removes what could control the terminal; line breaks stay."""
    return remove_controls(text.replace("\r\n", "\n"))


def sanitize_line(text: str) -> str:
    """Removes what could control the terminal, and joins the text to one line."""
    return " ".join(sanitize_text(text).split())


def print_plain(console: Console, text: str, style: str = "") -> None:
    """Prints sanitized text as it is: no markup, no links."""
    console.print(sanitize_text(text), style=style, markup=False, highlight=False, emoji=False)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right_aligned: Collection[str] = (),
    folded: Collection[str] | None = None,
) -> None:
    """Prints rows on stdout; long cells are folded, in the named columns only if there are such."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        no_wrap = folded is not None and column not in folded
        justify: Any = "right" if column in right_aligned else "left"
        table.add_column(column, overflow="fold", no_wrap=no_wrap, justify=justify)
    for row in rows:
        table.add_row(*map(sanitize_line, row))
    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    Console(width=width, markup=False, highlight=False).print(table)


class LiveScreen:
    """A screen for text that is being written, and status lines below it.

    Finished markdown blocks are printed for good; the open tail and the status are redrawn
    a few times a second.
    """

    def __init__(self, console: Console, *, interval: float = 0.1) -> None:
        self._console = console
        self._interval = interval
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._parser = MarkdownIt("commonmark").enable("table")
        self._open_text = ""
        self._drawn_at = 0.0
        self._status = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end_text()
        self._status = ""
        if self._console.is_terminal:
            self._live.update("", refresh=True)
            self._live.stop()

    def write(self, text: str) -> None:
        """Adds to the open text."""
        self._open_text += sanitize_text(text)
        if time.monotonic() - self._drawn_at >= self._interval:
            self._print_finished_blocks()
            self._draw()

    def end_text(self) -> None:
        """Prints the open text for good: it is complete."""
        if self._open_text.strip():
            self._console.print(_markdown(self._open_text))
        self._open_text = ""
        self._draw()

    def discard_text(self) -> None:
        """Drops the open text; blocks already printed stay, and a line says that they are void."""
        self._open_text = ""
        self.print_line("(starting that again)")

    def print_line(self, text: str, style: str = "dim") -> None:
        """Ends the open text and prints a line as it is: no markup, no links."""
        self.end_text()
        print_plain(self._console, sanitize_text(text).rstrip("\n"), style)

    def set_status(self, text: str) -> None:
        """Replaces the lines below the text; the last ones are erased at the end."""
        self._status = sanitize_text(text).rstrip("\n")
        self._draw()

    def _print_finished_blocks(self) -> None:
        """Prints every block but the last, which may still grow."""
        block_starts = set[int]()
        for token in self._parser.parse(self._open_text):
            if token.level == 0 and token.map:
                block_starts.add(token.map[0])
        if len(block_starts) > 1:
            last_start = max(block_starts)
            lines = self._open_text.split("\n")  # not splitlines(), which also splits at U+2028
            self._console.print(_markdown("\n".join(lines[:last_start])))
            self._open_text = "\n".join(lines[last_start:])

    def _draw(self) -> None:
        if not self._console.is_terminal:
            return
        parts: list[RenderableType] = []
        if self._open_text.strip():
            parts.append(_markdown(self._open_text))
        if self._status:
            parts.append(self._status)
        self._live.update(Group(*parts), refresh=True)
        self._drawn_at = time.monotonic()


def _markdown(text: str) -> Markdown:
    return Markdown(text, hyperlinks=False)  # the real address is printed, so a link cannot lie
