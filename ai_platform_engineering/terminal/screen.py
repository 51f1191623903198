"""Text on a terminal: sanitized, so that no model or tool controls it; markdown drawn block by block."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ai_platform_engineering.core.display_text import remove_controls
from ai_platform_engineering.terminal.live_region import (
    LiveRegion,
    can_redraw,
    hang_lines,
    hidden_input,
    render_to_text,
)
from ai_platform_engineering.terminal.markdown_view import (
    TerminalMarkdown,
    find_block_starts,
    find_outer_items,
    shorten_open_code,
)

_PIPED_WIDTH = 1000  # wide enough that a row stays one line where a program reads it
_FRAME_SECONDS = 0.1
_MAX_SHARE_OF_TIME = 0.2  # a long open block is drawn less often

RenderStatus = Callable[[], Sequence[Text]]  # the lines below the text, as they are now


def create_console(**options: Any) -> Console:
    """A console that draws texts as they are: `ollama:x:` is no emoji."""
    return Console(emoji=False, **options)


def sanitize_text(text: str) -> str:
    """Removes what could control the terminal; line breaks stay."""
    return remove_controls(text.replace("\r\n", "\n"))


def sanitize_line(text: str) -> str:
    """Removes what could control the terminal, and joins the text to one line."""
    return " ".join(sanitize_text(text).split())


def print_plain(console: Console, text: str, style: str = "") -> None:
    """Prints sanitized text as it is: no markup, no links."""
    console.print(sanitize_text(text), style=style, markup=False, highlight=False, emoji=False)


def print_markdown(console: Console, text: str) -> None:
    """Prints a complete markdown text; as it is where the console is no terminal."""
    if console.is_terminal:
        console.file.write(_render_markdown(console, sanitize_text(text)))
    else:
        console.file.write(f"{sanitize_text(text)}\n")
    console.file.flush()


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
    create_console(width=width, markup=False, highlight=False).print(table)


class LiveScreen:
    """A screen for text that is being written, and status lines below it.

    Finished markdown blocks are printed for good, once and in order. Of the open block the last lines that
    fit are shown until it is finished; they and the status are redrawn a few times a second, in a thread,
    so that the time goes on while the program is busy.
    """

    def __init__(self, console: Console, *, holds_text: bool = False) -> None:
        """`holds_text`: no block is printed before its text has ended, for a text that may be dropped."""
        self._console = console
        self._holds_text = holds_text
        self._region = LiveRegion(console) if can_redraw(console) else None
        self._render_status: RenderStatus = lambda: ()
        self._open_text = ""
        self._last_printed = ""  # "text", "item" or "line": what an empty line is put between
        self._text_begun = False
        self._tail: tuple[tuple[str, int, int], list[str]] = (("", 0, 0), [])
        self._drawn_at = 0.0
        self._draw_seconds = 0.0
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self._region is not None:
            self._resources.enter_context(hidden_input())
            self._region.start()
            self._draw()
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._region is not None:
            self._ticker.join()
        with self._lock:
            self._render_status = lambda: ()
            self.end_text()
            if self._region is not None:
                self._region.stop()
        self._resources.close()

    @property
    def width(self) -> int:
        return self._console.width

    def write(self, text: str) -> None:
        """Adds to the open text."""
        with self._lock:
            self._open_text += sanitize_text(text)
            if self._is_frame_due():
                self._print_finished_blocks()
                self._draw()

    def end_text(self) -> None:
        """Prints the open text for good: it is complete."""
        with self._lock:
            text = self._open_text
            self._open_text = ""
            if text.strip():
                self._print_block(text)
            else:
                self._draw()
            self._text_begun = False

    def drop_text(self) -> None:
        """Erases the open text."""
        with self._lock:
            self._open_text = ""
            self._text_begun = False
            self._draw()

    def discard_text(self, reason: str) -> None:
        """Drops the open text; where blocks were already printed, a line says why they do not count."""
        with self._lock:
            was_printed = self._text_begun
            self.drop_text()
            if was_printed:
                self.print_line(reason)

    def print_line(self, text: str, style: str = "dim") -> None:
        """Ends the open text and prints a line as it is: no markup, no links."""
        line = Text(sanitize_text(text).rstrip("\n"), style=style)
        self.print_renderable(hang_lines(line, self._console))

    def print_renderable(self, renderable: RenderableType) -> None:
        """Ends the open text and prints what is made of sanitized text."""
        with self._lock:
            self.end_text()
            gap = "\n" if self._last_printed in ("text", "item") else ""
            self._print(f"{gap}{render_to_text(self._console, renderable)}", "line")

    def set_status(self, render: RenderStatus) -> None:
        """Replaces the lines below the text; they are asked for anew at each frame, and erased at the end."""
        with self._lock:
            self._render_status = render
            self._draw()

    # --- blocks -------------------------------------------------------------------------------------------

    def _print_finished_blocks(self) -> None:
        """Prints every block but the last, which may still grow."""
        if self._holds_text or self._region is None:
            return
        starts = find_block_starts(self._open_text)
        if len(starts) < 2:
            return
        lines = self._open_text.split("\n")  # not splitlines(), which also splits at U+2028
        finished = "\n".join(lines[: starts[-1]])
        self._open_text = "\n".join(lines[starts[-1] :])
        self._print_block(finished)

    def _print_block(self, text: str) -> None:
        gap = "\n" if self._needs_gap(text) else ""
        ends_with_item = find_outer_items(text)[1]
        self._text_begun = True
        if self._console.is_terminal:
            rendered = _render_markdown(self._console, text)
        else:
            rendered = f"{text.strip()}\n"
        self._print(f"{gap}{rendered}", "item" if ends_with_item else "text")

    def _needs_gap(self, text: str) -> bool:
        """Whether an empty line goes before the text: not before the first, nor within a list."""
        list_goes_on = self._text_begun and self._last_printed == "item" and find_outer_items(text)[0]
        return bool(self._last_printed) and not list_goes_on

    def _print(self, text: str, kind: str) -> None:
        self._last_printed = kind
        if self._region is not None:
            self._region.print_above(text, self._render_region())
        else:
            self._console.file.write(text)
            self._console.file.flush()

    # --- the region ---------------------------------------------------------------------------------------

    def _tick(self) -> None:
        while not self._stopped.wait(_FRAME_SECONDS):
            with self._lock, contextlib.suppress(OSError, ValueError):  # the terminal may be gone
                if self._is_frame_due():
                    self._print_finished_blocks()
                    self._draw()

    def _is_frame_due(self) -> bool:
        pause = max(_FRAME_SECONDS, self._draw_seconds / _MAX_SHARE_OF_TIME)
        return time.monotonic() - self._drawn_at >= pause

    def _draw(self) -> None:
        if self._region is None:
            return
        started = time.monotonic()
        self._region.draw(self._render_region())
        self._drawn_at = time.monotonic()
        self._draw_seconds = self._drawn_at - started

    def _render_region(self) -> list[str]:
        """The last lines of the open text and the status, at most as many as the window has."""
        width, height = self._console.size
        lines: list[str] = []
        for line in self._render_status():
            line.truncate(max(1, width - 1), overflow="ellipsis")
            lines.append(render_to_text(self._console, line, width=width).rstrip("\n"))
        lines = lines[: max(1, height - 2)]
        room = height - 2 - len(lines)
        if self._open_text.strip() and room > 0:
            gap = [""] if self._needs_gap(self._open_text) else []
            lines = [*gap, *self._render_tail(width, room), *([""] if lines else []), *lines]
        return lines

    def _render_tail(self, width: int, room: int) -> list[str]:
        """The last lines of the open text; one column narrower, so that no line wraps by itself."""
        key = (self._open_text, width, room)
        if self._tail[0] != key:
            text = shorten_open_code(self._open_text, room)
            rendered = _render_markdown(self._console, text, width=max(2, width - 1))
            self._tail = (key, rendered.rstrip("\n").split("\n")[-room:])
        return self._tail[1]


def _render_markdown(console: Console, text: str, width: int | None = None) -> str:
    """The text as it is printed, without empty lines around it."""
    rendered = render_to_text(console, TerminalMarkdown(text), width=width)
    return rendered.strip("\n") + "\n"
