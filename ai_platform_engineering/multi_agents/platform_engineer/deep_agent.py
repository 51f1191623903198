"""PlatformEngineerDeepAgent: the supervisor, a graph built from agent definitions."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict

from langchain.agents import create_agent
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
from ai_platform_engineering.core.tool_traits import ANSWER_TOOL, traits_of
from ai_platform_engineering.graph.translator import GraphInfo
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import (
    AgentGraphFactory,
    ChatModels,
    Graph,
)
from ai_platform_engineering.multi_agents.platform_engineer.delegation import SubAgent
from ai_platform_engineering.multi_agents.platform_engineer.knowledge_source import KnowledgeSource
from ai_platform_engineering.multi_agents.platform_engineer.middleware.stack import (
    SupervisorParts,
    build_supervisor_stack,
)
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgent, place_single_agent
from ai_platform_engineering.multi_agents.platform_engineer.prompts import (
    PromptConfig,
    build_supervisor_prompt,
)
from ai_platform_engineering.multi_agents.platform_engineer.rag_tools import (
    FetchDocumentCapWrapper,
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
    """A sub-agent as a dict of the names that deepagents uses."""

    name: str
    description: str
    runnable: Runnable[Any, Any]


def _get_distributed_agents() -> set[str]:
    """The names of the agents that run as services; `{"__all__"}` when all do."""
    placement = read_placement(read_environment())
    if placement.agents is None and DISTRIBUTED_MODE:
        return {EVERY_AGENT}
    return set(placement.distributed)


def _agent_is_distributed(name: str, distributed_set: Collection[str]) -> bool:
    return is_distributed(name, distributed_set)


def _is_agent_enabled(name: str) -> bool:
    return is_enabled(name, read_environment())


def _create_remote_a2a_subagent_def(name: str, agent_prompts: Mapping[str, Any] | None = None) -> SubAgentDef:
    """An agent of the catalogue as a service at its configured address, reachable or not.

    `agent_prompts` is part of the contract and unused: a service has its own prompts.
    """
    variables = read_environment()
    settings = Settings.from_variables(variables)
    return _create_single_def(settings, variables, name, PromptConfig(), remote=True)


async def _create_local_subagent_def(
    name: str, prompt_config: "PromptConfig | Mapping[str, Any]"
) -> SubAgentDef:
    """An agent of the catalogue in this process, with its MCP tools."""
    variables = read_environment()
    settings = Settings.from_variables(variables)
    return _create_single_def(settings, variables, name, _parse_prompts(prompt_config), remote=False)


def _create_single_def(
    settings: Settings, variables: Mapping[str, str], name: str, prompts: PromptConfig, *, remote: bool
) -> SubAgentDef:
    placed = place_single_agent(settings, variables, name, remote=remote)
    supervisor = PlatformEngineerDeepAgent(settings, agents=placed.agents, prompts=prompts)
    return _to_definition(supervisor.agents[0])


def _to_definition(agent: SubAgent) -> SubAgentDef:
    return {"name": agent.name, "description": agent.description, "runnable": agent.runnable}


def _parse_prompts(prompt_config: "PromptConfig | Mapping[str, Any]") -> PromptConfig:
    if isinstance(prompt_config, PromptConfig):
        return prompt_config
    return PromptConfig.model_validate(prompt_config)


SINGLE_NODE_AGENTS: list[tuple[str, Callable[[PromptConfig | Mapping[str, Any]], Awaitable[SubAgentDef]]]] = [
    (name, partial(_create_local_subagent_def, name)) for name in shipped_names()
]


class PlatformEngineerDeepAgent:
    """The supervisor: plans, delegates with the `task` tool, and answers."""

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
        self.workflows = workflows or WorkflowCatalog()
        self.graph_generation = 0
        self._settings = settings
        self._tools = tuple(tools)
        self._models = ChatModels(settings, model, router)
        self._log = run_log
        # LangGraph Studio brings a checkpointer of its own.
        self._checkpointer = None if settings.agent.langgraph_dev else checkpointer
        prompts = prompts or PromptConfig.load(settings.agent.prompt_config)
        self._graphs = AgentGraphFactory(settings, self._models, prompts, run_log)
        self._agents = tuple(agents)
        self._subagents = [self._build_subagent(agent, self._graphs) for agent in agents]
        self._distributed_agents = set(settings.placement.distributed)
        self._facts = facts if settings.agent.remember_facts else None
        self._knowledge = knowledge
        self._knowledge_tools: tuple[BaseTool, ...] = ()
        self._graph: Graph | None = None
        self._graph_inputs: object = None

    @property
    def distributed_mode(self) -> bool:
        """Whether any agent is distributed."""
        return bool(self._distributed_agents) or any(isinstance(agent, RemoteAgent) for agent in self._agents)

    async def graph(self) -> Graph:
        """The supervisor's graph, rebuilt when its agents or its knowledge tools have changed.

        Raises ConfigurationError.
        """
        subagent_defs = await self._create_subagent_defs(self._graphs.prompts)
        descriptions = [(agent["name"], agent["description"]) for agent in subagent_defs]
        if self._knowledge is not None:
            self._knowledge_tools = tuple(await self._knowledge.tools())
        inputs = (descriptions, self._knowledge_tools)
        if self._graph is None or self._graph_inputs != inputs:
            self._graph = self._build_graph(descriptions)
            self._graph_inputs = inputs
            self.graph_generation += 1
        return self._graph

    async def _create_subagent_defs(
        self, prompt_config: "PromptConfig | Mapping[str, Any]"
    ) -> list[SubAgentDef]:
        """Every agent where it is placed: a remote one behind A2A, any other in this process."""
        prompts = _parse_prompts(prompt_config)
        if prompts == self._graphs.prompts:
            return [_to_definition(agent) for agent in self._subagents]
        graphs = replace(self._graphs, prompts=prompts)
        return [_to_definition(self._build_subagent(agent, graphs)) for agent in self._agents]

    def _build_graph(self, descriptions: Sequence[tuple[str, str]]) -> Graph:
        """`descriptions`: the names and descriptions of the sub-agents."""
        structured = self._settings.agent.structured_response
        prompt = build_supervisor_prompt(
            self._graphs.prompts, descriptions, structured=structured, knowledge=bool(self._knowledge_tools)
        )
        parts = SupervisorParts(
            agents=self._subagents,
            workflows=self.workflows,
            skills=self.skills,
            facts=self._facts,
            store=self._log,
            offline=self._models.offline,
        )
        return create_agent(
            self._models(),
            tools=self._own_tools(),
            system_prompt=prompt,
            middleware=build_supervisor_stack(self._settings, parts),
            response_format=ToolStrategy(PlatformEngineerResponse) if structured else None,
            checkpointer=self._checkpointer,
            name=SUPERVISOR,
        )

    def _own_tools(self) -> list[BaseTool]:
        """The tools that the supervisor calls itself, without those of its middlewares."""
        return [*self._tools, *self._knowledge_tools]

    @property
    def graph_info(self) -> GraphInfo:
        knowledge_tools = frozenset(tool.name for tool in self._own_tools() if traits_of(tool).is_knowledge)
        answer_tool = ANSWER_TOOL if self._settings.agent.structured_response else None
        return GraphInfo(answer_tool=answer_tool, knowledge_tools=knowledge_tools)

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
        names = {SUPERVISOR: [tool.name for tool in self._own_tools()]}
        for agent in self._subagents:
            names[agent.name] = list(agent.tools)
        return names

    async def wait_until_ready(self) -> None:
        if self._knowledge is not None:
            await self._knowledge.wait_until_open()

    def forget_run(self, run_id: str) -> None:
        for tool in self._knowledge_tools:
            if isinstance(tool, FetchDocumentCapWrapper | SearchCapWrapper):
                tool.forget_run(run_id)

    async def cancel_remote_task(self, agent: str, task_id: str) -> None:
        for subagent in self._subagents:
            if subagent.name == agent and isinstance(subagent, RemoteSubAgent):
                await subagent.cancel_task(task_id)

    @property
    def offline(self) -> bool:
        """No language model is configured: the embedded router answers, where there is one."""
        return self._models.offline

    @property
    def model_name(self) -> str:
        return self._models.name

    def _build_subagent(self, agent: PlacedAgent, graphs: AgentGraphFactory) -> SubAgent:
        if not isinstance(agent, RemoteAgent):
            return graphs.build_subagent(agent)
        return RemoteSubAgent(
            agent,
            recursion_limit=self._settings.limits.recursion,
            remote_tasks=self._log,
            fallback=graphs.build_subagent(agent.fallback) if agent.fallback else None,
            offline=lambda: self._models.offline,
        )


AIPlatformEngineerMAS = PlatformEngineerDeepAgent
