"""EventExecutor: a stream of numbered events as an A2A task, with the methods that the SDK's handler calls.

Without the SDK's base class: its package loads SQLAlchemy wherever it is installed, for a task store that is
not ours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from ai_platform_engineering.a2a.codec import TaskRef, encode
from ai_platform_engineering.core.events import Cancelled, StoredEvent

if TYPE_CHECKING:
    from a2a.server.agent_execution import RequestContext
    from a2a.server.events import EventQueue


class EventExecutor(ABC):
    """Puts the events of `open` and `stop` on the queue of the SDK."""

    def __init__(self) -> None:
        self._cancelling: set[str] = set()

    @abstractmethod
    async def open(self, context: RequestContext) -> AsyncIterator[StoredEvent]:
        """Starts or continues the task of the request and follows it."""

    @abstractmethod
    async def stop(self, context: RequestContext) -> AsyncIterator[StoredEvent]:
        """Stops the task of the request and gives the events of its end."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        ref = _read_task_ref(context)
        async for item in await self.open(context):
            if isinstance(item.event, Cancelled) and ref.task_id in self._cancelling:
                return  # `cancel` sends the event
            for frame in encode(ref, item):
                await event_queue.enqueue_event(frame)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        ref = _read_task_ref(context)
        self._cancelling.add(ref.task_id)
        try:
            async for item in await self.stop(context):
                for frame in encode(ref, item):
                    await event_queue.enqueue_event(frame)
        finally:
            self._cancelling.discard(ref.task_id)


def _read_task_ref(context: RequestContext) -> TaskRef:
    if context.task_id is None or context.context_id is None:
        raise ValueError("the request has no task")
    return TaskRef(context.task_id, context.context_id)
