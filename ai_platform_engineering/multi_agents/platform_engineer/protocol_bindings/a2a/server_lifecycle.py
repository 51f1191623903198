"""The lifecycle of a server: runs are taken over at the start, and handed over to the next one at the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from a2a.types import AgentCard
from starlette.routing import BaseRoute

from ai_platform_engineering.core.errors import ConfigurationError
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
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.push.push_notifications import PushNotifications
from ai_platform_engineering.runtime.rest.conversations import ConversationsApi
from ai_platform_engineering.runtime.rest.facts_and_outcomes import FactsAndOutcomesApi
from ai_platform_engineering.runtime.rest.runs import RunsApi
from ai_platform_engineering.runtime.rest.shares import SharesApi
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.server.app import App, create_a2a_app
from ai_platform_engineering.runtime.server.signing_keys import SigningKeys
from ai_platform_engineering.runtime.storage import Storage

log = logging.getLogger(__name__)

_STOPPED = "The server was stopped before the answer was finished. Ask again when it is back."


def build_server_app(
    settings: Settings,
    agent: ReloadableAgent[ServingAgent],
    storage: Storage,
    *,
    card: Callable[[], AgentCard],
    ready: Callable[[], Awaitable[dict[str, dict[str, Any]]]],
    routes: Sequence[BaseRoute] = (),
    facts: Facts | None = None,
    prebuild_graph: bool = False,
    serves_page: bool = False,
    on_startup: Sequence[Callable[[], Awaitable[None]]] = (),
    on_shutdown: Sequence[Callable[[], Awaitable[None]]] = (),
) -> App:
    """The agent as an A2A application. `facts`: those of users, where facts are remembered.

    `prebuild_graph`: before the first question. Not for an agent whose graph starts tool servers.
    `serves_page`: the routes hold the web page, to which browsers sign in."""

    async def clean_up_turn(row: RunRow, run_ended: bool) -> None:
        await storage.prune(row.thread_id, row.run_id, idle=run_ended)
        if run_ended:
            agent.deployment.agent.forget_run(row.run_id)

    binding = AIPlatformEngineerA2ABinding(agent, storage.log)
    runs = AIPlatformEngineerA2AExecutor(binding, storage.log, settings, after_turn=clean_up_turn).runs

    keys = SigningKeys(
        settings.server.card_signing_key, storage.folder, signs_notifications=settings.push.enabled
    )
    push = PushNotifications(storage.log, settings.push, keys, settings.server.url)

    background_tasks: list[asyncio.Task[None]] = []

    async def start() -> None:
        await storage.open()
        await agent.start()
        await runs.recover()
        push.start()
        expiry = _expire_requests(runs, settings.people.request_seconds)
        background_tasks.append(asyncio.create_task(expiry, name="expiry of requests"))

    async def preload() -> None:
        agent.deployment.agent.preload()
        if prebuild_graph:
            build = _build_graph(agent)
            background_tasks.append(asyncio.create_task(build, name="first build of the graph"))

    async def end_runs() -> bool:
        """Ends all runs with a message when nothing of them is stored durably."""
        if storage.durable:
            return False
        await runs.close(_STOPPED, settings.server.shutdown)
        return True

    async def stop() -> None:
        for task in background_tasks:
            task.cancel()
        if not await end_runs():
            agent.hand_over()  # the next start follows the tasks of remote agents again
            await runs.hand_over(settings.server.shutdown)
        await push.stop()

    async def components() -> dict[str, dict[str, Any]]:
        return {**await ready(), "storage": await storage.report()}

    app = create_a2a_app(
        settings.server,
        card,
        runs,
        ready=components,
        read_only=lambda: agent.deployment.agent.read_only,
        keys=keys,
        push=push.configs,
        routes=[
            *FactsAndOutcomesApi(runs, storage.log, facts).routes(),
            *RunsApi(storage.log).routes(),
            *SharesApi(runs, storage.log, settings.storage).routes(),
            *ConversationsApi(runs, storage.log, storage.saver.adelete_thread).routes(),
            *routes,
        ],
        serves_page=serves_page,
        starting=[start, *on_startup, preload],  # the last: from there on it takes processor time
        stopping=stop,
        closing=[*on_shutdown, agent.aclose, storage.aclose],
    )
    app.before_shutdown = end_runs
    return app


async def _build_graph(agent: ReloadableAgent[ServingAgent]) -> None:
    """Builds the graph as soon as its model is loaded: the first question finds it built."""
    try:
        await agent.deployment.agent.graph()
    except ConfigurationError as error:
        log.warning("%s", error)  # `/ready` and the answers tell it, too


async def _expire_requests(runs: Runs, seconds: float) -> None:
    """Expires requests that nobody has answered in time."""
    while True:
        await asyncio.sleep(min(30.0, max(0.05, seconds / 10)))
        try:
            await runs.expire()
        except Exception as error:  # noqa: BLE001 - the next attempt may work
            log.error("expired requests could not be reported: %s", format_traceback(error))
