"""The supervisor's plan: typed steps, and the changes that the model and its delegations make to it.

A step that was delegated has the state of its delegations, whatever the model writes. The model's word counts
for the other steps.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from ai_platform_engineering.core.events import (
    SUPERVISOR,
    FrozenModel,
    PlanStep,
    PlanUpdated,
    StepStatus,
    Text,
)
from ai_platform_engineering.core.step_delegations import (
    DelegatedCall,
    StepDelegation,
    add_delegations,
    begin_delegation,
    end_delegation,
    find_work_status,
)

_OPEN = ("pending", "in_progress")


class Plan(FrozenModel):
    title: Text = ""
    steps: tuple[PlanStep, ...] = ()

    def open_steps(self) -> tuple[PlanStep, ...]:
        return tuple(step for step in self.steps if step.status in _OPEN)

    def current_step(self) -> str | None:
        """The step in progress, when there is exactly one."""
        running = [step.step_id for step in self.steps if step.status == "in_progress"]
        if len(running) == 1:
            return running[0]
        return None

    def close(
        self, *, answered: bool, worked_on: Collection[str] = (), cut_off: Collection[str] = ()
    ) -> "Plan":
        """The plan after the run: no step is open.

        `worked_on`: the steps in which a call succeeded. `cut_off`: those with a delegation that has no
        result.
        """
        if not answered:
            return self.with_statuses(lambda step: _STATUS_WITHOUT_ANSWER.get(step.status, step.status))
        plan = self.with_statuses(lambda step: _end_running_step(step, worked_on, cut_off))
        answer_ids = plan.find_answer_steps()
        return plan.with_statuses(lambda step: _end_pending_step(step, answer_ids))

    def find_answer_steps(self) -> set[str]:
        """The steps that the answer stands for: the supervisor's own, behind all that was worked on.

        One before finished work was passed over, and nothing shows that it was done.
        """
        step_ids = set[str]()
        for step in reversed(self.steps):
            if step.status in ("completed", "failed"):
                break
            if step.status == "pending" and step.agent == SUPERVISOR:
                step_ids.add(step.step_id)
        return step_ids

    def with_statuses(self, decide: Callable[[PlanStep], StepStatus]) -> "Plan":
        """The plan with the state that is decided for each step."""
        steps = [step.model_copy(update={"status": decide(step)}) for step in self.steps]
        return self.model_copy(update={"steps": tuple(steps)})

    def to_event(self) -> PlanUpdated:
        return PlanUpdated(title=self.title, steps=self.steps)


_STATUS_WITHOUT_ANSWER: Mapping[StepStatus, StepStatus] = {"in_progress": "failed", "pending": "skipped"}


def _end_running_step(step: PlanStep, worked_on: Collection[str], cut_off: Collection[str]) -> StepStatus:
    """The state in which the answer leaves a step, when it is in progress."""
    if step.status != "in_progress":
        return step.status
    if step.step_id in cut_off:
        return "failed"
    if step.agent == SUPERVISOR or step.step_id in worked_on:
        return "completed"
    return "skipped"  # the model said that an agent works on it, and never called the agent


def _end_pending_step(step: PlanStep, answer_ids: Collection[str]) -> StepStatus:
    if step.status != "pending":
        return step.status
    if step.step_id in answer_ids:
        return "completed"
    return "skipped"


class WriteSteps(FrozenModel):
    """The steps that the model wrote; one without an id is new, or is recognised by agent and title."""

    change: Literal["write"] = "write"
    title: Text | None = None
    steps: tuple[PlanStep, ...] = ()


class DelegationsMade(FrozenModel):
    """The delegations of one message of the model, in its order; none of them has begun."""

    change: Literal["made"] = "made"
    calls: tuple[DelegatedCall, ...]


class DelegationBegan(FrozenModel):
    """The call of a delegation has begun. Only who reads the stream sees it: the graph's state does not."""

    change: Literal["began"] = "began"
    call_id: Text


class DelegationEnded(FrozenModel):
    """The end of a delegation; what an older version stored has no `call_id`, and nothing before it."""

    change: Literal["ended"] = "ended"
    call_id: Text = ""
    agent: Text
    step_id: Text | None = None
    status: Literal["completed", "failed"]


class ResetPlan(FrozenModel):
    """Clears the plan: a new question starts without the plan of the one before."""

    change: Literal["reset"] = "reset"


AnyPlanChange = WriteSteps | DelegationsMade | DelegationBegan | DelegationEnded | ResetPlan
PlanChange = Annotated[AnyPlanChange, Field(discriminator="change")]
PLAN_CHANGE_ADAPTER: TypeAdapter[AnyPlanChange] = TypeAdapter(PlanChange)


