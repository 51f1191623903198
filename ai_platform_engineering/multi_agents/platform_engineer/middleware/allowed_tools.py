"""Restricts an agent to the tools of its question's scope: other tools are neither offered nor run."""

from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import ToolMessage

from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.multi_agents.platform_engineer.delegation import find_scope
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ModelCallHandler,
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_requests import filter_tools

_REFUSED = (
    "{tool} was not called: for this assignment only {names} may be used. Do without it, and say what could "
    "not be done."
)


class AllowedToolsMiddleware(AgentMiddleware):
    """Wraps approvals and the journal: nobody is asked to approve a call that may not be made."""

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        allowed = find_scope(request.state["messages"]).tools
        return await handler(filter_tools(request, lambda name: _is_allowed(name, allowed)))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        tool_name = request.tool_call["name"]
        allowed = find_scope(request.state["messages"]).tools
        if _is_allowed(tool_name, allowed):
            return await handler(request)
        text = _REFUSED.format(tool=tool_name, names=", ".join(allowed or ()) or "no tool")
        return ToolMessage(text, tool_call_id=request.tool_call["id"], name=tool_name, status="error")


def _is_allowed(tool_name: str, allowed: Sequence[str] | None) -> bool:
    """Whether the scope allows the tool; `allowed` is None for a scope without restrictions."""
    return allowed is None or tool_name in allowed or ToolTraits.from_name(tool_name).is_control
