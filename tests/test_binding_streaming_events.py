"""The real graph behind the real server: which agent and which tool runs, told in the bytes of the stream
by its real name.
"""

import asyncio
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fakes.script import Call, Fail, Request, Say, Script, Turn
from tests.support.harness import ReceivedStream, joined
from tests.support.scenarios import (
    PAIRS,
    VERSIONS,
    ScriptedAgent,
    delegate,
    frames_of_call,
    read_event_metadata,
    run_scripted_system,
    scripted_agent,
    token,
    tool,
)

AGENTS = ("argocd", "github", "jira")


def names_in(value: Any) -> Iterator[str]:
    """Every string that stands alone in a piece of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from names_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from names_in(item)


def assert_nothing_is_called_task(stream: ReceivedStream) -> None:
    for frame in stream.frames:
        carried = {key: value for key, value in frame.metadata.items() if key != "caipe.event"}
        names = {
            name.lower()
            for name in names_in([carried, read_event_metadata(frame), frame.artifact.get("description", "")])
        }
        assert not {"task", "tool call started: task", "tool call completed: task"} & names, frame.raw
        if (frame.name or "").startswith("tool_notification"):
            assert not re.search(r"(?i)\btask\b", frame.text), frame.text


def looking(name: str, value: str, meet: asyncio.Barrier | None = None) -> ScriptedAgent:
    """An agent whose answer only its tool knows; with a barrier, the tool returns when all the others run
    too.
    """

    async def look() -> str:
        if meet is not None:
            await asyncio.wait_for(meet.wait(), 120)
        return f"value={value}"

    script = Script(
        Turn(Call("look", {}, id="inner")), Turn(Say(f"{name} has value={{{{tool:look.value}}}}"))
    )
    return scripted_agent(name, script, tool("look", look))


# --- parallel delegations -------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_three_parallel_delegations_are_told_apart_by_their_agents(kind: str, version: str) -> None:
    values, meet = {name: token() for name in AGENTS}, asyncio.Barrier(3)
    script = Script(
        Turn(*(delegate(name, id=f"call-{name}") for name in AGENTS)),
        Turn(Say(" ".join(f"{name}={{{{tool:{name}.value}}}}" for name in AGENTS))),
    )
    async with run_scripted_system(
        script, *(looking(name, values[name], meet) for name in AGENTS), kind=kind
    ) as stage:
        stream = await stage.ask(version=version)
    assert stream.answer == " ".join(f"{name}={values[name]}" for name in AGENTS)
    for name in AGENTS:
        mine = frames_of_call(stream, f"call-{name}")
        title = name.capitalize()
        assert [frame.text for frame in mine if (frame.name or "").startswith("tool_notification")] == [
            f"🔧 Supervisor: Calling Agent {title}...\n",
            f"🔧 {title}: Calling tool: Look\n",
            f"✅ {title}: Tool Look completed\n",
            f"✅ Supervisor: {title} completed\n",
        ]
        assert mine[0].name == "tool_notification_start"
        assert mine[-1].name == "tool_notification_end"
        assert {frame.metadata["source_agent"] for frame in mine} == {name}
        assert joined(frame for frame in mine if frame.name == "subagent_result") == [
            f"{name} has value={values[name]}"
        ]
    assert_nothing_is_called_task(stream)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_two_parallel_calls_of_one_agent_keep_their_results_apart(kind: str, version: str) -> None:
    values, meet = {"blue": token(), "green": token()}, asyncio.Barrier(2)

    async def look(app: str) -> str:
        await asyncio.wait_for(meet.wait(), 120)
        return f"value={values[app]}"

    argocd = scripted_agent(
        "argocd",
        Script(Turn(Call("look", {"app": "{{user}}"})), Turn(Say("{{user}} has {{tool:look.value}}"))),
        tool("look", look),
    )

    def answer(request: Request) -> Turn:
        results = {
            message.tool_call_id: message.text for message in request.messages if message.role == "tool"
        }
        return Turn(Say(f"1: {results['one']}; 2: {results['two']}"))

    script = Script(Turn(delegate("argocd", "blue", id="one"), delegate("argocd", "green", id="two")), answer)
    async with run_scripted_system(script, argocd, kind=kind) as stage:
        stream = await stage.ask(version=version)
    assert stream.answer == f"1: blue has {values['blue']}; 2: green has {values['green']}"
    for call_id, app, other in (("one", "blue", "green"), ("two", "green", "blue")):
        mine = frames_of_call(stream, call_id)
        assert [frame.metadata["tool_name"] for frame in mine if "tool_name" in frame.metadata] == [
            "argocd",
            "look",
            "look",
            "argocd",
        ]
        assert joined(frame for frame in mine if frame.name == "subagent_result") == [
            f"{app} has {values[app]}"
        ]
        assert values[other].encode() not in b"".join(frame.raw for frame in mine)
    inner = [
        frame.metadata["tool_call_id"]
        for frame in stream.named("tool_notification_start")
        if frame.metadata["tool_name"] == "look"
    ]
    assert sorted(call.partition("/")[0] for call in inner) == ["one", "two"]
    assert_nothing_is_called_task(stream)


async def test_one_agent_called_twice_in_a_row_with_a_reused_call_id_is_two_calls() -> None:
    values = [token(), token()]
    remaining = iter(values)

    async def look() -> str:
        return f"value={next(remaining)}"

    argocd = scripted_agent(
        "argocd",
        Script(Turn(Call("look", {}, id="inner")), Turn(Say("value={{tool:look.value}}"))),
        tool("look", look),
    )
    script = Script(
        Turn(delegate("argocd", id="same")),
        Turn(delegate("argocd", id="same")),
        Turn(Say("Last: {{tool:argocd.value}}")),
    )
    async with run_scripted_system(script, argocd) as stage:
        stream = await stage.ask()
    outer = [
        frame for frame in stream.named("tool_notification_start") if frame.metadata["tool_name"] == "argocd"
    ]
    assert len({frame.metadata["tool_call_id"] for frame in outer}) == 2
    assert len({frame.artifact["artifactId"] for frame in outer}) == 2
    assert [frame.metadata["source_agent"] for frame in outer] == ["argocd", "argocd"]


# --- agents of agents -----------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_a_sub_agent_of_a_sub_agent_is_told_by_its_own_name(kind: str, version: str) -> None:
    value = token()
    kubernetes = scripted_agent(
        "kubernetes",
        Script(Turn(Call("get_pods", {}, id="three")), Turn(Say("pods={{tool:get_pods.pods}}"))),
        tool("get_pods", f"pods={value}"),
    )
    argocd = scripted_agent(
        "argocd",
        Script(
            Turn(Say("I ask Kubernetes."), delegate("kubernetes", id="two")),
            Turn(Say("pods={{tool:kubernetes.pods}}")),
        ),
        members=[kubernetes],
    )
    script = Script(Turn(delegate("argocd", id="one")), Turn(Say("There are {{tool:argocd.pods}}")))
    async with run_scripted_system(script, argocd, kind=kind) as stage:
        stream = await stage.ask(version=version)
    assert stream.answer == f"There are {value}"
    assert stream.notifications == [
        "🔧 Supervisor: Calling Agent Argocd...\n",
        "🔧 Argocd: Calling Agent Kubernetes...\n",
        "🔧 Kubernetes: Calling tool: Get_Pods\n",
        "✅ Kubernetes: Tool Get_Pods completed\n",
        "✅ Argocd: Kubernetes completed\n",
        "✅ Supervisor: Argocd completed\n",
    ]
    starts = stream.named("tool_notification_start")
    assert [frame.metadata["tool_call_id"] for frame in starts] == ["one", "one/two", "one/two/three"]
    assert [frame.metadata["source_agent"] for frame in starts] == ["argocd", "kubernetes", "kubernetes"]
    texts = [
        (frame.metadata["source_agent"], frame.metadata["tool_call_id"])
        for frame in stream.named("subagent_result")
    ]
    assert list(dict.fromkeys(texts)) == [("argocd", "one"), ("kubernetes", "one/two")]
    assert_nothing_is_called_task(stream)


# --- tools ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_supervisors_own_tools_are_its_own(version: str) -> None:
    value = token()
    script = Script(Turn(Call("search", {}, id="one")), Turn(Say("Found {{tool:search.value}}")))
    async with run_scripted_system(script, tools=[tool("search", f"value={value}")]) as stage:
        stream = await stage.ask(version=version)
    assert stream.notifications == [
        "🔧 Supervisor: Calling tool: Search\n",
        "✅ Supervisor: Tool Search completed\n",
    ]
    start, end = stream.named("tool_notification_start", "tool_notification_end")
    for frame in (start, end):
        sources = {
            key: frame.metadata[key] for key in ("source_agent", "sourceAgent", "tool_name", "tool_call_id")
        }
        assert sources == {
            "source_agent": "supervisor",
            "sourceAgent": "supervisor",
            "tool_name": "search",
            "tool_call_id": "one",
        }
        assert (bool(frame.update.get("append")), bool(frame.update.get("lastChunk"))) == (False, False)
    assert end.metadata["status"] == "completed"
    assert start.artifact["artifactId"] != end.artifact["artifactId"]
    assert stream.answer == f"Found {value}"


async def test_planning_and_the_structured_answer_give_no_notification() -> None:
    plan = Call("write_todos", {"todos": [{"title": "Look", "agent": "argocd"}], "title": "Plan"})
    script = Script(Turn(plan), Turn(Call("PlatformEngineerResponse", {"content": "Planned."})))
    async with run_scripted_system(script, env={"USE_STRUCTURED_RESPONSE": "true"}) as stage:
        stream = await stage.ask()
    assert stream.answer == "Planned."
    assert stream.notifications == []
    assert len(stream.named("execution_plan_update")) >= 1
    assert not [event for event in stream.events if event.kind.startswith("tool_")]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_a_failing_tool_is_told_as_failed_and_its_secret_goes_nowhere(
    kind: str, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret, value = token("secret"), token()

    async def broken() -> str:
        raise RuntimeError(f"https://admin:{secret}@argocd.example refused")

    argocd = scripted_agent(
        "argocd",
        Script(
            Turn(Call("look", {}, id="in")),
            Turn(Call("other", {})),
            Turn(Say("value={{tool:other.value}} {{tool:look}}")),
        ),
        tool("look", broken),
        tool("other", f"value={value}"),
    )
    script = Script(
        Turn(Call("own", {}, id="own"), delegate("argocd", id="out")), Turn(Say("{{tool:argocd.value}}"))
    )
    async with run_scripted_system(script, argocd, kind=kind, tools=[tool("own", broken)]) as stage:
        stream = await stage.ask(version=version)
    assert stream.answer == value
    ends = {frame.metadata["tool_call_id"]: frame for frame in stream.named("tool_notification_end")}
    assert (ends["own"].text, ends["own"].metadata["status"]) == (
        "❌ Supervisor: Tool Own failed\n",
        "failed",
    )
    assert (ends["out/in"].text, ends["out/in"].metadata["status"]) == (
        "❌ Argocd: Tool Look failed\n",
        "failed",
    )
    assert (ends["out"].text, ends["out"].metadata["status"]) == (
        "✅ Supervisor: Argocd completed\n",
        "completed",
    )
    assert stream.last.state == "completed"
    assert secret.encode() not in stream.raw
    assert secret not in caplog.text
    assert "RuntimeError" in caplog.text


async def test_an_agent_whose_model_fails_is_a_failed_delegation_and_the_run_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = token("secret")
    broken = scripted_agent("argocd", Script(Turn(Fail(401, message=f"key {secret} is wrong"))))
    script = Script(Turn(delegate("argocd", id="out")), Turn(Say("Argo CD could not be asked.")))
    async with run_scripted_system(script, broken) as stage:
        stream = await stage.ask()
        result = stage.requests()[-1].tool_results["argocd"]
    assert stream.notifications == [
        "🔧 Supervisor: Calling Agent Argocd...\n",
        "❌ Supervisor: Argocd failed\n",
    ]
    assert stream.answer == "Argo CD could not be asked."
    assert "credentials" in result[0]
    assert secret not in stream.raw.decode() + caplog.text + result[0]


async def test_an_agent_that_does_not_exist_is_told_by_the_name_the_model_used() -> None:
    script = Script(Turn(delegate("nobody", id="one")), Turn(Say("{{tool:nobody}}")))
    async with run_scripted_system(script, looking("argocd", token())) as stage:
        stream = await stage.ask()
    assert stream.notifications == [
        "🔧 Supervisor: Calling Agent Nobody...\n",
        "❌ Supervisor: Nobody failed\n",
    ]
    assert stream.answer == "There is no agent nobody. The agents are: argocd."


async def test_a_tool_that_does_not_exist_is_told_as_failed() -> None:
    script = Script(Turn(Call("made_up", {}, id="one")), Turn(Say("There is no such tool.")))
    async with run_scripted_system(script, tools=[tool("look", token())]) as stage:
        stream = await stage.ask()
    assert stream.notifications == [
        "🔧 Supervisor: Calling tool: Made_Up\n",
        "❌ Supervisor: Tool Made_Up failed\n",
    ]
    assert stream.last.state == "completed"


@pytest.mark.parametrize("arguments", [{"description": "Do it."}, {}], ids=["no name", "nothing"])
async def test_a_delegation_without_an_agent_is_never_called_task(arguments: dict[str, str]) -> None:
    script = Script(Turn(Call("task", arguments, id="one")), Turn(Say("I could not ask.")))
    async with run_scripted_system(script, looking("argocd", token())) as stage:
        stream = await stage.ask()
    assert stream.answer == "I could not ask."
    assert [frame.metadata.get("status") for frame in stream.named("tool_notification_end")] == ["failed"]
    for frame in stream.named("tool_notification_start", "tool_notification_end"):
        assert "task" not in frame.text.lower()
        assert "task" not in {
            str(frame.metadata[key]).lower() for key in ("source_agent", "sourceAgent", "tool_name")
        }
