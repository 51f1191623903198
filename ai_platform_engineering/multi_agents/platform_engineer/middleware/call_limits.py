"""Bounds for one run: when a budget is used up the model gets one more turn, without tools, in which it may answer."""

from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.config import get_config

from ai_platform_engineering.core.settings import LimitSettings
from ai_platform_engineering.core.signals import NoticeEmitted
from ai_platform_engineering.multi_agents.platform_engineer.middleware.offered_tools import (
    ModelCallHandler,
    answer_without_tools,
)

_ANSWER_NOW = "The budget of this request is used up. Do not call tools any more. Answer now from what you have, and say what is missing."
_STEPS_KEPT = 3  # this model call, its tools and the call after them must not be the first that is too many


class CallLimitMiddleware(AgentMiddleware):
    """Counts in the messages of the run itself, so the counts survive a pause and a restart."""

    def __init__(self, settings: LimitSettings) -> None:
        super().__init__()
        self._settings = settings

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        used_up = self._used_up(request)
        if used_up is None:
            return await handler(request)
        request.runtime.stream_writer(
            NoticeEmitted("limit", f"I stop using tools and answer now: {used_up}.")
        )
        return await answer_without_tools(request, handler, _ANSWER_NOW)

    def _used_up(self, request: ModelRequest[Any]) -> str | None:
        turn = current_turn(request.state["messages"])
        calls = sum(isinstance(message, AIMessage) for message in turn)
        if calls >= self._settings.model_calls - 1:
            return f"{self._settings.model_calls} model calls are the most for one question"
        if sum(isinstance(message, ToolMessage) for message in turn) >= self._settings.tool_calls:
            return f"{self._settings.tool_calls} tool calls are the most for one question"
        # A model call and its tools are one step of the graph each.
        if 2 * calls + _STEPS_KEPT >= get_config()["recursion_limit"]:
            return "the limit of steps is near"
        return None


def current_turn(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    """The messages after the last question."""
    last = max(
        (index for index, message in enumerate(messages) if isinstance(message, HumanMessage)), default=-1
    )
    return messages[last + 1 :]
