"""Approvals: a tool call that needs a person's approval interrupts the graph and waits for the decision.

Each call asks for itself: an approval holds for one call with the arguments that the person saw. It names the
call by its digest; an answer to another call, or one that cannot be shown as it is, lets nothing run.
"""

import json
from collections.abc import Mapping
from typing import Any, Protocol

from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import interrupt
from pydantic import BaseModel, PydanticUserError

from ai_platform_engineering.core import decisions
from ai_platform_engineering.core.argument_schema import check_arguments, reduce_schema
from ai_platform_engineering.core.call_digest import call_digest, edit_digest, same_digest
from ai_platform_engineering.core.decisions import (
    ALWAYS_KEY,
    APPROVE,
    ARGUMENTS_KEY,
    DECISION_KEY,
    DIGEST_KEY,
    EDIT,
    EDIT_DIGEST_KEY,
    MESSAGE_KEY,
    PERSON_KEY,
    REJECT,
)
from ai_platform_engineering.core.events import Approval, clean_json
from ai_platform_engineering.core.message_metadata import DirectCallNote, ToolResultNote
from ai_platform_engineering.core.named_targets import NamedTargets
from ai_platform_engineering.core.policy import PolicyDecision, decide_permission
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.sentences import end_sentence
from ai_platform_engineering.core.signals import ArgumentsEdited, NoticeEmitted
from ai_platform_engineering.core.tool_traits import ToolTraits, traits_of
from ai_platform_engineering.graph.interrupts import first_request_id
from ai_platform_engineering.multi_agents.platform_engineer.middleware.approved_call import approved_call
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.target_rule import TargetRule
from ai_platform_engineering.multi_agents.platform_engineer.middleware.untrusted_content import (
    UntrustedContentPolicy,
)
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import find_question
from ai_platform_engineering.runtime.log.log_rows import Allowance, PendingRequest, RunRow

_REFUSED = "{tool} was not called: {reason}"
_DO_WITHOUT = " Do without it, and say what could not be done."
_REJECTED = "A person rejected this call of {tool}{why}"
_NOTHING_DONE = " Nothing was done."
_NOT_AGAIN = " Do not call it again for this request unless you are asked to."
UNTRUSTED_SUFFIX = "@untrusted"  # of an allowance that also covers calls after untrusted text
_NOT_SHOWABLE = (
    "nobody can be asked, because its arguments cannot be shown as they are: they are nested too deeply, or "
    "hold what no text can."
)
_CHANGED = "The call of {tool} is not the one that was decided on, so approval is requested again."
_UNFIT = "The changed arguments of {tool} are invalid, so approval is requested again. {errors}"
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
        self,
        agent: str,
        allowances: AllowanceStore | None,
        *,
        read_only: bool,
        denied: Mapping[str, str],
        untrusted: UntrustedContentPolicy,
        target_rule: TargetRule,
    ) -> None:
        """`denied`: tools that the agent's servers have and that are not offered, with the reason."""
        super().__init__()
        self._agent = agent
        self._allowances = allowances
        self._read_only = read_only
        self._denied = denied
        self._untrusted = untrusted
        self._target_rule = target_rule

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        name = request.tool_call["name"]
        if request.tool is None:
            if name in self._denied:
                return _refuse_call(request, self._denied[name])
            return await handler(request)
        traits = traits_of(request.tool)
        decision = decide_permission(traits, read_only=self._read_only)
        decision = decision.combine(await self._decide_targets(request, traits))
        decision = await self._untrusted.tighten(request, decision)
        if decision.permission == "allow":
            return await handler(request)
        if decision.permission == "deny":
            return _refuse_call(request, decision.reason)
        if await self._has_allowance(request, decision):
            return await handler(request)
        if clean_json(request.tool_call["args"]) != request.tool_call["args"]:
            return _refuse_call(request, _NOT_SHOWABLE)
        approval = self._build_approval(request, decision.reason)
        return await self._apply_answer(request, handler, _ask_for_decision(request, approval), decision)

    async def _decide_targets(self, request: ToolCallRequest, traits: ToolTraits) -> PolicyDecision:
        call = request.tool_call
        run = RunContext.from_config(request.runtime.config)
        defined = _find_defined_targets(request)
        return await self._target_rule.decide(traits, call["id"] or "", call["args"], run, defined)

    def _build_approval(self, request: ToolCallRequest, reason: str) -> Approval:
        run = RunContext.from_config(request.runtime.config)
        call = request.tool_call
        place = first_request_id(run.run_id or "", run.checkpoint_ns or "")
        digest = call_digest(place, self._agent, call["name"], call["args"])
        schema = reduce_schema(_read_schema(request.tool))
        return Approval(
            tool=call["name"],
            arguments=call["args"],
            arguments_schema=schema,
            reason=reason,
            # Edited arguments that nobody can check are not offered.
            allowed=(APPROVE, REJECT) if schema is None else (APPROVE, EDIT, REJECT),
            digest=digest,
        )

    async def _apply_answer(
        self,
        request: ToolCallRequest,
        handler: ToolCallHandler,
        answer: Mapping[str, Any],
        decision: PolicyDecision,
    ) -> ToolCallResult:
        """Runs, edits or rejects the call as the person decided."""
        match answer.get(DECISION_KEY):
            case decisions.APPROVE:
                if answer.get(ALWAYS_KEY) is True:
                    await self._store_allowance(request, decision, str(answer.get(PERSON_KEY) or ""))
                with approved_call(request.tool_call):
                    return await handler(request)
            case decisions.EDIT:
                return await _run_edited(request, handler, dict(answer.get(ARGUMENTS_KEY) or {}))
            case _:  # any other answer is no approval
                return _reject_call(request, str(answer.get(MESSAGE_KEY) or ""))

    def _allowance_key(self, name: str, decision: PolicyDecision) -> str:
        """What an "always" holds for: the tool, or the tool with the hosts that were asked about.

        After untrusted text only an "always" that was given after such text counts.
        """
        key = f"{self._agent}/{name}"
        if decision.subject:
            key = f"{key} {decision.subject}"
        if decision.follows_untrusted:
            key = f"{key}{UNTRUSTED_SUFFIX}"
        return key

    async def _has_allowance(self, request: ToolCallRequest, decision: PolicyDecision) -> bool:
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
        key = self._allowance_key(request.tool_call["name"], decision)
        if all(allowance.tool not in (key, key + UNTRUSTED_SUFFIX) for allowance in allowances):
            return False
        first_id = first_request_id(run.run_id, run.checkpoint_ns or "")
        pending_requests = await self._allowances.requests(run.run_id)
        return all(pending.request_id != first_id for pending in pending_requests)

    async def _store_allowance(self, request: ToolCallRequest, decision: PolicyDecision, person: str) -> None:
        run = RunContext.from_config(request.runtime.config)
        key = self._allowance_key(request.tool_call["name"], decision)
        name = key.removeprefix(f"{self._agent}/").removesuffix(UNTRUSTED_SUFFIX)
        if self._allowances is None or not run.run_id:
            return
        await self._allowances.allow(run.run_id, run.epoch, key, person)
        text = f"{name} of {self._agent} runs without asking in this conversation from now on."
        if not decision.follows_untrusted:
            text += " After results of tools or agents it asks once more."
        if person:
            text += f" {person} allowed it."
        request.runtime.stream_writer(NoticeEmitted("info", text))


