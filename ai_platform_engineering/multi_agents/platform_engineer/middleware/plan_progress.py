"""The plan follows the run: what the model writes and delegates, and how its delegations end."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import (
    AgentMiddleware,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    ToolCallRequest,
)
from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from langgraph.types import Command

from ai_platform_engineering.core.plan import AnyPlanChange, DelegationEnded, DelegationsMade
from ai_platform_engineering.core.step_delegations import DelegatedCall
from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.graph.tool_messages import called_name, read_result
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ModelCallHandler,
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.planning import (
    PlanningState,
    read_written_steps,
)


class PlanProgressMiddleware(AgentMiddleware[PlanningState]):
    """Stores each change of the plan together with the message or the result that it follows from.

    A model may write the plan and delegate in one message, whose calls run at the same time: all that it
    changes is stored with the message, so the order in which the calls end does not matter.
    """

    state_schema = PlanningState

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        response = await handler(request)
        changes = _read_changes(response)
        if not changes:
            return response
        return ExtendedModelResponse(response, Command(update=_plan_update(changes)))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        result = await handler(request)
        call = request.tool_call
        if not ToolTraits.from_name(call["name"]).delegates:
            return result
        if isinstance(result, ToolMessage):
            result = Command(update={"messages": [result]})
        update: Mapping[str, Any] = result.update or {}
        ended = _read_end(call, update.get("messages") or ())
        return replace(result, update={**update, **_plan_update([ended])})


def _plan_update(changes: Sequence[AnyPlanChange]) -> dict[str, Any]:
    return {"plan": [change.model_dump() for change in changes]}


def _read_changes(response: ModelResponse[Any]) -> list[AnyPlanChange]:
    """What a message of the model changes: first the steps that it writes, then its delegations."""
    changes: list[AnyPlanChange] = []
    delegated_calls: list[DelegatedCall] = []
    for message in response.result:
        if not isinstance(message, AIMessage):
            continue
        for call in message.tool_calls:
            traits = ToolTraits.from_name(call["name"])
            if traits.delegates:
                delegated_calls.append(_read_delegated_call(call))
            elif traits.plans:
                written_steps = read_written_steps(call["args"])
                if written_steps is not None:
                    changes.append(written_steps)
    if delegated_calls:
        changes.append(DelegationsMade(calls=tuple(delegated_calls)))
    return changes


def _read_delegated_call(call: ToolCall) -> DelegatedCall:
    step_id = call["args"].get("step_id")
    return DelegatedCall(
        call_id=call["id"] or "",
        agent=called_name(call["name"], call["args"]),
        step_id=None if step_id is None else str(step_id),
    )


def _read_end(call: ToolCall, messages: Sequence[Any]) -> DelegationEnded:
    """The end of a delegation; anything but a good result is a failure, also an unknown outcome."""
    is_completed = False
    for message in messages:
        if isinstance(message, ToolMessage) and message.tool_call_id == call["id"]:
            is_completed = read_result(message, delegates=True).outcome == "ok"
    delegated_call = _read_delegated_call(call)
    return DelegationEnded(
        call_id=delegated_call.call_id,
        agent=delegated_call.agent,
        step_id=delegated_call.step_id,
        status="completed" if is_completed else "failed",
    )
