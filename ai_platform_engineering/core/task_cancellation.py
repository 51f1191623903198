"""Cancellation of background tasks that is certain to end them."""

import asyncio

_SECONDS = 2.0


async def cancel_and_wait(*tasks: asyncio.Task[None]) -> None:
    """Cancels tasks until each has ended.

    Once is not enough: before Python 3.12 `asyncio.wait_for`, which database clients use, loses a
    cancellation that comes together with its result, and an endless loop around it goes on."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_SECONDS)
