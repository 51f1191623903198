"""Text on a terminal: nothing of a model or a tool can control it, and markdown appears block by block."""

import json
import re
import time
from typing import Any

from markdown_it import MarkdownIt
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markdown import Markdown

# Control characters, and those that turn the direction of text: dropped one by one, so a split sequence is harmless too.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def sanitize_text(text: str) -> str:
    return _UNSAFE.sub("", text.replace("\r\n", "\n"))


def sanitize_line(text: str) -> str:
    """What somebody else wrote, in a place for a few words."""
    return " ".join(sanitize_text(text).split())


def render_json(value: Any, indent: int | None = None) -> str:
    """JSON in which every character can be seen, so that nobody agrees to what is not on the screen."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


class LiveScreen:
    """Finished blocks are printed for good; the open tail and the status lines are drawn again, a few times a second."""

    def __init__(self, console: Console, *, interval: float = 0.1) -> None:
        self._console, self._interval = console, interval
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._parser = MarkdownIt("commonmark").enable("table")
        self._open = ""
        self._drawn = 0.0
        self._status = ""

    def __enter__(self) -> "LiveScreen":
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
        """More of the text that is being written."""
        self._open += sanitize_text(text)
        if time.monotonic() - self._drawn >= self._interval:
            self._freeze()
            self._draw()

    def end_text(self) -> None:
        """The text is complete: what is open is printed for good."""
        if self._open.strip():
            self._console.print(_markdown(self._open))
        self._open = ""
        self._draw()

    def discard_text(self) -> None:
        """The text that was being written is void; blocks already printed stay, and a line says so."""
        self._open = ""
        self.print_line("(starting that again)")

    def print_line(self, text: str, style: str = "dim") -> None:
        """A line of its own, as it is: no markup, no links."""
        self.end_text()
        self._console.print(
            sanitize_text(text).rstrip("\n"), style=style, markup=False, highlight=False, emoji=False
        )

    def set_status(self, text: str) -> None:
        """What stands below the text now, and is gone when it is over."""
        self._status = sanitize_text(text).rstrip("\n")
        self._draw()

    def _freeze(self) -> None:
        starts = sorted(
            {token.map[0] for token in self._parser.parse(self._open) if token.level == 0 and token.map}
        )
        if len(starts) > 1:
            lines = self._open.split("\n")  # not splitlines(), which also splits at U+2028
            self._console.print(_markdown("\n".join(lines[: starts[-1]])))
            self._open = "\n".join(lines[starts[-1] :])

    def _draw(self) -> None:
        if not self._console.is_terminal:
            return
        parts: list[RenderableType] = [_markdown(self._open)] if self._open.strip() else []
        if self._status:
            parts.append(self._status)
        self._live.update(Group(*parts), refresh=True)
        self._drawn = time.monotonic()


def _markdown(text: str) -> Markdown:
    return Markdown(text, hyperlinks=False)  # the real address is printed, so a link cannot lie
