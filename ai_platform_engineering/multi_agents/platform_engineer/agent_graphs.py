"""Graphs of in-process agents: the supervisor's sub-agents, and the one agent of a service."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_stream_writer
from langgraph.graph.state import CompiledStateGraph

from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.errors import EmptyAnswer
from ai_platform_engineering.core.message_metadata import (
    DirectCallNote,
    budget_metadata,
    scope_metadata,
    untrusted_metadata,
)
from ai_platform_engineering.core.run_budget import RunBudget
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.run_scope import RunScope
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.signals import NoticeEmitted
from ai_platform_engineering.core.tool_traits import server_of
from ai_platform_engineering.core.untrusted_content import UntrustedContent
from ai_platform_engineering.graph.visible_text import visible_text
from ai_platform_engineering.mcp_client.server_state import describe_start
from ai_platform_engineering.models.model_loader import ModelLoader
from ai_platform_engineering.models.offline_model import OFFLINE_NOTICE, OfflineModel
from ai_platform_engineering.multi_agents.platform_engineer.delegation import (
    Delegation,
    DelegationResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.middleware.composition import (
    compose_middlewares,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.stack import (
    ToolCallStore,
    build_agent_stack,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.target_rule import TargetRule
from ai_platform_engineering.multi_agents.platform_engineer.prompts import UNTRUSTED_RESULTS, PromptConfig
from ai_platform_engineering.multi_agents.platform_engineer.run_usage import count_usage
from ai_platform_engineering.multi_agents.platform_engineer.tool_catalog import ToolCatalog
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import current_turn
from ai_platform_engineering.utils.a2a_common.base_langgraph_agent import build_agent, default_prompt

Graph = CompiledStateGraph[Any, Any, Any, Any]

_MAX_TOOLS_NAMED = 40
_MEMORY_KEYS = ("messages", "memories", "summary")  # of an agent's state, from one delegation to the next
_NO_TOOLS = "None of your domain tools can be used now ({problem}). Say so; answer nothing from memory."


def describe_agent(
    definition: AgentDefinition, problem: str | None, tools: Sequence[str], skills: Sequence[str] = ()
) -> str:
    """The description of an agent for the supervisor's model, the same in every placement.

    `skills`: what an agent that is not ours says it can do, by name.
    """
    parts = [" ".join(definition.description.split())]
    if problem:
        parts.append(f"({problem})")
    if tools:
        parts.append(f"Tools: {', '.join(tools[:_MAX_TOOLS_NAMED])}.")
    if skills:
        parts.append(f"Skills: {', '.join(skills)}.")
    if definition.examples:
        parts.append(f"Examples: {' | '.join(definition.examples)}")
    return " ".join(parts)


class CachedGraph:
    """A graph that is built when it is first needed, and again when its revision has changed.

    Failures are not cached.
    """

    def __init__(
        self, build: Callable[[str | None], Awaitable[Graph]], revision: Callable[[], object]
    ) -> None:
        """`build` takes the person for whom the graph is first needed: tools may be listed with a login."""
        self._build = build
        self._revision = revision
        self._graph: Graph | None = None
        self._graph_revision: object = None
        self._lock = asyncio.Lock()

    async def __call__(self, principal: str | None = None) -> Graph:
        async with self._lock:
            if self._graph is None or self._graph_revision != self._revision():
                self._graph = await self._build(principal)
                self._graph_revision = self._revision()
            return self._graph


class ChatModels:
    """Chooses the chat model of an agent: a fixed one, the configured one, or the embedded router."""

    def __init__(
        self,
        settings: Settings,
        fixed_model: BaseChatModel | None = None,
        router: BaseChatModel | None = None,
    ) -> None:
        self._settings = settings
        self._fixed_model = fixed_model
        self._router = router
        self._loader = ModelLoader(settings.model)

    @property
    def offline(self) -> bool:
        """No language model is configured: the embedded router answers, where there is one."""
        return self._fixed_model is None and self._settings.model.name is None

    @property
    def offline_notice(self) -> str:
        """What people are told of the embedded router."""
        return self._router.notice if isinstance(self._router, OfflineModel) else OFFLINE_NOTICE

    @property
    def name(self) -> str:
        return self._settings.model.name or type(self._fixed_model).__name__

    def __call__(self, name: str | None = None) -> BaseChatModel:
        """The model of that name, or the default one. Raises ConfigurationError."""
        if name is None and self._fixed_model is not None:
            return self._fixed_model
        if name is None and self.offline and self._router is not None:
            return self._router
        return self._loader.get(name)

    async def load(self, name: str | None = None) -> BaseChatModel:
        """As a call, without stopping the event loop. Raises ConfigurationError."""
        if name is None and not self._is_loaded_by_us:
            return self(name)
        return await self._loader.load(name)

    def preload(self, name: str | None = None) -> None:
        """Begins to load the model of that name, or the default one."""
        if name is not None or self._is_loaded_by_us:
            self._loader.start(name)

    async def is_loading(self) -> bool:
        """Whether the default model is being loaded, and will be for longer than a moment."""
        return await self._loader.is_loading()

    @property
    def _is_loaded_by_us(self) -> bool:
        return self._fixed_model is None and self._settings.model.name is not None


@dataclass(frozen=True, slots=True)
class AgentGraphFactory:
    """Builds the graphs of in-process agents from their definitions, tools and prompts."""

    settings: Settings
    models: ChatModels
    prompts: PromptConfig
    store: ToolCallStore | None = None
    target_rule: TargetRule | None = None

    def build_subagent(self, agent: LocalAgent) -> "LocalSubAgent":
        return LocalSubAgent(agent, self.cached_graph(agent), self.settings.limits.recursion)

    def cached_graph(
        self, agent: LocalAgent, checkpointer: BaseCheckpointSaver[Any] | None = None
    ) -> CachedGraph:
        """The agent's graph, rebuilt when its tools have changed."""
        subagents = [self.build_subagent(subagent) for subagent in agent.agents]

        async def build(principal: str | None) -> Graph:
            tools = await agent.source.load(principal)
            definition = agent.definition.model_copy(update={"prompt": self._build_prompt(agent, tools)})
            model = agent.model or await self.models.load(definition.model)
            has_own_model = agent.model is not None or definition.model is not None
            max_chars = self.settings.limits.tool_schema_chars // 2
            catalog = await asyncio.to_thread(ToolCatalog.build, tools, max_chars)
            stack = build_agent_stack(
                self.settings,
                definition.name,
                subagents,
                self.store,
                has_model=has_own_model or not self.models.offline,
                denied=agent.source.denied,
                servers=_list_servers(tools),
                target_rule=self.target_rule,
                notice=agent.source.notice,
                catalog=catalog,
            )
            middleware = compose_middlewares(stack)
            return build_agent(definition, model, tools, middleware, checkpointer=checkpointer)

        return CachedGraph(build, lambda: agent.source.revision)

    def _build_prompt(self, agent: LocalAgent, tools: Sequence[BaseTool]) -> str:
        definition = agent.definition
        prompt = self.prompts.agent_prompts.get(definition.name, definition.prompt)
        prompt = f"{prompt or default_prompt(definition)}\n\n{UNTRUSTED_RESULTS}"
        if tools or not agent.source.problem:
            return prompt
        return f"{prompt}\n\n{_NO_TOOLS.format(problem=agent.source.problem)}"


