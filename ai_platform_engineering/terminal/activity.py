"""The line that says what a command waits for, and for how long: a spinner that turns from the start."""

import time

from rich.text import Text

from ai_platform_engineering.terminal.durations import format_seconds

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 10


class Activity:
    """What is being waited for; the time counts from the first thing on."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._hint = ""
        self._started_at = time.monotonic()

    def set_label(self, label: str) -> None:
        self._label = label

    def set_hint(self, hint: str) -> None:
        """Replaces the words at the end of the line, such as the key that stops it."""
        self._hint = hint

    def render(self) -> Text:
        elapsed = time.monotonic() - self._started_at
        frame = _FRAMES[int(elapsed * _FRAMES_PER_SECOND) % len(_FRAMES)]
        line = Text(f"{frame} ", style="cyan")
        line.append(self._label, style="none")
        line.append(f" · {format_seconds(elapsed)}", style="dim")
        if self._hint:
            line.append(f" · {self._hint}", style="dim")
        return line
