"""`task`: hands a piece of work to a domain agent and returns what it found."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.tools import BaseTool, ToolRuntime, tool
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command
from pydantic import BaseModel, Field

from ai_platform_engineering.core.agents import AgentDefinition
from ai_platform_engineering.core.events import StepStatus
from ai_platform_engineering.core.plan import DelegationEnded
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import ToolSource
from ai_platform_engineering.utils.failures import in_words, traced
from ai_platform_engineering.utils.translate import DELEGATION
from ai_platform_engineering.utils.visible_text import visible

log = logging.getLogger(__name__)

_MOST_NAMED = 40


class Kept:
    """A graph that is built when it is first needed, kept, and built anew when its revision has changed. Failures are not kept."""

    def __init__(self, build: Callable[[], Awaitable[Runnable[Any, Any]]], revision: Callable[[], object]) -> None:
        self._build, self._revision = build, revision
        self._kept: tuple[object, Runnable[Any, Any]] | None = None
        self._lock = asyncio.Lock()

    async def __call__(self) -> Runnable[Any, Any]:
        async with self._lock:
            if self._kept is None or self._kept[0] != self._revision():
                graph = await self._build()
                self._kept = self._revision(), graph
            return self._kept[1]


@dataclass(frozen=True, slots=True)
class SubAgent:
    """An agent behind `task`."""

    definition: AgentDefinition
    source: ToolSource
    graph: Kept

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def description(self) -> str:
        """What the model is told of the agent; as much of its tools as is known without starting anything."""
        parts = [" ".join(self.definition.description.split())]
        if self.source.problem:
            parts.append(f"(Its tools are unavailable now: {self.source.problem}.)")
        if self.source.known:
            parts.append(f"Tools: {', '.join(self.source.known[:_MOST_NAMED])}.")
        if self.definition.examples:
            parts.append(f"Examples: {' | '.join(self.definition.examples)}")
        return " ".join(parts)


class Delegate(BaseModel):
    description: str = Field(description="The whole assignment: the agent sees nothing else of the conversation.")
    subagent_type: str = Field(description="The agent's name.")
    step_id: str | None = Field(None, description="The id of the plan's step, when there is a plan.")


def delegation_tool(agents: Sequence[SubAgent], *, recursion_limit: int, planned: bool) -> BaseTool:
    """The tool for these agents. `planned` graphs have a plan, whose step ends with the delegation."""
    by_name = {agent.name: agent for agent in agents}
    offered = "\n".join(f"- {agent.name}: {agent.description}" for agent in agents)

    @tool(DELEGATION, args_schema=Delegate, description=f"Delegate to an agent. Independent tasks may run in parallel. Agents:\n{offered}")
    async def task(description: str, subagent_type: str, runtime: ToolRuntime, step_id: str | None = None) -> Command[Any]:
        text, status = await _delegate(by_name, subagent_type, description, recursion_limit)
        said = ToolMessage(text, tool_call_id=runtime.tool_call_id, name=DELEGATION, status="success" if status == "completed" else "error")
        update: dict[str, Any] = {"messages": [said]}
        if planned:
            update["plan"] = [DelegationEnded(agent=subagent_type, step_id=step_id, status=status).model_dump()]
        return Command(update=update)

    return task


async def _delegate(agents: Mapping[str, SubAgent], name: str, description: str, recursion_limit: int) -> tuple[str, StepStatus]:
    agent = agents.get(name)
    if agent is None:
        return f"There is no agent {name}. The agents are: {', '.join(agents) or 'none'}.", "failed"
    try:
        graph = await agent.graph()
        result = await graph.ainvoke({"messages": [HumanMessage(description)]}, {"recursion_limit": recursion_limit})
    except GraphBubbleUp:
        raise  # an interrupt: the run pauses, the delegation goes on later
    except Exception as error:  # noqa: BLE001 - whatever breaks one agent, the others' work and the run go on
        message, code, _ = in_words(error)
        log.warning("agent %s failed: %s: %s", name, code, traced(error))
        return f"Agent {name} failed: {message}", "failed"
    said = [visible(one.text) for one in result.get("messages") or () if isinstance(one, AIMessage)]
    text = (said[-1] if said else "") or "\n\n".join(filter(None, said))  # as the supervisor: the last message, else what it said before
    return (text, "completed") if text else (f"Agent {name} ended without an answer.", "failed")
