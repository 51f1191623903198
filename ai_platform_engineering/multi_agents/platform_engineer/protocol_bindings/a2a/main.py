"""The composition root: settings -> agents -> graph -> runs -> ASGI application."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import (
    Settings,
    export_variables,
    read_environment,
    replace_exported_variables,
    reread_environment,
)
from ai_platform_engineering.knowledge_bases.knowledge_base_factory import create_knowledge_base
from ai_platform_engineering.knowledge_bases.rest_api import KnowledgeApi
from ai_platform_engineering.models.offline_model import OFFLINE_NOTICE, OfflineModel
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import Graph
from ai_platform_engineering.multi_agents.platform_engineer.deep_agent import PlatformEngineerDeepAgent
from ai_platform_engineering.multi_agents.platform_engineer.knowledge_source import (
    KnowledgeSource,
    OwnKnowledge,
    ServedKnowledge,
)
from ai_platform_engineering.multi_agents.platform_engineer.placement import (
    PlacedAgent,
    PlacedAgents,
    build_mcp_sessions,
    place_agents,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.cards import supervisor_card
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.server_lifecycle import (
    serving,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.startup import (
    reload_agent,
    say_agents,
    start_server,
)
from ai_platform_engineering.multi_agents.platform_engineer.reloadable_agent import (
    AgentDeployment,
    ReloadableAgent,
)
from ai_platform_engineering.runtime.facts import Facts
from ai_platform_engineering.runtime.server.app import App
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.authentication import check_exposure
from ai_platform_engineering.runtime.storage import Storage
from ai_platform_engineering.skills_middleware.api.skills_mount import build_skills_mount
from ai_platform_engineering.skills_middleware.catalog_factory import build_skill_catalog
from ai_platform_engineering.skills_middleware.mas_registry import set_mas_instance
from ai_platform_engineering.skills_middleware.skill_catalog import SkillCatalog
from ai_platform_engineering.workflows.workflow_catalog import load_workflows, render_workflows

Supervisors = ReloadableAgent[PlatformEngineerDeepAgent]

STORAGE_NAME = "supervisor"


def create_app(
    settings: Settings,
    *,
    agents: Sequence[PlacedAgent] = (),
    tools: Sequence[BaseTool] = (),
    model: BaseChatModel | None = None,
    router: BaseChatModel | None = None,
    placed: PlacedAgents | None = None,
    storage: Storage | None = None,
    configure: Callable[[], tuple[Settings, PlacedAgents]] | None = None,
    knowledge: KnowledgeSource | None = None,
    skills: SkillCatalog | None = None,
    routes: Sequence[BaseRoute] = (),
) -> App:
    """The supervisor as an application; tests and embedders hand in agents, tools and a model.

    `placed` is the agents of a catalogue with what is open for them, `router` answers when no model is configured, `storage` is where
    runs are kept (in memory otherwise), `configure` reads the configuration again, and `routes` are those of `knowledge` and the like.
    """
    check_exposure(settings.server)
    kept = storage or Storage.in_memory()
    facts = Facts(lambda: kept.store)

    def crew(settings: Settings, placed: PlacedAgents) -> AgentDeployment[PlatformEngineerDeepAgent]:
        given: dict[str, Any] = {
            "tools": tools,
            "model": model,
            "router": router,
            "checkpointer": kept.saver,
            "run_log": kept.log,
        }
        workflows = load_workflows(
            _workflow_files(settings), [agent.definition.name for agent in placed.agents]
        )
        given |= {
            "agents": placed.agents,
            "facts": facts,
            "workflows": workflows,
            "knowledge": knowledge,
            "skills": skills,
        }
        return AgentDeployment(PlatformEngineerDeepAgent(settings, **given), placed)

    current = ReloadableAgent(crew(settings, placed or PlacedAgents(agents)))

    async def ready() -> dict[str, dict[str, Any]]:
        known = knowledge.report() if knowledge is not None else None
        return {**await _readiness(current), **({"knowledge": known} if known else {})}

    async def tool_list(_: Request) -> Response:
        return AsciiJSONResponse({"tools": current.deployment.agent.tool_names()})

    async def workflow_list(_: Request) -> Response:
        return AsciiJSONResponse(render_workflows(current.deployment.agent.workflows))

    app = serving(
        settings,
        current,
        kept,
        card=lambda: supervisor_card(settings.server, current.deployment.placed),
        ready=ready,
        routes=[Route("/tools", tool_list), Route("/workflows", workflow_list), *routes],
        facts=facts,
        opening=[
            *([knowledge.start] if knowledge is not None else []),
            *([skills.open] if skills is not None else []),
        ],
        closing=[
            *([knowledge.aclose] if knowledge is not None else []),
            *([skills.close] if skills is not None else []),
        ],
    )
    guarded = settings.server.needs_key
    app.routes.append(
        build_skills_mount(
            skills, app.routes, read_only=lambda: current.deployment.agent.read_only, needs_key=guarded
        )
    )
    if configure is not None:
        app.reload = _reload(current, lambda: crew(*configure()))
    return app


def _workflow_files(settings: Settings) -> list[Path]:
    return [path for path in (settings.people.task_config, settings.people.workflows) if path is not None]


def _reload(
    current: Supervisors, make: Callable[[], AgentDeployment[PlatformEngineerDeepAgent]]
) -> Callable[[], Awaitable[None]]:
    async def reload() -> None:
        if await reload_agent(current, make):
            set_mas_instance(current.deployment.agent)
            say_agents(current.deployment.placed)

    return reload


async def _readiness(current: Supervisors) -> dict[str, dict[str, Any]]:
    mas, report = current.deployment.agent, current.deployment.placed.report()
    try:
        await mas.graph()
    except ConfigurationError as error:
        return {"model": {"status": "unavailable", "message": str(error)}, **report}
    if mas.offline:
        return {"model": {"status": "degraded", "name": "offline", "message": OFFLINE_NOTICE}, **report}
    return {"model": {"status": "ok", "name": mas.model_name}, **report}


def build_app(settings: Settings, variables: Mapping[str, str], *, storage: Storage | None = None) -> App:
    """The application with the agents of the catalogue, each where it is placed, and the storage of the settings."""

    def configure() -> tuple[Settings, PlacedAgents]:
        now = reread_environment()
        again = Settings.from_variables(now).model_copy(update={"server": settings.server})
        placed = place_agents(again, now)
        replace_exported_variables(now)  # what is wrong has been found by now
        return again, placed

    placed = place_agents(settings, variables)
    say_agents(placed)
    kept = storage or Storage.from_settings(settings.storage, settings.agent.home, STORAGE_NAME)
    known, routes = _knowledge(settings, variables)
    skills = build_skill_catalog(settings, variables) if settings.skills.enabled else None
    given: dict[str, Any] = {
        "placed": placed,
        "storage": kept,
        "knowledge": known,
        "routes": routes,
        "skills": skills,
    }
    return create_app(settings, router=OfflineModel(), configure=configure, **given)


def _knowledge(
    settings: Settings, variables: Mapping[str, str]
) -> tuple[KnowledgeSource | None, Sequence[BaseRoute]]:
    """The knowledge base of the settings: elsewhere, here with its REST routes, or none."""
    if settings.knowledge.enabled is False:
        return None, ()
    if settings.knowledge.server_url is not None:
        return ServedKnowledge(build_mcp_sessions(settings, variables), settings.knowledge), ()
    kb = create_knowledge_base(settings, variables)
    api = KnowledgeApi.from_settings(kb, settings.knowledge)
    return OwnKnowledge(
        kb, settings.knowledge, partial(api.open, settings.server, settings.agent.home)
    ), api.routes()


async def make_graph() -> Graph:
    """The supervisor's graph for LangGraph Studio (`langgraph.json`)."""
    variables = read_environment()
    export_variables(variables)
    settings = Settings.from_variables(variables)
    return await PlatformEngineerDeepAgent(
        settings, agents=place_agents(settings, variables).agents, router=OfflineModel()
    ).graph()


def main() -> None:
    """`platform-engineer` and `platform-engineer-single`: start the server."""
    run({})


def run(overrides: Mapping[str, str | None]) -> None:
    """Starts the supervisor; options of the command line win over the environment."""
    start_server(overrides, build_app)


def app() -> App:
    """The factory for other ASGI servers: `uvicorn --factory …main:app`."""
    variables = read_environment()
    export_variables(variables)
    return build_app(Settings.from_variables(variables), variables)
