"""The `task` tool: delegates a piece of work to a sub-agent, in-process or remote, and returns its answer."""

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NotRequired

from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import BaseTool, ToolRuntime, tool
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command
from pydantic import BaseModel, Field

from ai_platform_engineering.core.events import StepStatus
from ai_platform_engineering.core.message_metadata import find_direct_call, usage_metadata
from ai_platform_engineering.core.redaction import Redactor
from ai_platform_engineering.core.run_budget import RESERVED_MODEL_CALLS, RunBudget, RunUsage
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.run_scope import RunScope
from ai_platform_engineering.core.settings import LimitSettings
from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL, ToolTraits
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.graph.failures import describe_error
from ai_platform_engineering.multi_agents.platform_engineer.active_skills import SkillRestrictions
from ai_platform_engineering.multi_agents.platform_engineer.delegation import (
    ID_NAMESPACE,
    AgentMemory,
    AgentTimeout,
    Delegation,
    SubAgent,
    find_scope,
)
from ai_platform_engineering.multi_agents.platform_engineer.run_usage import find_remaining_budget
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import find_last_model_message
from ai_platform_engineering.multi_agents.platform_engineer.untrusted_messages import (
    ThirdPartyDefinitions,
    read_delegated_content,
)

log = logging.getLogger(__name__)

_NO_BUDGET = (
    "Not run: the budget of this request is used up. Answer from what you have, and say what is missing."
)


def _merge_memories(
    before: Mapping[str, AgentMemory] | None, after: Mapping[str, AgentMemory] | None
) -> dict[str, AgentMemory]:
    return {**(before or {}), **(after or {})}


class DelegationState(AgentState[Any]):
    """Adds the memory of each sub-agent session to the graph's state."""

    memories: NotRequired[Annotated[dict[str, AgentMemory], _merge_memories]]


class TaskArguments(BaseModel):
    description: str = Field(
        description="The whole assignment: the agent sees nothing else of the conversation."
    )
    subagent_type: str = Field(description="The agent's name.")
    step_id: str | None = Field(None, description="The id of the plan's step, when there is a plan.")


@dataclass(frozen=True, slots=True)
class _TaskOutcome:
    """The end of one `task` call: the text for the model, the step's status, and the agent's new memory."""

    text: str
    status: StepStatus
    memory: AgentMemory | None = None
    usage: RunUsage = field(default_factory=RunUsage)


class DelegationMiddleware(AgentMiddleware[DelegationState]):
    """Adds the `task` tool, and the memories of sub-agents to the state."""

    state_schema = DelegationState

    def __init__(
        self,
        agents: Sequence[SubAgent],
        *,
        limits: LimitSettings,
        redactor: Redactor,
        definitions: ThirdPartyDefinitions | None = None,
        in_prompt: bool = False,
    ) -> None:
        """`definitions`: third-party descriptions in the prompt of the model that delegates. `in_prompt`: it
        describes the agents, too."""
        super().__init__()
        self._in_prompt = in_prompt
        self._redactor = redactor
        self._agents = {agent.name: agent for agent in agents}
        self._limits = limits
        self._definitions = definitions or ThirdPartyDefinitions()
        self.tools: Sequence[BaseTool] = (self._build_tool(),)

    def _build_tool(self) -> BaseTool:
        about = describe_task_tool(self._agents.values(), in_prompt=self._in_prompt)

        @tool(DELEGATION_TOOL, args_schema=TaskArguments, description=about)
        async def task(
            description: str, subagent_type: str, runtime: ToolRuntime, step_id: str | None = None
        ) -> Command[Any]:
            messages: Sequence[AnyMessage] = runtime.state.get("messages") or ()
            session_key = _session_key(messages, runtime.tool_call_id or "", subagent_type)
            outcome = await self._run_task(subagent_type, description, session_key, messages, runtime)
            if outcome.status == "failed":
                outcome = replace(outcome, text=self._redactor.redact(outcome.text))
            result = ToolMessage(
                outcome.text,
                tool_call_id=runtime.tool_call_id,
                name=DELEGATION_TOOL,
                status="success" if outcome.status == "completed" else "error",
                additional_kwargs=usage_metadata(outcome.usage),
            )
            update: dict[str, Any] = {"messages": [result]}
            if outcome.memory:
                update["memories"] = {session_key: outcome.memory}
            return Command(update=update)

        return task

    async def _run_task(
        self,
        agent_name: str,
        text: str,
        session_key: str,
        messages: Sequence[AnyMessage],
        runtime: ToolRuntime,
    ) -> _TaskOutcome:
        """Delegates to the agent when the scope of the question and the skills in use allow it."""
        restrictions = SkillRestrictions.of(messages)
        scope = find_scope(messages)
        agents_in_scope = scope.filter_agents(self._agents)
        if agent_name not in agents_in_scope:
            names = ", ".join(agents_in_scope) or "none"
            return _TaskOutcome(f"There is no agent {agent_name}. The agents are: {names}.", "failed")
        if not restrictions.allows_agent(agent_name):
            return _TaskOutcome(restrictions.refusal(f"The agent {agent_name}"), "failed")
        budget = _share_budget(messages, runtime.tool_call_id, self._limits)
        direct_call = _find_direct_call(messages, runtime.tool_call_id)
        if budget.model_calls == 0 and direct_call is None:
            return _TaskOutcome(_NO_BUDGET, "failed")
        delegation = self._build_delegation(
            text,
            session_key,
            runtime,
            budget=budget,
            direct_call=direct_call,
            tools=_allowed_tools(agent_name, restrictions, scope),
            untrusted=await self._read_untrusted(messages),
        )
        return await _delegate(self._agents[agent_name], delegation, runtime.config)

    async def _read_untrusted(self, messages: Sequence[AnyMessage]) -> Mapping[str, Any] | None:
        """The data of the untrusted content behind a delegation; None when there is none."""
        content = read_delegated_content(messages, await self._definitions.list_sources())
        if content.is_empty:
            return None
        return content.to_data()

    def _build_delegation(
        self,
        text: str,
        session_key: str,
        runtime: ToolRuntime,
        *,
        budget: RunBudget,
        direct_call: Mapping[str, Any] | None,
        tools: tuple[str, ...] | None,
        untrusted: Mapping[str, Any] | None,
    ) -> Delegation:
        memories = runtime.state.get("memories") or {}
        run = RunContext.from_config(runtime.config)
        now = time.time()
        # Whoever delegates needs time for an answer of its own.
        latest_end = run.tools_until or run.deadline or math.inf
        seconds = max(0.0, min(self._limits.delegation_seconds, latest_end - now))
        return Delegation(
            text=text,
            run_id=run.run_id,
            epoch=run.epoch,
            key=run.checkpoint_ns or str(runtime.tool_call_id),
            call_id="/".join(filter(None, (run.delegation_call, runtime.tool_call_id))),
            context_id=str(uuid.uuid5(ID_NAMESPACE, f"{run.thread_id}\n{session_key}")),
            seconds=seconds,
            deadline=now + seconds,
            call=direct_call,
            tools=tools,
            untrusted=untrusted,
            budget=budget.to_data(),
            memory=memories.get(session_key) or {},
        )


