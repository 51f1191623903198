"""The supervisor's plan: typed steps, and the changes that a model or a delegation may make to it."""

import re
from collections.abc import Mapping, Sequence
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

_OPEN = ("pending", "in_progress")


class Plan(FrozenModel):
    title: Text = ""
    steps: tuple[PlanStep, ...] = ()

    def open_steps(self) -> tuple[PlanStep, ...]:
        return tuple(step for step in self.steps if step.status in _OPEN)

    def find_step(self, agent: str, step_id: str | None) -> str | None:
        """The step that a delegation belongs to: the one it names, else the one open step of that agent."""
        if step_id is not None and any(step.step_id == step_id for step in self.steps):
            return step_id
        open_steps = [step for step in self.open_steps() if step.agent == agent]
        candidates = [step for step in open_steps if step.status == "in_progress"]
        if len(candidates) != 1:
            candidates = open_steps
        if len(candidates) == 1:
            return candidates[0].step_id
        return None

    def current_step(self) -> str | None:
        """The step in progress, when there is exactly one."""
        running = [step.step_id for step in self.steps if step.status == "in_progress"]
        if len(running) == 1:
            return running[0]
        return None

    def with_status(self, step_id: str | None, status: StepStatus) -> "Plan":
        """The plan with one step in another status."""
        steps: list[PlanStep] = []
        for step in self.steps:
            if step.step_id == step_id:
                step = step.model_copy(update={"status": status})
            steps.append(step)
        return self.model_copy(update={"steps": tuple(steps)})

    def close(self, *, answered: bool) -> "Plan":
        """The plan after the run: steps in progress are completed or failed, pending ones are skipped."""
        final_status: dict[str, StepStatus] = {
            "in_progress": "completed" if answered else "failed",
            "pending": "skipped",
        }
        steps: list[PlanStep] = []
        for step in self.steps:
            status = final_status.get(step.status, step.status)
            steps.append(step.model_copy(update={"status": status}))
        return self.model_copy(update={"steps": tuple(steps)})

    def to_event(self) -> PlanUpdated:
        return PlanUpdated(title=self.title, steps=self.steps)


class WriteSteps(FrozenModel):
    """The steps that the model wrote; one without an id is new, or is recognised by agent and title."""

    change: Literal["write"] = "write"
    title: Text | None = None
    steps: tuple[PlanStep, ...] = ()


class DelegationEnded(FrozenModel):
    """The new status of a delegation's step.

    The step is looked up when the change is applied: a model may write the plan and delegate in one message.
    """

    change: Literal["ended"] = "ended"
    agent: Text
    step_id: Text | None = None
    status: StepStatus


class ResetPlan(FrozenModel):
    """Clears the plan: a new question starts without the plan of the one before."""

    change: Literal["reset"] = "reset"


PlanChange = Annotated[WriteSteps | DelegationEnded | ResetPlan, Field(discriminator="change")]
PLAN_CHANGE_ADAPTER: TypeAdapter[WriteSteps | DelegationEnded | ResetPlan] = TypeAdapter(PlanChange)


class PlanState(FrozenModel):
    """The plan in the graph's state, and how many step ids were assigned, so that none is used twice."""

    plan: Plan = Field(default_factory=Plan)
    given: int = 0


def change_plan(state: PlanState, change: WriteSteps | DelegationEnded | ResetPlan) -> PlanState:
    """The plan after a change; the reducer of the graph's state and the translator both use it."""
    match change:
        case ResetPlan():
            return PlanState()
        case DelegationEnded():
            step_id = state.plan.find_step(change.agent, change.step_id)
            return state.model_copy(update={"plan": state.plan.with_status(step_id, change.status)})
        case WriteSteps():
            return _write(state, change)


def _write(state: PlanState, change: WriteSteps) -> PlanState:
    old_steps = {step.step_id: step for step in state.plan.steps}
    unnamed_ids = _ids_by_content(state.plan.steps, {step.step_id for step in change.steps})
    id_count = state.given
    used_ids: set[str] = set()
    steps: list[PlanStep] = []
    for step in change.steps:
        step_id = step.step_id
        if step_id not in old_steps or step_id in used_ids:
            same_content = unnamed_ids.get(_content(step))
            if same_content:
                step_id = same_content.pop(0)
            else:
                id_count += 1
                step_id = f"step-{id_count}"
        used_ids.add(step_id)
        status = _keep_failed(old_steps.get(step_id), step.status)
        steps.append(step.model_copy(update={"step_id": step_id, "status": status}))
    title = change.title
    if title is None:
        title = state.plan.title
    return PlanState(plan=Plan(title=title, steps=tuple(steps)), given=id_count)


def _ids_by_content(steps: Sequence[PlanStep], named_ids: set[str]) -> dict[tuple[str, str], list[str]]:
    """The ids by which a step without an id is recognised; those that the change names are not available."""
    ids: dict[tuple[str, str], list[str]] = {}
    for step in steps:
        if step.step_id not in named_ids:
            ids.setdefault(_content(step), []).append(step.step_id)
    return ids


def _content(step: PlanStep) -> tuple[str, str]:
    return step.agent, step.title.casefold()


def _keep_failed(old_step: PlanStep | None, new_status: StepStatus) -> StepStatus:
    # The result of a delegation counts: a failed step is not completed because a model says so.
    if old_step is not None and old_step.status == "failed" and new_status == "completed":
        return "failed"
    return new_status


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
