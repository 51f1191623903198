"""Whoever answers as an application: its runs in its storage, taken over at the start and handed over at the end."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from a2a.types import AgentCard
from starlette.routing import BaseRoute

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.current import Current, Driven
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent import AIPlatformEngineerA2ABinding, thread_of
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent_executor import AIPlatformEngineerA2AExecutor
from ai_platform_engineering.runtime.app import App, a2a_app
from ai_platform_engineering.runtime.log import RunRow
from ai_platform_engineering.runtime.storage.storage import Storage

_STOPPED = "The server was stopped before the answer was finished. Ask again when it is back."


def serving(
    settings: Settings,
    current: Current[Driven],
    storage: Storage,
    *,
    card: Callable[[], AgentCard],
    ready: Callable[[], Awaitable[dict[str, dict[str, Any]]]],
    routes: Sequence[BaseRoute] = (),
) -> App:
    async def after(row: RunRow, over: bool) -> None:
        await storage.prune(thread_of(row), row.run_id, idle=over)

    binding = AIPlatformEngineerA2ABinding(current, storage.log)
    runs = AIPlatformEngineerA2AExecutor(binding, storage.log, settings, after=after).runs

    async def start() -> None:
        await storage.open()
        await current.start()
        await runs.recover()

    async def stop() -> None:
        if storage.durable:
            current.hand_over()  # what agents elsewhere work on is followed again by the next start
            await runs.hand_over(settings.server.shutdown)
        else:
            await runs.close(_STOPPED, settings.server.shutdown)

    async def components() -> dict[str, dict[str, Any]]:
        return {**await ready(), "storage": storage.report()}

    return a2a_app(
        settings.server,
        card,
        runs,
        ready=components,
        routes=routes,
        starting=[start],
        stopping=stop,
        closing=[current.aclose, storage.aclose],
    )
