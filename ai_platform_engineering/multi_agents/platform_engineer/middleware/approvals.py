"""Tools that need a person's approval ask for it, each call for itself: an approval is of one call with the arguments that were shown."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.types import Command, interrupt

from ai_platform_engineering.core.events import Approval
from ai_platform_engineering.core.policy import decide_permission
from ai_platform_engineering.core.signals import ArgumentsEdited, NoticeEmitted
from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL, PLANNING_TOOL, USER_INPUT_TOOL
from ai_platform_engineering.graph.interrupts import first_request_id
from ai_platform_engineering.graph.tool_messages import PLAIN
from ai_platform_engineering.runtime.checkpoints.fenced_saver import EPOCH_KEY, RUN_ID_KEY
from ai_platform_engineering.runtime.log.run_log import Allowance, PendingRequest, RunRow

_OWN = frozenset({USER_INPUT_TOOL, DELEGATION_TOOL, PLANNING_TOOL})
_REFUSED = "{tool} was not called: {reason}"
_DO_WITHOUT = " Do without it, and say what could not be done."
_REJECTED = "A person rejected this call of {tool}{why}. Nothing was done."
_NOT_AGAIN = " Do not call it again for this request unless you are asked to."
_EDITED = "[A person changed the arguments of this call to {arguments}]\n"

Handler = Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]


class AllowanceStore(Protocol):
    """Where it is kept what people have allowed for a whole conversation."""

    async def get(self, run_id: str) -> RunRow | None: ...

    async def allow(self, run_id: str, epoch: int, tool: str, by: str) -> None: ...

    async def list_allowances(self, owner: str, context_id: str) -> list[Allowance]: ...

    async def requests(self, run_id: str) -> list[PendingRequest]: ...


class ApprovalMiddleware(AgentMiddleware):
    """Before the journal: nothing is journalled that is not approved, and nothing happens before a person is asked."""

    def __init__(
        self, agent: str, permits: AllowanceStore | None, *, read_only: bool, denied: Mapping[str, str]
    ) -> None:
        """`denied`: tools that the agent's servers have and that are not offered, with the reason."""
        super().__init__()
        self._agent = agent
        self._permits = permits
        self._read_only = read_only
        self._denied = denied

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> ToolMessage | Command[Any]:
        name = request.tool_call["name"]
        if request.tool is None:
            if name in self._denied:
                return _told(request, _REFUSED, _DO_WITHOUT, reason=self._denied[name])
            return await handler(request)
        found = decide_permission(request.tool.metadata or {}, read_only=self._read_only)
        if name in _OWN or found.permission == "allow":
            return await handler(request)
        if found.permission == "deny":
            return _told(request, _REFUSED, _DO_WITHOUT, reason=found.reason)
        if await self._is_allowed(request, name):
            return await handler(request)
        asked = Approval(tool=name, arguments=request.tool_call["args"], reason=found.reason)
        decision: Mapping[str, Any] = interrupt(asked.model_dump(mode="json"))
        return await self._decided(request, handler, decision)

    async def _decided(
        self, request: ToolCallRequest, handler: Handler, decision: Mapping[str, Any]
    ) -> ToolMessage | Command[Any]:
        call = request.tool_call
        match decision.get("type"):
            case "approve":
                if decision.get("always") is True:
                    await self._allow(request, str(decision.get("by") or ""))
                return await handler(request)
            case "edit":
                arguments = dict(decision.get("arguments") or {})
                request.runtime.stream_writer(ArgumentsEdited(call["id"] or "", arguments))
                result = await handler(request.override(tool_call={**call, "args": arguments}))
                return _noted(result, _EDITED.format(arguments=json.dumps(arguments, ensure_ascii=False)))
            case _:  # whatever it is, it is no approval
                why = f": {decision['message']}" if decision.get("message") else ""
                return _told(request, _REJECTED, _NOT_AGAIN, why=why.rstrip("."))

    async def _is_allowed(self, request: ToolCallRequest, name: str) -> bool:
        """For the whole conversation. A call that people have been asked about waits for their answer all the same."""
        run_id, _ = _run(request)
        row = await self._permits.get(run_id) if self._permits is not None and run_id else None
        if row is None or self._permits is None:
            return False
        if all(
            one.tool != f"{self._agent}/{name}"
            for one in await self._permits.list_allowances(row.owner, row.context_id)
        ):
            return False
        first_id = first_request_id(
            run_id, str((request.runtime.config.get("configurable") or {}).get("checkpoint_ns", ""))
        )
        return all(one.request_id != first_id for one in await self._permits.requests(run_id))

    async def _allow(self, request: ToolCallRequest, by: str) -> None:
        (run_id, epoch), name = _run(request), request.tool_call["name"]
        if self._permits is None or not run_id:
            return
        await self._permits.allow(run_id, epoch, f"{self._agent}/{name}", by)
        whose = f" {by} allowed it." if by else ""
        text = f"{name} of {self._agent} runs without asking in this conversation from now on.{whose}"
        request.runtime.stream_writer(NoticeEmitted("info", text))


def _run(request: ToolCallRequest) -> tuple[str, int]:
    metadata: Mapping[str, Any] = request.runtime.config.get("metadata") or {}
    return str(metadata.get(RUN_ID_KEY) or ""), int(metadata.get(EPOCH_KEY) or 0)


def _told(request: ToolCallRequest, text: str, advice: str, **values: str) -> ToolMessage:
    """What happened, and what the model is to make of it."""
    name, call_id = request.tool_call["name"], request.tool_call["id"]
    said = text.format(tool=name, **values)
    return ToolMessage(
        said + advice, tool_call_id=call_id, name=name, status="error", additional_kwargs={PLAIN: said}
    )


def _noted(result: ToolMessage | Command[Any], note: str) -> ToolMessage | Command[Any]:
    """The model learns that it was not its own arguments that the result belongs to."""
    if not isinstance(result, ToolMessage) or not isinstance(result.content, str):
        return result
    beside = {PLAIN: result.content, **result.additional_kwargs}
    return result.model_copy(update={"content": note + result.content, "additional_kwargs": beside})
