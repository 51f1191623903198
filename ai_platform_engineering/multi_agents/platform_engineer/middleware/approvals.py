"""Approvals: a tool call that needs a person's approval interrupts the graph and waits for the decision.

Each call asks for itself: an approval holds for one call with the arguments that the person saw.
"""

import json
from collections.abc import Mapping
from typing import Any, Protocol

from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.types import interrupt

from ai_platform_engineering.core import decisions
from ai_platform_engineering.core.decisions import (
    ALWAYS_KEY,
    ARGUMENTS_KEY,
    DECISION_KEY,
    MESSAGE_KEY,
    PERSON_KEY,
)
from ai_platform_engineering.core.events import Approval
from ai_platform_engineering.core.message_metadata import ToolResultNote
from ai_platform_engineering.core.policy import decide_permission
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.signals import ArgumentsEdited, NoticeEmitted
from ai_platform_engineering.core.tool_traits import traits_of
from ai_platform_engineering.graph.interrupts import first_request_id
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.runtime.log.run_log import Allowance, PendingRequest, RunRow

_REFUSED = "{tool} was not called: {reason}"
_DO_WITHOUT = " Do without it, and say what could not be done."
_REJECTED = "A person rejected this call of {tool}{why}. Nothing was done."
_NOT_AGAIN = " Do not call it again for this request unless you are asked to."
_EDITED = "[A person changed the arguments of this call to {arguments}]\n"


class AllowanceStore(Protocol):
    """Where allowances are stored: the tools that need no approval any more in a conversation."""

    async def get(self, run_id: str) -> RunRow | None: ...

    async def allow(self, run_id: str, epoch: int, tool: str, by: str) -> None: ...

    async def list_allowances(self, owner: str, context_id: str) -> list[Allowance]: ...

    async def requests(self, run_id: str) -> list[PendingRequest]: ...


class ApprovalMiddleware(AgentMiddleware):
    """Wraps the journal: a call is journalled only when it is approved."""

    def __init__(
        self, agent: str, allowances: AllowanceStore | None, *, read_only: bool, denied: Mapping[str, str]
    ) -> None:
        """`denied`: tools that the agent's servers have and that are not offered, with the reason."""
        super().__init__()
        self._agent = agent
        self._allowances = allowances
        self._read_only = read_only
        self._denied = denied

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        name = request.tool_call["name"]
        if request.tool is None:
            if name in self._denied:
                return _refuse_call(request, self._denied[name])
            return await handler(request)
        decision = decide_permission(traits_of(request.tool), read_only=self._read_only)
        if decision.permission == "allow":
            return await handler(request)
        if decision.permission == "deny":
            return _refuse_call(request, decision.reason)
        if await self._has_allowance(request, name):
            return await handler(request)
        approval = Approval(tool=name, arguments=request.tool_call["args"], reason=decision.reason)
        answer: Mapping[str, Any] = interrupt(approval.model_dump(mode="json"))
        return await self._apply_answer(request, handler, answer)

    async def _apply_answer(
        self, request: ToolCallRequest, handler: ToolCallHandler, answer: Mapping[str, Any]
    ) -> ToolCallResult:
        """Runs, edits or rejects the call as the person decided."""
        match answer.get(DECISION_KEY):
            case decisions.APPROVE:
                if answer.get(ALWAYS_KEY) is True:
                    await self._store_allowance(request, str(answer.get(PERSON_KEY) or ""))
                return await handler(request)
            case decisions.EDIT:
                return await _run_edited(request, handler, dict(answer.get(ARGUMENTS_KEY) or {}))
            case _:  # any other answer is no approval
                return _reject_call(request, str(answer.get(MESSAGE_KEY) or ""))

    async def _has_allowance(self, request: ToolCallRequest, name: str) -> bool:
        """Whether the conversation needs no approval for the tool any more.

        A call that people have been asked about before waits for their answer all the same.
        """
        run = RunContext.from_config(request.runtime.config)
        if self._allowances is None or not run.run_id:
            return False
        row = await self._allowances.get(run.run_id)
        if row is None:
            return False
        allowances = await self._allowances.list_allowances(row.owner, row.context_id)
        if all(allowance.tool != f"{self._agent}/{name}" for allowance in allowances):
            return False
        first_id = first_request_id(run.run_id, run.checkpoint_ns or "")
        pending_requests = await self._allowances.requests(run.run_id)
        return all(pending.request_id != first_id for pending in pending_requests)

    async def _store_allowance(self, request: ToolCallRequest, person: str) -> None:
        run = RunContext.from_config(request.runtime.config)
        name = request.tool_call["name"]
        if self._allowances is None or not run.run_id:
            return
        await self._allowances.allow(run.run_id, run.epoch, f"{self._agent}/{name}", person)
        text = f"{name} of {self._agent} runs without asking in this conversation from now on."
        if person:
            text += f" {person} allowed it."
        request.runtime.stream_writer(NoticeEmitted("info", text))


async def _run_edited(
    request: ToolCallRequest, handler: ToolCallHandler, arguments: dict[str, Any]
) -> ToolCallResult:
    """Runs the call with a person's arguments, and tells the model that the result is not of its own ones."""
    call = request.tool_call
    request.runtime.stream_writer(ArgumentsEdited(call["id"] or "", arguments))
    result = await handler(request.override(tool_call={**call, "args": arguments}))
    if not isinstance(result, ToolMessage) or not isinstance(result.content, str):
        return result
    note = _EDITED.format(arguments=json.dumps(arguments, ensure_ascii=False))
    metadata = {**ToolResultNote(plain_text=result.content).to_metadata(), **result.additional_kwargs}
    return result.model_copy(update={"content": note + result.content, "additional_kwargs": metadata})


def _refuse_call(request: ToolCallRequest, reason: str) -> ToolMessage:
    return _error_message(
        request, _REFUSED.format(tool=request.tool_call["name"], reason=reason), _DO_WITHOUT
    )


def _reject_call(request: ToolCallRequest, message: str) -> ToolMessage:
    why = f": {message}".rstrip(".") if message else ""
    return _error_message(request, _REJECTED.format(tool=request.tool_call["name"], why=why), _NOT_AGAIN)


def _error_message(request: ToolCallRequest, text: str, advice: str) -> ToolMessage:
    """The result of a call that was not made: the text for people, followed by advice for the model."""
    call = request.tool_call
    return ToolMessage(
        text + advice,
        tool_call_id=call["id"],
        name=call["name"],
        status="error",
        additional_kwargs=ToolResultNote(plain_text=text).to_metadata(),
    )
