"""The tasks that handle Slack's events: failures are logged, and they are waited for when the bot stops."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.integrations.slack_bot.clock import Clock, wait_then_cancel
from ai_platform_engineering.integrations.slack_bot.thread_holders import ThreadTaken

log = logging.getLogger(__name__)


class EventTasks:
    """A set of running tasks."""

    def __init__(self) -> None:
        self._tasks = set[asyncio.Task[None]]()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(_run_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    async def drain(self, clock: Clock) -> None:
        """Waits for the work that is under way."""
        await wait_then_cancel(clock, list(self._tasks))


async def _run_logged(work: Coroutine[Any, Any, Any]) -> None:
    try:
        await work
    except CaipeError as error:
        log.warning("%s", error)
    except ThreadTaken:
        log.info("another process has taken a thread over")
    except Exception as error:
        log.exception("an event could not be handled: %s", type(error).__name__)
