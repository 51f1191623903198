"""Graphs of agents that run in this process: the supervisor's sub-agents, and the one agent of a service."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph

from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.errors import EmptyAnswer
from ai_platform_engineering.core.run_scope import SCOPE_KEY
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.graph.visible_text import visible_text
from ai_platform_engineering.models.chat_model import create_chat_model
from ai_platform_engineering.multi_agents.platform_engineer.delegation import (
    DELEGATION_CALL,
    Delegation,
    DelegationMiddleware,
    DelegationResult,
    SubAgent,
)
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.middleware.allowed_tools import (
    AllowedToolsMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.approvals import (
    AllowanceStore,
    ApprovalMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.call_limits import CallLimitMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.context_window import (
    ContextWindowMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.direct_tool_call import (
    DIRECT_CALL,
    DirectToolCallMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.empty_answer import (
    EmptyAnswerMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.journal import (
    JournalMiddleware,
    JournalStore,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.loop_guard import LoopGuardMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_retry import ModelRetryMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_call_repair import (
    ToolCallRepairMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_results import (
    ToolResultMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.user_input import UserInputMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.prompts import PromptConfig
from ai_platform_engineering.utils.a2a_common.base_langgraph_agent import build_agent

Graph = CompiledStateGraph[Any, Any, Any, Any]

_MOST_NAMED = 40
_REMEMBERED = ("messages", "memories", "summary")  # of an agent's state, from one delegation to the next


def describe_agent(definition: AgentDefinition, problem: str | None, tools: Sequence[str]) -> str:
    """What a model is told of an agent, wherever it runs."""
    parts = [" ".join(definition.description.split())]
    if problem:
        parts.append(f"({problem})")
    if tools:
        parts.append(f"Tools: {', '.join(tools[:_MOST_NAMED])}.")
    if definition.examples:
        parts.append(f"Examples: {' | '.join(definition.examples)}")
    return " ".join(parts)


class ToolCallStore(JournalStore, AllowanceStore, Protocol):
    """Where it is kept what was called, and what people have allowed."""


def common_middleware(
    settings: Settings,
    agent: str,
    ledger: ToolCallStore | None = None,
    *,
    asks: bool = True,
    denied: Mapping[str, str] | None = None,
) -> list[AgentMiddleware[Any, Any, Any]]:
    """What the supervisor and every sub-agent have; LangChain does not hand it down by itself. Outermost first.

    `asks`: the agent may ask people with a form; the embedded router does not know how to.
    """
    return [
        UserInputMiddleware(offered=asks),
        ToolCallRepairMiddleware(),
        CallLimitMiddleware(settings.limits),
        LoopGuardMiddleware(waits=asks),
        EmptyAnswerMiddleware(),
        ContextWindowMiddleware(settings.model.context_tokens),
        ModelRetryMiddleware(settings.model),
        ToolResultMiddleware(settings.limits.tool_output_chars),
        ApprovalMiddleware(agent, ledger, read_only=settings.people.read_only, denied=denied or {}),
        *([JournalMiddleware(ledger)] if ledger is not None else []),
    ]


class CachedGraph:
    """A graph that is built when it is first needed, kept, and built anew when its revision has changed. Failures are not kept."""

    def __init__(self, build: Callable[[], Awaitable[Graph]], revision: Callable[[], object]) -> None:
        self._build, self._revision = build, revision
        self._kept: tuple[object, Graph] | None = None
        self._lock = asyncio.Lock()

    async def __call__(self) -> Graph:
        async with self._lock:
            if self._kept is None or self._kept[0] != self._revision():
                graph = await self._build()
                self._kept = self._revision(), graph
            return self._kept[1]


class ChatModels:
    """Which model an agent speaks with: a given one, the one that is configured, or the embedded router when there is none."""

    def __init__(
        self, settings: Settings, given: BaseChatModel | None = None, router: BaseChatModel | None = None
    ) -> None:
        self._settings = settings
        self._given = given
        self._router = router

    @property
    def offline(self) -> bool:
        """No language model is configured: the embedded router answers, where there is one."""
        return self._given is None and self._settings.model.name is None

    @property
    def name(self) -> str:
        return self._settings.model.name or type(self._given).__name__

    def __call__(self, name: str | None = None) -> BaseChatModel:
        if name is None and self._given is not None:
            return self._given
        if name is None and self.offline and self._router is not None:
            return self._router
        return create_chat_model(self._settings.model, name)


@dataclass(frozen=True, slots=True)
class AgentGraphFactory:
    """Builds agents from what they are."""

    settings: Settings
    models: ChatModels
    prompts: PromptConfig
    ledger: ToolCallStore | None = None

    def build_subagent(self, agent: LocalAgent) -> "LocalSubAgent":
        return LocalSubAgent(agent, self.cached_graph(agent), self.settings.limits.recursion)

    def cached_graph(
        self, agent: LocalAgent, checkpointer: BaseCheckpointSaver[Any] | None = None
    ) -> CachedGraph:
        inner = [self.build_subagent(one) for one in agent.agents]

        async def build() -> Graph:
            tools = await agent.source.load()
            definition = agent.definition.model_copy(update={"prompt": self._prompt(agent, tools)})
            model = agent.model or self.models(definition.model)
            asks = agent.model is not None or definition.model is not None or not self.models.offline
            common = common_middleware(
                self.settings, definition.name, self.ledger, asks=asks, denied=agent.source.denied
            )
            middleware = [
                DirectToolCallMiddleware(thinks=asks),
                AllowedToolsMiddleware(),
                *self.delegating(inner),
                *common,
            ]
            return build_agent(definition, model, tools, middleware, checkpointer=checkpointer)

        return CachedGraph(build, lambda: agent.source.revision)

    def delegating(
        self, agents: Sequence[SubAgent], *, planned: bool = False
    ) -> list[AgentMiddleware[Any, Any, Any]]:
        if agents:
            return [
                DelegationMiddleware(agents, seconds=self.settings.limits.delegation_seconds, planned=planned)
            ]
        return []

    def _prompt(self, agent: LocalAgent, tools: Sequence[BaseTool]) -> str:
        prompt = self.prompts.agent_prompts.get(agent.definition.name, agent.definition.prompt)
        if tools or not agent.source.problem:
            return prompt
        return f"{prompt}\n\nNone of your domain tools can be used now ({agent.source.problem}). Say so; answer nothing from memory."


class LocalSubAgent:
    """A sub-agent whose graph runs inside the supervisor's. What it remembers of a conversation is kept in the supervisor's state."""

    def __init__(self, agent: LocalAgent, graph: CachedGraph, recursion_limit: int) -> None:
        self._agent = agent
        self._graph = graph
        self._limit = recursion_limit

    @property
    def name(self) -> str:
        return self._agent.definition.name

    @property
    def tools(self) -> tuple[str, ...]:
        return self._agent.source.known

    @property
    def problem(self) -> str | None:
        return self._agent.source.problem

    @property
    def description(self) -> str:
        problem = f"Its tools are unavailable now: {self.problem}." if self.problem else None
        return describe_agent(self._agent.definition, problem, self.tools)

    @property
    def runnable(self) -> Runnable[Any, Any]:
        async def run(given: Any, config: RunnableConfig) -> Any:
            return await (await self._graph()).ainvoke(given, config)

        return RunnableLambda(run, name=self.name)

    async def run_delegation(self, assignment: Delegation, config: RunnableConfig) -> DelegationResult:
        graph, before = await self._graph(), assignment.memory.get("local") or {}
        beside: dict[str, Any] = {DIRECT_CALL: assignment.call} if assignment.call else {}
        beside |= {SCOPE_KEY: {"tools": list(assignment.tools)}} if assignment.tools is not None else {}
        asked = HumanMessage(assignment.text, id=assignment.message_id, additional_kwargs=beside)
        given = {**before, "messages": [*before.get("messages", ()), asked]}
        after = await graph.ainvoke(
            given, {"recursion_limit": self._limit, "metadata": {DELEGATION_CALL: assignment.call_id}}
        )
        messages = list(after.get("messages") or ())
        new = messages[max(index for index, one in enumerate(messages) if one.id == asked.id) :]
        said = [visible_text(one.text) for one in new if isinstance(one, AIMessage)]
        text = (said[-1] if said else "") or "\n\n".join(
            filter(None, said)
        )  # as a run: the last message, else what was said before
        if not text:
            raise EmptyAnswer()
        remembered = {name: after[name] for name in _REMEMBERED if after.get(name)}
        return DelegationResult(text, {**assignment.memory, "local": remembered})