async def _delegate(agent: SubAgent, delegation: Delegation, config: RunnableConfig) -> _TaskOutcome:
    limit = asyncio.timeout(delegation.seconds)
    try:
        async with limit:
            result = await agent.run_delegation(delegation, config)
    except GraphBubbleUp:
        raise  # an interrupt: the run pauses, the delegation goes on later
    except Exception as error:  # noqa: BLE001 - whatever breaks one agent, the others' work and the run go on
        reason: Exception = error
        if isinstance(error, TimeoutError) and limit.expired():
            reason = AgentTimeout(delegation.seconds)
        message, code, _ = describe_error(reason)
        log.warning("agent %s failed: %s: %s", agent.name, code, format_traceback(error))
        progress = delegation.progress
        text = f"Agent {agent.name} failed: {message}"
        return _TaskOutcome(text, "failed", progress.memory, progress.usage.with_one_model_call())
    usage = delegation.progress.usage.with_one_model_call()
    return _TaskOutcome(result.text, "completed", result.memory, usage)


def describe_task_tool(agents: Iterable[SubAgent], *, in_prompt: bool = False) -> str:
    """The description of the `task` tool for a model, with one line per agent.

    `in_prompt`: the system prompt describes the agents, so their names are enough.
    """
    purpose = "Delegate to an agent. Independent tasks may run in parallel."
    if in_prompt:
        names = ", ".join(agent.name for agent in agents)
        return f"{purpose} The agents, which your instructions describe: {names}."
    agent_lines = "\n".join(f"- {agent.name}: {agent.description}" for agent in agents)
    return f"{purpose} Agents:\n{agent_lines}"


def _allowed_tools(agent: str, restrictions: SkillRestrictions, scope: RunScope) -> tuple[str, ...] | None:
    """The only tools that the agent may use; None for all.

    These are the tools that skills leave it, without those that the delegating agent may not use itself.
    """
    skill_tools = restrictions.allowed_tools(agent)
    if scope.tools is None:
        return skill_tools
    if skill_tools is None:
        return scope.tools
    return tuple(name for name in skill_tools if name in scope.tools)


def _share_budget(messages: Sequence[AnyMessage], call_id: str | None, limits: LimitSettings) -> RunBudget:
    """What the agent of one delegation may use: its part of what remains after the calls of its message."""
    remaining = find_remaining_budget(messages, limits)
    message = find_last_model_message(messages)
    calls = message.tool_calls if message is not None else []
    available = remaining.minus(RunUsage(model_calls=RESERVED_MODEL_CALLS, tool_calls=len(calls)))
    delegations = [call["id"] for call in calls if ToolTraits.from_name(call["name"]).delegates]
    if call_id not in delegations:
        return available
    return available.share(delegations.index(call_id), len(delegations))


def _find_direct_call(messages: Sequence[AnyMessage], call_id: str | None) -> Mapping[str, Any] | None:
    """The data of the direct tool call that the delegating message carries for this `task` call."""
    message = find_last_model_message(messages)
    if message is None:
        return None
    note = find_direct_call(message, call_id)
    if note is None:
        return None
    return note.to_data()


def _session_key(messages: Sequence[AnyMessage], call_id: str, agent: str) -> str:
    """The key of the session that a `task` call continues: the agent's name, numbered for parallel calls.

    Two delegations to the same agent at once get a session each: with a shared one they would have to wait
    for each other, or lose each other's messages.
    """
    parallel_calls = _find_parallel_calls(find_last_model_message(messages), agent)
    if call_id not in parallel_calls:
        return agent
    index = parallel_calls.index(call_id)
    if index == 0:
        return agent
    return f"{agent}#{index + 1}"


def _find_parallel_calls(message: AIMessage | None, agent: str) -> list[str | None]:
    """The ids of all `task` calls to the agent in one message, in order."""
    if message is None:
        return []
    return [
        call["id"]
        for call in message.tool_calls
        if ToolTraits.from_name(call["name"]).delegates and call["args"].get("subagent_type") == agent
    ]
