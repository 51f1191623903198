"""The threads that this process may write to now, as far as it knows by itself.

Slack cannot refuse the writes of a process that has lost a thread, so the process does: it writes while its
lease is valid by its own clock, which runs out before the others take its threads.
"""

import asyncio
import math
import time

from ai_platform_engineering.integrations.slack_bot.thread_holders import ThreadTaken
from ai_platform_engineering.integrations.slack_bot.turn_rows import ThreadKey

# Seconds before its end in which no call to Slack is begun: a call takes a while.
_MARGIN = 1.0


class ThreadLeases:
    """The held threads, and until when the lease of this process lasts."""

    def __init__(self) -> None:
        self._held: dict[ThreadKey, int] = {}  # each with the number of its last claim
        self._claims = 0
        self._valid_until = math.inf  # of a database that other processes do not use
        self._changed = asyncio.Event()

    def snapshot(self) -> dict[ThreadKey, int]:
        """The held threads, each with the number of its last claim."""
        return dict(self._held)

    def extend(self, seconds: float, *, since: float) -> None:
        """The lease was renewed for so many seconds, `since` this request was sent (`time.monotonic`)."""
        self._valid_until = since + seconds - _MARGIN
        self._changed.set()

    def add(self, thread: ThreadKey) -> None:
        self._claims += 1
        self._held[thread] = self._claims

    def remove(self, thread: ThreadKey) -> None:
        self._held.pop(thread, None)
        self._changed.set()

    def is_held(self, thread: ThreadKey) -> bool:
        return thread in self._held

    async def wait_until_valid(self, thread: ThreadKey) -> None:
        """Waits while the lease is not valid. Raises ThreadTaken when another process has the thread."""
        while True:
            if thread not in self._held:
                raise ThreadTaken
            if time.monotonic() < self._valid_until:
                return
            self._changed.clear()
            await self._changed.wait()
