"""The composition root of the supervisor: settings -> agents -> graph -> runs -> ASGI application."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from ai_platform_engineering.core.env_files import EnvFiles
from ai_platform_engineering.core.environment import (
    export_variables,
    read_dotenv_files,
    read_environment,
    replace_exported_variables,
    reread_environment,
)
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.failure_text import describe_failure
from ai_platform_engineering.core.process_protection import forbid_inspection
from ai_platform_engineering.core.redaction import mask_urls
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.terminals import command_name
from ai_platform_engineering.knowledge_bases.knowledge_base_factory import create_knowledge_base
from ai_platform_engineering.knowledge_bases.rest_api import KnowledgeApi
from ai_platform_engineering.mcp_client.server_slots import ServerSlots, SlotStore
from ai_platform_engineering.models.offline_model import OfflineModel
from ai_platform_engineering.multi_agents.platform_engineer.deep_agent import (
    PlatformEngineerDeepAgent,
    place_catalog,
)
from ai_platform_engineering.multi_agents.platform_engineer.knowledge_source import (
    InProcessKnowledge,
    KnowledgeSource,
    RemoteKnowledge,
)
from ai_platform_engineering.multi_agents.platform_engineer.placement import (
    PlacedAgent,
    PlacedAgents,
    build_mcp_sessions,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.cards import supervisor_card
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.installation_api import (
    InstallationApi,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.login_api import LoginApi
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.server_lifecycle import (
    build_server_app,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.startup import (
    describe_agents,
    describe_model,
    log_agents,
    reload_agent,
    start_server,
    warn_of_settings,
)
from ai_platform_engineering.multi_agents.platform_engineer.reloadable_agent import (
    AgentDeployment,
    ReloadableAgent,
)
from ai_platform_engineering.runtime.facts import Facts
from ai_platform_engineering.runtime.server.app import App
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.authentication import check_exposure
from ai_platform_engineering.runtime.server.failed_app import FailedApp
from ai_platform_engineering.runtime.storage import STORAGE_NAME, Storage
from ai_platform_engineering.skills_middleware.api.skills_mount import build_skills_mount
from ai_platform_engineering.skills_middleware.catalog_factory import build_skill_catalog
from ai_platform_engineering.skills_middleware.mas_registry import set_mas_instance
from ai_platform_engineering.skills_middleware.skill_catalog import SkillCatalog
from ai_platform_engineering.web.page import Page
from ai_platform_engineering.workflows.workflow_catalog import load_workflows, render_workflows

log = logging.getLogger(__name__)

ReloadableSupervisor = ReloadableAgent[PlatformEngineerDeepAgent]

_LOADING = "Its package is loading; questions wait for it."


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
    env_files: Callable[[], EnvFiles] = EnvFiles,
) -> App:
    """The supervisor as an application; tests and embedders pass agents, tools and a model.

    `placed` is the agents of a catalogue with what is open for them, `router` answers when no model is
    configured, `storage` stores runs (in memory by default), `configure` reads the configuration again for a
    reload, `routes` are added to the server's own, and `env_files` returns the files of the configuration.
    """
    check_exposure(settings.server)
    run_storage = storage or Storage.in_memory()
    facts = Facts(lambda: run_storage.store)

    def deploy(settings: Settings, placed: PlacedAgents) -> AgentDeployment[PlatformEngineerDeepAgent]:
        agent_names = [agent.definition.name for agent in placed.agents]
        supervisor = PlatformEngineerDeepAgent(
            settings,
            placed=placed,
            tools=tools,
            model=model,
            router=router,
            checkpointer=run_storage.saver,
            run_log=run_storage.log,
            facts=facts,
            workflows=load_workflows(workflow_files(settings), agent_names),
            knowledge=knowledge,
            skills=skills,
        )
        return AgentDeployment(supervisor, placed)

    reloadable = ReloadableAgent(deploy(settings, placed or PlacedAgents(agents)))

    async def ready() -> dict[str, dict[str, Any]]:
        report = await _report_readiness(reloadable)
        knowledge_report = knowledge.report() if knowledge is not None else None
        if knowledge_report:
            report["knowledge"] = knowledge_report
        return report

    on_startup: list[Callable[[], Awaitable[None]]] = []
    on_shutdown: list[Callable[[], Awaitable[None]]] = []
    if knowledge is not None:
        on_startup.append(knowledge.start)
        on_shutdown.append(knowledge.aclose)
    if skills is not None:
        on_startup.append(skills.open)
        on_shutdown.append(skills.close)
    app = build_server_app(
        settings,
        reloadable,
        run_storage,
        card=lambda: supervisor_card(
            settings.server, reloadable.deployment.placed, push=settings.push.enabled
        ),
        ready=ready,
        routes=[
            *_catalog_routes(reloadable),
            *InstallationApi(reloadable, ready, knowledge, env_files).routes(),
            *LoginApi(lambda: reloadable.deployment.placed, settings.server).routes(),
            *routes,
        ],
        facts=facts,
        prebuild_graph=True,
        serves_page=True,
        on_startup=on_startup,
        on_shutdown=on_shutdown,
    )
    app.routes.extend(Page().routes())  # behind the API, and before what takes every other path
    skills_mount = build_skills_mount(
        skills,
        app.routes,
        read_only=lambda: reloadable.deployment.agent.read_only,
        needs_key=settings.server.needs_key,
    )
    app.routes.append(skills_mount)
    if configure is not None:
        app.reload = _build_reload(reloadable, lambda: deploy(*configure()), settings.agent.home)
    return app


def _catalog_routes(reloadable: ReloadableSupervisor) -> list[Route]:
    """The tools and the workflows of the supervisor that serves now."""

    async def list_tools(_: Request) -> Response:
        return AsciiJSONResponse({"tools": await reloadable.deployment.agent.tool_names()})

    async def list_workflows(_: Request) -> Response:
        return AsciiJSONResponse(render_workflows(reloadable.deployment.agent.workflows))

    return [Route("/tools", list_tools), Route("/workflows", list_workflows)]


def workflow_files(settings: Settings) -> list[Path]:
    return [path for path in (settings.people.task_config, settings.people.workflows) if path is not None]


def _build_reload(
    reloadable: ReloadableSupervisor,
    build: Callable[[], AgentDeployment[PlatformEngineerDeepAgent]],
    home: Path,
) -> Callable[[], Awaitable[None]]:
    async def reload() -> None:
        if await reload_agent(reloadable, build):
            set_mas_instance(reloadable.deployment.agent)
            for line in describe_agents(reloadable.deployment.placed, home):
                log.info("%s", line)

    return reload


async def _report_readiness(reloadable: ReloadableSupervisor) -> dict[str, dict[str, Any]]:
    supervisor = reloadable.deployment.agent
    report = reloadable.deployment.placed.report()
    if await supervisor.is_loading():
        return {"model": {"status": "ok", "name": supervisor.model_name, "message": _LOADING}, **report}
    try:
        await supervisor.graph()
    except ConfigurationError as error:
        return {"model": {"status": "unavailable", "message": str(error)}, **report}
    if supervisor.offline:
        return {
            "model": {"status": "degraded", "name": "offline", "message": supervisor.offline_notice},
            **report,
        }
    return {"model": {"status": "ok", "name": supervisor.model_name}, **report}


def build_app(
    settings: Settings,
    variables: Mapping[str, str],
    *,
    storage: Storage | None = None,
    router: OfflineModel | None = None,
) -> App:
    """The application with the placed agents of the catalogue, and the storage of the settings.

    `router`: what answers when no model is configured, in place of the embedded router.
    """

    env_files = read_dotenv_files()

    def configure() -> tuple[Settings, PlacedAgents]:
        nonlocal env_files
        new_variables = reread_environment()
        new_settings = Settings.from_variables(new_variables).model_copy(update={"server": settings.server})
        placed = place_catalog(new_settings, new_variables, slots)
        slots.set_limits(new_settings.mcp.max_servers, new_settings.mcp.slot_wait)
        replace_exported_variables(new_variables)  # only now: the new configuration is valid
        env_files = read_dotenv_files()
        return new_settings, placed

    def find_slots() -> SlotStore | None:
        return None if storage is None else storage.tool_server_slots

    slots = ServerSlots(settings.mcp.max_servers, settings.mcp.slot_wait, find_slots)
    placed = place_catalog(settings, variables, slots)
    log_agents(placed)
    warn_of_settings(placed, variables)
    if storage is None:
        storage = Storage.from_settings(settings.storage, settings.agent.home, STORAGE_NAME)
    knowledge, routes = build_knowledge(settings, variables)
    skills = build_skill_catalog(settings, variables) if settings.skills.enabled else None
    app = create_app(
        settings,
        router=router or OfflineModel(),
        placed=placed,
        storage=storage,
        configure=configure,
        knowledge=knowledge,
        skills=skills,
        routes=routes,
        env_files=lambda: env_files,
    )
    page = mask_urls(settings.server.url)
    app.greeting = lambda: [
        describe_model(settings.model),
        *describe_agents(placed, settings.agent.home),
        f'to try it: open {page} in a browser, or: {command_name()} ask "what can you do?"',
    ]
    return app


def build_knowledge(
    settings: Settings, variables: Mapping[str, str], *, served: bool = True
) -> tuple[KnowledgeSource | None, Sequence[BaseRoute]]:
    """The knowledge base of the settings and its REST routes: remote, in this process, or none.

    `served`: this process serves the routes, and commands on this machine are told so.
    """
    if settings.knowledge.enabled is False:
        return None, ()
    if settings.knowledge.server_url is not None:
        return RemoteKnowledge(build_mcp_sessions(settings, variables), settings.knowledge), ()
    kb = create_knowledge_base(settings, variables)
    if not served:
        return InProcessKnowledge(kb, settings.knowledge), ()
    api = KnowledgeApi.from_settings(kb, settings.knowledge, settings.agent.home)
    open_base = partial(api.open, settings.server, settings.agent.home)
    required = settings.storage.required and settings.knowledge.database_url is not None
    return InProcessKnowledge(kb, settings.knowledge, open_base, required=required), api.routes()


def main() -> None:
    """`platform-engineer` and `platform-engineer-single`: start the server."""
    run({})


def run(overrides: Mapping[str, str | None]) -> None:
    """Starts the supervisor; options of the command line win over the environment."""
    start_server(overrides, build_app, is_supervisor=True)


def app() -> ASGIApp:
    """The factory for other ASGI servers: `uvicorn --factory …main:app`.

    What is known to fail is told when the server starts the application, in a sentence."""
    forbid_inspection()
    try:
        variables = read_environment()
        export_variables(variables)
        return build_app(Settings.from_variables(variables), variables)
    except Exception as error:
        failure = describe_failure(error)
        if failure is None:
            raise
        return FailedApp(failure.message)
