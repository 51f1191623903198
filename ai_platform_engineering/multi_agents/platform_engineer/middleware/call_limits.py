"""Limits of one run: when a budget is used up the model gets one last call, without tools, to answer."""

from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.config import get_config

from ai_platform_engineering.core.settings import LimitSettings
from ai_platform_engineering.core.signals import NoticeEmitted
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import ModelCallHandler
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_requests import (
    answer_without_tools,
)
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import current_turn

_ANSWER_NOW = (
    "The budget of this request is used up. Do not call tools any more. Answer now from what you have, and "
    "say what is missing."
)
# Steps of the graph that must stay: this model call, its tools, and the model call after them.
_RESERVED_STEPS = 3


class CallLimitMiddleware(AgentMiddleware):
    """Counts the calls in the messages of the run itself, so the counts survive a pause and a restart."""

    def __init__(self, settings: LimitSettings) -> None:
        super().__init__()
        self._settings = settings

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        limit = self._find_reached_limit(request)
        if limit is None:
            return await handler(request)
        notice = NoticeEmitted("limit", f"I stop using tools and answer now: {limit}.")
        request.runtime.stream_writer(notice)
        return await answer_without_tools(request, handler, _ANSWER_NOW)

    def _find_reached_limit(self, request: ModelRequest[Any]) -> str | None:
        """The limit that this question has reached, in words for people; None when there is none."""
        turn = current_turn(request.state["messages"])
        model_calls = sum(isinstance(message, AIMessage) for message in turn)
        if model_calls >= self._settings.model_calls - 1:
            return f"{self._settings.model_calls} model calls are the most for one question"
        tool_calls = sum(isinstance(message, ToolMessage) for message in turn)
        if tool_calls >= self._settings.tool_calls:
            return f"{self._settings.tool_calls} tool calls are the most for one question"
        # A model call and its tools are one step of the graph each.
        if 2 * model_calls + _RESERVED_STEPS >= get_config()["recursion_limit"]:
            return "the limit of steps is near"
        return None
