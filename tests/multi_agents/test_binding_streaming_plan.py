"""US-1.3: a plan with agent-tagged steps whose states are true at the moment they are sent, from the
model's call to the stream.
"""

from typing import Any

import pytest

from tests.support.fakes.script import Call, Fail, Gate, Say, Script, Turn
from tests.support.harness import Frame, ReceivedStream
from tests.support.scenarios import (
    PAIRS,
    VERSIONS,
    ScriptedAgent,
    data_of,
    delegate,
    plans,
    run_scripted_system,
    scripted_agent,
    token,
    tool,
)

PLAN = "execution_plan_update"


def write(*todos: Any, title: str | None = "Release") -> Call:
    return Call("write_todos", {"todos": list(todos), "title": title})


def step(agent: str, title: str, **more: str) -> dict[str, str]:
    return {"agent": agent, "title": title, **more}


def statuses(stream: ReceivedStream) -> list[list[str]]:
    return [[plan_step["status"] for plan_step in plan["steps"]] for plan in plans(stream)]


def answering(name: str, value: str) -> ScriptedAgent:
    return scripted_agent(
        name,
        Script(Turn(Call("look", {})), Turn(Say("value={{tool:look.value}}"))),
        tool("look", f"value={value}"),
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_a_plan_is_followed_step_by_step(kind: str, version: str) -> None:
    values = {"argocd": token(), "jira": token()}
    script = Script(
        Turn(
            Say("I plan."),
            write(
                step("argocd", "Find the version"),
                step("jira", "Search for tickets"),
                step("github", "Tag it"),
            ),
        ),
        Turn(delegate("argocd", step_id="step-1", id="one")),
        Turn(delegate("jira", step_id="step-2", id="two")),
        Turn(Say("{{tool:argocd.value}} {{tool:jira.value}}")),
    )
    async with run_scripted_system(
        script, *(answering(name, value) for name, value in values.items()), kind=kind
    ) as stage:
        stream = await stage.ask(version=version)
    assert stream.answer == f"{values['argocd']} {values['jira']}"
    assert statuses(stream) == [
        ["pending", "pending", "pending"],
        ["in_progress", "pending", "pending"],
        ["completed", "pending", "pending"],
        ["completed", "in_progress", "pending"],
        ["completed", "completed", "pending"],
        ["completed", "completed", "skipped"],  # never begun
    ]
    starts = {
        frame.metadata["tool_name"]: frame.metadata.get("plan_step_id")
        for frame in stream.named("tool_notification_start")
    }
    assert (starts["argocd"], starts["jira"]) == ("step-1", "step-2")


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_plan_artifact_has_the_shape_of_the_contract(version: str) -> None:
    todos = (
        step("argocd", "Find the version"),
        "[Jira] Search for tickets",
        {"content": "Sum up", "status": "pending"},
    )
    script = Script(Turn(write(*todos)), Turn(delegate("argocd", id="one")), Turn(Say("Done.")))
    async with run_scripted_system(script, answering("argocd", token())) as stage:
        stream = await stage.ask(version=version)
    first = plans(stream)[0]
    assert first == {
        "title": "Release",
        "steps": [
            {
                "step_id": "step-1",
                "title": "Find the version",
                "agent": "argocd",
                "status": "pending",
                "order": 0,
            },
            {
                "step_id": "step-2",
                "title": "Search for tickets",
                "agent": "jira",
                "status": "pending",
                "order": 1,
            },
            {"step_id": "step-3", "title": "Sum up", "agent": "supervisor", "status": "pending", "order": 2},
        ],
    }
    frames = stream.named(PLAN)
    assert len({frame.artifact["artifactId"] for frame in frames}) == 1
    for frame, plan in zip(frames, plans(stream), strict=True):
        assert (bool(frame.update.get("append")), bool(frame.update.get("lastChunk"))) == (False, False)
        assert [plan_step["step_id"] for plan_step in plan["steps"]] == ["step-1", "step-2", "step-3"]
        lines = frame.text.splitlines()
        assert lines[0] == "⟦🎯 Execution Plan: Release⟧"
        assert [line.partition(" ")[2] for line in lines[1:]] == [
            "[Argocd] Find the version",
            "[Jira] Search for tickets",
            "Sum up",
        ]


async def test_a_step_is_in_progress_exactly_while_its_agent_works() -> None:
    gate, value = Gate(), token()

    async def look() -> str:
        await gate.wait_seen("in_progress after Calling Agent Argocd")
        return f"value={value}"

    # The delegation names no step: it is the one open step of that agent.
    argocd = scripted_agent(
        "argocd", Script(Turn(Call("look", {})), Turn(Say("value={{tool:look.value}}"))), tool("look", look)
    )
    then = Call("own", arg_pieces=("{", "}"), gated=("completed after Argocd completed",))
    script = Script(
        Turn(write(step("argocd", "Look"))),
        Turn(delegate("argocd")),
        Turn(then, gate=gate),
        Turn(Say("{{tool:argocd.value}}")),
    )
    frames: list[Frame] = []
    async with run_scripted_system(script, argocd, tools=[tool("own", "nothing")]) as stage:
        async for frame in stage.client.stream("Go"):
            frames.append(frame)
            last_words = next(
                (f.text for f in reversed(frames) if (f.name or "").startswith("tool_notification")), ""
            )
            if frame.name == PLAN and "Argocd" in last_words:
                status = data_of(frame)[0]["steps"][0]["status"]
                gate.seen(f"{status} after {last_words.partition(': ')[2].strip().removesuffix('...')}\n")
    assert gate.failure is None
    assert ReceivedStream(frames).answer == value


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_steps_fail_when_their_agent_raises_or_does_not_exist_and_the_others_go_on(
    kind: str, version: str
) -> None:
    value = token()
    broken = scripted_agent("github", Script(Turn(Fail(401))))
    script = Script(
        Turn(write(step("github", "Tag it"), step("nobody", "Ask nobody"), step("argocd", "Look"))),
        Turn(delegate("github", step_id="step-1"), delegate("nobody", step_id="step-2")),
        Turn(delegate("argocd", step_id="step-3")),
        Turn(Say("{{tool:argocd.value}}")),
    )
    async with run_scripted_system(script, broken, answering("argocd", value), kind=kind) as stage:
        stream = await stage.ask(version=version)
    assert stream.answer == value
    assert statuses(stream)[-1] == ["failed", "failed", "completed"]
    for number, path in enumerate(
        (["pending", "in_progress", "failed"],) * 2 + (["pending", "in_progress", "completed"],)
    ):
        assert list(dict.fromkeys(plan[number] for plan in statuses(stream))) == path
    assert "❌ Supervisor: Github failed\n" in stream.notifications
    assert "❌ Supervisor: Nobody failed\n" in stream.notifications
    last = stream.named(PLAN)[-1].text.splitlines()
    assert last[1].startswith("❌")
    assert last[3].startswith("✅")


async def test_a_model_cannot_call_a_failed_step_completed() -> None:
    broken = scripted_agent("github", Script(Turn(Fail(401))))
    script = Script(
        Turn(write(step("github", "Tag it"))),
        Turn(delegate("github", step_id="step-1")),
        Turn(write(step("github", "Tag it", id="step-1", status="completed"))),
        Turn(Say("All done!")),
    )
    async with run_scripted_system(script, broken) as stage:
        stream = await stage.ask()
    assert statuses(stream)[-1] == ["failed"]


async def test_a_failed_step_that_is_tried_again_can_be_completed() -> None:
    tries = iter([False, True])
    value = token()

    def twice(_: Any) -> Turn:
        return Turn(Say(f"value={value}")) if next(tries) else Turn(Fail(401))

    script = Script(
        Turn(write(step("github", "Tag it"))),
        Turn(delegate("github", step_id="step-1")),
        Turn(delegate("github", step_id="step-1")),
        Turn(Say("{{tool:github.value}}")),
    )
    async with run_scripted_system(script, scripted_agent("github", Script(twice))) as stage:
        stream = await stage.ask()
    assert [plan[0] for plan in statuses(stream)] == [
        "pending",
        "in_progress",
        "failed",
        "in_progress",
        "completed",
    ]
    assert stream.answer == value


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_a_plan_written_in_the_same_turn_as_its_delegations_is_true(kind: str, version: str) -> None:
    gate, values = Gate(), {"argocd": token(), "jira": token()}

    def waiting(name: str) -> ScriptedAgent:
        async def look() -> str:
            await gate.wait_seen("both in progress")
            return f"value={values[name]}"

        return scripted_agent(
            name, Script(Turn(Call("look", {})), Turn(Say("value={{tool:look.value}}"))), tool("look", look)
        )

    script = Script(
        Turn(
            write(step("argocd", "Look"), step("jira", "Search")),
            delegate("argocd", id="one"),
            delegate("jira", id="two"),
        ),
        Turn(Say("{{tool:argocd.value}} {{tool:jira.value}}")),
    )
    frames: list[Frame] = []
    async with run_scripted_system(script, *(waiting(name) for name in values), kind=kind) as stage:
        async for frame in stage.client.stream("Go", version=version):
            frames.append(frame)
            if frame.name == PLAN and [plan_step["status"] for plan_step in data_of(frame)[0]["steps"]] == [
                "in_progress",
                "in_progress",
            ]:
                gate.seen("both in progress")
    stream = ReceivedStream(frames)
    assert gate.failure is None
    assert stream.answer == f"{values['argocd']} {values['jira']}"
    assert statuses(stream)[-1] == ["completed", "completed"]
    for number in range(2):
        path = list(dict.fromkeys(plan[number] for plan in statuses(stream)))
        assert path in (["pending", "in_progress", "completed"], ["in_progress", "completed"])
    ends = {
        frame.metadata["tool_name"]: frame.metadata.get("plan_step_id")
        for frame in stream.named("tool_notification_end")
    }
    assert (ends["argocd"], ends["jira"]) == ("step-1", "step-2")


async def test_the_supervisors_own_steps_follow_what_it_writes() -> None:
    script = Script(
        Turn(write("Think", "Ask", "Answer")),
        Turn(
            write(
                {"id": "step-1", "title": "Think", "status": "in_progress"},
                {"id": "step-2", "title": "Ask"},
                "Answer",
            )
        ),
        Turn(
            write(
                {"id": "step-1", "title": "Think", "status": "completed"},
                {"id": "step-2", "title": "Ask", "status": "skipped"},
                {"id": "step-3", "title": "Answer", "status": "in_progress"},
                title=None,
            )
        ),
        Turn(Say("Here.")),
    )
    async with run_scripted_system(script) as stage:
        stream = await stage.ask()
    assert statuses(stream) == [
        ["pending", "pending", "pending"],
        ["in_progress", "pending", "pending"],
        ["completed", "skipped", "in_progress"],
        ["completed", "skipped", "completed"],
    ]
    assert {plan["title"] for plan in plans(stream)} == {"Release"}


async def test_a_run_that_fails_leaves_no_step_open() -> None:
    script = Script(Turn(write({"title": "Think", "status": "in_progress"}, "Answer")), Turn(Fail(401)))
    async with run_scripted_system(script) as stage:
        stream = await stage.ask()
    assert stream.last.state == "failed"
    assert statuses(stream) == [["in_progress", "pending"], ["failed", "skipped"]]


async def test_the_next_question_of_a_conversation_starts_without_the_old_plan() -> None:
    script = Script(
        lambda request: Turn(write("Think")) if request.last_user == "Plan" else Turn(Say("No plan.")),
        Turn(Say("Planned.")),
    )
    async with run_scripted_system(script) as stage:
        first = await stage.ask("Plan")
        second = await stage.ask("Talk", contextId=first.context_id)
        third = await stage.ask("Plan", contextId=first.context_id)
    assert plans(second) == []
    assert statuses(third) == statuses(first)
    assert first.named(PLAN)[0].artifact["artifactId"] != third.named(PLAN)[0].artifact["artifactId"]
