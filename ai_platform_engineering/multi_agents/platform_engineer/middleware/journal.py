"""The journal: tool calls with effects are recorded before and after, so that a crash never repeats one."""

from collections.abc import Mapping
from typing import Any, Protocol

from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.message_metadata import ToolResultNote
from ai_platform_engineering.core.redaction import Redactor
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.tool_traits import ToolTraits, traits_of
from ai_platform_engineering.mcp_client.elicitation import CallPause, CallPaused
from ai_platform_engineering.mcp_client.langchain_tools import McpTool
from ai_platform_engineering.multi_agents.platform_engineer.middleware.elicitation import (
    PausedQuestions,
    resuming,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_results import redact_failure
from ai_platform_engineering.runtime.log.log_rows import JournalEntry, NextCallState

UNKNOWN_OUTCOME = (
    "The outcome of {tool} is unknown: it was started before the server stopped and may have taken effect."
)
_FIND_OUT = (
    " Do not call it again by yourself. Say what was to be done, that nobody knows whether it was, and how a "
    "person can find out."
)


_ASKED_COUNT = "asked_count"
_REPEATABLE = ("read", "idempotent")


class JournalStore(Protocol):
    """Where the journal is stored."""

    async def begin(
        self, run_id: str, epoch: int, key: str, tool: str, arguments: Mapping[str, Any], *, idempotent: bool
    ) -> JournalEntry: ...

    async def finish(
        self, run_id: str, epoch: int, key: str, state: NextCallState, outcome: Any = None
    ) -> None: ...

    async def journal(self, run_id: str) -> list[JournalEntry]: ...


class JournalMiddleware(AgentMiddleware):
    """Inside approvals: an entry is written only when the tool is really called.

    A tool without a stated effect counts as one that writes. A tool that only reads has an entry when its
    server asks people during the call.
    """

    def __init__(self, store: JournalStore, redactor: Redactor) -> None:
        super().__init__()
        self._store = store
        self._redactor = redactor

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        run = RunContext.from_config(request.runtime.config)
        effect = _read_traits(request).effect
        may_pause = _is_server_tool(request)
        if not run.run_id or (effect == "read" and not may_pause):
            return await handler(request)
        call = _JournalledCall(self._store, run, request.tool_call, is_repeatable=effect in _REPEATABLE)
        if effect == "read":
            await call.find()
        else:
            await call.begin()
            if not call.may_run:
                return _replay_entry(call.entry, request.tool_call)
        return await self._run(call, request, handler)

    async def _run(
        self, call: "_JournalledCall", request: ToolCallRequest, handler: ToolCallHandler
    ) -> ToolCallResult:
        """Runs the tool, as often as its server asks people and goes on with their answers."""
        questions = PausedQuestions(call.read_pause(), call.asked_count)
        while True:
            resumable = questions.ask(f"{call.run.run_id}/{call.key}", call.run.run_id, call.is_repeatable)
            if resumable.pause is not None:
                await call.finish("intent", {_ASKED_COUNT: resumable.asked_count})
            try:
                with resuming(resumable):
                    result = await handler(request)
            except CallPaused as paused:
                await call.wait(paused.pause)
                questions.add(paused.pause)
                continue
            except GraphBubbleUp:
                # An interrupt: the tool asks people first, so nothing has happened yet.
                await call.finish("withdrawn")
                raise
            except CaipeError as error:
                self._redactor.redact_error(error)  # before it is stored, here and in the run
                if (
                    getattr(error, "outcome", "error") != "unknown"
                ):  # the tool itself says that it did not work
                    name = request.tool_call["name"]
                    await call.finish("done", {"content": f"{name} failed: {error}", "status": "error"})
                raise
            if isinstance(result, ToolMessage):
                result = redact_failure(result, self._redactor)
                await call.finish("done", _to_outcome(result))
            return result


class _JournalledCall:
    """A tool call and its entry in the journal, if it has one."""

    def __init__(
        self, store: JournalStore, run: RunContext, call: Mapping[str, Any], *, is_repeatable: bool
    ) -> None:
        self._store = store
        self._call = call
        self.run = run
        self.key = _journal_key(run, call["id"])
        self.is_repeatable = is_repeatable
        self.entry: JournalEntry | None = None

    @property
    def may_run(self) -> bool:
        return self.entry is None or self.entry.may_run or self.entry.state == "waiting"

    @property
    def asked_count(self) -> int:
        """How many questions were answered before a crash."""
        outcome = self.entry.outcome if self.entry is not None else None
        count = outcome.get(_ASKED_COUNT) if isinstance(outcome, Mapping) else None
        return count if isinstance(count, int) else 0

    async def find(self) -> None:
        """Finds the entry of a call that may not have one."""
        for entry in await self._store.journal(self.run.run_id):
            if entry.key == self.key:
                self.entry = entry

    async def begin(self) -> None:
        name = self._call["name"]
        arguments = self._call["args"]
        self.entry = await self._store.begin(
            self.run.run_id, self.run.epoch, self.key, name, arguments, idempotent=self.is_repeatable
        )

    async def wait(self, pause: CallPause) -> None:
        """Stores what the call waits for, before anybody is asked."""
        if self.entry is None:
            await self.begin()
        await self.finish("waiting", pause.model_dump(mode="json"))

    async def finish(self, state: NextCallState, outcome: Any = None) -> None:
        if self.entry is not None:
            await self._store.finish(self.run.run_id, self.run.epoch, self.key, state, outcome)

    def read_pause(self) -> CallPause | None:
        if self.entry is None or self.entry.state != "waiting":
            return None
        return CallPause.model_validate(self.entry.outcome)


def _is_server_tool(request: ToolCallRequest) -> bool:
    """Whether the tool is one of an MCP server, which may ask people."""
    return isinstance(request.tool, McpTool)


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


def _replay_entry(entry: JournalEntry | None, call: Mapping[str, Any]) -> ToolMessage:
    """The recorded result of a call from before the crash, or that its outcome is unknown."""
    if entry is not None and entry.state == "done" and isinstance(entry.outcome, Mapping):
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
