"""One agent as the root of its own graph: the same definition, tools and prompt that a supervisor would run in its process."""

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
from ai_platform_engineering.multi_agents.platform_engineer.prompts import PromptConfig
from ai_platform_engineering.runtime.log.run_log import RunLog


class ServedAgent:
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
        graphs = AgentGraphFactory(
            settings, self._models, PromptConfig.load(settings.agent.prompt_config), run_log
        )
        self._kept = graphs.cached_graph(agent, checkpointer)

    @property
    def definition(self) -> AgentDefinition:
        return self._agent.definition

    async def graph(self) -> Graph:
        return await self._kept()

    def check_model(self) -> None:
        """Raises ConfigurationError when the agent's model cannot be used; starts no tool server."""
        if self._agent.model is None:
            self._models(self._agent.definition.model)

    @property
    def shape(self) -> GraphInfo:
        return GraphInfo(agent=self._agent.definition.name)

    @property
    def recursion_limit(self) -> int:
        return self._settings.limits.recursion

    @property
    def offline(self) -> bool:
        return self._models.offline and self._agent.model is None and self._agent.definition.model is None

    async def wait_until_ready(self) -> None:
        """Tools are waited for when the graph is built."""

    def forget_run(self, run_id: str) -> None:
        """Nothing is counted for runs here."""

    async def cancel_remote_task(self, agent: str, task_id: str) -> None:
        """A service has no agents elsewhere."""

    @property
    def tools(self) -> tuple[str, ...]:
        return self._agent.source.known

    @property
    def problem(self) -> str | None:
        return self._agent.source.problem
