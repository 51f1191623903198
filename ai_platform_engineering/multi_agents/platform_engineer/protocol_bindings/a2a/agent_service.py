"""`caipe agent NAME`: one agent of the catalogue as an A2A service, as it is in-process."""

import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from a2a.types import AgentCard
from langchain_core.language_models import BaseChatModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.environment import (
    read_environment,
    replace_exported_variables,
    reread_environment,
)
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.mcp_client.server_slots import ServerSlots
from ai_platform_engineering.models.offline_model import OFFLINE_NOTICE, OfflineModel
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgents, place_single_agent
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.cards import agent_card
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.login_api import LoginApi
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.server_lifecycle import (
    build_server_app,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.startup import (
    describe_model,
    reload_agent,
    start_server,
    warn_of_settings,
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

_DEFAULT_PORT = "8001"


def create_service(
    settings: Settings,
    *,
    placed: PlacedAgents,
    model: BaseChatModel | None = None,
    router: BaseChatModel | None = None,
    storage: Storage | None = None,
    configure: Callable[[], tuple[Settings, PlacedAgents]] | None = None,
) -> App:
    """The one agent of `placed` as an application. `configure` reads the configuration for a reload."""
    check_exposure(settings.server)
    run_storage = storage or Storage.in_memory()

    def deploy(settings: Settings, placed: PlacedAgents) -> AgentDeployment[ServedAgent]:
        [agent] = placed.agents
        assert isinstance(agent, LocalAgent)
        served_agent = ServedAgent(
            settings,
            agent,
            model=model,
            router=router,
            checkpointer=run_storage.saver,
            run_log=run_storage.log,
        )
        return AgentDeployment(served_agent, placed)

    reloadable = ReloadableAgent(deploy(settings, placed))

    async def ready() -> dict[str, dict[str, Any]]:
        return await _report_readiness(reloadable)

    async def list_tools(_: Request) -> Response:
        agent = reloadable.deployment.agent
        return AsciiJSONResponse({"tools": {agent.definition.name: list(agent.tools)}})

    def build_card() -> AgentCard:
        agent = reloadable.deployment.agent
        return agent_card(settings.server, agent.definition, agent.tools, push=settings.push.enabled)

    app = build_server_app(
        settings,
        reloadable,
        run_storage,
        card=build_card,
        ready=ready,
        routes=[
            Route("/tools", list_tools),
            *LoginApi(lambda: reloadable.deployment.placed, settings.server).routes(),
        ],
    )
    if configure is not None:
        app.reload = _build_reload(reloadable, lambda: deploy(*configure()))
    return app


def _build_reload(
    reloadable: ReloadableAgent[ServedAgent], build: Callable[[], AgentDeployment[ServedAgent]]
) -> Callable[[], Awaitable[None]]:
    async def reload() -> None:
        await reload_agent(reloadable, build)

    return reload


async def _report_readiness(reloadable: ReloadableAgent[ServedAgent]) -> dict[str, dict[str, Any]]:
    agent = reloadable.deployment.agent
    report = reloadable.deployment.placed.report()
    try:
        await agent.check_model()
    except ConfigurationError as error:
        return {"model": {"status": "unavailable", "message": str(error)}, **report}
    if agent.offline:
        return {"model": {"status": "degraded", "name": "offline", "message": OFFLINE_NOTICE}, **report}
    return {"model": {"status": "ok"}, **report}


def build_service(name: str, settings: Settings, variables: Mapping[str, str]) -> App:
    """The service of an agent of the catalogue, with the storage of the settings."""

    def configure() -> tuple[Settings, PlacedAgents]:
        new_variables = reread_environment()
        new_settings = Settings.from_variables(new_variables).model_copy(update={"server": settings.server})
        placed = place_single_agent(new_settings, new_variables, name, remote=False, slots=slots)
        slots.set_limits(new_settings.mcp.max_servers, new_settings.mcp.slot_wait)
        replace_exported_variables(new_variables)
        return new_settings, placed

    slots = ServerSlots(settings.mcp.max_servers, settings.mcp.slot_wait, lambda: storage.tool_server_slots)
    placed = place_single_agent(settings, variables, name, remote=False, slots=slots)
    warn_of_settings(placed, variables)
    storage = Storage.from_settings(settings.storage, settings.agent.home, f"agent-{name}")
    app = create_service(settings, placed=placed, router=OfflineModel(), storage=storage, configure=configure)
    app.greeting = lambda: [describe_model(settings.model), f"agent: {name}"]
    return app


def run_agent(name: str, overrides: Mapping[str, str | None]) -> None:
    """Starts the service, by default on another port than the supervisor."""
    try:
        port = overrides.get("A2A_PORT") or read_environment().get("A2A_PORT") or _DEFAULT_PORT
    except ConfigurationError as error:
        sys.exit(f"{error}")
    start_server({**overrides, "A2A_PORT": port}, partial(build_service, name))
