"""EventExecutor: a stream of numbered events as an A2A task, with the methods that the SDK's handler calls.

Without the SDK's base class: its package loads SQLAlchemy wherever it is installed, for a task store that is
not ours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from ai_platform_engineering.a2a.client_shape import ClientShape, choose_shape
from ai_platform_engineering.a2a.codec import TaskRef
from ai_platform_engineering.a2a.event_frames import encode, needs_requests
from ai_platform_engineering.core.events import Cancelled, InputRequested, StoredEvent

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

    async def list_requests(self, task_id: str) -> Sequence[InputRequested]:
        """All requests of the task, in order; none when the executor asks people nothing."""
        return ()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        ref = _read_task_ref(context)
        async for item in await self.open(context):
            if isinstance(item.event, Cancelled) and ref.task_id in self._cancelling:
                return  # `cancel` sends the event
            await self._send(context, item, event_queue)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        ref = _read_task_ref(context)
        self._cancelling.add(ref.task_id)
        try:
            async for item in await self.stop(context):
                await self._send(context, item, event_queue)
        finally:
            self._cancelling.discard(ref.task_id)

    async def _send(self, context: RequestContext, item: StoredEvent, event_queue: EventQueue) -> None:
        ref = _read_task_ref(context)
        requests: Sequence[InputRequested] = ()
        if needs_requests(item.event):
            requests = await self.list_requests(ref.task_id)
        for frame in encode(ref, item, _read_shape(context), requests):
            await event_queue.enqueue_event(frame)


def _read_shape(context: RequestContext) -> ClientShape:
    """The shape for the client, by its extensions and the version that its header names.

    Its texts decide nothing here: the SDK's server does not say who wrote them."""
    headers = context.call_context.state.get("headers") or {}
    version = str(headers.get("a2a-version") or headers.get("A2A-Version") or "")
    is_v03 = not version or version.startswith("0.")
    return choose_shape(context.requested_extensions, is_v03=is_v03, v03_shape="rich", text_decisions=False)


def _read_task_ref(context: RequestContext) -> TaskRef:
    if context.task_id is None or context.context_id is None:
        raise ValueError("the request has no task")
    return TaskRef(context.task_id, context.context_id)
