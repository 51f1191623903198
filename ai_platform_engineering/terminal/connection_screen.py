"""What stands on the terminal while a command connects to a server, or starts one."""

import contextlib
from typing import Self

from rich.console import Console

from ai_platform_engineering.terminal.activity import Activity
from ai_platform_engineering.terminal.live_region import can_redraw
from ai_platform_engineering.terminal.screen import LiveScreen, print_plain

STARTING = "Starting a server"


class ConnectionScreen:
    """A line that says what is waited for; it is gone when the connection stands."""

    def __init__(self, console: Console) -> None:
        self.was_started = False
        self._console = console
        self._activity = Activity("Connecting")
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if can_redraw(self._console):
            screen = self._resources.enter_context(LiveScreen(self._console))
            screen.set_status(lambda: [self._activity.render(self._console.width)])
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def show_server_start(self) -> None:
        """Says that no server was found and one is started."""
        self.was_started = True
        if can_redraw(self._console):
            self._activity.set_label(STARTING)
        elif self._console.is_terminal:
            print_plain(self._console, f"{STARTING} …", "dim")
