"""An account of all delegations of a run, and the states of the plan's steps that follow from it.

Written anew from the rules, without regard for speed, to be compared with what the system shows.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from ai_platform_engineering.core.events import SUPERVISOR, PlanStep, StepStatus

# Call id, agent, and the step that is named.
MadeCall = tuple[str, str, str | None]
_BEST_FIRST = ("in_progress", "pending", "failed")


@dataclass
class AccountedCall:
    """A delegation: in which message of the model it was made, on which step, and how far it is."""

    call_id: str
    agent: str
    step_id: str | None
    message: int
    state: str = "waiting"  # or running, completed, failed


@dataclass
class PlanAccount:
    """The plan that the model wrote last, and all calls as they were made."""

    words: dict[str, StepStatus] = field(default_factory=dict)  # what the model wrote last, by step
    agents: dict[str, str] = field(default_factory=dict)
    calls: list[AccountedCall] = field(default_factory=list)
    shown: dict[str, StepStatus] = field(default_factory=dict)

    def write(self, steps: Sequence[PlanStep]) -> None:
        self.words = {step.step_id: step.status for step in steps}
        self.agents = {step.step_id: step.agent for step in steps}
        self.settle()

    def make(self, message: int, calls: Sequence[MadeCall]) -> None:
        step_ids = self._match(calls)
        for (call_id, agent, _), step_id in zip(calls, step_ids, strict=True):
            self.calls.append(AccountedCall(call_id, agent, step_id, message))

    def move(self, call_id: str, state: str) -> AccountedCall:
        """Gives a call, which is the only one with its id, another state."""
        [call] = [call for call in self.calls if call.call_id == call_id]
        call.state = state
        self.settle()
        return call

    def settle(self) -> None:
        self.shown = {step_id: self._status(step_id) for step_id in self.words}

    def close(self) -> list[StepStatus]:
        """The states after the answer."""
        final = list(self.shown.items())
        for index, (step_id, status) in enumerate(final):
            if status == "in_progress":  # by the model's word alone: no call runs any more
                final[index] = (
                    step_id,
                    "completed" if self.agents[step_id] == SUPERVISOR else "skipped",
                )
        worked = [index for index, (_, status) in enumerate(final) if status in ("completed", "failed")]
        last_worked = max(worked, default=-1)
        closed: list[StepStatus] = []
        for index, (step_id, status) in enumerate(final):
            if status == "pending":
                is_answer = self.agents[step_id] == SUPERVISOR and index > last_worked
                status = "completed" if is_answer else "skipped"
            closed.append(status)
        return closed

    def _match(self, calls: Sequence[MadeCall]) -> list[str | None]:
        """The best of all assignments: named steps first, then each agent's open ones in order."""
        matched = [named if named in self.words else None for _, _, named in calls]
        busy = {call.step_id for call in self.calls if call.state in ("waiting", "running")}
        for agent in {agent for _, agent, _ in calls}:
            rest = [at for at, call in enumerate(calls) if call[1] == agent and matched[at] is None]
            own = [step_id for step_id in self.words if self.agents[step_id] == agent]
            used = busy | set(matched)
            open_ids = [one for one in own if one not in used and self.shown[one] in _BEST_FIRST]
            choices = list(itertools.combinations(open_ids, min(len(rest), len(open_ids))))
            best = min(choices, key=self._rank)
            for at, step_id in zip(rest, best, strict=False):
                matched[at] = step_id
            shared = [step_id for step_id in own if step_id in used or step_id in best]
            for at in rest[len(best) :]:
                matched[at] = shared[-1] if shared else None
        return matched

    def _rank(self, choice: Sequence[str]) -> tuple[list[int], list[int]]:
        states = sorted(_BEST_FIRST.index(self.shown[step_id]) for step_id in choice)
        return states, [list(self.words).index(step_id) for step_id in choice]

    def _status(self, step_id: str) -> StepStatus:
        work = [call for call in self.calls if call.step_id == step_id and call.state != "waiting"]
        if not work:
            return self.words[step_id]
        on_step = [call for call in self.calls if call.step_id == step_id]
        begun_messages = {call.message for call in work}
        for call in on_step:  # what was ordered together is done together
            if call.state == "running" or (call.state == "waiting" and call.message in begun_messages):
                return "in_progress"
        if any(call.state == "failed" and not self._is_replaced(call) for call in work):
            return "failed"
        return "completed"

    def _is_replaced(self, failed: AccountedCall) -> bool:
        """Whether a later message has made the call again: each call makes up for one failure, the oldest."""
        same = [call for call in self.calls if (call.step_id, call.agent) == (failed.step_id, failed.agent)]
        failures: list[AccountedCall] = []
        for message in sorted({call.message for call in same}):
            of_message = [call for call in same if call.message == message]
            for again in of_message:
                if failures and failures.pop(0) is failed:
                    return again.state != "waiting"
            failures += [call for call in of_message if call.state == "failed"]
        return False