class PlanState(FrozenModel):
    """The plan in the graph's state, the delegations of the question, and how many step ids were assigned, so
    that none is used twice."""

    plan: Plan = Field(default_factory=Plan)
    given: int = 0
    delegations: tuple[StepDelegation, ...] = ()

    def own_step(self) -> str | None:
        """The step that the supervisor itself works on: the only one in progress without a delegation."""
        delegated_ids = {delegation.step_id for delegation in self.delegations}
        own_ids = [
            step.step_id
            for step in self.plan.steps
            if step.status == "in_progress" and step.step_id not in delegated_ids
        ]
        if len(own_ids) == 1:
            return own_ids[0]
        return None


def change_plan(state: PlanState, change: AnyPlanChange) -> PlanState:
    """The plan after a change; the reducer of the graph's state and the translator both use it."""
    match change:
        case ResetPlan():
            return PlanState()
        case WriteSteps():
            return _settle(_write(state, change))
        case DelegationsMade():
            return _settle(_add(state, change.calls))
        case DelegationBegan():
            delegations = begin_delegation(state.delegations, change.call_id)
            return _settle(state.model_copy(update={"delegations": delegations}))
        case DelegationEnded():
            return _settle(_end(state, change))


def _add(state: PlanState, calls: Sequence[DelegatedCall]) -> PlanState:
    delegations = add_delegations(state.plan.steps, state.delegations, calls)
    return state.model_copy(update={"delegations": delegations})


def _end(state: PlanState, change: DelegationEnded) -> PlanState:
    is_known = any(delegation.call_id == change.call_id for delegation in state.delegations)
    if not is_known or not change.call_id:
        call = DelegatedCall(call_id=change.call_id, agent=change.agent, step_id=change.step_id)
        state = _add(state, (call,))
    delegations = end_delegation(state.delegations, change.call_id, change.status)
    return state.model_copy(update={"delegations": delegations})


def _settle(state: PlanState) -> PlanState:
    """Gives each delegated step the state of its delegations."""
    plan = state.plan.with_statuses(
        lambda step: find_work_status(step.step_id, state.delegations) or step.status
    )
    return state.model_copy(update={"plan": plan})


def _write(state: PlanState, change: WriteSteps) -> PlanState:
    old_ids = {step.step_id for step in state.plan.steps}
    unnamed_ids = _ids_by_content(state.plan.steps, {step.step_id for step in change.steps})
    id_count = state.given
    used_ids: set[str] = set()
    steps: list[PlanStep] = []
    for step in change.steps:
        step_id = step.step_id
        if step_id not in old_ids or step_id in used_ids:
            same_content = unnamed_ids.get(_content(step))
            if same_content:
                step_id = same_content.pop(0)
            else:
                id_count += 1
                step_id = f"step-{id_count}"
        used_ids.add(step_id)
        steps.append(step.model_copy(update={"step_id": step_id}))
    title = change.title
    if title is None:
        title = state.plan.title
    plan = Plan(title=title.strip(), steps=tuple(steps))
    return state.model_copy(update={"plan": plan, "given": id_count})


def _ids_by_content(steps: Sequence[PlanStep], named_ids: set[str]) -> dict[tuple[str, str], list[str]]:
    """The ids by which a step without an id is recognised; those that the change names are not available."""
    ids: dict[tuple[str, str], list[str]] = {}
    for step in steps:
        if step.step_id not in named_ids:
            ids.setdefault(_content(step), []).append(step.step_id)
    return ids


def _content(step: PlanStep) -> tuple[str, str]:
    return step.agent, step.title.casefold()


_TAG = re.compile(r"^\s*\[(?P<agent>[^\]]+)\]\s*(?P<title>.+)$", re.DOTALL)
_STATUS: Mapping[str, StepStatus] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "running": "in_progress",
    "completed": "completed",
    "done": "completed",
    "failed": "failed",
    "skipped": "skipped",
    "cancelled": "skipped",
    "canceled": "skipped",
}


def read_steps(todos: Sequence[Any]) -> tuple[PlanStep, ...]:
    """Steps from what a model sends: typed steps, todos with `content`, or strings like `[Jira] Find it`."""
    steps: list[PlanStep] = []
    for todo in todos:
        step = _read_step(todo)
        if step is not None:
            steps.append(step)
    return tuple(steps)


def _read_step(todo: Any) -> PlanStep | None:
    fields: Mapping[str, Any] = {"title": str(todo)}
    if isinstance(todo, Mapping):
        fields = todo
    title = str(fields.get("title") or fields.get("content") or "").strip()
    agent = str(fields.get("agent") or "").strip()
    tag = _TAG.match(title)
    if tag and agent.lower() in ("", tag["agent"].strip().lower()):
        agent = tag["agent"].strip()
        title = tag["title"].strip()
    if not title:
        return None
    status_name = str(fields.get("status") or "pending").strip().lower()
    status = _STATUS.get(status_name.replace("-", "_").replace(" ", "_"), "pending")
    step_id = str(fields.get("step_id") or fields.get("id") or "")
    return PlanStep(step_id=step_id, title=title, agent=agent.lower() or SUPERVISOR, status=status)
