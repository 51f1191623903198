"""Caps on knowledge base calls: numbers the calls of a question, and removes used-up tools."""

from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.message_metadata import ResultSource
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ModelCallHandler,
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.rag_tools import CALL_NUMBER, _CapCounterMixin
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import current_turn


class KnowledgeCapMiddleware(AgentMiddleware):
    """Counts in the messages of the run, so that the counts survive a pause and a restart.

    A tool that is used up is not offered in later model calls, and the model goes on with the others.
    """

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        turn = current_turn(request.state["messages"])
        remaining_tools = [tool for tool in request.tools if not _is_used_up(tool, turn)]
        if len(remaining_tools) < len(request.tools):
            request = request.override(tools=remaining_tools)
        return await handler(request)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        if not isinstance(request.tool, _CapCounterMixin):
            return await handler(request)
        turn = current_turn(request.state["messages"])
        token = CALL_NUMBER.set(_call_number(turn, request.tool.name, request.tool_call["id"]))
        try:
            result = await handler(request)
        finally:
            CALL_NUMBER.reset(token)
        if not isinstance(result, ToolMessage) or result.text != request.tool.cap_message:
            return result
        metadata = {**result.additional_kwargs, **ResultSource(None).to_metadata()}
        return result.model_copy(update={"additional_kwargs": metadata})


def _is_used_up(tool: BaseTool | dict[str, Any], turn: Sequence[AnyMessage]) -> bool:
    return isinstance(tool, _CapCounterMixin) and tool.is_used_up(_count_calls(turn, tool.name))


def _count_calls(messages: Sequence[AnyMessage], tool_name: str) -> int:
    count = 0
    for message in messages:
        if isinstance(message, AIMessage):
            count += len(_call_ids(message, tool_name))
    return count


def _call_ids(message: AIMessage, tool_name: str) -> list[str | None]:
    return [call["id"] for call in message.tool_calls if call["name"] == tool_name]


def _call_number(turn: Sequence[AnyMessage], tool_name: str, call_id: str | None) -> int:
    """The number of the call among those of its tool in the question, also when several are made at once."""
    model_messages = [message for message in turn if isinstance(message, AIMessage)]
    if not model_messages:
        return 1
    earlier_calls = _count_calls(model_messages[:-1], tool_name)
    parallel_calls = _call_ids(model_messages[-1], tool_name)
    if call_id not in parallel_calls:
        return earlier_calls + 1
    return earlier_calls + parallel_calls.index(call_id) + 1
