"""PlatformEngineerDeepAgent: definitions -> graph."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph

from ai_platform_engineering.core.agents import AgentDefinition
from ai_platform_engineering.core.events import SUPERVISOR
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.delegation import SubAgent, delegation_tool
from ai_platform_engineering.multi_agents.platform_engineer.middleware.answer import AlwaysAnswer
from ai_platform_engineering.multi_agents.platform_engineer.middleware.context import ContextWindow
from ai_platform_engineering.multi_agents.platform_engineer.middleware.limits import CallLimits
from ai_platform_engineering.multi_agents.platform_engineer.middleware.retry import RetryModel
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tools import ToolResults
from ai_platform_engineering.multi_agents.platform_engineer.plan import Planning
from ai_platform_engineering.multi_agents.platform_engineer.prompts import PromptConfig, supervisor_prompt
from ai_platform_engineering.multi_agents.platform_engineer.repair import RepairToolCalls
from ai_platform_engineering.multi_agents.platform_engineer.response import PlatformEngineerResponse
from ai_platform_engineering.utils.a2a_common.base_langgraph_agent import build_agent
from ai_platform_engineering.utils.llm import chat_model
from ai_platform_engineering.utils.translate import Shape

Graph = CompiledStateGraph[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class LocalAgent:
    """An agent that runs in this process: its definition, its tools, its model if not the common one, and its own sub-agents."""

    definition: AgentDefinition
    tools: tuple[BaseTool, ...] = ()
    model: BaseChatModel | None = None
    agents: "tuple[LocalAgent, ...]" = ()


def common_middleware(settings: Settings) -> list[AgentMiddleware[Any, Any, Any]]:
    """What the supervisor and every sub-agent have; LangChain does not hand it down by itself. Outermost first."""
    return [
        RepairToolCalls(),
        CallLimits(settings.limits),
        AlwaysAnswer(),
        ContextWindow(settings.model.context_tokens),
        RetryModel(settings.model),
        ToolResults(settings.limits.tool_output_chars),
    ]


class PlatformEngineerDeepAgent:
    """The supervisor: plans, delegates through `task()`, and answers."""

    def __init__(
        self,
        settings: Settings,
        *,
        agents: Sequence[LocalAgent] = (),
        tools: Sequence[BaseTool] = (),
        model: BaseChatModel | None = None,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
    ) -> None:
        self._settings, self._tools, self._given_model = settings, tuple(tools), model
        # LangGraph Studio brings a checkpointer of its own.
        self._checkpointer = None if settings.agent.langgraph_dev else checkpointer
        self._prompts = PromptConfig.load(settings.agent.prompt_config)
        self._subagents = [self._subagent(agent) for agent in agents]

    @cached_property
    def graph(self) -> Graph:
        """The supervisor's graph. Raises ModelNotConfigured, so that a server without a model starts and says what is missing."""
        structured = self._settings.agent.structured_response
        return create_agent(
            self._model(),
            tools=[*self._tools, *self._delegation(self._subagents, planned=True)],
            system_prompt=supervisor_prompt(self._prompts, self._subagents, structured=structured),
            middleware=[Planning(), *common_middleware(self._settings)],
            response_format=ToolStrategy(PlatformEngineerResponse) if structured else None,
            checkpointer=self._checkpointer,
            name=SUPERVISOR,
        )

    @property
    def shape(self) -> Shape:
        knowledge = frozenset(tool.name for tool in self._tools if (tool.metadata or {}).get("knowledge"))
        answer_tool = PlatformEngineerResponse.__name__ if self._settings.agent.structured_response else None
        return Shape(answer_tool=answer_tool, knowledge_tools=knowledge)

    @property
    def recursion_limit(self) -> int:
        return self._settings.limits.recursion

    @property
    def agents(self) -> Sequence[SubAgent]:
        return self._subagents

    def tool_names(self) -> dict[str, list[str]]:
        """Every agent with the names of its tools."""
        return {SUPERVISOR: [tool.name for tool in self._tools], **{agent.name: list(agent.tools) for agent in self._subagents}}

    def _model(self, name: str | None = None) -> BaseChatModel:
        return self._given_model if self._given_model and name is None else chat_model(self._settings.model, name)

    def _delegation(self, agents: Sequence[SubAgent], *, planned: bool) -> list[BaseTool]:
        limit = self._settings.limits.recursion
        return [delegation_tool(agents, recursion_limit=limit, planned=planned)] if agents else []

    def _subagent(self, agent: LocalAgent) -> SubAgent:
        definition = agent.definition
        inner = [self._subagent(one) for one in agent.agents]
        prompt = self._prompts.agent_prompts.get(definition.name, definition.prompt)

        def build() -> Graph:
            model = agent.model or self._model(definition.model)
            tools = [*agent.tools, *self._delegation(inner, planned=False)]
            return build_agent(definition.model_copy(update={"prompt": prompt}), model, tools, common_middleware(self._settings))

        return SubAgent(definition.name, definition.description, _once(build), tuple(tool.name for tool in agent.tools))


AIPlatformEngineerMAS = PlatformEngineerDeepAgent


def _once(build: Callable[[], Graph]) -> Callable[[], Awaitable[Runnable[Any, Any]]]:
    """Builds on the first call and keeps what was built; a failed attempt is not kept."""
    built: list[Graph] = []

    async def get() -> Runnable[Any, Any]:
        if not built:
            built.append(build())
        return built[0]

    return get


def make_graph() -> Graph:
    """The graph for LangGraph Studio (`langgraph.json`)."""
    return PlatformEngineerDeepAgent(Settings.load()).graph
