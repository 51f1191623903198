"""Tells the model the scope of the question: the agents it may use, and the question's own instructions."""

from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL, traits_of
from ai_platform_engineering.multi_agents.platform_engineer.delegation import SubAgent, find_scope
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import ModelCallHandler
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_requests import (
    add_to_system_prompt,
    remove_tool,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.task_tool import describe_task_tool

_ONLY_THESE_AGENTS = (
    "# Agents for this question\nOnly these agents may be used: {names}. Others are not available here, "
    "whatever is said above."
)
_NO_AGENTS = (
    "# Agents for this question\nNo agent may be used here, whatever is said above. Say so when the question "
    "needs one."
)
_INSTRUCTIONS_HEADING = "# Instructions for this question"


class RunScopeMiddleware(AgentMiddleware):
    """Adds the scope to the prompt; the `task` tool itself refuses agents that are out of scope."""

    def __init__(self, agents: Sequence[SubAgent], *, in_prompt: bool = False) -> None:
        """`in_prompt`: the system prompt describes the agents."""
        super().__init__()
        self._in_prompt = in_prompt
        self._agents = {agent.name: agent for agent in agents}

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        scope = find_scope(request.state["messages"])
        sections: list[str] = []
        if scope.agents is not None and self._agents:
            names = scope.filter_agents(self._agents)
            sections.append(_describe_agents(names))
            request = self._restrict_task_tool(request, names)
        instructions = (scope.instructions or "").strip()
        if instructions:
            sections.append(f"{_INSTRUCTIONS_HEADING}\n{instructions}")
        if sections:
            request = add_to_system_prompt(request, sections)
        return await handler(request)

    def _restrict_task_tool(self, request: ModelRequest[Any], names: Sequence[str]) -> ModelRequest[Any]:
        """The request with the `task` tool for these agents only, and without the tool for no agents."""
        if not names:
            return remove_tool(request, DELEGATION_TOOL)
        agents = [self._agents[name] for name in names]
        description = describe_task_tool(agents, in_prompt=self._in_prompt)
        return request.override(tools=[_describe_if_task(tool, description) for tool in request.tools])


def _describe_agents(names: Sequence[str]) -> str:
    if not names:
        return _NO_AGENTS
    return _ONLY_THESE_AGENTS.format(names=", ".join(names))


def _describe_if_task(tool: BaseTool | dict[str, Any], description: str) -> BaseTool | dict[str, Any]:
    """A copy of the `task` tool with the description; any other tool as it is."""
    if not isinstance(tool, BaseTool) or not traits_of(tool).delegates:
        return tool
    return tool.model_copy(update={"description": description})
