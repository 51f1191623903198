"""The agent of a service: the same definition, tools and prompt as in-process, as the root of a graph."""

from typing import Any

from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.base import BaseCheckpointSaver

from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.graph.translator import GraphInfo
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import (
    AgentGraphFactory,
    ChatModels,
    Graph,
)
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.middleware.target_rule import TargetRule
from ai_platform_engineering.multi_agents.platform_engineer.prompts import PromptConfig
from ai_platform_engineering.runtime.log.run_log import RunLog


class ServedAgent:
    """The one agent of a service."""

    def __init__(
        self,
        settings: Settings,
        agent: LocalAgent,
        *,
        model: BaseChatModel | None = None,
        router: BaseChatModel | None = None,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        run_log: RunLog | None = None,
    ) -> None:
        self._settings = settings
        self._agent = agent
        self._models = ChatModels(settings, model, router)
        prompts = PromptConfig.load(settings.agent.prompt_config)
        graphs = AgentGraphFactory(settings, self._models, prompts, run_log, TargetRule(settings, run_log))
        self._graph = graphs.cached_graph(agent, checkpointer)

    @property
    def definition(self) -> AgentDefinition:
        return self._agent.definition

    async def graph(self, principal: str | None = None) -> Graph:
        return await self._graph(principal)

    async def list_starting_servers(self) -> tuple[str, ...]:
        return await self._agent.source.list_starting_servers()

    async def check_model(self) -> None:
        """Raises ConfigurationError when the agent's model cannot be used; starts no tool server."""
        if self._agent.model is None:
            await self._models.load(self._agent.definition.model)

    def preload(self) -> None:
        """Begins to load the agent's model."""
        if self._agent.model is None:
            self._models.preload(self._agent.definition.model)

    @property
    def graph_info(self) -> GraphInfo:
        return GraphInfo(agent=self._agent.definition.name)

    @property
    def read_only(self) -> bool:
        return self._settings.people.read_only

    @property
    def distributed_mode(self) -> bool:
        return False  # a service has no remote agents

    @property
    def recursion_limit(self) -> int:
        return self._settings.limits.recursion

    @property
    def offline(self) -> bool:
        has_own_model = self._agent.model is not None or self._agent.definition.model is not None
        return self._models.offline and not has_own_model

    @property
    def offline_notice(self) -> str:
        return self._models.offline_notice

    async def wait_until_ready(self) -> None:
        """Returns at once: building the graph waits for the tools."""

    def forget_run(self, run_id: str) -> None:
        """Does nothing: a service keeps no counts per run."""

    async def cancel_remote_task(self, agent: str, task_id: str) -> None:
        """Does nothing: a service has no remote agents."""

    @property
    def tools(self) -> tuple[str, ...]:
        return self._agent.source.tool_names

    @property
    def problem(self) -> str | None:
        return self._agent.source.problem
