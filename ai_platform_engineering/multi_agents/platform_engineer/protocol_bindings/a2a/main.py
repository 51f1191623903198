"""The composition root: settings -> agents -> graph -> runs -> ASGI application."""

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.agents.catalog import Catalog, load_catalog
from ai_platform_engineering.agents.commands import with_commands
from ai_platform_engineering.core.errors import CaipeError, ConfigurationError
from ai_platform_engineering.core.settings import ServerSettings, Settings, environment, export
from ai_platform_engineering.multi_agents.platform_engineer.deep_agent import Graph, PlatformEngineerDeepAgent
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent, McpTools
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent import AIPlatformEngineerA2ABinding
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent_executor import AIPlatformEngineerA2AExecutor
from ai_platform_engineering.runtime.app import App, a2a_app, listen, serve
from ai_platform_engineering.runtime.ascii_json import AsciiJSON
from ai_platform_engineering.runtime.memory_log import MemoryLog
from ai_platform_engineering.runtime.security import check_exposure
from ai_platform_engineering.utils.mcp.sessions import McpSessions
from ai_platform_engineering.utils.offline_model import OFFLINE_NOTICE, OfflineModel

log = logging.getLogger(__name__)

_DISTRIBUTION = "ai-platform-engineering"


def create_app(
    settings: Settings,
    *,
    agents: Sequence[LocalAgent] = (),
    tools: Sequence[BaseTool] = (),
    model: BaseChatModel | None = None,
    router: BaseChatModel | None = None,
    report: Callable[[], Mapping[str, dict[str, Any]]] = dict,
    closing: Sequence[Callable[[], Awaitable[None]]] = (),
) -> App:
    """The supervisor as an application; tests and embedders hand in agents, tools and a model.

    `router` answers when no model is configured, `report` says how other components are, `closing` ends what was opened for the agents.
    """
    check_exposure(settings.server)
    mas = PlatformEngineerDeepAgent(settings, agents=agents, tools=tools, model=model, router=router, checkpointer=InMemorySaver())
    executor = AIPlatformEngineerA2AExecutor(AIPlatformEngineerA2ABinding(mas), MemoryLog(), settings)

    async def ready() -> dict[str, dict[str, Any]]:
        try:
            _ = mas.graph
        except ConfigurationError as error:
            return {"model": {"status": "unavailable", "message": str(error)}, **report()}
        if mas.offline:
            return {"model": {"status": "degraded", "name": "offline", "message": OFFLINE_NOTICE}, **report()}
        return {"model": {"status": "ok", "name": settings.model.name or type(model).__name__}, **report()}

    async def tool_list(_: Request) -> Response:
        return AsciiJSON({"tools": mas.tool_names()})

    card = agent_card(settings.server, mas)
    return a2a_app(settings.server, card, executor.runs, ready=ready, routes=[Route("/tools", tool_list)], closing=closing)


def build_app(settings: Settings, variables: Mapping[str, str]) -> App:
    """The application with the agents of the catalogue and their tool servers."""
    catalog = load_catalog(variables, agents_config=settings.agent.definitions)
    sessions = _sessions(settings, variables)
    agents = _local_agents(settings, catalog, sessions)
    table = "".join(f"\n  {row.name:12} {row.status.replace('_', ' '):15} {row.note}".rstrip() for row in catalog.report())
    log.info("agents:%s", table)

    def report() -> Mapping[str, dict[str, Any]]:
        found = {f"agent {row.name}": {"status": row.status, "message": row.note} for row in catalog.report() if row.status != "disabled"}
        broken = {agent.definition.name: agent.source.problem for agent in agents if agent.source.problem}
        return found | {f"agent {name}": {"status": "degraded", "message": problem} for name, problem in broken.items()}

    return create_app(settings, agents=agents, router=OfflineModel(), report=report, closing=[sessions.aclose])


def make_graph() -> Graph:
    """The supervisor's graph for LangGraph Studio (`langgraph.json`)."""
    variables = environment()
    export(variables)
    settings = Settings.of(variables)
    catalog = load_catalog(variables, agents_config=settings.agent.definitions)
    agents = _local_agents(settings, catalog, _sessions(settings, variables))
    return PlatformEngineerDeepAgent(settings, agents=agents, router=OfflineModel()).graph


def _sessions(settings: Settings, variables: Mapping[str, str]) -> McpSessions:
    return McpSessions(
        connect_timeout=settings.mcp.connect_timeout,
        call_timeout=settings.mcp.call_timeout,
        cache_dir=settings.agent.home / "cache" / "mcp",
        environment=variables,
    )


def _local_agents(settings: Settings, catalog: Catalog, sessions: McpSessions) -> list[LocalAgent]:
    for definition in catalog.ready:
        if not definition.mcp_servers:
            log.warning("agent %s has no MCP servers and is not offered: this version does not reach agents by their url", definition.name)
    definitions = [with_commands(definition, settings.agent.home) for definition in catalog.ready if definition.mcp_servers]
    return [LocalAgent(definition, McpTools(sessions, definition)) for definition in definitions]


def agent_card(settings: ServerSettings, mas: PlatformEngineerDeepAgent) -> AgentCard:
    skill = AgentSkill(
        id="ai_platform_engineer",
        name="Platform engineering",
        description="Plans platform-engineering requests, delegates them to domain agents and answers.",
        tags=[agent.name for agent in mas.agents] or ["platform-engineering"],
        examples=["Which version is Argo CD?"],
    )
    card = AgentCard(
        name=settings.name,
        description="A multi-agent supervisor for platform engineering.",
        version=version(_DISTRIBUTION),
        supported_interfaces=[
            AgentInterface(url=settings.url, protocol_binding="JSONRPC", protocol_version=number) for number in ("1.0", "0.3.0")
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[skill],
    )
    if settings.shared_key:
        card.security_schemes["bearer"].CopyFrom(SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer")))
        card.security_requirements.append(SecurityRequirement(schemes={"bearer": StringList()}))
    return card


def main() -> None:
    """`platform-engineer` and `platform-engineer-single`: start the server."""
    run({})


def run(overrides: Mapping[str, str | None]) -> None:
    """Starts the server; options of the command line win over the environment."""
    try:
        variables = environment()
        export(variables)
        settings = Settings.of({**variables, **{name: value for name, value in overrides.items() if value is not None}})
        logging.basicConfig(level=settings.logging.level, format="%(asctime)s %(levelname)s %(module)s: %(message)s")
        logging.getLogger("a2a").setLevel(max(logging.INFO, logging.getLogger().level))  # at DEBUG it would log whole requests
        check_exposure(settings.server)
        listener = listen(settings.server)
        server = settings.server.model_copy(update={"port": listener.getsockname()[1]})
        app = build_app(settings.model_copy(update={"server": server}), variables)
    except CaipeError as error:
        sys.exit(f"{error}")
    log.info("serving on %s", server.url)
    if settings.model.name is None:
        log.warning(OFFLINE_NOTICE)
    serve(app, listener, settings.logging.level)


def app() -> App:
    """The factory for other ASGI servers: `uvicorn --factory …main:app`."""
    variables = environment()
    export(variables)
    return build_app(Settings.of(variables), variables)
