"""The plan while a run works on it: the graph's state, the steps of its delegations, and the version that was
last emitted."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ai_platform_engineering.core.events import PlanStep, PlanUpdated, StepStatus
from ai_platform_engineering.core.plan import (
    PLAN_CHANGE_ADAPTER,
    AnyPlanChange,
    DelegationBegan,
    DelegationEnded,
    DelegationsMade,
    Plan,
    PlanState,
    change_plan,
)
from ai_platform_engineering.core.step_delegations import DelegatedCall, StepDelegation
from ai_platform_engineering.core.transcript import ToolCallView
from ai_platform_engineering.graph.tool_calls import TrackedCall, without_count


class PlanTracker:
    def __init__(self, state: PlanState, emitted: Plan, *, is_takeover: bool) -> None:
        """`state` is that of the checkpoint, with what was written since.

        In a takeover all calls of the run are registered again, and the plan is not emitted before
        `release`: it is ahead of the calls that are replayed.
        """
        self._state = state
        self._emitted = emitted
        self._is_held = is_takeover
        # The delegations that no call was registered for yet.
        self._unclaimed = [
            delegation for delegation in state.delegations if is_takeover or delegation.status == "waiting"
        ]

    def own_step(self) -> str | None:
        """The step that the supervisor itself works on."""
        if self._is_held:
            return self._state.model_copy(update={"plan": self._emitted}).own_step()
        return self._state.own_step()

    def claim_step(self, raw_id: str) -> str | None:
        """The step of the supervisor's next delegation with this id, which a provider may use again."""
        for index, delegation in enumerate(self._unclaimed):
            if delegation.call_id == raw_id:
                return self._unclaimed.pop(index).step_id
        return None

    def begin(self, call: TrackedCall) -> None:
        """Applies the begin of a delegation. An older version has not stored it in the plan."""
        if not any(delegation.call_id == call.raw_id for delegation in self._state.delegations):
            delegated_call = DelegatedCall(call_id=call.raw_id, agent=call.tool, step_id=call.step_id)
            self._state = change_plan(self._state, DelegationsMade(calls=(delegated_call,)))
        self._state = change_plan(self._state, DelegationBegan(call_id=call.raw_id))

    def change(self, raw: Mapping[str, Any]) -> Iterator[PlanUpdated]:
        """Applies a change of the graph's state."""
        delegation_count = len(self._state.delegations)
        self._state = change_plan(self._state, PLAN_CHANGE_ADAPTER.validate_python(raw))
        self._unclaimed += self._state.delegations[delegation_count:]
        yield from self.update()

    def release(self, emitted_calls: Sequence[ToolCallView]) -> Iterator[PlanUpdated]:
        """The plan after a takeover, and from now on.

        `emitted_calls` are the supervisor's delegations in the log, in order. The graph makes those again
        whose end it has not stored; for a reader they run, or have ended, as the log says.
        """
        self._is_held = False
        if self._state.delegations:
            self._take_over_delegations(emitted_calls)
        else:
            self._take_over_steps(emitted_calls)
        yield from self.update()

    def _take_over_delegations(self, emitted_calls: Sequence[ToolCallView]) -> None:
        unmatched = list(self._state.delegations)
        for call in emitted_calls:
            raw_ids = (call.call_id, without_count(call.call_id))
            delegation = next((delegation for delegation in unmatched if delegation.call_id in raw_ids), None)
            if delegation is None:
                continue
            unmatched.remove(delegation)
            if delegation.status == "waiting":
                self._state = change_plan(self._state, _emitted_change(delegation, call))

    def _take_over_steps(self, emitted_calls: Sequence[ToolCallView]) -> None:
        """The same for the plan of an older version, which has no delegations."""
        running_ids = {call.step_id for call in emitted_calls if call.outcome is None}

        def decide(step: PlanStep) -> StepStatus:
            if step.status == "pending" and step.step_id in running_ids:
                return "in_progress"
            return step.status

        self._state = self._state.model_copy(update={"plan": self._state.plan.with_statuses(decide)})

    def update(self) -> Iterator[PlanUpdated]:
        """The whole plan, when it differs from what was last emitted."""
        if not self._is_held and self._state.plan != self._emitted:
            self._emitted = self._state.plan
            yield self._state.plan.to_event()


def _emitted_change(delegation: StepDelegation, call: ToolCallView) -> AnyPlanChange:
    """What a reader has seen of a delegation."""
    if call.outcome is None:
        return DelegationBegan(call_id=delegation.call_id)
    return DelegationEnded(
        call_id=delegation.call_id,
        agent=delegation.agent,
        step_id=delegation.step_id,
        status="completed" if call.outcome == "ok" else "failed",
    )
