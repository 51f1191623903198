"""PlatformEngineerDeepAgent: definitions -> graph."""

from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph

from ai_platform_engineering.core.events import SUPERVISOR
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.delegation import Kept, SubAgent, delegation_tool
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
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
        router: BaseChatModel | None = None,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
    ) -> None:
        self._settings, self._tools, self._given_model, self._router = settings, tuple(tools), model, router
        # LangGraph Studio brings a checkpointer of its own.
        self._checkpointer = None if settings.agent.langgraph_dev else checkpointer
        self._prompts = PromptConfig.load(settings.agent.prompt_config)
        self._subagents = [self._subagent(agent) for agent in agents]
        self._built: tuple[object, Graph] | None = None

    @property
    def graph(self) -> Graph:
        """The supervisor's graph, built anew when what it knows of its agents has changed. Raises ConfigurationError."""
        offered = tuple((agent.name, agent.description) for agent in self._subagents)
        if self._built is None or self._built[0] != offered:
            self._built = offered, self._build()
        return self._built[1]

    def _build(self) -> Graph:
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
        return {SUPERVISOR: [tool.name for tool in self._tools], **{agent.name: list(agent.source.known) for agent in self._subagents}}

    @property
    def offline(self) -> bool:
        """No language model is configured: the embedded router answers, where there is one."""
        return self._given_model is None and self._settings.model.name is None

    def _model(self, name: str | None = None) -> BaseChatModel:
        if name is None and self._given_model is not None:
            return self._given_model
        if name is None and self.offline and self._router is not None:
            return self._router
        return chat_model(self._settings.model, name)

    def _delegation(self, agents: Sequence[SubAgent], *, planned: bool) -> list[BaseTool]:
        limit = self._settings.limits.recursion
        return [delegation_tool(agents, recursion_limit=limit, planned=planned)] if agents else []

    def _subagent(self, agent: LocalAgent) -> SubAgent:
        inner = [self._subagent(one) for one in agent.agents]

        async def build() -> Graph:
            tools = await agent.source.load()
            definition = agent.definition.model_copy(update={"prompt": self._agent_prompt(agent, tools)})
            model = agent.model or self._model(definition.model)
            return build_agent(definition, model, [*tools, *self._delegation(inner, planned=False)], common_middleware(self._settings))

        return SubAgent(agent.definition, agent.source, Kept(build, lambda: agent.source.revision))

    def _agent_prompt(self, agent: LocalAgent, tools: Sequence[BaseTool]) -> str:
        prompt = self._prompts.agent_prompts.get(agent.definition.name, agent.definition.prompt)
        if tools or not agent.source.problem:
            return prompt
        return f"{prompt}\n\nNone of your domain tools can be used now ({agent.source.problem}). Say so; answer nothing from memory."


AIPlatformEngineerMAS = PlatformEngineerDeepAgent
