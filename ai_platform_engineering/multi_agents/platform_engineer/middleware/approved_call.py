"""The call that a person approved, checked once more where the tool is called.

Whatever stands between the approval and the tool, nothing runs but what was decided.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ToolCallRequest

from ai_platform_engineering.core.call_digest import call_digest, same_digest
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ToolCallHandler,
    ToolCallResult,
)

_approved_digest: ContextVar[str | None] = ContextVar("approved_digest", default=None)


class CallChanged(CaipeError):
    """The call is not the one that a person approved."""

    code = "call_changed"


@contextmanager
def approved_call(call: Mapping[str, Any] | None) -> Iterator[None]:
    """Lets only this call run inside the context; None lifts it for calls that the tool makes itself."""
    digest = None
    if call is not None:
        digest = _digest(call)
    token = _approved_digest.set(digest)
    try:
        yield
    finally:
        _approved_digest.reset(token)


class ApprovedCallMiddleware(AgentMiddleware):
    """Innermost around tools: refuses a call that was changed after a person approved it."""

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        approved_digest = _approved_digest.get()
        if approved_digest is not None and not same_digest(approved_digest, _digest(request.tool_call)):
            raise CallChanged(
                f"{request.tool_call['name']} was not called: it is not the call that a person approved."
            )
        with approved_call(None):
            return await handler(request)


def _digest(call: Mapping[str, Any]) -> str:
    return call_digest(str(call["id"]), "", call["name"], call["args"])
