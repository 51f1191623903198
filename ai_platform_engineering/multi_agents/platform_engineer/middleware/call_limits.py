"""Limits of a question: of the agent's own calls, of the run's budget over all agents, and of its time.

When one is reached the model gets a last call, without tools, to answer. A call beyond a limit in the same
message is not made, and its result says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage
from langgraph.config import get_config

from ai_platform_engineering.core.events import Usage
from ai_platform_engineering.core.message_metadata import (
    ResultSource,
    model_calls_metadata,
    unreported_tokens_metadata,
)
from ai_platform_engineering.core.run_budget import RESERVED_MODEL_CALLS
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.settings import LimitSettings
from ai_platform_engineering.core.signals import DroppedUsageCounted, NoticeEmitted, RunUsageCounted
from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ModelCallHandler,
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_requests import (
    answer_without_tools,
)
from ai_platform_engineering.multi_agents.platform_engineer.run_clock import (
    FollowerStore,
    RunClock,
    ToolStopped,
)
from ai_platform_engineering.multi_agents.platform_engineer.run_usage import (
    count_usage,
    counting_model_calls,
    find_budget,
    find_remaining_budget,
    subtract_reported,
)
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import (
    current_turn,
    find_last_model_message,
)

_ANSWER_NOW = (
    "The budget of this request is used up. Do not call tools any more. Answer now from what you have, and "
    "say what is missing."
)
_NOT_RUN = (
    "Not run: the budget of this request is used up ({limit}). Answer from what you have, and say what is "
    "missing."
)
_STOPPED = (
    "Stopped before it had finished: {reason}. Whether it had an effect is not known. Answer from what you "
    "have, and say what is missing."
)
# Steps of the graph that must stay: this model call, its tools, and the model call after them.
_RESERVED_STEPS = 3


class CallLimitMiddleware(AgentMiddleware):
    """Counts the calls in the messages of the run itself, so the counts survive a pause and a restart."""

    def __init__(self, settings: LimitSettings, store: FollowerStore | None = None) -> None:
        super().__init__()
        self._settings = settings
        self._clock = RunClock(settings, store)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        remaining = find_remaining_budget(request.state["messages"], self._settings)
        with counting_model_calls(max(1, remaining.model_calls), remaining.tokens) as count:
            try:
                response = await self._call_model(request, handler)
            except Exception:
                request.runtime.stream_writer(DroppedUsageCounted(count.usage))
                raise
        unreported = subtract_reported(count.usage, response.result)
        if unreported != Usage():
            request.runtime.stream_writer(DroppedUsageCounted(unreported))
        metadata: dict[str, Any] = {}
        if count.calls_made != 1:
            metadata |= model_calls_metadata(count.calls_made)
        if unreported != Usage():
            metadata |= unreported_tokens_metadata(unreported.input_tokens + unreported.output_tokens)
        if metadata:
            response = _add_metadata(response, metadata)
        turn = current_turn(request.state["messages"])
        request.runtime.stream_writer(RunUsageCounted(count_usage([*turn, *response.result])))
        return response

    async def _call_model(self, request: ModelRequest[Any], handler: ModelCallHandler) -> ModelResponse[Any]:
        limit = self._find_reached_limit(request.state["messages"])
        if limit is None:
            limit = await self._clock.find_reached_limit(RunContext.from_config(get_config()))
        if limit is None:
            return await handler(request)
        notice = NoticeEmitted("limit", f"I stop using tools and answer now: {limit}.")
        request.runtime.stream_writer(notice)
        return await answer_without_tools(request, handler, instruction=_ANSWER_NOW, reason=limit)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        limit = self._find_limit_of_call(request.state["messages"], request.tool_call["id"])
        if limit is not None:
            return _refuse(request, _NOT_RUN.format(limit=limit))
        delegates = ToolTraits.from_name(request.tool_call["name"]).delegates
        run = RunContext.from_config(request.runtime.config)
        try:
            async with self._clock.limit_tool(run, delegates=delegates):
                return await handler(request)
        except ToolStopped as stopped:
            return _refuse(request, _STOPPED.format(reason=stopped))

    def _find_reached_limit(self, messages: Sequence[AnyMessage]) -> str | None:
        """The limit that this question has reached, in words for people; None when there is none."""
        turn = current_turn(messages)
        model_calls = sum(isinstance(message, AIMessage) for message in turn)
        if model_calls >= self._settings.model_calls - 1:
            return f"{self._settings.model_calls} model calls are the most for one question"
        tool_calls = sum(isinstance(message, ToolMessage) for message in turn)
        if tool_calls >= self._settings.tool_calls:
            return f"{self._settings.tool_calls} tool calls are the most for one question"
        # A model call and its tools are one step of the graph each.
        if 2 * model_calls + _RESERVED_STEPS >= get_config()["recursion_limit"]:
            return "the limit of steps is near"
        return self._find_used_up_budget(messages)

    def _find_used_up_budget(self, messages: Sequence[AnyMessage]) -> str | None:
        """The part of the run's budget that is used up, in words for people; None when there is none."""
        budget = find_budget(messages, self._settings)
        remaining = budget.minus(count_usage(current_turn(messages)))
        # A budget of one or two calls still has one with tools.
        if remaining.model_calls <= max(1, min(RESERVED_MODEL_CALLS, budget.model_calls - 1)):
            return f"the run's budget of {budget.model_calls} model calls is used up"
        if remaining.tool_calls == 0:
            return f"the run's budget of {budget.tool_calls} tool calls is used up"
        if remaining.tokens == 0:
            return f"the run's budget of {budget.tokens} tokens is used up"
        return None

    def _find_limit_of_call(self, messages: Sequence[AnyMessage], call_id: str | None) -> str | None:
        """The limit that one call of the last message is beyond, in words; None for a call that is within."""
        turn = current_turn(messages)
        earlier_parallel_calls = _count_earlier_calls(find_last_model_message(turn), call_id)
        own_calls = sum(isinstance(message, ToolMessage) for message in turn)
        if own_calls + earlier_parallel_calls >= self._settings.tool_calls:
            return f"{self._settings.tool_calls} tool calls are the most for one question"
        budget = find_budget(messages, self._settings)
        if earlier_parallel_calls >= budget.minus(count_usage(turn)).tool_calls:
            return f"{budget.tool_calls} tool calls are what remained for it"
        return None


def _refuse(request: ToolCallRequest, text: str) -> ToolMessage:
    return ToolMessage(
        text,
        tool_call_id=request.tool_call["id"],
        name=request.tool_call["name"],
        status="error",
        additional_kwargs=ResultSource(None).to_metadata(),
    )


def _count_earlier_calls(message: AIMessage | None, call_id: str | None) -> int:
    """How many calls of a message come before one of them."""
    if message is None:
        return 0
    call_ids = [call["id"] for call in message.tool_calls]
    if call_id not in call_ids:
        return 0
    return call_ids.index(call_id)


def _add_metadata(response: ModelResponse[Any], metadata: Mapping[str, Any]) -> ModelResponse[Any]:
    """The response with a note on its message about what it took."""
    result: list[BaseMessage] = []
    for message in response.result:
        if isinstance(message, AIMessage):
            additional = {**message.additional_kwargs, **metadata}
            message = message.model_copy(update={"additional_kwargs": additional})
        result.append(message)
    return replace(response, result=result)
