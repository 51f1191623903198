"""What a question restricts and adds, said to the model: the agents that it may use now, and instructions for this question alone."""

from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import SystemMessage
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL
from ai_platform_engineering.multi_agents.platform_engineer.delegation import (
    SubAgent,
    describe_task_tool,
    find_scope,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.offered_tools import (
    ModelCallHandler,
    remove_tool,
)

_ONLY = "# Agents for this question\nOnly these agents may be used: {names}. Others are not available here, whatever is said above."
_NONE = "# Agents for this question\nNo agent may be used here, whatever is said above. Say so when the question needs one."
_HEADING = "# Instructions for this question"


class RunScopeMiddleware(AgentMiddleware):
    """Only tells: `task` itself refuses the agents that are out of scope."""

    def __init__(self, agents: Sequence[SubAgent]) -> None:
        super().__init__()
        self._agents = {agent.name: agent for agent in agents}

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        scope = find_scope(request.state["messages"])
        said: list[str] = []
        if scope.agents is not None and self._agents:
            names = scope.filter_agents(self._agents)
            said.append(_ONLY.format(names=", ".join(names)) if names else _NONE)
            request = self._offering(request, names)
        if scope.instructions and scope.instructions.strip():
            said.append(f"{_HEADING}\n{scope.instructions.strip()}")
        if not said:
            return await handler(request)
        prompt = request.system_message.text if request.system_message else ""
        return await handler(
            request.override(system_message=SystemMessage("\n\n".join(filter(None, [prompt, *said]))))
        )

    def _offering(self, request: ModelRequest[Any], names: Sequence[str]) -> ModelRequest[Any]:
        """The request with `task` for these agents alone, and without it for none."""
        if not names:
            return remove_tool(request, DELEGATION_TOOL)
        about = describe_task_tool(self._agents[name] for name in names)
        return request.override(tools=[_described(one, about) for one in request.tools])


def _described(tool: BaseTool | dict[str, Any], about: str) -> BaseTool | dict[str, Any]:
    """A copy of `task` with the description; any other tool as it is."""
    if not isinstance(tool, BaseTool) or tool.name != DELEGATION_TOOL:
        return tool
    return tool.model_copy(update={"description": about})
