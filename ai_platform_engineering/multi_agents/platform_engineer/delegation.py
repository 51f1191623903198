"""`task`: hands a piece of work to a domain agent, wherever it runs, and returns what it found."""

import asyncio
import logging
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NotRequired, Protocol

from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import BaseTool, ToolRuntime, tool
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command
from pydantic import BaseModel, Field

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import StepStatus
from ai_platform_engineering.core.plan import DelegationEnded
from ai_platform_engineering.core.run_scope import RunScope
from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.graph.failures import describe_error
from ai_platform_engineering.multi_agents.platform_engineer.active_skills import SkillRestrictions

log = logging.getLogger(__name__)

DELEGATION_CALL = "call"  # the delegation that a graph works on, in its configuration's metadata: where its state belongs after a crash
DIRECT_CALLS = "ordered_calls"  # beside a message's text, by call id: one tool that the agent calls without its model, or that it needs its model
DEADLINE = "deadline"  # of the whole run, seconds since the epoch; in the graph's configuration
_SCOPE = uuid.UUID("6a2f3a0e-3f5c-4f0e-9d0b-6a7c1f0f4b11")

AgentMemory = Mapping[str, Any]


class AgentTimeout(CaipeError):
    code = "agent_timeout"
    retryable = True

    def __init__(self, seconds: float) -> None:
        super().__init__(f"It did not finish within {seconds:g} seconds.")


class AgentFailed(CaipeError):
    """The agent said itself that it failed; the text is its own."""

    code = "agent_failed"


