"""The journal: tool calls with effects are recorded before and after, so that a crash never repeats one."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.message_metadata import ToolResultNote
from ai_platform_engineering.core.redaction import Redactor
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.tool_traits import ToolTraits, traits_of
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_results import redact_failure
from ai_platform_engineering.runtime.log.log_rows import JournalEntry

UNKNOWN_OUTCOME = (
    "The outcome of {tool} is unknown: it was started before the server stopped and may have taken effect."
)
_FIND_OUT = (
    " Do not call it again by yourself. Say what was to be done, that nobody knows whether it was, and how a "
    "person can find out."
)


class JournalStore(Protocol):
    """Where the journal is stored."""

    async def begin(
        self, run_id: str, epoch: int, key: str, tool: str, arguments: Mapping[str, Any], *, idempotent: bool
    ) -> JournalEntry: ...

    async def finish(
        self, run_id: str, epoch: int, key: str, state: Literal["done", "withdrawn"], outcome: Any = None
    ) -> None: ...


class JournalMiddleware(AgentMiddleware):
    """Inside approvals: an entry is written only when the tool is really called.

    A tool without a stated effect counts as one that writes.
    """

    def __init__(self, store: JournalStore, redactor: Redactor) -> None:
        super().__init__()
        self._store = store
        self._redactor = redactor

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        call = request.tool_call
        run = RunContext.from_config(request.runtime.config)
        effect = _read_traits(request).effect
        if effect == "read" or not run.run_id:
            return await handler(request)
        key = _journal_key(run, call["id"])
        entry = await self._store.begin(
            run.run_id, run.epoch, key, call["name"], call["args"], idempotent=effect == "idempotent"
        )
        if not entry.may_run:
            return _replay_entry(entry, call)
        try:
            result = await handler(request)
        except GraphBubbleUp:
            # An interrupt: the tool asks people first, so nothing has happened yet.
            await self._store.finish(run.run_id, run.epoch, key, "withdrawn")
            raise
        except CaipeError as error:
            self._redactor.redact_error(error)  # before it is stored, here and in the run
            if getattr(error, "outcome", "error") != "unknown":  # the tool itself says that it did not work
                failure = {"content": f"{call['name']} failed: {error}", "status": "error"}
                await self._store.finish(run.run_id, run.epoch, key, "done", failure)
            raise
        if isinstance(result, ToolMessage):
            result = redact_failure(result, self._redactor)
            await self._store.finish(run.run_id, run.epoch, key, "done", _to_outcome(result))
        return result


def _read_traits(request: ToolCallRequest) -> ToolTraits:
    if request.tool is None:
        return ToolTraits.from_metadata(request.tool_call["name"], {})
    return traits_of(request.tool)


def _journal_key(run: RunContext, call_id: str | None) -> str:
    """The call's key within its run, the same after a restart."""
    return f"{run.checkpoint_ns or ''}/{call_id}"


def _to_outcome(result: ToolMessage) -> dict[str, Any]:
    """The result in the form in which the journal stores it."""
    return {"content": result.content, "status": result.status, "more": result.additional_kwargs}


def _replay_entry(entry: JournalEntry, call: Mapping[str, Any]) -> ToolMessage:
    """The recorded result of a call from before the crash, or that its outcome is unknown."""
    if entry.state == "done" and isinstance(entry.outcome, Mapping):
        outcome: Mapping[str, Any] = entry.outcome
        return ToolMessage(
            outcome.get("content") or "",
            tool_call_id=call["id"],
            name=call["name"],
            status=outcome.get("status") or "success",
            additional_kwargs=outcome.get("more") or {},
        )
    text = UNKNOWN_OUTCOME.format(tool=call["name"])
    return ToolMessage(
        text + _FIND_OUT,
        tool_call_id=call["id"],
        name=call["name"],
        status="error",
        additional_kwargs=ToolResultNote(outcome="unknown", plain_text=text).to_metadata(),
    )
