"""Tool results: a failure becomes an error result for the model, and a long output is truncated."""

import asyncio
import logging
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.message_metadata import ToolResultNote
from ai_platform_engineering.core.redaction import Redactor
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ToolCallHandler,
    ToolCallResult,
)

log = logging.getLogger(__name__)


class ToolResultMiddleware(AgentMiddleware):
    """Catches the errors of tools, so that a failing one does not end the run, and bounds their outputs."""

    def __init__(self, max_chars: int, redactor: Redactor) -> None:
        super().__init__()
        self._max_chars = max_chars
        self._redactor = redactor

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        try:
            result = await handler(request)
        except GraphBubbleUp:
            raise
        except asyncio.CancelledError as error:
            if _is_run_cancelled():
                raise
            return self._error_message(request, error)  # something inside the tool was cancelled, not the run
        except Exception as error:  # noqa: BLE001 - one failing tool must not end the run
            return self._error_message(request, error)
        if not isinstance(result, ToolMessage):
            return result
        return self._truncate(redact_failure(result, self._redactor))

    def _truncate(self, message: ToolMessage) -> ToolMessage:
        text = message.text
        if len(text) <= self._max_chars:
            return message
        content = f"{text[: self._max_chars]}\n[Output truncated: {len(text)} characters in all]"
        return message.model_copy(update={"content": content})

    def _error_message(self, request: ToolCallRequest, error: BaseException) -> ToolMessage:
        name = request.tool_call["name"]
        log.warning("tool %s failed: %s", name, format_traceback(error))
        reason = type(error).__name__
        # Of third-party errors only the type; ours are written for people, and quote what a server said.
        if isinstance(error, CaipeError):
            reason = self._redactor.redact(str(error))
        text = f"{name} failed: {reason}"
        note: dict[str, Any] = {}
        if getattr(error, "outcome", "error") == "unknown":  # it may have taken effect
            note = ToolResultNote(outcome="unknown", plain_text=text).to_metadata()
        return ToolMessage(
            text, tool_call_id=request.tool_call["id"], name=name, status="error", additional_kwargs=note
        )


def redact_failure(message: ToolMessage, redactor: Redactor) -> ToolMessage:
    """The message of a failed call without secrets; results of other calls are what the tool is for."""
    if message.status != "error":
        return message
    text = redactor.redact(message.text)
    if text == message.text:
        return message
    return message.model_copy(update={"content": text})


def _is_run_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