@dataclass(frozen=True, slots=True)
class Delegation:
    """A piece of work for an agent. `key` names the delegation within its run, also after a restart."""

    text: str
    run_id: str
    epoch: int
    key: str
    call_id: str
    context_id: str
    seconds: float
    deadline: float
    call: Mapping[str, Any] | None = (
        None  # one tool, without the agent's model; or that the text is for a language model
    )
    tools: tuple[str, ...] | None = None  # the only ones that it may use for this
    memory: AgentMemory = field(default_factory=dict)

    def to_state(self) -> dict[str, Any]:
        """The assignment for a graph's state, without the memory: of that a graph keeps what it needs."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "memory"}

    def remaining_seconds(self) -> float:
        """The seconds until the deadline, which is passed down the hops."""
        return max(0.0, round(self.deadline - time.time(), 3))

    @property
    def message_id(self) -> str:
        return str(uuid.uuid5(_SCOPE, f"{self.run_id}\n{self.key}"))


@dataclass(frozen=True, slots=True)
class DelegationResult:
    """What the agent says, and what it must be given again to remember it."""

    text: str
    memory: AgentMemory = field(default_factory=dict)


class SubAgent(Protocol):
    """An agent behind `task`."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str:
        """What the model is told of the agent, as far as it is known without asking anybody."""
        ...

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of its tools as far as they are known."""
        ...

    @property
    def problem(self) -> str | None:
        """Why it cannot do its work now."""
        ...

    @property
    def runnable(self) -> Runnable[Any, Any]:
        """The agent as a graph of its own."""
        ...

    async def run_delegation(self, assignment: Delegation, config: RunnableConfig) -> DelegationResult:
        """Does the work. Raises what went wrong, in words where they are ours."""
        ...


def _merged(
    before: Mapping[str, AgentMemory] | None, after: Mapping[str, AgentMemory] | None
) -> dict[str, AgentMemory]:
    return {**(before or {}), **(after or {})}


class DelegationState(AgentState[Any]):
    memories: NotRequired[Annotated[dict[str, AgentMemory], _merged]]


class TaskArguments(BaseModel):
    description: str = Field(
        description="The whole assignment: the agent sees nothing else of the conversation."
    )
    subagent_type: str = Field(description="The agent's name.")
    step_id: str | None = Field(None, description="The id of the plan's step, when there is a plan.")


class DelegationMiddleware(AgentMiddleware[DelegationState]):
    """Brings `task` and what the agents remember of the conversation. `planned` graphs have a plan, whose step ends with the delegation."""

    state_schema = DelegationState

    def __init__(self, agents: Sequence[SubAgent], *, seconds: float, planned: bool) -> None:
        super().__init__()
        self._agents = {agent.name: agent for agent in agents}
        self._seconds = seconds
        self._planned = planned
        self.tools: Sequence[BaseTool] = (self._tool(),)

    def _tool(self) -> BaseTool:
        @tool(
            DELEGATION_TOOL, args_schema=TaskArguments, description=describe_task_tool(self._agents.values())
        )
        async def task(
            description: str, subagent_type: str, runtime: ToolRuntime, step_id: str | None = None
        ) -> Command[Any]:
            said = _asking_message(runtime)
            lane = _lane(said, runtime.tool_call_id or "", subagent_type)
            call = (
                (said.additional_kwargs.get(DIRECT_CALLS) or {}).get(runtime.tool_call_id) if said else None
            )
            bounds, scope = (
                SkillRestrictions.of(runtime.state.get("messages") or ()),
                find_scope(runtime.state.get("messages") or ()),
            )
            assignment = replace(
                self._assignment(description, lane, runtime),
                call=call,
                tools=_held(subagent_type, bounds, scope),
            )
            allowed = scope.filter_agents(self._agents)
            if subagent_type in allowed and bounds.allows_agent(subagent_type):
                text, status, memory = await self._delegate(
                    self._agents[subagent_type], assignment, runtime.config
                )
            elif subagent_type in allowed:
                text = bounds.refusal(f"The agent {subagent_type}")
                status = "failed"
                memory = None
            else:
                text = f"There is no agent {subagent_type}. The agents are: {', '.join(allowed) or 'none'}."
                status = "failed"
                memory = None
            outcome = "success" if status == "completed" else "error"
            told = ToolMessage(text, tool_call_id=runtime.tool_call_id, name=DELEGATION_TOOL, status=outcome)
            update: dict[str, Any] = {"messages": [told], **({"memories": {lane: memory}} if memory else {})}
            if self._planned:
                update["plan"] = [
                    DelegationEnded(agent=subagent_type, step_id=step_id, status=status).model_dump()
                ]
            return Command(update=update)

        return task

    def _assignment(self, text: str, lane: str, runtime: ToolRuntime) -> Delegation:
        settings: Mapping[str, Any] = runtime.config.get("configurable") or {}
        given: Mapping[str, Any] = runtime.config.get("metadata") or {}
        now = time.time()
        seconds = max(0.0, min(self._seconds, float(settings.get(DEADLINE) or "inf") - now))
        return Delegation(
            text=text,
            run_id=str(given.get("query_id") or ""),
            epoch=int(given.get("epoch") or 0),
            key=str(settings.get("checkpoint_ns") or runtime.tool_call_id),
            call_id="/".join(filter(None, (given.get(DELEGATION_CALL), runtime.tool_call_id))),
            context_id=str(uuid.uuid5(_SCOPE, f"{settings.get('thread_id')}\n{lane}")),
            seconds=seconds,
            deadline=now + seconds,
            memory=(runtime.state.get("memories") or {}).get(lane) or {},
        )

    async def _delegate(
        self, agent: SubAgent, assignment: Delegation, config: RunnableConfig
    ) -> tuple[str, StepStatus, AgentMemory | None]:
        limit = asyncio.timeout(assignment.seconds)
        try:
            async with limit:
                result = await agent.run_delegation(assignment, config)
        except GraphBubbleUp:
            raise  # an interrupt: the run pauses, the delegation goes on later
        except Exception as error:  # noqa: BLE001 - whatever breaks one agent, the others' work and the run go on
            shown = (
                AgentTimeout(assignment.seconds)
                if isinstance(error, TimeoutError) and limit.expired()
                else error
            )
            message, code, _ = describe_error(shown)
            log.warning("agent %s failed: %s: %s", agent.name, code, format_traceback(error))
            return f"Agent {agent.name} failed: {message}", "failed", None
        return result.text, "completed", result.memory


def describe_task_tool(agents: Iterable[SubAgent]) -> str:
    """What a model is told of `task`."""
    offered = "\n".join(f"- {agent.name}: {agent.description}" for agent in agents)
    return f"Delegate to an agent. Independent tasks may run in parallel. Agents:\n{offered}"


def find_scope(messages: Sequence[AnyMessage]) -> RunScope:
    """The bounds of the question that is worked on. They are part of its message, and so of the stored state."""
    asked = next((message for message in reversed(messages) if isinstance(message, HumanMessage)), None)
    return RunScope.from_metadata(asked.additional_kwargs if asked else {})


def _held(agent: str, bounds: SkillRestrictions, scope: RunScope) -> tuple[str, ...] | None:
    """The only tools that the agent may use: those that skills leave it, and none that whoever asks it may not use itself."""
    left = bounds.allowed_tools(agent)
    if scope.tools is None or left is None:
        if scope.tools is None:
            return left
        return scope.tools
    return tuple(name for name in left if name in scope.tools)


def _asking_message(runtime: ToolRuntime) -> AIMessage | None:
    """The message that delegates."""
    return next(
        (
            message
            for message in reversed(runtime.state.get("messages") or ())
            if isinstance(message, AIMessage)
        ),
        None,
    )


def _lane(said: AIMessage | None, call_id: str, agent: str) -> str:
    """Under which name an agent remembers an assignment. It has one conversation with each of those who ask it at the same time:
    two assignments at once would otherwise have to wait for each other, or lose what the other one said."""
    calls = said.tool_calls if said else []
    at_once = [
        call["id"]
        for call in calls
        if call["name"] == DELEGATION_TOOL and call["args"].get("subagent_type") == agent
    ]
    place = at_once.index(call_id) if call_id in at_once else 0
    if place == 0:
        return agent
    return f"{agent}#{place + 1}"
