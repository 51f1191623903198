"""A turn never ends without words: an empty or unreadable model message is asked for again, once."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, HumanMessage, InvalidToolCall, ToolMessage

from ai_platform_engineering.core.signals import ModelRetried
from ai_platform_engineering.graph.visible_text import visible_text
from ai_platform_engineering.multi_agents.platform_engineer.middleware.call_limits import current_turn
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_call_repair import INVALID

_ASK_AGAIN = "Your last message was empty. Answer the request now, in words, from what you have."

_NOT_RUN = "Not run: give the final answer only when no more tools are needed, and alone."

_CUT_OFF = frozenset(
    {"length", "max_tokens", "MAX_TOKENS"}
)  # the words of the providers for "my length is used up"

Handler = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


class EmptyAnswerMiddleware(AgentMiddleware):
    async def awrap_model_call(self, request: ModelRequest[Any], handler: Handler) -> ModelResponse[Any]:
        response = _without_cut_call(await handler(request))
        message = _message(response)
        if message is None:
            return response
        if message.invalid_tool_calls and not message.tool_calls:
            return await self._call_again(request, handler, message)
        told = [one for one in response.result if isinstance(one, ToolMessage)]
        if told and response.structured_response is None and len(told) < len(message.tool_calls):
            return await self._answer_again(request, handler, message, told)
        if _is_silent(response, message) and not _has_spoken(request):
            request.runtime.stream_writer(ModelRetried("empty answer"))
            # Without tools: a model that has nothing to say would only call another one.
            return await handler(
                request.override(tools=[], messages=[*request.messages, HumanMessage(_ASK_AGAIN)])
            )
        return response

    async def _call_again(
        self, request: ModelRequest[Any], handler: Handler, message: AIMessage
    ) -> ModelResponse[Any]:
        request.runtime.stream_writer(ModelRetried("invalid tool arguments"))
        told = [
            ToolMessage(INVALID, tool_call_id=call["id"] or "", status="error")
            for call in message.invalid_tool_calls
        ]
        return _without_cut_call(
            await handler(request.override(messages=[*request.messages, message, *told]))
        )

    async def _answer_again(
        self, request: ModelRequest[Any], handler: Handler, message: AIMessage, told: list[ToolMessage]
    ) -> ModelResponse[Any]:
        """The structured answer was refused and came together with other calls, after which LangChain would end the run without one."""
        request.runtime.stream_writer(ModelRetried("invalid answer"))
        known = {one.tool_call_id for one in told}
        rest = [call["id"] or "" for call in message.tool_calls if call["id"] not in known]
        told += [ToolMessage(_NOT_RUN, tool_call_id=call_id, status="error") for call_id in rest]
        return await handler(request.override(messages=[*request.messages, message, *told]))


def _without_cut_call(response: ModelResponse[Any]) -> ModelResponse[Any]:
    """A call that was cut off counts as invalid: its client has completed what is there to JSON, and half an order is none."""
    message = _message(response)
    if message is None or not message.tool_calls or response.structured_response is not None:
        return response
    if not _CUT_OFF & {
        str(message.response_metadata.get(name)) for name in ("finish_reason", "stop_reason", "stopReason")
    }:
        return response
    *whole, last = message.tool_calls
    cut = InvalidToolCall(
        type="invalid_tool_call",
        name=last["name"],
        args=json.dumps(last["args"]),
        id=last["id"],
        error="cut off",
    )
    changed = message.model_copy(
        update={"tool_calls": whole, "invalid_tool_calls": [*message.invalid_tool_calls, cut]}
    )
    return replace(response, result=[changed if one is message else one for one in response.result])


def _message(response: ModelResponse[Any]) -> AIMessage | None:
    return next((message for message in reversed(response.result) if isinstance(message, AIMessage)), None)


def _is_silent(response: ModelResponse[Any], message: AIMessage) -> bool:
    """It neither speaks nor works: no text, and no call but one that carries an empty structured answer."""
    if response.structured_response is None and message.tool_calls:
        return False
    return not visible_text(message.text) and not visible_text(
        str(getattr(response.structured_response, "content", ""))
    )


def _has_spoken(request: ModelRequest[Any]) -> bool:
    """What was said earlier in this run is an answer of sorts; only a run without a word is asked again."""
    return any(
        isinstance(message, AIMessage) and visible_text(message.text)
        for message in current_turn(request.state["messages"])
    )
