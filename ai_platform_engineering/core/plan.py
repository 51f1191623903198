"""The plan as a value: typed steps, and the changes that a model or a delegation may make to it."""

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

    def find_step(self, agent: str, given: str | None) -> str | None:
        """The step that a delegation belongs to: the one it names, else the one open step of that agent."""
        if given is not None and any(step.step_id == given for step in self.steps):
            return given
        mine = [step for step in self.open_steps() if step.agent == agent]
        running = [step for step in mine if step.status == "in_progress"]
        found = running if len(running) == 1 else mine
        if len(found) == 1:
            return found[0].step_id
        return None

    def current_step(self) -> str | None:
        """The step in progress, when there is exactly one."""
        running = [step.step_id for step in self.steps if step.status == "in_progress"]
        if len(running) == 1:
            return running[0]
        return None

    def with_status(self, step_id: str | None, status: StepStatus) -> "Plan":
        steps = tuple(
            step.model_copy(update={"status": status}) if step.step_id == step_id else step
            for step in self.steps
        )
        return self.model_copy(update={"steps": steps})

    def close(self, *, answered: bool) -> "Plan":
        """The plan after the run: what was in progress is over, what was never begun was skipped."""
        over: dict[str, StepStatus] = {
            "in_progress": "completed" if answered else "failed",
            "pending": "skipped",
        }
        steps = tuple(
            step.model_copy(update={"status": over.get(step.status, step.status)}) for step in self.steps
        )
        return self.model_copy(update={"steps": steps})

    def to_event(self) -> PlanUpdated:
        return PlanUpdated(title=self.title, steps=self.steps)


class WriteSteps(FrozenModel):
    """What the model wrote: steps without an id are new or are recognised by agent and title."""

    change: Literal["write"] = "write"
    title: Text | None = None
    steps: tuple[PlanStep, ...] = ()


class DelegationEnded(FrozenModel):
    """What a delegation's result says about its step; the step is looked up when the change is applied, since a model may
    write the plan and delegate in the same breath."""

    change: Literal["ended"] = "ended"
    agent: Text
    step_id: Text | None = None
    status: StepStatus


class ResetPlan(FrozenModel):
    """A new question starts without the plan of the one before."""

    change: Literal["reset"] = "reset"


PlanChange = Annotated[WriteSteps | DelegationEnded | ResetPlan, Field(discriminator="change")]
PLAN_CHANGE_ADAPTER: TypeAdapter[WriteSteps | DelegationEnded | ResetPlan] = TypeAdapter(PlanChange)


class PlanState(FrozenModel):
    """What the graph keeps: the plan and how many ids were given out, so that an id is never used twice."""

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
    known = {step.step_id: step for step in state.plan.steps}
    by_words = _by_words(state.plan.steps, {step.step_id for step in change.steps})
    given = state.given
    steps = []
    used = set[str]()
    for step in change.steps:
        step_id = step.step_id
        if step_id not in known or step_id in used:
            same = by_words.get(_words(step))
            given += not same
            step_id = same.pop(0) if same else f"step-{given}"
        used.add(step_id)
        steps.append(
            step.model_copy(update={"step_id": step_id, "status": _settled(known.get(step_id), step.status)})
        )
    title = state.plan.title if change.title is None else change.title
    return PlanState(plan=Plan(title=title, steps=tuple(steps)), given=given)


def _by_words(steps: Sequence[PlanStep], named: set[str]) -> dict[tuple[str, str], list[str]]:
    """The ids that a step without one may be recognised by; those that another step names are taken."""
    found: dict[tuple[str, str], list[str]] = {}
    for step in steps:
        if step.step_id not in named:
            found.setdefault(_words(step), []).append(step.step_id)
    return found


def _words(step: PlanStep) -> tuple[str, str]:
    return step.agent, step.title.casefold()


def _settled(before: PlanStep | None, wanted: StepStatus) -> StepStatus:
    # What a delegation's result said stays: a model that calls a failed step completed does not make it so.
    if before is not None and before.status == "failed" and wanted == "completed":
        return "failed"
    return wanted


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
    """Steps from what a model sends: typed steps, plain todos with `content`, or bare strings such as `[Jira] Find tickets`."""
    return tuple(step for todo in todos if (step := _read_step(todo)) is not None)


def _read_step(todo: Any) -> PlanStep | None:
    fields: Mapping[str, Any] = todo if isinstance(todo, Mapping) else {"title": str(todo)}
    title = str(fields.get("title") or fields.get("content") or "").strip()
    agent = str(fields.get("agent") or "").strip()
    if (tagged := _TAG.match(title)) and agent.lower() in ("", tagged["agent"].strip().lower()):
        agent, title = tagged["agent"].strip(), tagged["title"].strip()
    if not title:
        return None
    said = str(fields.get("status") or "pending").strip().lower()
    status = _STATUS.get(said.replace("-", "_").replace(" ", "_"), "pending")
    step_id = str(fields.get("step_id") or fields.get("id") or "")
    return PlanStep(step_id=step_id, title=title, agent=agent.lower() or SUPERVISOR, status=status)
