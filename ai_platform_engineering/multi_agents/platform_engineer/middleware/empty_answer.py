"""A model message without text or with unreadable tool calls: the model is asked again."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    ToolMessage,
)

from ai_platform_engineering.core.signals import ModelRetried
from ai_platform_engineering.graph.visible_text import visible_text
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import ModelCallHandler
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_requests import (
    answer_with_findings,
    answer_without_tools,
    withdraw_tools,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_call_repair import INVALID
from ai_platform_engineering.multi_agents.platform_engineer.run_usage import may_call_model
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import current_turn

_ASK_AGAIN = "Your last message was empty. Answer the request now, in words, from what you have."
_NO_CALLS = "Your tool calls cannot be read. Call no tools any more: answer now, from what you have."
_EMPTY = "the model's answer was empty"
_UNREADABLE = "the model's tool calls could not be read"
_NOT_RUN = "Not run: give the final answer only when no more tools are needed, and alone."

# The finish reasons of the providers for an output that reached its maximum length.
_LENGTH_REASONS = frozenset({"length", "max_tokens", "MAX_TOKENS", "max_output_tokens"})
_FINISH_REASON_KEYS = ("finish_reason", "stop_reason", "stopReason")


class EmptyAnswerMiddleware(AgentMiddleware):
    """Makes sure that a turn ends with text."""

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        response = _invalidate_cut_call(await handler(request))
        message = _find_model_message(response)
        if message is None:
            return response
        if message.invalid_tool_calls and not message.tool_calls:
            return await self._retry_invalid_calls(request, handler, message)
        tool_results = [result for result in response.result if isinstance(result, ToolMessage)]
        has_refused_answer = bool(tool_results) and response.structured_response is None
        if has_refused_answer and len(tool_results) < len(message.tool_calls):
            return await self._retry_refused_answer(request, handler, message, tool_results)
        if _is_empty(response, message) and not _has_text_before(request):
            if not may_call_model():
                return answer_with_findings(request, _EMPTY)
            request.runtime.stream_writer(ModelRetried("empty answer"))
            # Without tools: a model that has nothing to say would only call another one.
            messages = [*request.messages, HumanMessage(_ASK_AGAIN)]
            return await handler(withdraw_tools(request).override(messages=messages))
        return response

    async def _retry_invalid_calls(
        self, request: ModelRequest[Any], handler: ModelCallHandler, message: AIMessage
    ) -> ModelResponse[Any]:
        if not may_call_model():
            return answer_with_findings(request, _UNREADABLE)
        request.runtime.stream_writer(ModelRetried("invalid tool arguments"))
        errors = [
            ToolMessage(INVALID, tool_call_id=call["id"] or "", status="error")
            for call in message.invalid_tool_calls
        ]
        retry = request.override(messages=[*request.messages, message, *errors])
        response = _invalidate_cut_call(await handler(retry))
        retried = _find_model_message(response)
        if retried is None or not retried.invalid_tool_calls or retried.tool_calls:
            return response
        request.runtime.stream_writer(ModelRetried("invalid tool arguments"))
        return await answer_without_tools(request, handler, instruction=_NO_CALLS, reason=_UNREADABLE)

    async def _retry_refused_answer(
        self,
        request: ModelRequest[Any],
        handler: ModelCallHandler,
        message: AIMessage,
        tool_results: list[ToolMessage],
    ) -> ModelResponse[Any]:
        """Asks again after a refused structured answer that came together with other calls.

        LangChain would end the run after it, without an answer.
        """
        request.runtime.stream_writer(ModelRetried("invalid answer"))
        finished_ids = {result.tool_call_id for result in tool_results}
        for call in message.tool_calls:
            if call["id"] not in finished_ids:
                tool_results.append(ToolMessage(_NOT_RUN, tool_call_id=call["id"] or "", status="error"))
        return await handler(request.override(messages=[*request.messages, message, *tool_results]))


def _finish_reasons(metadata: Mapping[str, Any]) -> set[str]:
    """Why an output ended, in the provider's words."""
    reasons = {str(metadata.get(key)) for key in _FINISH_REASON_KEYS}
    incomplete = metadata.get("incomplete_details")  # of OpenAI's Responses API
    if isinstance(incomplete, Mapping):
        reasons.add(str(incomplete.get("reason")))
    return reasons


def _invalidate_cut_call(response: ModelResponse[Any]) -> ModelResponse[Any]:
    """Marks the last call of an output that was cut off as invalid.

    The provider's client completes what is there to JSON, so the call looks valid with half its arguments.
    """
    message = _find_model_message(response)
    if message is None or not message.tool_calls or response.structured_response is not None:
        return response
    if not _LENGTH_REASONS & _finish_reasons(message.response_metadata):
        return response
    *complete_calls, last = message.tool_calls
    invalid = InvalidToolCall(
        type="invalid_tool_call",
        name=last["name"],
        args=json.dumps(last["args"]),
        id=last["id"],
        error="cut off",
    )
    changed = message.model_copy(
        update={
            "tool_calls": complete_calls,
            "invalid_tool_calls": [*message.invalid_tool_calls, invalid],
        }
    )
    result: list[BaseMessage] = []
    for other in response.result:
        result.append(changed if other is message else other)
    return replace(response, result=result)


def _find_model_message(response: ModelResponse[Any]) -> AIMessage | None:
    for message in reversed(response.result):
        if isinstance(message, AIMessage):
            return message
    return None


def _is_empty(response: ModelResponse[Any], message: AIMessage) -> bool:
    """Whether there is no text, and no tool call except one with an empty structured answer."""
    if response.structured_response is None and message.tool_calls:
        return False
    structured_text = str(getattr(response.structured_response, "content", ""))
    return not visible_text(message.text) and not visible_text(structured_text)


def _has_text_before(request: ModelRequest[Any]) -> bool:
    """Whether an earlier model message of this run has text, which then serves as the answer."""
    turn = current_turn(request.state["messages"])
    return any(isinstance(message, AIMessage) and visible_text(message.text) for message in turn)
