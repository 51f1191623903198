"""Background tasks that end with their owner."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from ai_platform_engineering.core.tracebacks import format_traceback

log = logging.getLogger(__name__)


class BackgroundTasks:
    """A set of running tasks; those that fail are logged, and all are cancelled when it is closed."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.adopt(task)
        return task

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Has a running task end with the owner."""
        self._running.add(task)
        task.add_done_callback(self._on_done)

    async def aclose(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.warning("mcp: %s", format_traceback(error))
