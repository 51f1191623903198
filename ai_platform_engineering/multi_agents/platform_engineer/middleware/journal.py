"""Calls that change something are journalled before and after, so that after a crash none is made twice by itself."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol

from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.policy import read_effect
from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL, PLANNING_TOOL
from ai_platform_engineering.graph.tool_messages import PLAIN
from ai_platform_engineering.runtime.checkpoints.fenced_saver import EPOCH_KEY, RUN_ID_KEY
from ai_platform_engineering.runtime.log.run_log import JournalEntry

UNKNOWN_OUTCOME = (
    "The outcome of {tool} is unknown: it was started before the server stopped and may have taken effect."
)
_FIND_OUT = " Do not call it again by yourself. Say what was to be done, that nobody knows whether it was, and how a person can find out."


class JournalStore(Protocol):
    """Where calls are journalled."""

    async def begin(
        self, run_id: str, epoch: int, key: str, tool: str, arguments: Mapping[str, Any], *, idempotent: bool
    ) -> JournalEntry: ...

    async def finish(
        self, run_id: str, epoch: int, key: str, state: Literal["done", "withdrawn"], outcome: Any = None
    ) -> None: ...


class JournalMiddleware(AgentMiddleware):
    """Innermost of those that wrap tools: nothing is journalled before it is really called. A tool that says nothing of itself writes."""

    def __init__(self, book: JournalStore) -> None:
        super().__init__()
        self._book = book

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        config, call = request.runtime.config, request.tool_call
        run_id, epoch = (
            (config.get("metadata") or {}).get(RUN_ID_KEY),
            (config.get("metadata") or {}).get(EPOCH_KEY),
        )
        effect = read_effect((request.tool.metadata or {}) if request.tool is not None else {})
        if effect == "read" or call["name"] in (DELEGATION_TOOL, PLANNING_TOOL) or not run_id:
            return await handler(request)
        key = f"{(config.get('configurable') or {}).get('checkpoint_ns', '')}/{call['id']}"
        entry = await self._book.begin(
            run_id, epoch or 0, key, call["name"], call["args"], idempotent=effect == "idempotent"
        )
        if not entry.may_run:
            return _replayed(entry, call)
        try:
            result = await handler(request)
        except GraphBubbleUp:
            await self._book.finish(
                run_id, epoch or 0, key, "withdrawn"
            )  # it asks people first: nothing has happened
            raise
        except CaipeError as error:
            if getattr(error, "outcome", "error") != "unknown":  # it says itself that it did not work
                said = {"content": f"{call['name']} failed: {error}", "status": "error"}
                await self._book.finish(run_id, epoch or 0, key, "done", said)
            raise
        if isinstance(result, ToolMessage):
            outcome = {"content": result.content, "status": result.status, "more": result.additional_kwargs}
            await self._book.finish(run_id, epoch or 0, key, "done", outcome)
        return result


def _replayed(entry: JournalEntry, call: Mapping[str, Any]) -> ToolMessage:
    """What became of the call before the crash, as far as anybody knows."""
    known = entry.outcome if isinstance(entry.outcome, Mapping) else None
    if entry.state == "done" and known is not None:
        status: Any = known.get("status") or "success"
        more: Any = known.get("more") or {}
        content: Any = known.get("content") or ""
        return ToolMessage(
            content, tool_call_id=call["id"], name=call["name"], status=status, additional_kwargs=more
        )
    said = UNKNOWN_OUTCOME.format(tool=call["name"])
    beside = {"outcome": "unknown", PLAIN: said}
    return ToolMessage(
        said + _FIND_OUT, tool_call_id=call["id"], name=call["name"], status="error", additional_kwargs=beside
    )
