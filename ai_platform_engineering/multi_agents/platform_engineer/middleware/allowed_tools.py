"""An agent that is held to some of its tools for an assignment: the others are neither offered nor run."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import AnyMessage, ToolMessage
from langgraph.types import Command

from ai_platform_engineering.core.tool_traits import (
    DELEGATION_TOOL,
    PLANNING_TOOL,
    USER_INPUT_TOOL,
    WAIT_TOOL,
)
from ai_platform_engineering.multi_agents.platform_engineer.delegation import find_scope
from ai_platform_engineering.multi_agents.platform_engineer.middleware.offered_tools import (
    ModelCallHandler,
    filter_tools,
)

_ALWAYS = frozenset({USER_INPUT_TOOL, DELEGATION_TOOL, PLANNING_TOOL, WAIT_TOOL})
_REFUSED = "{tool} was not called: for this assignment only {names} may be used. Do without it, and say what could not be done."


class AllowedToolsMiddleware(AgentMiddleware):
    """Outside of approvals and journal: nobody is asked about a call that may not be made."""

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        if (names := _names(request.state["messages"])) is None:
            return await handler(request)
        return await handler(filter_tools(request, lambda name: name in names or name in _ALWAYS))

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        call, names = request.tool_call, _names(request.state["messages"])
        if names is None or call["name"] in names or call["name"] in _ALWAYS:
            return await handler(request)
        text = _REFUSED.format(tool=call["name"], names=", ".join(names) or "no tool")
        return ToolMessage(text, tool_call_id=call["id"], name=call["name"], status="error")


def _names(messages: Sequence[AnyMessage]) -> tuple[str, ...] | None:
    return find_scope(messages).tools
