"""Delegations and steps: which step a delegation belongs to, what its end makes of the step, and a comparison
with a simple account of all calls for any order of what can happen."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.core.events import PlanStep, StepStatus
from ai_platform_engineering.core.plan import (
    PLAN_CHANGE_ADAPTER,
    AnyPlanChange,
    DelegationBegan,
    DelegationEnded,
    DelegationsMade,
    PlanState,
    ResetPlan,
    WriteSteps,
    change_plan,
)
from ai_platform_engineering.core.step_delegations import DelegatedCall
from tests.support import strategies as given_by
from tests.support.plan_account import PlanAccount


def step(number: int, status: StepStatus = "pending", agent: str = "argocd") -> PlanStep:
    return PlanStep(step_id=f"step-{number}", title=f"Step {number}", agent=agent, status=status)


def made(*calls: tuple[str, str] | tuple[str, str, str | None]) -> DelegationsMade:
    """Delegations as call id, agent and the step that is named."""
    return DelegationsMade(
        calls=tuple(
            DelegatedCall(call_id=call_id, agent=agent, step_id=named[0] if named else None)
            for call_id, agent, *named in calls
        )
    )


def began(call_id: str) -> DelegationBegan:
    return DelegationBegan(call_id=call_id)


def ended(call_id: str, status: Any = "completed", agent: str = "argocd") -> DelegationEnded:
    return DelegationEnded(call_id=call_id, agent=agent, status=status)


def after(*changes: AnyPlanChange) -> PlanState:
    state = PlanState()
    for change in changes:
        state = change_plan(state, change)
    return state


def statuses(state: PlanState) -> list[str]:
    return [step.status for step in state.plan.steps]


def step_ids(state: PlanState) -> list[str | None]:
    return [delegation.step_id for delegation in state.delegations]


# --- which step ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "calls", "expected"),
    [
        ([step(1), step(2)], [("a", "argocd", "step-2")], ["step-2"]),
        ([step(1), step(2, agent="jira")], [("a", "argocd", "step-2")], ["step-2"]),
        ([step(1), step(2, agent="jira")], [("a", "jira")], ["step-2"]),
        ([step(1), step(2, agent="jira")], [("a", "jira", "step-9")], ["step-2"]),
        ([step(1), step(2)], [("a", "argocd")], ["step-1"]),
        ([step(1), step(2)], [("a", " ArgoCD ")], ["step-1"]),
        ([step(1), step(2)], [("a", "argocd"), ("b", "argocd")], ["step-1", "step-2"]),
        ([step(1), step(2)], [("a", "argocd"), ("b", "argocd", "step-1")], ["step-2", "step-1"]),
        ([step(1), step(2, "in_progress")], [("a", "argocd")], ["step-2"]),
        ([step(1), step(2, "in_progress")], [("a", "argocd"), ("b", "argocd")], ["step-1", "step-2"]),
        ([step(1, "completed"), step(2)], [("a", "argocd")], ["step-2"]),
        ([step(1, "completed"), step(2, "skipped")], [("a", "argocd")], [None]),
        ([step(1, "failed"), step(2)], [("a", "argocd")], ["step-2"]),
        ([step(1, "failed"), step(2)], [("a", "argocd"), ("b", "argocd")], ["step-1", "step-2"]),
        ([step(1, "failed")], [("a", "argocd")], ["step-1"]),
        ([step(1)], [("a", "argocd"), ("b", "argocd"), ("c", "argocd")], ["step-1"] * 3),
        ([step(1), step(2)], [(name, "argocd") for name in "abc"], ["step-1", "step-2", "step-2"]),
        ([step(1, agent="jira")], [("a", "argocd", "step-1"), ("b", "argocd")], ["step-1", None]),
        ([step(1)], [("a", "jira")], [None]),
        ([], [("a", "argocd", "step-1")], [None]),
    ],
    ids=[
        "the one it names",
        "the one it names, of another agent",
        "its agent's only one",
        "a name that is none",
        "the first of two",
        "another spelling",
        "one each",
        "the one that no other names",
        "the one in progress",
        "both in the order of the plan",
        "the open one",
        "none is open",
        "an open one before a failed one",
        "a failed one too, when there are more",
        "a failed one that is left",
        "the same for all",
        "the last one for the rest",
        "none, when another agent's is worked on",
        "none of its agent",
        "no plan",
    ],
)
def test_a_delegation_belongs_to(steps: list[PlanStep], calls: list[Any], expected: list[str | None]) -> None:
    assert step_ids(after(WriteSteps(steps=tuple(steps)), made(*calls))) == expected


def test_steps_that_are_worked_on_are_left_to_those_who_do() -> None:
    state = after(WriteSteps(steps=(step(1), step(2))), made(("a", "argocd")), made(("b", "argocd")))
    assert step_ids(state) == ["step-1", "step-2"]


# --- what becomes of the step -------------------------------------------------------------------------------

ONE = WriteSteps(steps=(step(1),))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([made(("a", "argocd"))], "pending"),
        ([made(("a", "argocd")), began("a")], "in_progress"),
        ([made(("a", "argocd")), began("a"), ended("a")], "completed"),
        ([made(("a", "argocd")), ended("a")], "completed"),
        ([made(("a", "argocd"), ("b", "argocd")), began("a"), began("b"), ended("a")], "in_progress"),
        ([made(("a", "argocd"), ("b", "argocd")), ended("a")], "in_progress"),
        ([made(("a", "argocd"), ("b", "argocd")), ended("a", "failed"), ended("b")], "failed"),
        ([made(("a", "argocd"), ("b", "argocd")), ended("b"), ended("a", "failed")], "failed"),
        ([made(("a", "argocd")), ended("a", "failed"), made(("b", "argocd"))], "failed"),
        ([made(("a", "argocd")), ended("a", "failed"), made(("b", "argocd")), began("b")], "in_progress"),
        ([made(("a", "argocd")), ended("a", "failed"), made(("b", "argocd")), ended("b")], "completed"),
        (
            [
                made(("a", "argocd"), ("b", "argocd")),
                ended("a", "failed"),
                ended("b", "failed"),
                made(("c", "argocd")),
                ended("c"),
            ],
            "failed",
        ),
        (
            [
                made(("a", "argocd")),
                ended("a", "failed"),
                made(("b", "jira", "step-1")),
                ended("b", agent="jira"),
            ],
            "failed",
        ),
        ([made(("a", "argocd")), ended("a"), ended("a", "failed")], "completed"),
        (
            [made(("a", "argocd")), ended("a"), made(("a", "argocd", "step-1")), ended("a", "failed")],
            "failed",
        ),
    ],
    ids=[
        "it waits",
        "it runs",
        "it is done",
        "it was answered before it began",
        "one of two is done",
        "one of two is done before the other begins",
        "the first of two failed",
        "the last of two failed",
        "its retry waits",
        "its retry runs",
        "its retry is done",
        "one retry for two failures",
        "another agent is no retry",
        "an end that is said twice",
        "an id that is used again",
    ],
)
def test_the_state_of_a_step_after(changes: list[AnyPlanChange], expected: str) -> None:
    assert statuses(after(ONE, *changes)) == [expected]


@pytest.mark.parametrize("word", ["pending", "in_progress", "completed", "failed", "skipped"])
def test_the_models_word_counts_for_a_step_without_delegations_only(word: StepStatus) -> None:
    plan = WriteSteps(steps=(step(1), step(2), step(3), step(4)))
    work: list[AnyPlanChange] = [
        made(("a", "argocd"), ("b", "argocd"), ("c", "argocd")),
        began("a"),
        ended("b"),
        ended("c", "failed"),
    ]
    rewritten = WriteSteps(steps=tuple(step(number, word) for number in range(1, 5)))
    expected = ["in_progress", "completed", "failed", word]
    assert statuses(after(plan, *work, rewritten)) == expected
    assert statuses(after(plan, work[0], rewritten, *work[1:])) == expected


def test_a_step_that_the_model_dropped_is_gone_with_its_delegations() -> None:
    state = after(ONE, made(("a", "argocd")), WriteSteps(), ended("a", "failed"), ONE)
    assert [(step.step_id, step.status) for step in state.plan.steps] == [("step-2", "pending")]


def test_a_new_question_forgets_the_delegations() -> None:
    assert after(ONE, made(("a", "argocd")), ended("a"), ResetPlan()) == PlanState()


# --- what older versions have stored ------------------------------------------------------------------------


def test_a_plan_of_an_older_version_is_read_and_goes_on() -> None:
    stored = {
        "plan": {
            "title": "Release",
            "steps": [
                {"step_id": "step-1", "title": "Look", "agent": "argocd", "status": "completed"},
                {"step_id": "step-2", "title": "Find", "agent": "jira", "status": "pending"},
                {"step_id": "step-3", "title": "Tag", "agent": "github", "status": "failed"},
            ],
        },
        "given": 3,
    }
    state = PlanState.model_validate(stored)
    assert statuses(state) == ["completed", "pending", "failed"]
    change = PLAN_CHANGE_ADAPTER.validate_python(
        {"change": "ended", "agent": "jira", "step_id": None, "status": "failed"}
    )
    state = change_plan(state, change)
    assert statuses(state) == ["completed", "failed", "failed"]
    for call_id, agent in (("x", "jira"), ("y", "github")):
        state = change_plan(state, ended(call_id, agent=agent))
    assert statuses(state) == ["completed", "completed", "completed"]


def test_ends_of_an_older_version_are_told_apart() -> None:
    state = after(
        WriteSteps(steps=(step(1), step(2))),
        DelegationEnded(agent="argocd", status="completed"),
        DelegationEnded(agent="argocd", status="failed"),
    )
    assert statuses(state) == ["completed", "failed"]


# --- any order of what can happen ---------------------------------------------------------------------------


calls = st.lists(
    st.tuples(
        st.sampled_from(["argocd", "argocd", "jira"]),
        st.sampled_from([None, None, None, "step-1", "step-2", "step-9"]),
    ),
    min_size=1,
    max_size=4,
)
plans = st.lists(
    st.tuples(
        st.sampled_from(["argocd", "argocd", "jira", "supervisor"]),
        st.sampled_from(["pending", "pending", "in_progress", "completed", "failed", "skipped"]),
    ),
    max_size=4,
)


@given_by.examples(300)
@given(data=st.data())
def test_for_any_order_of_what_happens_the_states_are_those_of_the_calls(data: st.DataObject) -> None:
    """As in a run: messages follow each other when the calls of the one before have ended."""
    state, account = PlanState(), PlanAccount()
    for message in range(data.draw(st.integers(1, 4), label="messages")):
        if data.draw(st.booleans(), label="writes"):
            state = _write(state, account, data.draw(plans, label="plan"))
        delegated = data.draw(calls, label="calls")
        made_calls = [
            (f"{message}-{number}", agent, named) for number, (agent, named) in enumerate(delegated)
        ]
        account.make(message, made_calls)
        state = change_plan(state, made(*made_calls))
        assert step_ids(state) == [call.step_id for call in account.calls]
        unfinished = [call for call in account.calls if call.message == message]
        while unfinished:
            call = data.draw(st.sampled_from(unfinished), label="next")
            outcomes = ["completed", "failed"] if call.state == "running" else ["running", "failed"]
            outcome = data.draw(st.sampled_from(outcomes), label="what")
            if data.draw(st.integers(0, 5), label="writes meanwhile") == 0:
                rewritten = [(account.agents[one], "completed") for one in account.words]
                state = _write(state, account, rewritten)
            if outcome == "running":
                state = change_plan(state, began(call.call_id))
            else:
                state = change_plan(state, ended(call.call_id, outcome, call.agent))
                unfinished.remove(call)
            call.state = outcome
            account.settle()
            assert statuses(state) == list(account.shown.values())


def _write(state: PlanState, account: PlanAccount, plan: list[tuple[str, str]]) -> PlanState:
    """Writes a plan; its steps keep their places, so that one that stays has its id."""
    steps = tuple(
        PlanStep.model_validate(
            {"step_id": f"step-{number}", "title": f"Step {number}", "agent": agent, "status": status}
        )
        for number, (agent, status) in enumerate(plan, 1)
    )
    state = change_plan(state, WriteSteps(steps=steps))
    written = [
        new.model_copy(update={"step_id": old.step_id})
        for new, old in zip(steps, state.plan.steps, strict=True)
    ]
    account.write(written)
    assert statuses(state) == list(account.shown.values())
    return state


@given_by.examples(100)
@given(data=st.data())
def test_the_order_in_which_parallel_delegations_end_does_not_matter(data: st.DataObject) -> None:
    """The graph's state is reduced in the order of the calls, the stream in the order of their ends."""
    plan = data.draw(plans)
    delegated = data.draw(calls)
    state = change_plan(
        PlanState(),
        WriteSteps(
            steps=tuple(
                PlanStep.model_validate({"step_id": "", "title": str(n), "agent": agent, "status": status})
                for n, (agent, status) in enumerate(plan)
            )
        ),
    )
    state = change_plan(state, made(*((str(n), agent, named) for n, (agent, named) in enumerate(delegated))))
    ends = [
        ended(str(n), data.draw(st.sampled_from(["completed", "failed"])), agent)
        for n, (agent, _) in enumerate(delegated)
    ]
    in_order, as_it_comes = state, state
    for end in ends:
        in_order = change_plan(in_order, end)
    for end in data.draw(st.permutations(ends)):
        as_it_comes = change_plan(change_plan(as_it_comes, began(end.call_id)), end)
    assert as_it_comes == in_order
