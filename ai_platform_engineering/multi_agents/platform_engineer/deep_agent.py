"""PlatformEngineerDeepAgent: definitions -> graph."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver

from ai_platform_engineering.agents.agent_catalog import is_enabled, shipped_names
from ai_platform_engineering.core.events import SUPERVISOR
from ai_platform_engineering.core.settings import (
    EVERY_AGENT,
    Settings,
    is_distributed,
    read_environment,
    read_placement,
)
from ai_platform_engineering.core.skills import SkillRegistry
from ai_platform_engineering.graph.translator import GraphInfo
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import (
    AgentGraphFactory,
    ChatModels,
    Graph,
    common_middleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.delegation import SubAgent
from ai_platform_engineering.multi_agents.platform_engineer.knowledge_source import KnowledgeSource
from ai_platform_engineering.multi_agents.platform_engineer.middleware.allowed_tools import (
    AllowedToolsMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.facts import FactsMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.planning import PlanningMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.run_scope import RunScopeMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.skills import SkillsMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.workflows import WorkflowMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgent, place_single_agent
from ai_platform_engineering.multi_agents.platform_engineer.prompts import PromptConfig, supervisor_prompt
from ai_platform_engineering.multi_agents.platform_engineer.rag_tools import (
    FetchDocumentCapWrapper,
    KnowledgeCapMiddleware,
    SearchCapWrapper,
)
from ai_platform_engineering.multi_agents.platform_engineer.remote_agents import RemoteAgent, RemoteSubAgent
from ai_platform_engineering.multi_agents.platform_engineer.response import PlatformEngineerResponse
from ai_platform_engineering.runtime.facts import Facts
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.workflows.workflow_catalog import WorkflowCatalog

# Kept by contract: the helpers below read this and the environment at each call.
DISTRIBUTED_MODE = read_placement(read_environment()).everywhere


class SubAgentDef(TypedDict):
    """A sub-agent as others know it."""

    name: str
    description: str
    runnable: Runnable[Any, Any]


def _get_distributed_agents() -> set[str]:
    """The names of the agents that run elsewhere; `{"__all__"}` when all do."""
    placement = read_placement(read_environment())
    if placement.agents is None and DISTRIBUTED_MODE:
        return {EVERY_AGENT}
    return set(placement.distributed)


def _agent_is_distributed(name: str, distributed_set: Collection[str]) -> bool:
    return is_distributed(name, distributed_set)


def _is_agent_enabled(name: str) -> bool:
    return is_enabled(name, read_environment())


def _create_remote_a2a_subagent_def(name: str, agent_prompts: Mapping[str, Any] | None = None) -> SubAgentDef:
    """An agent of the catalogue as a service at its configured address, reached or not. `agent_prompts` are for agents in this
    process: a service has its own."""
    variables = read_environment()
    return _single_def(Settings.from_variables(variables), variables, name, PromptConfig(), remote=True)


async def _create_local_subagent_def(
    name: str, prompt_config: "PromptConfig | Mapping[str, Any]"
) -> SubAgentDef:
    """An agent of the catalogue in this process, with its MCP tools."""
    variables = read_environment()
    return _single_def(
        Settings.from_variables(variables), variables, name, _prompts(prompt_config), remote=False
    )


def _single_def(
    settings: Settings, variables: Mapping[str, str], name: str, prompts: PromptConfig, *, remote: bool
) -> SubAgentDef:
    placed = place_single_agent(settings, variables, name, remote=remote)
    mas = PlatformEngineerDeepAgent(settings, agents=placed.agents, prompts=prompts)
    return _definition_of(mas.agents[0])


def _definition_of(agent: SubAgent) -> SubAgentDef:
    return {"name": agent.name, "description": agent.description, "runnable": agent.runnable}


def _prompts(given: "PromptConfig | Mapping[str, Any]") -> PromptConfig:
    if isinstance(given, PromptConfig):
        return given
    return PromptConfig.model_validate(given)


SINGLE_NODE_AGENTS: list[tuple[str, Callable[[PromptConfig | Mapping[str, Any]], Awaitable[SubAgentDef]]]] = [
    (name, partial(_create_local_subagent_def, name)) for name in shipped_names()
]


class PlatformEngineerDeepAgent:
    """The supervisor: plans, delegates through `task()`, and answers."""

    def __init__(
        self,
        settings: Settings,
        *,
        agents: Sequence[PlacedAgent] = (),
        tools: Sequence[BaseTool] = (),
        model: BaseChatModel | None = None,
        router: BaseChatModel | None = None,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        run_log: RunLog | None = None,
        facts: Facts | None = None,
        prompts: PromptConfig | None = None,
        workflows: WorkflowCatalog | None = None,
        knowledge: KnowledgeSource | None = None,
        skills: SkillRegistry | None = None,
    ) -> None:
        self.skills = skills
        self._settings = settings
        self._tools = tuple(tools)
        self._models = ChatModels(settings, model, router)
        self._log = run_log
        # LangGraph Studio brings a checkpointer of its own.
        self._checkpointer = None if settings.agent.langgraph_dev else checkpointer
        self._graphs = AgentGraphFactory(
            settings, self._models, prompts or PromptConfig.load(settings.agent.prompt_config), run_log
        )
        self._agents = tuple(agents)
        self.workflows = workflows or WorkflowCatalog()
        self._facts = facts if settings.agent.remember_facts else None
        self._subagents = [self._subagent(agent, self._graphs) for agent in agents]
        self._distributed_agents = set(settings.placement.distributed)
        self._knowledge, self._knowing = knowledge, tuple[BaseTool, ...]()
        self._built: tuple[object, Graph] | None = None
        self.graph_generation = 0

    @property
    def distributed_mode(self) -> bool:
        """Whether any agent is distributed."""
        return bool(self._distributed_agents) or any(isinstance(agent, RemoteAgent) for agent in self._agents)

    async def graph(self) -> Graph:
        """The supervisor's graph, built anew when what it knows of its agents has changed. Raises ConfigurationError."""
        offered = await self._create_subagent_defs(self._graphs.prompts)
        self._knowing = tuple(await self._knowledge.tools()) if self._knowledge is not None else ()
        known = [(agent["name"], agent["description"]) for agent in offered], self._knowing
        if self._built is None or self._built[0] != known:
            self._built = known, self._build(offered)
            self.graph_generation += 1
        return self._built[1]

    async def _create_subagent_defs(
        self, prompt_config: "PromptConfig | Mapping[str, Any]"
    ) -> list[SubAgentDef]:
        """Every agent where it is placed: a remote one behind A2A, any other in this process."""
        prompts = _prompts(prompt_config)
        if prompts == self._graphs.prompts:
            return [_definition_of(agent) for agent in self._subagents]
        graphs = replace(self._graphs, prompts=prompts)
        return [_definition_of(self._subagent(agent, graphs)) for agent in self._agents]

    def _build(self, offered: Sequence[SubAgentDef]) -> Graph:
        structured = self._settings.agent.structured_response
        described = [(agent["name"], agent["description"]) for agent in offered]
        middleware: list[AgentMiddleware[Any, Any, Any]] = [
            WorkflowMiddleware(self.workflows, offline=self._models.offline),
            *(
                [SkillsMiddleware(self.skills, offline=self._models.offline)]
                if self.skills is not None
                else []
            ),
            AllowedToolsMiddleware(),
            KnowledgeCapMiddleware(),
            PlanningMiddleware(),
            *self._graphs.delegating(self._subagents, planned=True),
            RunScopeMiddleware(self._subagents),
            *self._remembering(),
            *common_middleware(self._settings, SUPERVISOR, self._log, asks=not self._models.offline),
        ]
        return create_agent(
            self._models(),
            tools=[*self._tools, *self._knowing],
            system_prompt=supervisor_prompt(
                self._graphs.prompts, described, structured=structured, knowledge=bool(self._knowing)
            ),
            middleware=middleware,
            response_format=ToolStrategy(PlatformEngineerResponse) if structured else None,
            checkpointer=self._checkpointer,
            name=SUPERVISOR,
        )

    def _remembering(self) -> list[AgentMiddleware[Any, Any, Any]]:
        """Not for the embedded router: it reads no prompt, and takes every tool for work."""
        if self._facts is not None and not self._models.offline:
            return [FactsMiddleware(self._facts)]
        return []

    @property
    def shape(self) -> GraphInfo:
        own = (*self._tools, *self._knowing)
        knowledge = frozenset(tool.name for tool in own if (tool.metadata or {}).get("knowledge"))
        answer_tool = PlatformEngineerResponse.__name__ if self._settings.agent.structured_response else None
        return GraphInfo(answer_tool=answer_tool, knowledge_tools=knowledge)

    @property
    def read_only(self) -> bool:
        return self._settings.people.read_only

    @property
    def recursion_limit(self) -> int:
        return self._settings.limits.recursion

    @property
    def agents(self) -> Sequence[SubAgent]:
        return self._subagents

    def tool_names(self) -> dict[str, list[str]]:
        """Every agent with the names of its tools, as far as they are known here."""
        return {
            SUPERVISOR: [tool.name for tool in (*self._tools, *self._knowing)],
            **{agent.name: list(agent.tools) for agent in self._subagents},
        }

    async def wait_until_ready(self) -> None:
        if self._knowledge is not None:
            await self._knowledge.opened()

    def forget_run(self, run_id: str) -> None:
        for tool in self._knowing:
            if isinstance(tool, FetchDocumentCapWrapper | SearchCapWrapper):
                tool.forget_run(run_id)

    async def cancel_remote_task(self, agent: str, task_id: str) -> None:
        for one in self._subagents:
            if one.name == agent and isinstance(one, RemoteSubAgent):
                await one.cancel_task(task_id)

    @property
    def offline(self) -> bool:
        """No language model is configured: the embedded router answers, where there is one."""
        return self._models.offline

    @property
    def model_name(self) -> str:
        return self._models.name

    def _subagent(self, agent: PlacedAgent, graphs: AgentGraphFactory) -> SubAgent:
        if not isinstance(agent, RemoteAgent):
            return graphs.build_subagent(agent)
        return RemoteSubAgent(
            agent,
            recursion_limit=self._settings.limits.recursion,
            orders=self._log,
            fallback=graphs.build_subagent(agent.fallback) if agent.fallback else None,
            offline=lambda: self._models.offline,
        )


AIPlatformEngineerMAS = PlatformEngineerDeepAgent
