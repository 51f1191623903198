"""Delegations and the plan's steps that they work on: the step of each one, and the state that it gives."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator

from ai_platform_engineering.core.events import FrozenModel, PlanStep, StepStatus, Text

# The steps that a delegation without a step id may belong to, the best ones first.
_MATCHING_ORDER: Mapping[StepStatus, int] = {"in_progress": 0, "pending": 1, "failed": 2}


def _normalize_agent(name: str) -> str:
    """The name as steps have it."""
    return name.strip().lower()


class DelegatedCall(FrozenModel):
    """A call of the model that delegates; `step_id` is the step that it names."""

    call_id: Text
    agent: Annotated[Text, AfterValidator(_normalize_agent)]
    step_id: Text | None = None


DelegationStatus = Literal["waiting", "running", "completed", "failed"]
_WAITING: tuple[DelegationStatus, ...] = ("waiting",)
_UNFINISHED: tuple[DelegationStatus, ...] = ("waiting", "running")


class StepDelegation(FrozenModel):
    """A delegation and the step that it works on.

    `call_id` is the model's own: providers use an id again in a later message. A delegation is `waiting`
    until its call begins. `message` counts the messages that delegate. `retries` is the position of the
    failed delegation in whose place it works: it is to the same agent, on the same step, in a later message.
    """

    call_id: Text
    agent: Text
    step_id: Text | None = None
    status: DelegationStatus = "waiting"
    message: int = 0
    retries: int | None = None


def add_delegations(
    steps: Sequence[PlanStep], delegations: Sequence[StepDelegation], calls: Sequence[DelegatedCall]
) -> tuple[StepDelegation, ...]:
    """The delegations with those of a new message of the model."""
    busy_ids = {delegation.step_id for delegation in delegations if delegation.status in _UNFINISHED}
    step_ids = _assign_steps(steps, busy_ids, calls)
    message = 1 + max((delegation.message for delegation in delegations), default=0)
    updated = list(delegations)
    for call, step_id in zip(calls, step_ids, strict=True):
        delegation = StepDelegation(
            call_id=call.call_id,
            agent=call.agent,
            step_id=step_id,
            message=message,
            retries=_find_failed(updated, call.agent, step_id),
        )
        updated.append(delegation)
    return tuple(updated)


def begin_delegation(delegations: Sequence[StepDelegation], call_id: str) -> tuple[StepDelegation, ...]:
    """The delegations after the call of one has begun; nothing changes when none with this id waits."""
    return _with_status(delegations, call_id, _WAITING, "running")


def end_delegation(
    delegations: Sequence[StepDelegation], call_id: str, status: Literal["completed", "failed"]
) -> tuple[StepDelegation, ...]:
    """The delegations after the end of one; nothing changes when none with this id is unfinished."""
    return _with_status(delegations, call_id, _UNFINISHED, status)


def _with_status(
    delegations: Sequence[StepDelegation],
    call_id: str,
    before: Collection[DelegationStatus],
    after: DelegationStatus,
) -> tuple[StepDelegation, ...]:
    updated = list(delegations)
    for index, delegation in enumerate(updated):
        if delegation.call_id == call_id and delegation.status in before:
            updated[index] = delegation.model_copy(update={"status": after})
            break
    return tuple(updated)


def find_work_status(step_id: str, delegations: Sequence[StepDelegation]) -> StepStatus | None:
    """The state that a step has from its delegations; None when none of them has begun."""
    begun = [delegation for delegation in delegations if delegation.status != "waiting"]
    begun_messages = {delegation.message for delegation in begun if delegation.step_id == step_id}
    retried = {delegation.retries for delegation in begun}
    statuses = set[DelegationStatus]()
    for position, delegation in enumerate(delegations):
        if delegation.step_id != step_id or position in retried:
            continue
        # One that waits beside others is part of the same work; one of a new message changes nothing yet.
        if delegation.status != "waiting" or delegation.message in begun_messages:
            statuses.add(delegation.status)
    if statuses & {"waiting", "running"}:
        return "in_progress"
    if "failed" in statuses:
        return "failed"
    if "completed" in statuses:
        return "completed"
    return None


def _find_failed(delegations: Sequence[StepDelegation], agent: str, step_id: str | None) -> int | None:
    """The position of the first failed delegation to the agent on this step that has no retry yet."""
    if step_id is None:
        return None
    retried = {delegation.retries for delegation in delegations}
    for position, delegation in enumerate(delegations):
        is_same = (delegation.agent, delegation.step_id) == (agent, step_id)
        if is_same and delegation.status == "failed" and position not in retried:
            return position
    return None


def _assign_steps(
    steps: Sequence[PlanStep], busy_ids: Collection[str | None], calls: Sequence[DelegatedCall]
) -> list[str | None]:
    """The step of each call: the one that it names, else one of its agent's own.

    Calls to one agent without a step id get distinct steps, in the order of the plan. When there are more
    calls than steps, the rest of them share the last step that the agent works on.
    """
    existing_ids = {step.step_id for step in steps}
    assigned = [call.step_id if call.step_id in existing_ids else None for call in calls]
    taken_ids = {*busy_ids, *assigned}
    for agent in dict.fromkeys(call.agent for call in calls):
        agent_steps = [step for step in steps if step.agent == agent]
        unassigned = [
            index for index, call in enumerate(calls) if call.agent == agent and assigned[index] is None
        ]
        free_ids = _pick_free_steps(agent_steps, taken_ids, len(unassigned))
        taken_ids.update(free_ids)
        shared_ids = [step.step_id for step in agent_steps if step.step_id in taken_ids]
        for position, index in enumerate(unassigned):
            if position < len(free_ids):
                assigned[index] = free_ids[position]
            elif shared_ids:
                assigned[index] = shared_ids[-1]
    return assigned


def _pick_free_steps(
    agent_steps: Sequence[PlanStep], taken_ids: Collection[str | None], count: int
) -> list[str]:
    """So many of an agent's steps that nothing works on yet, in the order of the plan.

    A step that the model has marked as in progress is picked before a pending one, and a failed one last:
    that is tried again only when the agent has no other.
    """
    free_steps = [
        step for step in agent_steps if step.status in _MATCHING_ORDER and step.step_id not in taken_ids
    ]
    best_steps = sorted(free_steps, key=lambda step: _MATCHING_ORDER[step.status])[:count]
    return [step.step_id for step in free_steps if step in best_steps]
