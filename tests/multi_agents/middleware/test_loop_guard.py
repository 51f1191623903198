"""A model that makes the same call again and again with the same result is told so, and has to answer in
the end.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, tool

from ai_platform_engineering.core.events import Notice
from ai_platform_engineering.models.offline_model import OfflineModel
from ai_platform_engineering.multi_agents.platform_engineer.middleware.loop_guard import wait
from tests.support.approving_agent import NotesAgent, Person, events_of_kind, only_request_id, run_in_memory
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import ReceivedStream, agent, supervisor
from tests.support.server_starts import is_server_start
from tests.support.storages import in_folder, supervisor_on

NOTICE = "I stop using tools and answer now: status gave the same result 6 times."
CANNOT = "You cannot use tools any more: status gave the same result 6 times."
FOUND = (
    "I stopped before I had a complete answer: status gave the same result 6 times.\n\n"
    "What I found so far:\n- status: running\n\n"
    "What is missing: a conclusion from this. A narrower question may help."
)
LOOK = Call("status", {"of": "build"})
DONE = Turn(Say("It runs."))


class Builds:
    """A tool that says how something is; it counts its calls."""

    def __init__(
        self, answer: Callable[[int], str] = lambda _: "running", metadata: dict[str, Any] | None = None
    ) -> None:
        self.calls = 0

        @tool
        async def status(of: str) -> str:
            """How it is."""
            self.calls += 1
            return answer(self.calls)

        status.metadata = metadata
        self.tool: BaseTool = status


def acting(*steps: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=Script(*steps))


def obedient() -> ScriptedChatModel:
    """Looks as long as it is offered tools, then answers."""
    return acting(lambda request: Turn(LOOK) if request.tools else Turn(Say("It runs.")))


def delegating() -> ScriptedChatModel:
    return acting(
        Turn(Call("task", {"description": "Look", "subagent_type": "builder"})),
        Turn(Say("So: {{tool:builder}}")),
    )


def results(model: ScriptedChatModel, name: str = "status") -> list[str]:
    """What the model was shown of the tool."""
    return [message.text for message in model.requests[-1].since_user if message.tool == name]


def warned(model: ScriptedChatModel) -> list[bool]:
    """Which results told the model that it repeats itself."""
    return ["the same call with the same result" in result for result in results(model)]


def notices(stream: ReceivedStream) -> list[tuple[str, str, str]]:
    return [
        (event.code, event.text, event.agent)
        for event in events_of_kind(stream, Notice)
        if not is_server_start(event)
    ]


async def test_the_third_time_the_model_is_told() -> None:
    model, builds = acting(*[Turn(LOOK)] * 3, Turn(Say("It runs."))), Builds()
    async with supervisor(model, tools=[builds.tool]) as client:
        stream = await client.ask("How is the build?")
    first, second, third = results(model)
    assert (first, second) == ("running", "running")
    assert third.startswith("running\n\n[This is the same call with the same result for the 3. time.")
    assert "call wait first" in third
    assert (stream.answer, notices(stream)) == ("It runs.", [])
    assert all("status" in request.tools for request in model.requests)


async def test_the_sixth_time_there_are_no_tools_any_more_people_are_told_and_an_answer_comes() -> None:
    model, builds = obedient(), Builds()
    async with supervisor(model, tools=[builds.tool]) as client:
        stream = await client.ask("How is the build?")
        assert builds.calls == 6
        assert warned(model) == [False] * 2 + [True] * 4
        assert [bool(request.tools) for request in model.requests] == [True] * 6 + [False]
        assert [CANNOT in request.system for request in model.requests] == [False] * 6 + [True]
        assert notices(stream) == [("loop_guard", NOTICE, "supervisor")]
        assert [
            frame.status_text for frame in stream.frames if frame.state == "working" and frame.status_text
        ] == [NOTICE]
        assert (stream.last.state, stream.answer) == ("completed", "It runs.")
        again = await client.ask("And now?", contextId=stream.context_id)
    assert (again.answer, builds.calls, len(model.requests)) == ("It runs.", 12, 14)
    assert notices(again) == [("loop_guard", NOTICE, "supervisor")]


async def test_a_model_that_calls_on_is_asked_once_more_and_ended_with_what_was_found() -> None:
    model, builds = acting(Turn(LOOK)), Builds()
    async with supervisor(model, tools=[builds.tool]) as client:
        stream = await client.ask("How is the build?")
    assert (stream.last.state, stream.answer) == ("completed", FOUND)
    assert (builds.calls, len(model.requests)) == (6, 8)
    assert [bool(request.tools) for request in model.requests] == [True] * 6 + [False] * 2
    assert "It was dropped, nothing was called." in model.requests[-1].system
    assert notices(stream) == [("loop_guard", NOTICE, "supervisor")]
    assert b"Traceback" not in stream.raw


async def test_a_structured_answer_is_no_call_too_many() -> None:
    def step(request: Request) -> Turn:
        return (
            Turn(LOOK)
            if "status" in request.tools
            else Turn(Call("PlatformEngineerResponse", {"content": "It runs."}))
        )

    builds = Builds()
    async with supervisor(
        acting(step), tools=[builds.tool], env={"USE_STRUCTURED_RESPONSE": "true"}
    ) as client:
        stream = await client.ask("How is the build?")
    assert (stream.last.state, stream.answer, builds.calls) == ("completed", "It runs.", 6)


@pytest.mark.parametrize("differ", ["results", "arguments"])
async def test_what_differs_is_no_repetition(differ: str) -> None:
    builds = Builds(
        (lambda number: f"running for {number} minutes") if differ == "results" else (lambda _: "running")
    )
    looks = [
        Turn(Call("status", {"of": f"build {number}" if differ == "arguments" else "build"}))
        for number in range(8)
    ]
    model = acting(*looks, Turn(Say("It runs.")))
    async with supervisor(model, tools=[builds.tool]) as client:
        stream = await client.ask("How is the build?")
    assert (builds.calls, warned(model), notices(stream)) == (8, [False] * 8, [])
    assert stream.answer == "It runs."


async def test_repetitions_need_not_follow_each_other() -> None:
    looks = [Turn(Call("status", {"of": name})) for name in "abababab"]
    model, builds = acting(*looks, Turn(Say("They run."))), Builds()
    async with supervisor(model, tools=[builds.tool]) as client:
        await client.ask("How are the builds?")
    assert warned(model) == [False] * 4 + [True] * 4


async def test_a_change_in_between_does_not_end_the_count_of_what_came_before() -> None:
    states = itertools.cycle(["running", "queued"])
    model, builds = obedient(), Builds(lambda _: next(states))
    async with supervisor(model, tools=[builds.tool]) as client:
        stream = await client.ask("How is the build?")
    assert (builds.calls, notices(stream)) == (11, [("loop_guard", NOTICE, "supervisor")])


async def test_a_failure_that_repeats_is_a_repetition_and_stays_a_failure() -> None:
    def fail(_: int) -> str:
        raise ConnectionError

    model, builds = acting(*[Turn(LOOK)] * 3, Turn(Say("It is away."))), Builds(fail)
    async with supervisor(model, tools=[builds.tool]) as client:
        await client.ask("How is the build?")
    tool_messages = [
        message for message in model.requests[-1].raw["messages"] if isinstance(message, ToolMessage)
    ]
    assert [message.status for message in tool_messages] == ["error"] * 3
    assert warned(model) == [False, False, True]


async def test_after_a_wait_the_count_begins_again() -> None:
    looks = [Turn(LOOK)] * 2
    model, builds = (
        acting(*looks, Turn(Call("wait", {"seconds": 1})), *looks, Turn(Say("It runs."))),
        Builds(),
    )
    async with supervisor(model, tools=[builds.tool]) as client:
        stream = await client.ask("How is the build?")
    assert results(model, "wait") == ["Waited 1 seconds."]
    assert (builds.calls, warned(model), notices(stream)) == (4, [False] * 4, [])
    assert stream.notifications[4:6] == [
        "🔧 Supervisor: Calling tool: Wait\n",
        "✅ Supervisor: Tool Wait completed\n",
    ]


async def test_after_each_wait_the_count_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def return_at_once(seconds: int) -> str:
        return f"Waited {seconds} seconds."

    monkeypatch.setattr(wait, "coroutine", return_at_once)
    looks = [Turn(LOOK)] * 2
    pause = Turn(Call("wait", {"seconds": 60}))
    model = acting(*looks, pause, *looks, pause, *looks, Turn(LOOK), Turn(Say("It runs.")))
    async with supervisor(model, tools=[Builds().tool]) as client:
        stream = await client.ask("How is the build?")
    assert results(model, "wait") == ["Waited 60 seconds."] * 2
    assert (warned(model), notices(stream)) == ([False] * 6 + [True], [])


async def test_a_tool_marked_poll_may_be_repeated() -> None:
    model, builds = acting(*[Turn(LOOK)] * 8, Turn(Say("It runs."))), Builds(metadata={"poll": True})
    async with supervisor(model, tools=[builds.tool]) as client:
        stream = await client.ask("How is the build?")
    assert (builds.calls, warned(model), notices(stream), stream.answer) == (8, [False] * 8, [], "It runs.")


@pytest.mark.parametrize(("poll", "calls"), [(("read_*",), 8), (("drop_*",), 6)], ids=["named", "not named"])
async def test_an_agents_definition_says_which_tools_may_be_repeated(
    tmp_path: Path, poll: tuple[str, ...], calls: int
) -> None:
    def step(request: Request) -> Turn:
        return (
            Turn(Call("read_note", {"note": "a"}))
            if request.tools and request.position < 8
            else Turn(Say("Read."))
        )

    desk = NotesAgent(tmp_path, Script(step), policy={"poll": poll})
    async with run_in_memory(desk) as person:
        stream = await person.ask()
    assert (len(desk.recorded_calls), stream.answer) == (calls, "So: Read.")
    assert [code for code, _, _ in notices(stream)] == ([] if calls == 8 else ["loop_guard"])


async def test_an_agent_is_guarded_as_well_and_the_supervisor_goes_on() -> None:
    model, builds = obedient(), Builds()
    async with supervisor(delegating(), agents=[agent("builder", model, builds.tool)]) as client:
        stream = await client.ask("How is the build?")
    assert builds.calls == 6
    assert warned(model) == [False] * 2 + [True] * 4
    assert notices(stream) == [("loop_guard", NOTICE, "builder")]
    assert stream.answer == "So: It runs."


async def test_an_agent_that_calls_on_answers_with_what_it_found() -> None:
    async with supervisor(
        delegating(), agents=[agent("builder", acting(Turn(LOOK)), Builds().tool)]
    ) as client:
        stream = await client.ask("How is the build?")
    assert (stream.last.state, stream.answer) == ("completed", f"So: {FOUND}")


async def test_the_count_goes_on_after_a_pause_and_a_restart(tmp_path: Path) -> None:
    def step(request: Request) -> Turn:
        if request.position == 4:
            return Turn(Call("CAIPEAgentResponse", {"response": "Go on?"}))
        return Turn(LOOK) if request.tools else Turn(Say("It runs."))

    model, builds = acting(step), Builds()
    async with supervisor_on(storage := in_folder(tmp_path), model, tools=[builds.tool]) as client:
        paused = await Person(client, storage).ask()
        assert (paused.last.state, builds.calls) == ("input-required", 4)
    async with supervisor_on(storage := in_folder(tmp_path), model, tools=[builds.tool]) as client:
        stream = await Person(client, storage).answer(paused, {only_request_id(paused): {"answer": "yes"}})
    assert builds.calls == 6
    assert warned(model) == [False] * 2 + [True] * 4
    assert notices(stream) == [("loop_guard", NOTICE, "supervisor")]
    assert stream.answer == "It runs."


# --- delegations and failures -------------------------------------------------------------------------------


def task(text: str, to: str = "builder") -> Call:
    return Call("task", {"description": text, "subagent_type": to})


async def test_the_same_work_for_the_same_agent_is_a_repetition_whatever_it_answers() -> None:
    def delegate(request: Request) -> Turn:
        return Turn(task("Look  AGAIN!" if request.position % 2 else "look again")) if request.tools else DONE

    answers = itertools.count()
    model = acting(delegate)
    inner = acting(lambda _: Turn(Say(f"Answer {next(answers)}.")))
    async with supervisor(model, agents=[agent("builder", inner)]) as client:
        stream = await client.ask("How is the build?")
    assert len(inner.requests) == 5
    warnings = ["the same work for the same agent" in text for text in results(model, "task")]
    assert warnings == [False] * 2 + [True] * 3
    text = "I stop using tools and answer now: builder got the same work 5 times."
    assert notices(stream) == [("loop_guard", text, "supervisor")]
    assert stream.answer == "It runs."


async def test_other_work_for_the_same_agent_is_no_repetition() -> None:
    texts = ("the build", "the tests", "the docs", "the release", "the image", "the chart")
    model = acting(*[Turn(task(f"Look at {text}")) for text in texts], DONE)
    inner = acting(Turn(Say("It runs.")))
    async with supervisor(model, agents=[agent("builder", inner)]) as client:
        stream = await client.ask("How is everything?")
    assert (len(inner.requests), notices(stream), stream.answer) == (6, [], "It runs.")
    assert results(model, "task") == ["It runs."] * 6


async def test_calls_that_differ_in_numbers_only_end_the_use_of_tools_when_nothing_changes() -> None:
    def look(request: Request) -> Turn:
        return Turn(Call("status", {"of": f"page {request.position}"})) if request.tools else DONE

    builds = Builds(lambda _: "nothing there")
    async with supervisor(acting(look), tools=[builds.tool]) as client:
        stream = await client.ask("How is the build?")
    text = "I stop using tools and answer now: status gave the same result to almost the same call 20 times."
    assert (builds.calls, notices(stream)) == (20, [("loop_guard", text, "supervisor")])

    builds = Builds(lambda number: f"page {number}")
    async with supervisor(acting(look), tools=[builds.tool], env={"MODEL_CALL_LIMIT": "31"}) as client:
        stream = await client.ask("How is the build?")
    assert builds.calls == 30
    assert [code for code, _, _ in notices(stream)] == ["limit"]


async def test_failures_in_a_row_end_the_use_of_tools_and_a_success_between_them_does_not() -> None:
    def sometimes(number: int) -> str:
        if number % 5:
            raise ConnectionError
        return f"running since {number}"

    looks = itertools.count()

    def look(request: Request) -> Turn:
        if request.tools and next(looks) < 14:
            return Turn(Call("status", {"of": "abcdefghijklmnop"[len(request.since_user) // 2]}))
        return DONE

    async with supervisor(acting(look), tools=[Builds(sometimes).tool]) as client:
        stream = await client.ask("How is the build?")
    assert (notices(stream), stream.answer) == ([], "It runs.")

    def always(_: int) -> str:
        raise ConnectionError

    looks = itertools.count()
    builds = Builds(always)
    async with supervisor(acting(look), tools=[builds.tool]) as client:
        stream = await client.ask("How is the build?")
    text = "I stop using tools and answer now: status failed 6 times in a row."
    assert (builds.calls, notices(stream)) == (6, [("loop_guard", text, "supervisor")])
    assert stream.answer == "It runs."


class Router(OfflineModel):
    """The embedded router; it notes what it is offered."""

    offered: list[set[str]] = []  # noqa: RUF012 - pydantic copies it

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        self.offered.append({offered_tool.name for offered_tool in tools})
        return super().bind_tools(tools, **more)


async def test_the_embedded_router_is_not_offered_to_wait_and_a_model_is(tmp_path: Path) -> None:
    router = Router()
    model = acting(Turn(Say("Hello.")))
    builds = Builds()
    members = [agent("builder", None, builds.tool)]
    async with supervisor_on(in_folder(tmp_path / "a"), None, router=router, agents=members) as client:
        await client.ask("builder: show status of the build")
    async with supervisor_on(in_folder(tmp_path / "b"), model, agents=members) as client:
        await client.ask("Hello")
    assert builds.calls == 1
    assert any("status" in names for names in router.offered)
    assert all("wait" not in names for names in router.offered)
    assert "wait" in model.requests[0].tools
