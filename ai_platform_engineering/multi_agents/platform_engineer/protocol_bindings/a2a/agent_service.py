"""`caipe agent NAME`: one agent of the catalogue as an A2A service, with the tools and the prompt it has in a supervisor's process."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import (
    Settings,
    read_environment,
    replace_exported_variables,
    reread_environment,
)
from ai_platform_engineering.models.offline_model import OFFLINE_NOTICE, OfflineModel
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgents, place_single_agent
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.cards import agent_card
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.server_lifecycle import (
    serving,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.startup import (
    reload_agent,
    start_server,
)
from ai_platform_engineering.multi_agents.platform_engineer.reloadable_agent import (
    AgentDeployment,
    ReloadableAgent,
)
from ai_platform_engineering.multi_agents.platform_engineer.served_agent import ServedAgent
from ai_platform_engineering.runtime.server.app import App
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.authentication import check_exposure
from ai_platform_engineering.runtime.storage import Storage

_PORT = "8001"


def create_service(
    settings: Settings,
    *,
    placed: PlacedAgents,
    model: BaseChatModel | None = None,
    router: BaseChatModel | None = None,
    storage: Storage | None = None,
    configure: Callable[[], tuple[Settings, PlacedAgents]] | None = None,
) -> App:
    """The one agent of `placed` as an application."""
    check_exposure(settings.server)
    kept = storage or Storage.in_memory()

    def crew(settings: Settings, placed: PlacedAgents) -> AgentDeployment[ServedAgent]:
        [agent] = placed.agents
        assert isinstance(agent, LocalAgent)
        given: dict[str, Any] = {
            "model": model,
            "router": router,
            "checkpointer": kept.saver,
            "run_log": kept.log,
        }
        return AgentDeployment(ServedAgent(settings, agent, **given), placed)

    current = ReloadableAgent(crew(settings, placed))

    async def ready() -> dict[str, dict[str, Any]]:
        return _readiness(current)

    async def tool_list(_: Request) -> Response:
        agent = current.deployment.agent
        return AsciiJSONResponse({"tools": {agent.definition.name: list(agent.tools)}})

    app = serving(
        settings,
        current,
        kept,
        card=lambda: agent_card(
            settings.server, current.deployment.agent.definition, current.deployment.agent.tools
        ),
        ready=ready,
        routes=[Route("/tools", tool_list)],
    )
    if configure is not None:
        read = configure

        async def reload() -> None:
            await reload_agent(current, lambda: crew(*read()))

        app.reload = reload
    return app


def _readiness(current: ReloadableAgent[ServedAgent]) -> dict[str, dict[str, Any]]:
    agent = current.deployment.agent
    report = current.deployment.placed.report()
    try:
        agent.check_model()
    except ConfigurationError as error:
        return {"model": {"status": "unavailable", "message": str(error)}, **report}
    if agent.offline:
        return {"model": {"status": "degraded", "name": "offline", "message": OFFLINE_NOTICE}, **report}
    return {"model": {"status": "ok"}, **report}


def build_service(name: str, settings: Settings, variables: Mapping[str, str]) -> App:
    def configure() -> tuple[Settings, PlacedAgents]:
        now = reread_environment()
        again = Settings.from_variables(now).model_copy(update={"server": settings.server})
        placed = place_single_agent(again, now, name, remote=False)
        replace_exported_variables(now)
        return again, placed

    placed = place_single_agent(settings, variables, name, remote=False)
    kept = Storage.from_settings(settings.storage, settings.agent.home, f"agent-{name}")
    return create_service(settings, placed=placed, router=OfflineModel(), storage=kept, configure=configure)


def run_agent(name: str, overrides: Mapping[str, str | None]) -> None:
    """Starts the service; without a port of its own it does not take the supervisor's."""
    port = overrides.get("A2A_PORT") or read_environment().get("A2A_PORT") or _PORT
    start_server({**overrides, "A2A_PORT": port}, partial(build_service, name))
