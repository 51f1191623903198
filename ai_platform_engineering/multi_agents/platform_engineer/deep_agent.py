"""PlatformEngineerDeepAgent: the supervisor, a graph built from agent definitions."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver

from ai_platform_engineering.agents.agent_catalog import PlacementRule, is_enabled, shipped_names
from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.events import SUPERVISOR
from ai_platform_engineering.core.placement_settings import is_distributed
from ai_platform_engineering.core.settings import Settings, read_placement
from ai_platform_engineering.core.skills import SkillRegistry
from ai_platform_engineering.core.tool_traits import ANSWER_TOOL, traits_of
from ai_platform_engineering.graph.translator import GraphInfo
from ai_platform_engineering.mcp_client.server_slots import ServerSlots
from ai_platform_engineering.models.offline.installation import Installation, UnavailableAgent
from ai_platform_engineering.models.offline_model import OfflineModel
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import (
    AgentGraphFactory,
    ChatModels,
    Graph,
)
from ai_platform_engineering.multi_agents.platform_engineer.delegation import SubAgent
from ai_platform_engineering.multi_agents.platform_engineer.knowledge_source import KnowledgeSource
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.middleware.composition import (
    compose_middlewares,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.stack import (
    SupervisorParts,
    build_supervisor_stack,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.target_rule import TargetRule
from ai_platform_engineering.multi_agents.platform_engineer.placement import (
    AgentNotOffered,
    PlacedAgent,
    PlacedAgents,
    place_agents,
    place_single_agent,
)
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
from ai_platform_engineering.multi_agents.platform_engineer.subagent_definition import (
    SubAgentDef,
    SubAgentRunnable,
    build_subagents,
)
from ai_platform_engineering.runtime.facts import Facts
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.workflows.workflow_catalog import WorkflowCatalog, describe_entry


def _read_distributed_mode() -> bool:
    try:
        return read_placement(read_environment()).everywhere
    except ConfigurationError:
        return False  # an import is no place to complain: whoever starts something reads the settings again


_LOADED_MODE = _read_distributed_mode()
# Whoever sets it to something else goes before the variable, which a reload may change.
DISTRIBUTED_MODE = _LOADED_MODE


@dataclass(frozen=True, slots=True)
class _Deployment:
    """What the names below work for: a set of variables, and the supervisor that defines its agents."""

    variables: Mapping[str, str]
    supervisor: "PlatformEngineerDeepAgent | None" = None


# By contract the names below have no argument for it. Without a deployment they read the environment.
_deployment: ContextVar[_Deployment | None] = ContextVar("deployment", default=None)


@contextmanager
def _working_for(deployment: _Deployment) -> Iterator[None]:
    token = _deployment.set(deployment)
    try:
        yield
    finally:
        _deployment.reset(token)


def _read_variables() -> Mapping[str, str]:
    deployment = _deployment.get()
    return read_environment() if deployment is None else deployment.variables


def _get_distributed_agents() -> set[str]:
    """The names of the agents that run as services; `{"__all__"}` when all do."""
    placement = read_placement(_read_variables())
    if DISTRIBUTED_MODE != _LOADED_MODE:
        placement = placement.model_copy(update={"everywhere": DISTRIBUTED_MODE})
    return set(placement.distributed)


def _agent_is_distributed(name: str, distributed_set: Collection[str]) -> bool:
    return is_distributed(name, distributed_set)


def _is_agent_enabled(name: str) -> bool:
    return is_enabled(name, _read_variables())


def _create_remote_a2a_subagent_def(name: str, agent_prompts: Mapping[str, Any] | None = None) -> SubAgentDef:
    """An agent of the catalogue as a service at its configured address, reachable or not.

    `agent_prompts` is part of the contract and unused: a service has its own prompts. Raises AgentNotOffered.
    """
    return _create_subagent_def(name, PromptConfig(), remote=True)


async def _create_local_subagent_def(
    name: str, prompt_config: "PromptConfig | Mapping[str, Any]"
) -> SubAgentDef:
    """An agent of the catalogue in this process, with its MCP tools. Raises AgentNotOffered."""
    return _create_subagent_def(name, _parse_prompts(prompt_config), remote=False)


def _create_subagent_def(name: str, prompts: PromptConfig, *, remote: bool) -> SubAgentDef:
    deployment = _deployment.get()
    if deployment is not None and deployment.supervisor is not None:
        return deployment.supervisor.define_agent(name, prompts, remote=remote)
    variables = read_environment()
    settings = Settings.from_variables(variables)
    placed = place_single_agent(settings, variables, name, remote=remote)
    supervisor = PlatformEngineerDeepAgent(settings, placed=placed, prompts=prompts)
    return supervisor.define_agent(name, prompts, remote=remote)


def _parse_prompts(prompt_config: "PromptConfig | Mapping[str, Any]") -> PromptConfig:
    if isinstance(prompt_config, PromptConfig):
        return prompt_config
    return PromptConfig.model_validate(prompt_config)


SubAgentFactory = Callable[[PromptConfig | Mapping[str, Any]], Awaitable[SubAgentDef]]

# The shipped agents. One that is taken out of the list is gone, one that is added is offered.
SINGLE_NODE_AGENTS: list[tuple[str, SubAgentFactory]] = [
    (name, partial(_create_local_subagent_def, name)) for name in shipped_names()
]


def place_catalog(
    settings: Settings, variables: Mapping[str, str], slots: ServerSlots | None = None
) -> PlacedAgents:
    """All agents of the catalogue, each where the names above place it. `slots`: how many tool servers may
    run."""
    with _working_for(_Deployment(variables)):
        rule = PlacementRule(
            shipped=[name for name, _ in SINGLE_NODE_AGENTS],
            distributed=_get_distributed_agents(),
            is_enabled=_is_agent_enabled,
            is_distributed=_agent_is_distributed,
        )
        return place_agents(settings, variables, rule, slots)


class PlatformEngineerDeepAgent:
    """The supervisor: plans, delegates with the `task` tool, and answers."""

    def __init__(
        self,
        settings: Settings,
        *,
        agents: Sequence[PlacedAgent] = (),
        placed: PlacedAgents | None = None,
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
        """`agents` are handed in as they are; `placed` are those of a catalogue."""
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
        self._graphs = AgentGraphFactory(
            settings, self._models, prompts, run_log, TargetRule(settings, run_log)
        )
        self._placed = placed or PlacedAgents(agents)
        distributed = self._placed.distributed
        self._distributed_agents = set(settings.placement.distributed if distributed is None else distributed)
        self._runnables: dict[str, tuple[PlacedAgent, SubAgentRunnable]] = {}
        self._facts = facts if settings.agent.remember_facts else None
        self._knowledge = knowledge
        self._knowledge_tools: tuple[BaseTool, ...] = ()
        self._graph: Graph | None = None
        self._graph_inputs: object = None

    @property
    def distributed_mode(self) -> bool:
        """Whether any agent is distributed."""
        agents = self._placed.agents
        return bool(self._distributed_agents) or any(isinstance(agent, RemoteAgent) for agent in agents)

    async def graph(self, principal: str | None = None) -> Graph:
        """The supervisor's graph, rebuilt when its agents or its knowledge tools have changed.

        It is the same for every principal.

        Raises ConfigurationError.
        """
        await self._models.load()
        await self._read_tool_caches()
        definitions = await self._create_subagent_defs(self._graphs.prompts)
        if self._knowledge is not None:
            self._knowledge_tools = tuple(await self._knowledge.tools())
        inputs = (definitions, self._knowledge_tools)
        if self._graph is None or self._graph_inputs != inputs:
            self._graph = self._build_graph(build_subagents(definitions, self.recursion_limit))
            self._graph_inputs = inputs
            self.graph_generation += 1
        return self._graph

    async def _read_tool_caches(self) -> None:
        """The descriptions of in-process agents name their tools: what is cached is read in threads."""
        agents = [agent for agent in self._placed.agents if isinstance(agent, LocalAgent)]
        await asyncio.gather(*(agent.source.read_cache() for agent in agents))

    async def _create_subagent_defs(
        self, prompt_config: "PromptConfig | Mapping[str, Any]"
    ) -> list[SubAgentDef]:
        """Every agent that is offered, where it is placed: a remote one behind A2A, any other in this
        process."""
        prompts = _parse_prompts(prompt_config)
        definitions: list[SubAgentDef] = []
        with _working_for(_Deployment(self._placed.variables, self)):
            for name, create_local in self._list_factories():
                if not _is_agent_enabled(name):
                    continue
                try:
                    if _agent_is_distributed(name, self._distributed_agents):
                        definition = _create_remote_a2a_subagent_def(name, prompts.agent_prompts)
                    else:
                        definition = await create_local(prompts)
                except AgentNotOffered:
                    continue  # `/ready` and `caipe agents` say what it needs
                definitions.append(definition)
        return definitions

    def _list_factories(self) -> list[tuple[str, SubAgentFactory]]:
        """The shipped agents, and those that were configured or handed in."""
        placed = self._placed
        factories = [pair for pair in SINGLE_NODE_AGENTS if pair[0] not in placed.handed_in]
        names = [name for name, _ in factories]
        others = [*placed.handed_in, *(name for name in placed.configured if name not in names)]
        factories += [(name, partial(_create_local_subagent_def, name)) for name in others]
        return factories

    def define_agent(self, name: str, prompts: PromptConfig, *, remote: bool) -> SubAgentDef:
        """The agent of that name in this place. Raises AgentNotOffered."""
        agent = self._placed.place(name, remote=remote)
        if not remote and prompts.agent_prompts != self._graphs.prompts.agent_prompts:
            graphs = replace(self._graphs, prompts=prompts)
            return SubAgentRunnable(self._build_subagent(agent, graphs)).define()
        return self._find_runnable(agent).define()

    def _find_runnable(self, agent: PlacedAgent) -> SubAgentRunnable:
        """The agent as a sub-agent, built once: runs share it."""
        name = agent.definition.name
        built_from, runnable = self._runnables.get(name, (None, None))
        if runnable is None or built_from is not agent:
            runnable = SubAgentRunnable(self._build_subagent(agent, self._graphs))
            self._runnables[name] = (agent, runnable)
        return runnable

    def _build_graph(self, subagents: Sequence[SubAgent]) -> Graph:
        structured = self._settings.agent.structured_response
        prompt = build_supervisor_prompt(
            self._graphs.prompts,
            [(agent.name, agent.description) for agent in subagents],
            structured=structured,
            knowledge=bool(self._knowledge_tools),
        )
        model = self._choose_model()
        parts = SupervisorParts(
            agents=subagents,
            workflows=self.workflows,
            unavailable_agents={entry.name: entry.unavailable for entry in self._placed.catalog},
            skills=self.skills,
            facts=self._facts,
            store=self._log,
            target_rule=self._graphs.target_rule,
            offline=self._models.offline,
            reads_prompt=not isinstance(model, OfflineModel),
        )
        return create_agent(
            model,
            tools=self._own_tools(),
            system_prompt=prompt,
            middleware=compose_middlewares(build_supervisor_stack(self._settings, parts)),
            response_format=ToolStrategy(PlatformEngineerResponse) if structured else None,
            checkpointer=self._checkpointer,
            name=SUPERVISOR,
        )

    def _choose_model(self) -> BaseChatModel:
        """The supervisor's model; the embedded router is told what else is installed."""
        model = self._models()
        if not isinstance(model, OfflineModel):
            return model
        agents: list[UnavailableAgent] = []
        for entry in self._placed.catalog:
            if entry.unavailable:
                agents.append(UnavailableAgent(entry.name, entry.definition.description, entry.unavailable))
        installation = Installation(tuple(agents), tuple(map(describe_entry, self.workflows)))
        return model.model_copy(update={"installation": installation})

    def _own_tools(self) -> list[BaseTool]:
        """The tools that the supervisor calls itself, without those of its middlewares."""
        return [*self._tools, *self._knowledge_tools]

    @property
    def graph_info(self) -> GraphInfo:
        knowledge_tools = frozenset(tool.name for tool in self._own_tools() if traits_of(tool).is_knowledge)
        answer_tool = ANSWER_TOOL if self._settings.agent.structured_response else None
        return GraphInfo(answer_tool=answer_tool, knowledge_tools=knowledge_tools)

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def read_only(self) -> bool:
        return self._settings.people.read_only

    @property
    def recursion_limit(self) -> int:
        return self._settings.limits.recursion

    async def tool_names(self) -> dict[str, list[str]]:
        """Every agent with the names of its tools, as far as they are known here."""
        names = {SUPERVISOR: [tool.name for tool in self._own_tools()]}
        definitions = await self._create_subagent_defs(self._graphs.prompts)
        for agent in build_subagents(definitions, self.recursion_limit):
            names[agent.name] = list(agent.tools)
        return names

    def preload(self) -> None:
        """Begins to load the model."""
        self._models.preload()

    async def is_loading(self) -> bool:
        """Whether the model is being loaded."""
        return await self._models.is_loading()

    async def list_starting_servers(self) -> tuple[str, ...]:
        """None: the supervisor has no tool servers of its own."""
        return ()

    async def wait_until_ready(self) -> None:
        if self._knowledge is not None:
            await self._knowledge.wait_until_open()

    def forget_run(self, run_id: str) -> None:
        for tool in self._knowledge_tools:
            if isinstance(tool, FetchDocumentCapWrapper | SearchCapWrapper):
                tool.forget_run(run_id)

    async def cancel_remote_task(self, agent: str, task_id: str) -> None:
        for placed_agent in self._placed.agents:
            if placed_agent.definition.name != agent:
                continue
            subagent = self._find_runnable(placed_agent).subagent
            if isinstance(subagent, RemoteSubAgent):
                await subagent.cancel_task(task_id)

    @property
    def offline(self) -> bool:
        """No language model is configured: the embedded router answers, where there is one."""
        return self._models.offline

    @property
    def offline_notice(self) -> str:
        return self._models.offline_notice

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
            ask_on_untrusted=self._settings.people.ask_on_untrusted,
        )


AIPlatformEngineerMAS = PlatformEngineerDeepAgent
