"""The `write_todos` tool: the model's plan as typed steps in the graph's state."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired

from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import BaseTool, ToolRuntime, tool
from langchain_core.messages import ToolMessage
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ai_platform_engineering.core.plan import (
    PLAN_CHANGE_ADAPTER,
    PlanState,
    ResetPlan,
    WriteSteps,
    change_plan,
    read_steps,
)
from ai_platform_engineering.core.tool_traits import PLANNING_TOOL

RESET_PLAN: list[dict[str, Any]] = [ResetPlan().model_dump()]

_DESCRIPTION = (
    "Write or update the plan that the user sees. Use it when the request needs two or more steps, before "
    "the first step.\n"
    "Send the whole plan each time, in order. One step per agent and task. Keep the ids you get back when "
    "you update a step."
)


def reduce_plan(before: Mapping[str, Any], changes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The reducer of the plan in the graph's state: parallel delegations may end in the same step."""
    state = PlanState.model_validate(before)
    for change in changes:
        state = change_plan(state, PLAN_CHANGE_ADAPTER.validate_python(change))
    return state.model_dump()


class PlanningState(AgentState[Any]):
    """Adds the plan to the graph's state."""

    plan: NotRequired[Annotated[dict[str, Any], reduce_plan]]


class TodoItem(BaseModel):
    model_config = ConfigDict(extra="allow")  # plain todos with `content` are tolerated

    id: str | None = Field(
        None, description="The step's id, as returned by an earlier call; leave out for a new step."
    )
    agent: str = Field("", description="The agent that does it; empty for your own steps.")
    title: str = Field("", description="What is done, in a few words.")
    status: str = Field("pending", description="pending, in_progress, completed, failed or skipped")


class WriteTodosArguments(BaseModel):
    todos: list[TodoItem | str] = Field(description="All steps, in order.")
    title: str | None = Field(None, description="What the plan achieves, in a few words.")


@tool(PLANNING_TOOL, args_schema=WriteTodosArguments, description=_DESCRIPTION)
async def write_todos(todos: list[Any], runtime: ToolRuntime, title: str | None = None) -> Command[Any]:
    # The steps are in the plan already (`PlanProgressMiddleware`): the calls of the same message need them.
    state = PlanState.model_validate(runtime.state.get("plan") or {})
    steps = [
        {"id": step.step_id, "agent": step.agent, "title": step.title, "status": step.status}
        for step in state.plan.steps
    ]
    result = ToolMessage(
        json.dumps({"steps": steps}, ensure_ascii=False),
        tool_call_id=runtime.tool_call_id,
        name=PLANNING_TOOL,
    )
    return Command(update={"messages": [result]})


def read_written_steps(arguments: Mapping[str, Any]) -> WriteSteps | None:
    """The steps in a call of `write_todos`; None when its arguments are not valid: the tool refuses them."""
    try:
        written = WriteTodosArguments.model_validate(arguments)
    except ValidationError:
        return None
    items: list[Any] = []
    for todo in written.todos:
        items.append(todo.model_dump() if isinstance(todo, BaseModel) else todo)
    return WriteSteps(title=written.title, steps=read_steps(items))


class PlanningMiddleware(AgentMiddleware[PlanningState]):
    """Adds the `write_todos` tool, and the plan to the state."""

    state_schema = PlanningState
    tools: Sequence[BaseTool] = (write_todos,)
