"""Loop guard: calls that repeat or only fail get a warning, and finally end the use of tools."""

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain.tools import BaseTool, tool
from langchain_core.messages import ToolMessage
from pydantic import BaseModel, Field

from ai_platform_engineering.core.message_metadata import RepeatedCallNote, ResultSource
from ai_platform_engineering.core.signals import NoticeEmitted
from ai_platform_engineering.core.tool_traits import WAIT_TOOL, mark_as_own
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ModelCallHandler,
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_requests import (
    answer_without_tools,
    remove_tool,
)
from ai_platform_engineering.multi_agents.platform_engineer.repeated_calls import (
    CallHistory,
    GuardedCall,
    Repetition,
    find_reason_to_stop,
    find_result,
    replace_result,
)
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import current_turn

_LONGEST_WAIT = 60
_ANSWER_NOW = (
    "You cannot use tools any more: {reason}. Answer now from what you have, and say what is missing."
)


class WaitArguments(BaseModel):
    seconds: int = Field(description=f"How long, at most {_LONGEST_WAIT}.", ge=1)


@tool(
    WAIT_TOOL,
    args_schema=WaitArguments,
    description="Wait for a while before you look again at something that takes its time.",
)
async def wait(seconds: int) -> str:
    seconds_to_wait = min(seconds, _LONGEST_WAIT)
    await asyncio.sleep(seconds_to_wait)
    return f"Waited {seconds_to_wait} seconds."


mark_as_own(wait)


class LoopGuardMiddleware(AgentMiddleware):
    """Counts repeated calls in the messages of the run, so the counts survive a pause and a restart.

    A tool that polls may be repeated, and so may any tool after a wait.
    """

    tools: Sequence[BaseTool] = (wait,)

    def __init__(self, *, offers_wait: bool = True) -> None:
        """`offers_wait`: the model sees the `wait` tool; the embedded router would not know when."""
        super().__init__()
        self._offers_wait = offers_wait

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        call = GuardedCall.of(request)
        if call is None:
            return await handler(request)
        history = CallHistory(request.state["messages"])
        refusal = history.find_refusal(call)
        if refusal is not None:
            return _refuse(request, call, refusal)
        result = await handler(request)
        message = find_result(result, request.tool_call["id"])
        if message is None:
            return result
        return replace_result(result, history.judge(call, message))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        reason = find_reason_to_stop(current_turn(request.state["messages"]))
        if reason is not None:
            notice = NoticeEmitted("loop_guard", f"I stop using tools and answer now: {reason}.")
            request.runtime.stream_writer(notice)
            instruction = _ANSWER_NOW.format(reason=reason)
            return await answer_without_tools(request, handler, instruction=instruction, reason=reason)
        if not self._offers_wait:
            request = remove_tool(request, WAIT_TOOL)
        return await handler(request)


def _refuse(request: ToolCallRequest, call: GuardedCall, refusal: Repetition) -> ToolMessage:
    note = RepeatedCallNote(
        call.fingerprint(""), refusal.count, source=call.source, failed=True, reason=refusal.reason
    )
    return ToolMessage(
        f"Not run: {refusal.reason}. Do something else, or answer from what you have.",
        tool_call_id=request.tool_call["id"],
        name=request.tool_call["name"],
        status="error",
        additional_kwargs={**note.to_metadata(), **ResultSource(None).to_metadata()},
    )
