"""A clock for tests of long waits: it runs faster than real time, or jumps."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any

_ROUNDING = (
    1e-6  # what floats of this size lose, so that a jump of exactly n seconds ends a sleep of n seconds
)


class ScaledClock:
    """Seconds since the epoch, `scale` times as fast as real time; with a scale of 0 only `advance` moves
    it."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self._epoch = time.time()
        self._began = time.monotonic()
        self._jumps = 0.0
        self._jumped = asyncio.Event()

    def now(self) -> float:
        return self._epoch + (time.monotonic() - self._began) * self.scale + self._jumps

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Until this clock says that so many seconds have gone by, however they did.

        They count from this call: a task that runs the coroutine may begin after the clock has jumped.
        """
        return self._sleep_until(self.now() + seconds)

    async def _sleep_until(self, due: float) -> None:
        await asyncio.sleep(0)
        while (left := due - self.now()) > _ROUNDING:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left / self.scale if self.scale else None):
                    await self._jumped.wait()

    def advance(self, seconds: float) -> None:
        """Moves the clock forward and wakes the sleepers whose time has come."""
        self._jumps += seconds
        jumped, self._jumped = self._jumped, asyncio.Event()
        jumped.set()