def _ask_for_decision(request: ToolCallRequest, approval: Approval) -> Mapping[str, Any]:
    """The decision on exactly this call; an answer to another one has it asked again.

    The graph may have been resumed after a crash or a change, so the call is checked here, where it runs.
    """
    while True:
        answer: Mapping[str, Any] = interrupt(approval.model_dump(mode="json"))
        if not _is_for_call(answer, approval.digest):
            text = _CHANGED.format(tool=approval.tool)
        elif errors := _check_edit(answer, approval):
            text = _UNFIT.format(tool=approval.tool, errors=" ".join(errors.values()))
        else:
            return answer
        request.runtime.stream_writer(NoticeEmitted("info", text))


def _check_edit(answer: Mapping[str, Any], approval: Approval) -> dict[str, str]:
    """What is wrong with an edit. The server has checked it; whoever resumes a graph without it has not."""
    if answer.get(DECISION_KEY) != EDIT:
        return {}
    return check_arguments(approval.arguments_schema or {}, answer.get(ARGUMENTS_KEY) or {})


def _read_schema(tool: BaseTool | None) -> Any:
    """The JSON schema of a tool's arguments; None when it has none."""
    schema = tool.tool_call_schema if tool is not None else None
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        try:
            return schema.model_json_schema()
        except PydanticUserError:  # a type of its own that JSON does not have
            return None
    return schema


def _is_for_call(answer: Mapping[str, Any], digest: str) -> bool:
    """Whether the person decided on the call of this digest; a rejection needs none."""
    match answer.get(DECISION_KEY):
        case decisions.APPROVE:
            return same_digest(answer.get(DIGEST_KEY), digest)
        case decisions.EDIT:
            edited = edit_digest(digest, answer.get(ARGUMENTS_KEY) or {})
            is_same = same_digest(answer.get(DIGEST_KEY), digest)
            return is_same and same_digest(answer.get(EDIT_DIGEST_KEY), edited)
        case _:
            return True


def _find_defined_targets(request: ToolCallRequest) -> NamedTargets:
    """The targets that a workflow's definition names for this call."""
    question = find_question(request.state["messages"])
    note = DirectCallNote.of(question) if question is not None else None
    if note is None or note.call is None or note.call.tool != request.tool_call["name"]:
        return NamedTargets()
    return note.call.defined_targets


async def _run_edited(
    request: ToolCallRequest, handler: ToolCallHandler, arguments: dict[str, Any]
) -> ToolCallResult:
    """Runs the call with a person's arguments, and tells the model that the result is not of its own ones."""
    call = request.tool_call
    request.runtime.stream_writer(ArgumentsEdited(call["id"] or "", arguments))
    edited = request.override(tool_call={**call, "args": arguments})
    with approved_call(edited.tool_call):
        result = await handler(edited)
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
    why = f": {message}" if message else ""
    rejected = end_sentence(_REJECTED.format(tool=request.tool_call["name"], why=why))
    return _error_message(request, rejected + _NOTHING_DONE, _NOT_AGAIN)


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
