"""An A2A server of protocol 0.3 that is not ours: the older SDK's stock handler and application.

Runs only in an environment of its own with `tests/fixtures/a2a_03_requirements.txt`; in ours the SDK's names
mean other things.
"""

from __future__ import annotations

import uuid
from typing import Any

from a2a_steps import Stage, serve


def build(url: str, stage: Stage, streaming: bool) -> Any:
    # Imported here: our linters read this file where another version of the SDK is installed.
    import a2a.types as wire
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.apps import A2AStarletteApplication
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
    from a2a.utils import new_task

    types: Any = wire

    class Voice:
        def __init__(self, context: Any, queue: Any) -> None:
            self._context, self._queue = context, queue
            self._updater: Any = TaskUpdater(queue, context.task_id, context.context_id)

        async def open(self) -> None:
            task: Any = new_task(self._context.message)
            task.id, task.context_id = self._context.task_id, self._context.context_id
            await self._queue.enqueue_event(task)

        async def status(self, state: str, text: str | None) -> None:
            message = self._updater.new_agent_message([part({"text": text})]) if text is not None else None
            over = state in ("completed", "failed", "canceled", "rejected", "input-required", "auth-required")
            await self._updater.update_status(types.TaskState(state), message, final=over)

        async def artifact(
            self, artifact_id: str, name: str | None, parts: list[dict[str, Any]], append: bool, last: bool
        ) -> None:
            written = [part(one) for one in parts]
            await self._updater.add_artifact(
                written, artifact_id=artifact_id, name=name, append=append, last_chunk=last
            )

        async def message(self, text: str) -> None:
            role = types.Role.agent
            said = types.Message(
                message_id=str(uuid.uuid4()),
                role=role,
                parts=[part({"text": text})],
                context_id=self._context.context_id,
            )
            await self._queue.enqueue_event(said)

    def part(given: dict[str, Any]) -> Any:
        match given:
            case {"text": text}:
                return types.Part(root=types.TextPart(text=text))
            case {"data": data}:
                return types.Part(root=types.DataPart(data=data))
            case {"raw": content}:
                file = types.FileWithBytes(
                    bytes=content, name=given["filename"], mime_type=given["mediaType"]
                )
                return types.Part(root=types.FilePart(file=file))
        raise AssertionError(f"no such part: {given}")

    class Executor(AgentExecutor):
        async def execute(self, context: Any, event_queue: Any) -> None:
            await stage.play(Voice(context, event_queue), context.task_id, context.get_user_input())

        async def cancel(self, context: Any, event_queue: Any) -> None:
            await Voice(context, event_queue).status("canceled", None)

    card = types.AgentCard(
        name="older",
        description="Plays steps.",
        version="1.0.0",
        url=url,
        capabilities=types.AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[types.AgentSkill(id="play", name="Play", description="Plays steps.", tags=["test"])],
    )
    make: Any = A2AStarletteApplication
    handler: Any = DefaultRequestHandler
    return make(
        agent_card=card, http_handler=handler(agent_executor=Executor(), task_store=InMemoryTaskStore())
    ).build()


if __name__ == "__main__":
    serve(build)
