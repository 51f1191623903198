"""`task`: hands a piece of work to a domain agent and returns what it found."""

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

from ai_platform_engineering.core.events import StepStatus
from ai_platform_engineering.core.plan import DelegationEnded
from ai_platform_engineering.utils.failures import in_words, traced
from ai_platform_engineering.utils.translate import DELEGATION
from ai_platform_engineering.utils.visible_text import visible

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SubAgent:
    """An agent behind `task`. Its graph is built when it is first needed."""

    name: str
    description: str
    graph: Callable[[], Awaitable[Runnable[Any, Any]]]
    tools: tuple[str, ...] = ()


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
    last = result["messages"][-1] if result.get("messages") else None
    text = visible(last.text) if isinstance(last, AIMessage) else ""
    return (text, "completed") if text else (f"Agent {name} ended without an answer.", "failed")
