"""The line that says what a command waits for, and for how long: a spinner that turns from the start."""

import time

from rich.text import Text

from ai_platform_engineering.terminal.durations import format_seconds

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 10
_MIN_WIDTH_FOR_HINT = 36  # columns


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

    def render(self, width: int) -> Text:
        """The line; where it is too long the label is shortened, so that the time and the hint stay."""
        elapsed = time.monotonic() - self._started_at
        frame = _FRAMES[int(elapsed * _FRAMES_PER_SECOND) % len(_FRAMES)]
        tail = f" · {format_seconds(elapsed)}"
        if self._hint and width >= _MIN_WIDTH_FOR_HINT:
            tail += f" · {self._hint}"
        label = Text(self._label, style="none")
        label.truncate(max(1, width - len(tail) - len(frame) - 2), overflow="ellipsis")
        return Text.assemble((f"{frame} ", "cyan"), label, (tail, "dim"))
