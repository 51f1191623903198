"""BaseLangGraphAgentExecutor: a stream of numbered events as an A2A task under the SDK's request handler."""

from abc import abstractmethod
from collections.abc import AsyncIterator

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue

from ai_platform_engineering.a2a.codec import TaskRef, encode
from ai_platform_engineering.core.events import Cancelled, StoredEvent


class BaseLangGraphAgentExecutor(AgentExecutor):
    """An SDK executor for programs that embed an agent: puts the events of `open` on the SDK's queue."""

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
