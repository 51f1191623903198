"""Loop guard: a repeated call with the same result gets a warning, and finally ends the use of tools."""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain.tools import BaseTool, tool
from langchain_core.messages import AnyMessage, ToolMessage
from pydantic import BaseModel, Field

from ai_platform_engineering.core.message_metadata import RepeatedCallNote
from ai_platform_engineering.core.signals import NoticeEmitted
from ai_platform_engineering.core.tool_traits import WAIT_TOOL, ToolTraits, mark_as_own, traits_of
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ModelCallHandler,
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_requests import (
    answer_without_tools,
    remove_tool,
)
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import current_turn

_REPEATS_TO_WARN = 3
_REPEATS_TO_STOP = 6
_LONGEST_WAIT = 60
_WARNING = (
    "\n\n[This is the same call with the same result for the {count}. time. Repeating it will not change "
    "anything: do something else, or answer from what you have. To watch for a change, call wait first.]"
)
_ANSWER_NOW = (
    "You have repeated the same call with the same result too often, so you cannot use tools any more. "
    "Answer now from what you have, and say what is missing."
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
        result = await handler(request)
        if not isinstance(result, ToolMessage) or not _is_guarded(request):
            return result
        fingerprint = _fingerprint(request, result)
        turn = current_turn(request.state["messages"])
        count = 1 + _fingerprints(_since_last_wait(turn)).count(fingerprint)
        content: Any = result.content
        if count >= _REPEATS_TO_WARN:
            content = result.text + _WARNING.format(count=count)
        metadata = {**result.additional_kwargs, **RepeatedCallNote(fingerprint, count).to_metadata()}
        return result.model_copy(update={"content": content, "additional_kwargs": metadata})

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        looping_result = _find_looping_result(current_turn(request.state["messages"]))
        if looping_result is not None:
            text = (
                f"I stop using tools and answer now: {looping_result.name} gave the same result "
                f"{_REPEATS_TO_STOP} times."
            )
            request.runtime.stream_writer(NoticeEmitted("loop_guard", text))
            return await answer_without_tools(request, handler, _ANSWER_NOW)
        if not self._offers_wait:
            request = remove_tool(request, WAIT_TOOL)
        return await handler(request)


def _is_guarded(request: ToolCallRequest) -> bool:
    if ToolTraits.from_name(request.tool_call["name"]).is_control:
        return False
    return request.tool is None or not traits_of(request.tool).may_poll


def _fingerprint(request: ToolCallRequest, result: ToolMessage) -> str:
    call = request.tool_call
    text = json.dumps([call["name"], call["args"], result.text], sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def _fingerprints(messages: Sequence[AnyMessage]) -> list[str]:
    fingerprints: list[str] = []
    for message in messages:
        note = RepeatedCallNote.of(message)
        if note is not None:
            fingerprints.append(note.fingerprint)
    return fingerprints


def _find_looping_result(turn: Sequence[AnyMessage]) -> ToolMessage | None:
    """The first result that was repeated too often."""
    for message in turn:
        if not isinstance(message, ToolMessage):
            continue
        note = RepeatedCallNote.of(message)
        if note is not None and note.count >= _REPEATS_TO_STOP:
            return message
    return None


def _since_last_wait(turn: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    for index in range(len(turn) - 1, -1, -1):
        message = turn[index]
        if isinstance(message, ToolMessage) and ToolTraits.from_name(message.name or "").waits:
            return turn[index + 1 :]
    return turn
