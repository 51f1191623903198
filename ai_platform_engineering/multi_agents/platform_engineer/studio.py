"""The supervisor for LangGraph Studio: the graph factory and the application that `langgraph.json` names."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette

from ai_platform_engineering.core.environment import export_variables, read_environment
from ai_platform_engineering.core.process_protection import forbid_inspection
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.models.offline_model import OfflineModel
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import Graph
from ai_platform_engineering.multi_agents.platform_engineer.deep_agent import (
    PlatformEngineerDeepAgent,
    place_catalog,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import (
    build_knowledge,
    workflow_files,
)
from ai_platform_engineering.skills_middleware.catalog_factory import build_skill_catalog
from ai_platform_engineering.workflows.workflow_catalog import load_workflows


class StudioSupervisor:
    """The supervisor of a process of Studio, with its agents, its knowledge base and its skills.

    Studio asks its factory for the graph at each run and at each look at a thread: what is open stays open.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._supervisor: PlatformEngineerDeepAgent | None = None
        self._open_parts = contextlib.AsyncExitStack()

    async def graph(self) -> Graph:
        supervisor = await self.open()
        graph = await supervisor.graph()
        return graph.with_config(recursion_limit=supervisor.recursion_limit)

    async def open(self) -> PlatformEngineerDeepAgent:
        """Builds the supervisor at the first call. Raises ConfigurationError."""
        async with self._lock:
            if self._supervisor is None:
                async with contextlib.AsyncExitStack() as parts:
                    self._supervisor = await _build_supervisor(parts)
                    self._open_parts = parts.pop_all()
            return self._supervisor

    async def aclose(self) -> None:
        async with self._lock:
            self._supervisor = None
            await self._open_parts.aclose()


async def _build_supervisor(parts: contextlib.AsyncExitStack) -> PlatformEngineerDeepAgent:
    """`parts` closes what the supervisor uses."""
    # In threads: Studio refuses calls that block its event loop, and these read files and make folders.
    variables = await asyncio.to_thread(_read_variables)
    settings = await asyncio.to_thread(Settings.from_variables, variables)
    placed = await asyncio.to_thread(place_catalog, settings, variables)
    parts.push_async_callback(placed.aclose)
    agent_names = [agent.definition.name for agent in placed.agents]
    workflows = await asyncio.to_thread(load_workflows, workflow_files(settings), agent_names)
    knowledge, _ = await asyncio.to_thread(build_knowledge, settings, variables, served=False)
    if knowledge is not None:
        parts.push_async_callback(knowledge.aclose)
        await knowledge.start()
    skills = None
    if settings.skills.enabled:
        skills = await asyncio.to_thread(build_skill_catalog, settings, variables)
        parts.push_async_callback(skills.close)
        await skills.open()
    supervisor = PlatformEngineerDeepAgent(
        settings,
        placed=placed,
        router=OfflineModel(),
        workflows=workflows,
        knowledge=knowledge,
        skills=skills,
    )
    await placed.registry.start(checks=supervisor.distributed_mode)
    # Studio has no readiness and hides the errors of a run: what it serves is complete, and was built once.
    await supervisor.wait_until_ready()
    await supervisor.graph()
    return supervisor


def _read_variables() -> dict[str, str]:
    """The variables in force, with LANGGRAPH_DEV: this is Studio, whether somebody has set it or not."""
    forbid_inspection()
    variables = read_environment()
    export_variables(variables)
    return {**variables, "LANGGRAPH_DEV": "true"}


_studio = StudioSupervisor()


async def make_graph() -> Graph:
    """The supervisor's graph."""
    return await _studio.graph()


@contextlib.asynccontextmanager
async def _lifespan(_: Starlette) -> AsyncIterator[None]:
    """Opens the supervisor with Studio's server and closes it with it."""
    try:
        await _studio.open()
        yield
    finally:
        await _studio.aclose()


app = Starlette(lifespan=_lifespan)
