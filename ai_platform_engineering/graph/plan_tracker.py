"""The plan while a run works on it: the graph's state, the steps that run now, and the version that was last
emitted."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ai_platform_engineering.core.events import PlanUpdated
from ai_platform_engineering.core.plan import PLAN_CHANGE_ADAPTER, Plan, PlanState, WriteSteps, change_plan
from ai_platform_engineering.graph.tool_calls import TrackedCall


class PlanTracker:
    def __init__(self, state: PlanState, emitted: Plan) -> None:
        self._state = state
        self._emitted = emitted

    def current_step(self) -> str | None:
        return self._state.plan.current_step()

    def step_for(self, delegation: TrackedCall) -> str | None:
        return self._state.plan.find_step(delegation.tool, delegation.arguments.get("step_id"))

    def start_step(self, step_id: str | None) -> None:
        plan = self._state.plan.with_status(step_id, "in_progress")
        self._state = self._state.model_copy(update={"plan": plan})

    def change(self, raw: Mapping[str, Any], open_delegations: Iterable[TrackedCall]) -> None:
        """Applies a change of the graph's state.

        A model may write the plan and delegate in the same message: delegations that run already get their
        step now.
        """
        change = PLAN_CHANGE_ADAPTER.validate_python(raw)
        self._state = change_plan(self._state, change)
        if not isinstance(change, WriteSteps):
            return
        for delegation in open_delegations:
            delegation.step_id = delegation.step_id or self.step_for(delegation)
            self.start_step(delegation.step_id)

    def restore(self, stored: PlanState) -> None:
        """Goes on with the plan of the checkpoint; steps that were emitted as running still run."""
        running = {step.step_id for step in self._emitted.steps if step.status == "in_progress"}
        self._state = stored
        for step in stored.plan.steps:
            if step.status == "pending" and step.step_id in running:
                self.start_step(step.step_id)

    def update(self) -> Iterator[PlanUpdated]:
        """The whole plan, when it differs from what was last emitted."""
        if self._state.plan != self._emitted:
            self._emitted = self._state.plan
            yield self._state.plan.to_event()
