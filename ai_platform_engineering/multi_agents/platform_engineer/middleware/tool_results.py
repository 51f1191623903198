"""Tool results at the boundary: a failure becomes a result that the model can act on, and no result is endless."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.tracebacks import format_traceback

log = logging.getLogger(__name__)


class ToolResultMiddleware(AgentMiddleware):
    def __init__(self, max_chars: int) -> None:
        super().__init__()
        self._max_chars = max_chars

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        try:
            result = await handler(request)
        except GraphBubbleUp:
            raise
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            return _failed(request, error)  # something inside the tool was cancelled, not the run
        except Exception as error:  # noqa: BLE001 - one failing tool must not end the run
            return _failed(request, error)
        if isinstance(result, ToolMessage):
            return self._bounded(result)
        return result

    def _bounded(self, message: ToolMessage) -> ToolMessage:
        text = message.text
        if len(text) <= self._max_chars:
            return message
        return message.model_copy(
            update={
                "content": f"{text[: self._max_chars]}\n[Output truncated: {len(text)} characters in all]"
            }
        )


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _failed(request: ToolCallRequest, error: BaseException) -> ToolMessage:
    name = request.tool_call["name"]
    log.warning("tool %s failed: %s", name, format_traceback(error))
    # The type and not the text, which may hold a secret; errors of ours are written to be read.
    reason = str(error) if isinstance(error, CaipeError) else type(error).__name__
    return ToolMessage(
        f"{name} failed: {reason}", tool_call_id=request.tool_call["id"], name=name, status="error"
    )
