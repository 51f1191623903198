"""The lines at the bottom of a terminal that are redrawn in place; what is printed goes above them, once.

The cursor rests at the beginning of the region. A terminal that wraps its lines anew after a change of the
window's width moves the cursor with the text, so the region is found again and nothing above it is erased.
"""

import contextlib
import io
import re
import sys
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

if sys.platform != "win32":
    import termios

_BEGIN_FRAME = "\x1b[?2026h"  # terminals that know it show a frame at once; others ignore it
_END_FRAME = "\x1b[?2026l"
_HIDE_CURSOR = "\x1b[?25l"
_SHOW_CURSOR = "\x1b[?25h"
_NEW_LINE = "\r\n"
_ERASE_LINE = "\x1b[2K"
# A window may get narrower while a frame is on its way: its lines are cut then, not wrapped, so that the way
# back to the first of them stays true.
_CUT_LINES = "\x1b[?7l"
_WRAP_LINES = "\x1b[?7h"
# The line of the cursor, then all below it. Not at once: at the top of the window tmux takes that for a new
# screen, and keeps what was there in its history.
_ERASE_REGION = f"\r{_ERASE_LINE}\x1b7\x1b[1B\r\x1b[J\x1b8"

_OPENING = re.compile(r" *(?:[→✓✗?○◐–-] )?")  # the indentation of a line, and its mark
_MIN_HANGING_WIDTH = 20


def can_redraw(console: Console) -> bool:
    """Whether the console is a terminal whose cursor can be moved."""
    return console.is_terminal and not console.is_dumb_terminal


class LiveRegion:
    """Draws lines below the last printed text. Not thread-safe: its user holds a lock."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._out = console.file
        self._lines: list[str] = []
        self._size = console.size

    def start(self) -> None:
        self._size = self._console.size
        self._write(_HIDE_CURSOR)

    def stop(self) -> None:
        """Erases the region and gives the cursor back."""
        self._write(f"{_ERASE_REGION}{_SHOW_CURSOR}")
        self._lines = []

    def draw(self, lines: Sequence[str]) -> None:
        """Replaces the region; only the lines that changed are written."""
        new_lines = self._fit(lines)
        size = self._console.size
        if size == self._size and len(new_lines) == len(self._lines):
            self._write_changes(new_lines)
        else:
            self._write_frame(_ERASE_REGION, new_lines)
        self._size = size

    def print_above(self, text: str, lines: Sequence[str]) -> None:
        """Prints text for good where the region was, and draws the region below it."""
        self._size = self._console.size
        self._write_frame(f"{_ERASE_REGION}{text}", self._fit(lines))

    def _fit(self, lines: Sequence[str]) -> list[str]:
        """The last lines that leave a line of the window free, so that drawing never scrolls them away."""
        limit = max(1, self._console.size.height - 1)
        return list(lines[-limit:])

    def _write_changes(self, new_lines: list[str]) -> None:
        if new_lines == self._lines:
            return
        parts: list[str] = []
        for old_line, line in zip(self._lines, new_lines, strict=True):
            parts.append("" if old_line == line else f"{_ERASE_LINE}{line}")
        self._lines = new_lines
        self._write(f"{_BEGIN_FRAME}\r{self._join(parts)}{_END_FRAME}")

    def _write_frame(self, before: str, new_lines: list[str]) -> None:
        self._lines = new_lines
        self._write(f"{_BEGIN_FRAME}{before}{self._join(new_lines)}{_END_FRAME}")

    @staticmethod
    def _join(lines: Sequence[str]) -> str:
        """The lines, and the way back to the beginning of the first."""
        if not lines:
            return ""
        way_back = f"\x1b[{len(lines) - 1}A" if len(lines) > 1 else ""
        return f"{_CUT_LINES}{_NEW_LINE.join(lines)}{_WRAP_LINES}\r{way_back}"

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def hang_lines(line: Text, console: Console, indent: int | None = None) -> Text:
    """The line wrapped at the console's width; what follows is indented, without a number like its words."""
    if cell_len(line.plain) <= console.width or "\n" in line.plain:
        return line
    opening = _OPENING.match(line.plain)
    opening_width = len(opening[0]) if opening else 0
    following_width = opening_width if indent is None else indent
    room = console.width - max(opening_width, following_width)
    if room < _MIN_HANGING_WIDTH:
        return line
    head, rest = line.divide([opening_width])
    wrapped = [head]
    for number, part in enumerate(rest.wrap(console, room)):
        wrapped.append(Text(f"\n{' ' * following_width}") if number else Text())
        wrapped.append(part)
    return Text.assemble(*wrapped)


def render_to_text(console: Console, renderable: RenderableType, *, width: int | None = None) -> str:
    """What the console would print, as text with the sequences for its colours; no spaces at line ends."""
    out = io.StringIO()
    copy = Console(
        file=out,
        width=width or console.width,
        force_terminal=console.is_terminal,
        color_system=console.color_system,  # type: ignore[arg-type]
        no_color=console.no_color,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    copy.print(renderable)
    return "".join(f"{line.rstrip(' ')}\n" for line in out.getvalue().split("\n")[:-1])


@contextlib.contextmanager
def hidden_input() -> Iterator[None]:
    """Keeps what is typed meanwhile for the next prompt, unseen; Ctrl-C still interrupts."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    quiet = termios.tcgetattr(descriptor)
    quiet[0] &= ~termios.ICRNL  # Enter stays Enter for the prompt that reads it
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    quiet[3] |= termios.NOFLSH  # Ctrl-C stops the answer and keeps the question that was typed meanwhile
    termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
