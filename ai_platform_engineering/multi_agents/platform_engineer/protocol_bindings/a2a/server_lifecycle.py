"""Whoever answers as an application: its runs in its storage, taken over at the start and handed over at the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from a2a.types import AgentCard
from starlette.routing import BaseRoute

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent import (
    AIPlatformEngineerA2ABinding,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent_executor import (
    AIPlatformEngineerA2AExecutor,
)
from ai_platform_engineering.multi_agents.platform_engineer.reloadable_agent import (
    ReloadableAgent,
    ServingAgent,
)
from ai_platform_engineering.runtime.facts import Facts
from ai_platform_engineering.runtime.log.run_log import RunRow
from ai_platform_engineering.runtime.rest.facts_and_outcomes import FactsAndOutcomesApi
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.server.app import App, create_a2a_app
from ai_platform_engineering.runtime.storage import Storage

log = logging.getLogger(__name__)

_STOPPED = "The server was stopped before the answer was finished. Ask again when it is back."


def serving(
    settings: Settings,
    current: ReloadableAgent[ServingAgent],
    storage: Storage,
    *,
    card: Callable[[], AgentCard],
    ready: Callable[[], Awaitable[dict[str, dict[str, Any]]]],
    routes: Sequence[BaseRoute] = (),
    facts: Facts | None = None,
    opening: Sequence[Callable[[], Awaitable[None]]] = (),
    closing: Sequence[Callable[[], Awaitable[None]]] = (),
) -> App:
    """`facts`: those of users, where some are kept. `opening` and `closing`: what else begins and ends with the server."""

    async def after(row: RunRow, over: bool) -> None:
        await storage.prune(row.thread_id, row.run_id, idle=over)
        if over:
            current.deployment.agent.forget_run(row.run_id)

    binding = AIPlatformEngineerA2ABinding(current, storage.log)
    runs = AIPlatformEngineerA2AExecutor(binding, storage.log, settings, after=after).runs

    watching: list[asyncio.Task[None]] = []

    async def start() -> None:
        await storage.open()
        await current.start()
        await runs.recover()
        watching.append(
            asyncio.create_task(_expire(runs, settings.people.request_seconds), name="expiry of requests")
        )

    async def last_words() -> bool:
        if storage.durable:
            return False
        await runs.close(_STOPPED, settings.server.shutdown)
        return True

    async def stop() -> None:
        for task in watching:
            task.cancel()
        if not await last_words():
            current.hand_over()  # what agents elsewhere work on is followed again by the next start
            await runs.hand_over(settings.server.shutdown)

    async def components() -> dict[str, dict[str, Any]]:
        return {**await ready(), "storage": storage.report()}

    app = create_a2a_app(
        settings.server,
        card,
        runs,
        ready=components,
        routes=[*routes, *FactsAndOutcomesApi(runs, storage.log, facts).routes()],
        starting=[start, *opening],
        stopping=stop,
        closing=[*closing, current.aclose, storage.aclose],
    )
    app.before_shutdown = last_words
    return app


async def _expire(runs: Runs, seconds: float) -> None:
    """Tells in time of requests that nobody has answered."""
    while True:
        await asyncio.sleep(min(30.0, max(0.05, seconds / 10)))
        try:
            await runs.expire()
        except Exception as error:  # noqa: BLE001 - the next look may work
            log.error("expired requests could not be told: %s", format_traceback(error))