class LocalSubAgent:
    """A sub-agent whose graph runs inside the supervisor's; its memory is part of the supervisor's state."""

    def __init__(self, agent: LocalAgent, graph: CachedGraph, recursion_limit: int) -> None:
        self._agent = agent
        self._graph = graph
        self._recursion_limit = recursion_limit

    @property
    def name(self) -> str:
        return self._agent.definition.name

    @property
    def tools(self) -> tuple[str, ...]:
        return self._agent.source.tool_names

    @property
    def problem(self) -> str | None:
        return self._agent.source.problem

    @property
    def description(self) -> str:
        problem = f"Its tools are unavailable now: {self.problem}." if self.problem else None
        return describe_agent(self._agent.definition, problem, self.tools)

    @property
    def runnable(self) -> Runnable[Any, Any]:
        async def run(state: Any, config: RunnableConfig) -> Any:
            graph = await self._graph(RunContext.from_config(config).principal)
            return await graph.ainvoke(state, config)

        return RunnableLambda(run, name=self.name)

    async def run_delegation(self, delegation: Delegation, config: RunnableConfig) -> DelegationResult:
        for server in await self._agent.source.list_starting_servers():
            get_stream_writer()(NoticeEmitted("info", describe_start(server), delegation.call_id))
        graph = await self._graph(RunContext.from_config(config).principal)
        return await delegate_to_graph(graph, delegation, self._recursion_limit)


