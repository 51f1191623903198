"""The plan: stable step ids, what models may write, the end of a delegation, and the end of a run."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.core.events import (
    SUPERVISOR,
    AnyEvent,
    PlanStep,
    PlanUpdated,
    StepStatus,
    ToolFinished,
    ToolStarted,
)
from ai_platform_engineering.core.plan import (
    DelegationEnded,
    Plan,
    PlanState,
    ResetPlan,
    WriteSteps,
    change_plan,
    read_steps,
)
from tests.support import strategies as given_by
from tests.support.fakes.script import Call, Fail, Say, Script, Turn
from tests.support.graph_runner import GraphConversation, scripted_model
from tests.support.harness import agent


def step(
    number: int, status: StepStatus = "pending", agent: str = "argocd", title: str | None = None
) -> PlanStep:
    return PlanStep(step_id=f"step-{number}", title=title or f"Step {number}", agent=agent, status=status)


def plan_of(*steps: PlanStep) -> Plan:
    return Plan(title="Release", steps=steps)


def write(*todos: Any, title: str | None = None) -> WriteSteps:
    return WriteSteps(title=title, steps=read_steps(todos))


def after(*changes: Any) -> PlanState:
    state = PlanState()
    for change in changes:
        state = change_plan(state, change)
    return state


def ids(state: PlanState) -> list[str]:
    return [step.step_id for step in state.plan.steps]


def statuses(plan: Plan) -> list[str]:
    return [step.status for step in plan.steps]


LOOK = {"agent": "argocd", "title": "Look"}
FIND = {"agent": "jira", "title": "Find tickets"}


# --- what a model may send ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("todo", "expected"),
    [
        ({"agent": "jira", "title": "Find tickets"}, ("jira", "Find tickets", "pending")),
        ({"content": "Find tickets", "status": "in_progress"}, ("supervisor", "Find tickets", "in_progress")),
        ({"content": "[Jira] Find tickets", "status": "completed"}, ("jira", "Find tickets", "completed")),
        ("[Jira] Find tickets", ("jira", "Find tickets", "pending")),
        ("  [ Jira ]   Find tickets ", ("jira", "Find tickets", "pending")),
        ("Find tickets", ("supervisor", "Find tickets", "pending")),
        ({"agent": "Jira", "title": "[Jira] Find tickets"}, ("jira", "Find tickets", "pending")),
        ({"agent": "jira", "title": "[urgent] Find tickets"}, ("jira", "[urgent] Find tickets", "pending")),
        ({"agent": None, "title": "Sum up", "status": None}, ("supervisor", "Sum up", "pending")),
        ("[Jira] Find\ntickets", ("jira", "Find\ntickets", "pending")),
    ],
    ids=[
        "typed",
        "plain todo",
        "tagged todo",
        "tagged string",
        "loosely tagged",
        "string",
        "agent named twice",
        "another tag",
        "nothing given",
        "two lines",
    ],
)
def test_a_step_is_read_from(todo: Any, expected: tuple[str, str, str]) -> None:
    [step] = read_steps([todo])
    assert (step.agent, step.title, step.status) == expected


@pytest.mark.parametrize("todo", ["", "  ", {}, {"title": ""}, {"content": " "}, {"agent": "jira"}])
def test_a_step_without_words_is_none(todo: Any) -> None:
    assert read_steps([todo, "[Jira] Find"]) == read_steps(["[Jira] Find"])


@pytest.mark.parametrize(
    ("status_text", "status"),
    [
        ("pending", "pending"),
        ("in_progress", "in_progress"),
        ("in-progress", "in_progress"),
        ("In Progress", "in_progress"),
        ("running", "in_progress"),
        ("COMPLETED", "completed"),
        ("done", "completed"),
        ("failed", "failed"),
        ("skipped", "skipped"),
        ("cancelled", "skipped"),
        ("canceled", "skipped"),
        ("who knows", "pending"),
        ("", "pending"),
    ],
)
def test_a_status_is_read_from(status_text: str, status: StepStatus) -> None:
    [found] = read_steps([{"title": "Look", "status": status_text}])
    assert found.status == status


@given_by.examples(30)
@given(todos=st.lists(given_by.json_value, max_size=5))
def test_whatever_a_model_sends_is_read(todos: list[Any]) -> None:
    assert all(step.title and step.agent for step in read_steps(todos))


# --- ids ----------------------------------------------------------------------------------------------------


def test_ids_are_given_on_first_sight_in_order() -> None:
    assert ids(after(write(LOOK, FIND))) == ["step-1", "step-2"]


def test_a_reworded_step_keeps_its_id_when_it_names_it() -> None:
    state = after(
        write(LOOK, FIND),
        write({**LOOK, "id": "step-1", "title": "Look closer"}, {**FIND, "step_id": "step-2"}),
    )
    assert ids(state) == ["step-1", "step-2"]
    assert state.plan.steps[0].title == "Look closer"


def test_a_step_without_an_id_is_known_by_its_agent_and_title() -> None:
    state = after(write(LOOK, FIND), write("[JIRA] FIND TICKETS", {**LOOK, "status": "completed"}))
    assert ids(state) == ["step-2", "step-1"]


def test_the_same_words_for_another_agent_are_another_step() -> None:
    assert ids(after(write(LOOK), write({**LOOK, "agent": "jira"}))) == ["step-2"]


def test_an_id_is_never_used_again() -> None:
    assert ids(after(write(LOOK, FIND), write(FIND), write(FIND, LOOK))) == ["step-2", "step-3"]


def test_an_id_that_was_never_given_is_not_taken_over() -> None:
    assert ids(after(write({**LOOK, "id": "step-7"}, {**FIND, "id": "mine"}))) == ["step-1", "step-2"]


def test_two_steps_with_the_same_words_are_two_steps() -> None:
    assert ids(after(write(LOOK, LOOK))) == ["step-1", "step-2"]
    assert ids(after(write(LOOK, LOOK), write({**LOOK, "id": "step-2"}, {**LOOK, "id": "step-2"}))) == [
        "step-2",
        "step-1",
    ]


def test_two_steps_with_the_same_words_keep_their_ids_when_they_are_written_again() -> None:
    assert ids(after(write(LOOK, LOOK), write(LOOK, FIND, LOOK))) == ["step-1", "step-3", "step-2"]


def test_a_step_that_names_its_id_goes_before_one_that_has_its_old_words() -> None:
    state = after(write(LOOK), write(LOOK, {**LOOK, "id": "step-1", "title": "Look closer"}))
    assert [(step.step_id, step.title) for step in state.plan.steps] == [
        ("step-2", "Look"),
        ("step-1", "Look closer"),
    ]


def test_a_title_stays_until_another_is_given() -> None:
    assert after(write(LOOK, title="Release"), write(LOOK, FIND)).plan.title == "Release"
    assert after(write(LOOK, title="Release"), write(LOOK, title="Rollback")).plan.title == "Rollback"


written = st.lists(
    st.builds(
        PlanStep,
        step_id=st.sampled_from(["", "step-1", "step-2", "step-3", "step-9", "other"]),
        title=st.sampled_from(["Look", "look", "Find"]),
        agent=st.sampled_from(["argocd", "jira"]),
        status=st.sampled_from(["pending", "in_progress", "completed", "failed", "skipped"]),
    ),
    max_size=4,
)


@given_by.examples(80)
@given(plans=st.lists(written, max_size=5))
def test_in_any_sequence_of_plans_an_id_means_one_step(plans: list[list[PlanStep]]) -> None:
    state, ever = PlanState(), set[str]()
    for steps in plans:
        before = {step.step_id for step in state.plan.steps}
        state = change_plan(state, WriteSteps(steps=tuple(steps)))
        now = ids(state)
        assert len(now) == len(set(now)) == len(steps)
        assert (set(now) - before).isdisjoint(ever), "a new step has a new id"
        named = {step.step_id for step in steps if step.step_id in before}
        assert named <= set(now), "a step that is named stays"
        ever |= set(now)


# --- statuses -----------------------------------------------------------------------------------------------


def test_the_end_of_a_delegation_is_the_end_of_its_step() -> None:
    state = after(
        write(LOOK, FIND),
        DelegationEnded(agent="argocd", status="completed"),
        DelegationEnded(agent="jira", status="failed"),
    )
    assert statuses(state.plan) == ["completed", "failed"]


def test_a_delegation_without_a_step_changes_nothing_in_the_plan() -> None:
    before = after(write(LOOK))
    assert change_plan(before, DelegationEnded(agent="jira", status="failed")).plan == before.plan


def test_a_failed_step_is_not_completed_by_a_models_word() -> None:
    state = after(
        write(LOOK), DelegationEnded(agent="argocd", status="failed"), write({**LOOK, "status": "completed"})
    )
    assert statuses(state.plan) == ["failed"]


def test_a_new_question_starts_without_the_old_plan() -> None:
    assert after(write(LOOK, FIND, title="Release"), ResetPlan()) == PlanState()


@pytest.mark.parametrize(
    ("of", "current"),
    [
        (["completed", "in_progress", "pending"], "step-2"),
        (["in_progress", "in_progress"], None),
        (["completed", "pending"], None),
        ([], None),
    ],
)
def test_the_current_step_is_the_only_one_in_progress(of: list[StepStatus], current: str | None) -> None:
    assert plan_of(*(step(number, status) for number, status in enumerate(of, 1))).current_step() == current


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        (True, ["completed", "skipped", "completed", "failed", "skipped"]),
        (False, ["failed", "skipped", "completed", "failed", "skipped"]),
    ],
    ids=["answered", "broken off"],
)
def test_a_closed_plan_has_no_open_step(answered: bool, expected: list[str]) -> None:
    plan = plan_of(
        step(1, "in_progress"), step(2), step(3, "completed"), step(4, "failed"), step(5, "skipped")
    )
    closed = plan.close(answered=answered, worked_on={"step-1"})
    assert statuses(closed) == expected
    assert closed.open_steps() == ()
    assert closed.close(answered=answered) == closed


def own(number: int, status: StepStatus = "pending") -> PlanStep:
    return step(number, status, SUPERVISOR)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([step(1, "completed"), own(2)], ["completed", "completed"]),
        ([step(1, "failed"), own(2), own(3)], ["failed", "completed", "completed"]),
        ([step(1, "completed"), own(2), step(3)], ["completed", "completed", "skipped"]),
        ([own(1), step(2, "completed"), own(3)], ["skipped", "completed", "completed"]),
        ([own(1), own(2, "completed"), own(3)], ["skipped", "completed", "completed"]),
        ([own(1), step(2, "skipped"), own(3)], ["completed", "skipped", "completed"]),
        ([own(1, "in_progress"), step(2, "completed")], ["completed", "completed"]),
        ([own(1), step(2, "in_progress")], ["completed", "skipped"]),
        ([step(1), own(2, "failed")], ["skipped", "failed"]),
        ([own(1), own(2)], ["completed", "completed"]),
    ],
    ids=[
        "the last one",
        "all behind the work",
        "before one that nobody began",
        "passed over by an agent",
        "passed over by the supervisor",
        "before one that was left out",
        "what the supervisor works on",
        "before one that was never delegated",
        "its own failure",
        "a plan without agents",
    ],
)
def test_the_answer_completes(steps: list[PlanStep], expected: list[str]) -> None:
    assert statuses(plan_of(*steps).close(answered=True)) == expected


def test_the_answer_does_not_complete_a_step_whose_work_was_cut_off() -> None:
    plan = plan_of(step(1, "in_progress"), own(2, "in_progress"))
    closed = plan.close(answered=True, worked_on={"step-1"}, cut_off={"step-1", "step-2"})
    assert statuses(closed) == ["failed", "failed"]


# --- in the graph -------------------------------------------------------------------------------------------


def plans(events: list[AnyEvent]) -> list[list[tuple[str, str]]]:
    return [
        [(step.step_id, step.status) for step in event.steps]
        for event in events
        if isinstance(event, PlanUpdated)
    ]


def read_plan_result(talk: Any, request: int) -> list[dict[str, str]]:
    """What the model got back for its last plan, as of its n-th request."""
    steps: list[dict[str, str]] = json.loads(talk.requests[request].tool_results["write_todos"][-1])["steps"]
    return steps


async def test_a_model_gets_the_ids_back_and_keeps_them() -> None:
    def reworded(request: Any) -> Turn:
        first = json.loads(request.tool_results["write_todos"][-1])["steps"][0]["id"]
        return Turn(
            Call(
                "write_todos",
                {"todos": [{"id": first, "agent": "argocd", "title": "Look closer"}, "[Jira] Find tickets"]},
            )
        )

    model = scripted_model(
        Turn(Call("write_todos", {"title": "Release", "todos": [LOOK, FIND]})), reworded, Turn(Say("Done."))
    )
    events = await GraphConversation(model).ask()
    assert read_plan_result(model, 1) == [
        {"id": "step-1", "agent": "argocd", "title": "Look", "status": "pending"},
        {"id": "step-2", "agent": "jira", "title": "Find tickets", "status": "pending"},
    ]
    assert [(step["id"], step["title"]) for step in read_plan_result(model, 2)] == [
        ("step-1", "Look closer"),
        ("step-2", "Find tickets"),
    ]
    assert plans(events) == [[("step-1", "pending"), ("step-2", "pending")]] * 2
    assert [event.title for event in events if isinstance(event, PlanUpdated)] == ["Release", "Release"]


@pytest.mark.parametrize(
    "todos",
    [
        [{"content": "[Argocd] Look", "status": "pending"}],
        ["[Argocd] Look"],
        [{"agent": "argocd", "title": "Look", "status": "pending"}],
    ],
    ids=["plain todos", "strings", "typed"],
)
async def test_a_model_may_write_its_plan_as(todos: list[Any]) -> None:
    model = scripted_model(Turn(Call("write_todos", {"todos": todos})), Turn(Say("Done.")))
    await GraphConversation(model).ask()
    assert read_plan_result(model, 1) == [
        {"id": "step-1", "agent": "argocd", "title": "Look", "status": "pending"}
    ]


async def test_delegations_move_their_steps_and_a_failed_one_stays_failed() -> None:
    agents = [agent("argocd", Script(Turn(Say("It is up.")))), agent("jira", Script(Turn(Fail(401))))]
    both = [Call("task", {"description": "Go.", "subagent_type": name}) for name in ("argocd", "jira")]
    done = [{**LOOK, "status": "completed"}, {**FIND, "status": "completed"}]
    model = scripted_model(
        Turn(Call("write_todos", {"todos": [LOOK, FIND]})),
        Turn(*both),
        Turn(Call("write_todos", {"todos": done})),
        Turn(Say("Done.")),
    )
    events = await GraphConversation(model, agents).ask()
    assert plans(events)[0] == [("step-1", "pending"), ("step-2", "pending")]
    assert [("step-1", "in_progress"), ("step-2", "in_progress")] in plans(events)
    assert plans(events)[-1] == [("step-1", "completed"), ("step-2", "failed")]
    assert [step["status"] for step in read_plan_result(model, 3)] == ["completed", "failed"]
    of_calls = {
        (event.tool, event.step_id) for event in events if isinstance(event, ToolStarted | ToolFinished)
    }
    assert of_calls == {("argocd", "step-1"), ("jira", "step-2")}


async def test_a_plan_and_a_delegation_in_the_same_breath_belong_together() -> None:
    at_once = Turn(
        Call("write_todos", {"todos": [LOOK, FIND]}),
        Call("task", {"description": "Go.", "subagent_type": "argocd"}),
    )
    model = scripted_model(at_once, Turn(Say("Done.")))
    events = await GraphConversation(model, [agent("argocd", Script(Turn(Say("It is up."))))]).ask()
    assert plans(events)[-1] == [("step-1", "completed"), ("step-2", "pending")]
    assert [event.step_id for event in events if isinstance(event, ToolFinished)] == ["step-1"]


async def test_the_next_question_of_a_conversation_has_a_plan_of_its_own() -> None:
    model = scripted_model(
        lambda request: Turn(Call("write_todos", {"todos": [f"[Jira] {request.last_user}"]})),
        Turn(Say("Done.")),
    )
    talk = GraphConversation(model)
    for question in ("one", "two"):
        events = await talk.ask(question)
        assert plans(events) == [[("step-1", "pending")]]
        assert read_plan_result(model, -1) == [
            {"id": "step-1", "agent": "jira", "title": question, "status": "pending"}
        ]


async def test_a_plan_that_the_tool_refuses_is_not_shown() -> None:
    model = scripted_model(
        Turn(Call("write_todos", {"todos": [LOOK]})),
        Turn(Call("write_todos", {"todos": "nonsense"})),
        Turn(Say("Done.")),
    )
    events = await GraphConversation(model).ask()
    assert plans(events) == [[("step-1", "pending")]]
    assert "todos" in model.requests[2].tool_results["write_todos"][-1]


async def test_of_two_plans_in_one_message_the_last_one_counts() -> None:
    both = [Call("write_todos", {"todos": todos}) for todos in ([LOOK, FIND], [FIND, LOOK])]
    model = scripted_model(Turn(*both), Turn(Say("Done.")))
    events = await GraphConversation(model).ask()
    last = [("step-2", "pending"), ("step-1", "pending")]
    assert plans(events)[-1] == last
    for result in model.requests[1].tool_results["write_todos"]:
        assert [(step["id"], step["status"]) for step in json.loads(result)["steps"]] == last
