"""Time for the bot: a clock that tests can replace, and waiting for tasks."""

import asyncio
import time
from collections.abc import Collection, Coroutine
from typing import Any, Protocol


class Clock(Protocol):
    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class RealClock:
    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def wait_then_cancel(clock: Clock, tasks: Collection[asyncio.Task[None]], seconds: float = 8.0) -> None:
    """Waits for the tasks to end, and cancels those that have not ended after `seconds`."""
    if not tasks:
        return
    deadline = asyncio.create_task(clock.sleep(seconds))
    deadline.add_done_callback(lambda _: [task.cancel() for task in tasks])
    await asyncio.wait(tasks)
    deadline.cancel()


async def wait_for_first(*coroutines: Coroutine[Any, Any, Any]) -> None:
    """Waits until one of the coroutines is done, and cancels the others."""
    tasks = {asyncio.ensure_future(coroutine) for coroutine in coroutines}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