async def delegate_to_graph(
    graph: Runnable[Any, Any], delegation: Delegation, recursion_limit: int
) -> DelegationResult:
    """Asks a graph that takes and returns messages. Raises EmptyAnswer."""
    memory = delegation.memory.get("local") or {}
    question = _build_question(delegation)
    graph_input = {**memory, "messages": [*memory.get("messages", ()), question]}
    config: RunnableConfig = {
        "recursion_limit": recursion_limit,
        "metadata": RunContext(delegation_call=delegation.call_id).to_metadata(),
        "configurable": delegation.time_limits().to_configurable(),
    }
    messages: Sequence[AnyMessage] = ()
    async for state in _read_states(graph, graph_input, config):
        messages = state.get("messages") or ()
        new_memory = {name: state[name] for name in _MEMORY_KEYS if state.get(name)}
        delegation.progress.memory = {**delegation.memory, "local": new_memory}
        delegation.progress.usage = count_usage(current_turn(messages))
    text = _read_answer(messages, question)
    if not text:
        raise EmptyAnswer()
    return DelegationResult(text, delegation.progress.memory or {})


async def _read_states(
    graph: Runnable[Any, Any], graph_input: Mapping[str, Any], config: RunnableConfig
) -> AsyncIterator[Mapping[str, Any]]:
    """The state after each step; of a runnable that is no graph, the last one."""
    if not isinstance(graph, CompiledStateGraph):
        yield await graph.ainvoke(graph_input, config)
        return
    async for state in graph.astream(graph_input, config, stream_mode="values"):
        yield state


def _list_servers(tools: Sequence[BaseTool]) -> tuple[str, ...]:
    """The MCP servers that the tools belong to."""
    return tuple(sorted({server for server in map(server_of, tools) if server}))


def _build_question(delegation: Delegation) -> HumanMessage:
    """The delegation as the agent's question; its direct tool call, its scope, its budget and what its sender
    had read are metadata."""
    metadata: dict[str, Any] = {}
    direct_call = DirectCallNote.from_data(delegation.call)
    if direct_call is not None:
        metadata.update(direct_call.to_metadata())
    if delegation.tools is not None:
        metadata.update(scope_metadata(RunScope(tools=delegation.tools)))
    untrusted_content = UntrustedContent.from_data(delegation.untrusted)
    if untrusted_content is not None:
        metadata.update(untrusted_metadata(untrusted_content))
    budget = RunBudget.from_data(delegation.budget)
    if budget is not None:
        metadata.update(budget_metadata(budget))
    return HumanMessage(delegation.text, id=delegation.message_id, additional_kwargs=metadata)


def _read_answer(messages: Sequence[AnyMessage], question: HumanMessage) -> str:
    """The text of the last model message after the question; when it is empty, all texts before it."""
    texts: list[str] = []
    for message in messages:
        if message.id == question.id:
            texts.clear()  # asked again after a crash: only what follows the last one counts
        elif isinstance(message, AIMessage):
            texts.append(visible_text(message.text))
    if not texts:
        return ""
    return texts[-1] or "\n\n".join(filter(None, texts))
