"""The same call with the same result, again and again, leads nowhere: the model is told so, and in the end it has to answer."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain.tools import BaseTool, tool
from langchain_core.messages import AnyMessage, ToolMessage
from langgraph.types import Command
from pydantic import BaseModel, Field

from ai_platform_engineering.core.signals import NoticeEmitted
from ai_platform_engineering.core.tool_traits import (
    DELEGATION_TOOL,
    PLANNING_TOOL,
    USER_INPUT_TOOL,
    WAIT_TOOL,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.call_limits import current_turn
from ai_platform_engineering.multi_agents.platform_engineer.middleware.offered_tools import (
    ModelCallHandler,
    answer_without_tools,
    remove_tool,
)

_WARN, _END = 3, 6
_LONGEST_WAIT = 60
_SAME = "same_call"  # in what a result carries beside its text: the fingerprint of call and result, and which one of its kind it is
_OWN = frozenset({USER_INPUT_TOOL, DELEGATION_TOOL, PLANNING_TOOL, WAIT_TOOL})
_WARNING = (
    "\n\n[This is the same call with the same result for the {count}. time. Repeating it will not change anything: do something else, or "
    "answer from what you have. To watch for a change, call wait first.]"
)
_ANSWER_NOW = (
    "You have repeated the same call with the same result too often, so you cannot use tools any more. Answer now from what you have, "
    "and say what is missing."
)

ToolHandler = Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]


class WaitArguments(BaseModel):
    seconds: int = Field(description=f"How long, at most {_LONGEST_WAIT}.", ge=1)


@tool(
    WAIT_TOOL,
    args_schema=WaitArguments,
    description="Wait for a while before you look again at something that takes its time.",
)
async def wait(seconds: int) -> str:
    waited = min(seconds, _LONGEST_WAIT)
    await asyncio.sleep(waited)
    return f"Waited {waited} seconds."


wait.metadata = {"effect": "read", "own": True}


class LoopGuardMiddleware(AgentMiddleware):
    """Reads the messages of the run, so what it knows survives a pause and a restart. A tool marked `poll` may be repeated, and so may
    any tool after a wait."""

    tools: Sequence[BaseTool] = (wait,)

    def __init__(self, *, waits: bool = True) -> None:
        """`waits`: the model is offered to wait; the embedded router does not know what for."""
        super().__init__()
        self._waits = waits

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolMessage | Command[Any]:
        result = await handler(request)
        name, metadata = (
            request.tool_call["name"],
            (request.tool.metadata or {}) if request.tool is not None else {},
        )
        if name in _OWN or metadata.get("poll") or not isinstance(result, ToolMessage):
            return result
        mark = _fingerprint(request, result)
        count = 1 + sum(one == mark for one in _marks(_since_wait(current_turn(request.state["messages"]))))
        carried = {**result.additional_kwargs, _SAME: {"mark": mark, "count": count}}
        text = result.text + _WARNING.format(count=count) if count >= _WARN else result.content
        return result.model_copy(update={"content": text, "additional_kwargs": carried})

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        turn = current_turn(request.state["messages"])
        looped = next((message for message in turn if _count(message) >= _END), None)
        if looped is None:
            return await handler(request if self._waits else remove_tool(request, WAIT_TOOL))
        text = f"I stop using tools and answer now: {looped.name} gave the same result {_END} times."
        request.runtime.stream_writer(NoticeEmitted("loop_guard", text))
        return await answer_without_tools(request, handler, _ANSWER_NOW)


def _fingerprint(request: ToolCallRequest, result: ToolMessage) -> str:
    call = request.tool_call
    said = json.dumps([call["name"], call["args"], result.text], sort_keys=True, default=str)
    return hashlib.sha256(said.encode(errors="replace")).hexdigest()[:16]


def _marks(messages: Sequence[AnyMessage]) -> list[str]:
    return [
        str(message.additional_kwargs[_SAME]["mark"])
        for message in messages
        if _SAME in message.additional_kwargs
    ]


def _count(message: AnyMessage) -> int:
    if isinstance(message, ToolMessage):
        return int(message.additional_kwargs.get(_SAME, {}).get("count", 0))
    return 0


def _since_wait(turn: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    waited = [
        index
        for index, message in enumerate(turn)
        if isinstance(message, ToolMessage) and message.name == WAIT_TOOL
    ]
    if waited:
        return turn[waited[-1] + 1 :]
    return turn
