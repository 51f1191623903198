"""A turn never ends without words: an empty or unreadable model message is asked for again, once."""

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from ai_platform_engineering.multi_agents.platform_engineer.middleware.limits import current_turn
from ai_platform_engineering.multi_agents.platform_engineer.repair import INVALID
from ai_platform_engineering.utils.signals import ModelRetried
from ai_platform_engineering.utils.visible_text import visible

_ASK_AGAIN = "Your last message was empty. Answer the request now, in words, from what you have."

Handler = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


class AlwaysAnswer(AgentMiddleware):
    async def awrap_model_call(self, request: ModelRequest[Any], handler: Handler) -> ModelResponse[Any]:
        response = await handler(request)
        message = _message(response)
        if message is None or message.tool_calls:
            return response
        if message.invalid_tool_calls:
            return await self._call_again(request, handler, message)
        if response.structured_response is None and not visible(message.text) and not _has_spoken(request):
            # Without tools: a model that has nothing to say would only call another one.
            return await handler(request.override(tools=[], messages=[*request.messages, HumanMessage(_ASK_AGAIN)]))
        return response

    async def _call_again(self, request: ModelRequest[Any], handler: Handler, message: AIMessage) -> ModelResponse[Any]:
        request.runtime.stream_writer(ModelRetried("invalid tool arguments"))
        told = [ToolMessage(INVALID, tool_call_id=call["id"] or "", status="error") for call in message.invalid_tool_calls]
        return await handler(request.override(messages=[*request.messages, message, *told]))


def _message(response: ModelResponse[Any]) -> AIMessage | None:
    return next((message for message in reversed(response.result) if isinstance(message, AIMessage)), None)


def _has_spoken(request: ModelRequest[Any]) -> bool:
    """What was said earlier in this run is an answer of sorts; only a run without a word is asked again."""
    return any(isinstance(message, AIMessage) and visible(message.text) for message in current_turn(request.state["messages"]))
