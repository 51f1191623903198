"""An A2A server of protocol 1.0 that is not ours: the SDK's stock handler, store and routes.

Runs as a process of its own.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from a2a.helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, TaskState
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette

from tests.support.fakes.a2a_steps import Stage, serve


class _Voice:
    def __init__(self, context: RequestContext, queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        self._context, self._queue = context, queue
        self._updater = TaskUpdater(queue, context.task_id, context.context_id)

    async def open(self) -> None:
        assert self._context.message is not None
        await self._queue.enqueue_event(new_task_from_user_message(self._context.message))

    async def status(self, state: str, text: str | None) -> None:
        message = self._updater.new_agent_message([Part(text=text)]) if text is not None else None
        await self._updater.update_status(
            TaskState.Value(f"TASK_STATE_{state.upper().replace('-', '_')}"), message
        )

    async def artifact(
        self, artifact_id: str, name: str | None, parts: list[dict[str, Any]], append: bool, last: bool
    ) -> None:
        written = [ParseDict(part, Part()) for part in parts]
        await self._updater.add_artifact(
            written, artifact_id=artifact_id, name=name, append=append, last_chunk=last
        )

    async def message(self, text: str) -> None:
        await self._queue.enqueue_event(new_text_message(text, context_id=self._context.context_id))


class Executor(AgentExecutor):
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await self._stage.play(_Voice(context, event_queue), context.task_id or "", context.get_user_input())

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await _Voice(context, event_queue).status("canceled", None)


def build(url: str, stage: Stage, streaming: bool) -> Starlette:
    card = AgentCard(
        name="stock",
        description="Plays steps.",
        version="1.0.0",
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="play", name="Play", description="Plays steps.", tags=["test"])],
    )
    handler = DefaultRequestHandler(
        agent_executor=Executor(stage), task_store=InMemoryTaskStore(), agent_card=card
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await handler.aclose()

    return Starlette(
        routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")], lifespan=lifespan
    )


if __name__ == "__main__":
    serve(build)
