"""What agents remember, how long they may work and what they ask of people: the same in the supervisor's
process and as services.
"""

import asyncio
import json
import socket
import time
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from langchain_core.tools import BaseTool, StructuredTool

from ai_platform_engineering.core.events import ToolFinished
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgent, PlacedAgents
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from tests.runtime.server.test_a2a_input_required import a_name, answered, form_tool, paused
from tests.support.agent_services import Where, connect_remote_agent, place_agent, run_agent_service
from tests.support.clocks import advance_clock
from tests.support.dialects import V10, Dialect, both_versions
from tests.support.echo_supervisor import BlockingScenario, VersionScenario
from tests.support.fakes.a2a_10_server import build
from tests.support.fakes.a2a_steps import Stage
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Msg
from tests.support.fakes.script import Book, Call, Fail, Say, Script, Turn
from tests.support.harness import FAST, PLAIN, Client, Frame, ReceivedStream, agent, serve_app, supervisor

LIMIT = 30  # seconds, which pass when a test says so
both_placements = pytest.mark.parametrize("where", ["in-process", "remote"])


def asks(*names: str) -> Script:
    """A supervisor that hands the question to agents, all at once, and says what they said."""
    calls = [
        Call("task", {"description": f"{{{{user}}}} {number}", "subagent_type": name})
        for number, name in enumerate(names)
    ]
    return Script(Turn(*calls), Turn(Say(" ".join(f"{{{{tool:{name}}}}}" for name in dict.fromkeys(names)))))


def said(messages: Sequence[Msg]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@both_placements
async def test_an_agent_remembers_what_it_did_in_this_conversation_and_nothing_of_another(
    where: Where,
) -> None:
    versions = VersionScenario()
    model = ScriptedChatModel(script=versions.script)
    async with (
        place_agent(agent("memo", model, versions.tool), where) as memo,
        supervisor(asks("memo"), agents=[memo]) as client,
    ):
        first = await client.ask("One?")
        second = await client.ask("Two?", contextId=first.context_id)
        await client.ask("Three?")
    assert first.answer == second.answer == versions.answer
    result = json.dumps({"version": versions.value})
    exchange = [("assistant", "Let me look. "), ("tool", result), ("assistant", versions.answer)]
    histories = [said(request.messages) for request in model.requests[::2]]
    assert histories == [
        [("user", "One? 0")],
        [("user", "One? 0"), *exchange, ("user", "Two? 0")],
        [("user", "Three? 0")],
    ]


def meeting(parties: int) -> BaseTool:
    """A tool that ends only when so many calls of it run at the same time."""
    barrier = asyncio.Barrier(parties)

    async def meet() -> str:
        """Meets."""
        async with asyncio.timeout(120):
            await barrier.wait()
        return "met"

    return StructuredTool.from_function(coroutine=meet, name="meet")


@pytest.mark.sample(1)
@both_placements
async def test_assignments_to_the_same_agent_at_once_run_side_by_side_and_are_remembered_apart(
    where: Where,
) -> None:
    model = ScriptedChatModel(script=Script(Turn(Call("meet")), Turn(Say("I {{tool:meet}} for {{user}}."))))
    async with (
        place_agent(agent("memo", model, meeting(2)), where) as memo,
        supervisor(asks("memo", "memo"), agents=[memo]) as client,
    ):
        first = await client.ask("One?")
        await client.ask("Two?", contextId=first.context_id)
    assert first.answer == "I met for One? 1."
    histories = {
        request.last_user: said(request.messages) for request in model.requests if request.position == 0
    }
    for lane in ("0", "1"):
        before = [
            ("user", f"One? {lane}"),
            ("assistant", ""),
            ("tool", "met"),
            ("assistant", f"I met for One? {lane}."),
        ]
        assert histories[f"Two? {lane}"] == [*before, ("user", f"Two? {lane}")]


@pytest.mark.sample(1)
@both_placements
async def test_agents_of_an_agent_remember_too(where: Where) -> None:
    model = ScriptedChatModel(script=Script(Turn(Say("Heard {{user}}."))))
    outer = agent("outer", asks("inner"), agents=[agent("inner", model)])
    async with place_agent(outer, where) as far, supervisor(asks("outer"), agents=[far]) as client:
        first = await client.ask("One?")
        await client.ask("Two?", contextId=first.context_id)
    assert first.answer == "Heard One? 0 0."
    assert first.notifications[:2] == [
        "🔧 Supervisor: Calling Agent Outer...\n",
        "🔧 Outer: Calling Agent Inner...\n",
    ]
    assert said(model.requests[1].messages) == [
        ("user", "One? 0 0"),
        ("assistant", "Heard One? 0 0."),
        ("user", "Two? 0 0"),
    ]


@pytest.mark.sample(2)
@both_placements
@pytest.mark.parametrize("way", ["at once", "after a tool", "out of time"])
async def test_an_agent_remembers_what_it_failed_at(
    where: Where, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, versions = BlockingScenario(), VersionScenario()
    look = Turn(Call("version", {}, id="look"))
    failing = {
        "at once": [Turn(Fail(401))],
        "after a tool": [look, Turn(Fail(401))],
        "out of time": [look, Turn(Call("wait", {}, id="wait"))],
    }[way]
    book = Book({"^One": Script(*failing)}, default=Script(Turn(Say("Heard {{user}}."))))
    model = ScriptedChatModel(script=book)
    memo = agent("memo", model, versions.tool, waiting.tool)
    env = {"AGENT_TIMEOUT_SECONDS": str(LIMIT)}
    async with place_agent(memo, where) as far, supervisor(asks("memo"), agents=[far], env=env) as client:
        if way == "out of time":
            first = await ask_until_out_of_time(client, "One?", waiting, monkeypatch)
        else:
            first = await client.ask("One?")
        second = await client.ask("Two?", contextId=first.context_id)
    assert first.answer.startswith("Agent memo failed:")
    assert second.answer == "Heard Two? 0."
    looked = [("assistant", ""), ("tool", json.dumps({"version": versions.value}))]
    waited = [("assistant", ""), ("tool", "Interrupted before a result arrived.")]
    between = {
        "at once": [],
        "after a tool": looked,
        "out of time": [*looked, *waited],
    }[way]
    assert said(model.requests[-1].messages) == [("user", "One? 0"), *between, ("user", "Two? 0")]


async def test_an_agent_that_moves_works_on_and_each_place_has_its_own_memory() -> None:
    model = ScriptedChatModel(script=Script(Turn(Say("Heard {{user}}."))))
    memo, settings = agent("memo", model), Settings.from_variables(FAST)
    places: list[Sequence[PlacedAgent]] = []
    app = create_app(
        settings,
        placed=PlacedAgents([memo]),
        model=ScriptedChatModel(script=asks("memo")),
        configure=lambda: (settings, PlacedAgents(places.pop(0))),
    )
    assert app.reload is not None
    async with (
        run_agent_service(memo) as running,
        connect_remote_agent(memo, running.url) as far,
        serve_app(app) as url,
        httpx.AsyncClient(verify=PLAIN) as http,
    ):
        places += [[far], [memo]]
        client = Client(url, http)
        first = await client.ask("One?")
        await app.reload()
        second = await client.ask("Two?", contextId=first.context_id)
        await app.reload()
        third = await client.ask("Three?", contextId=first.context_id)
    assert [stream.answer for stream in (first, second, third)] == [
        "Heard One? 0.",
        "Heard Two? 0.",
        "Heard Three? 0.",
    ]
    assert [message["parts"][0] for message in running.messages()] == [{"text": "Two? 0"}]
    users = [
        [message.text for message in request.messages if message.role == "user"] for request in model.requests
    ]
    assert users == [["One? 0"], ["Two? 0"], ["One? 0", "Three? 0"]]


# --- time -----------------------------------------------------------------------------------------


async def ask_until_out_of_time(
    client: Client, text: str, waiting: BlockingScenario, monkeypatch: pytest.MonkeyPatch
) -> ReceivedStream:
    """Asks, and lets the limit pass once the agent's tool waits and is seen to."""
    frames: list[Frame] = []
    async for frame in client.stream(text):
        frames.append(frame)
        if "Calling tool: Wait" in frame.text:
            await waiting.started.wait()
            advance_clock(monkeypatch, LIMIT)
    return ReceivedStream(frames)


@pytest.mark.sample(1)
@both_placements
async def test_an_agent_that_takes_too_long_is_cut_off_and_the_run_goes_on(
    where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = BlockingScenario()
    slow = agent("slow", waiting.script, waiting.tool)
    env = {"AGENT_TIMEOUT_SECONDS": str(LIMIT)}
    async with place_agent(slow, where) as far, supervisor(asks("slow"), agents=[far], env=env) as client:
        stream = await ask_until_out_of_time(client, "Well?", waiting, monkeypatch)
        async with asyncio.timeout(120):
            await waiting.cancelled.wait()
    assert stream.answer == f"Agent slow failed: It did not finish within {LIMIT} seconds."
    assert stream.notifications == [
        "🔧 Supervisor: Calling Agent Slow...\n",
        "🔧 Slow: Calling tool: Wait\n",
        "❌ Slow: Tool Wait failed\n",
        "❌ Supervisor: Slow failed\n",
    ]
    ends = [
        (event.tool, event.outcome, event.error) for event in stream.events if isinstance(event, ToolFinished)
    ]
    assert ends == [
        ("wait", "unknown", "The agent ended before the result arrived."),
        ("slow", "error", stream.answer),
    ]


async def test_the_task_of_an_agent_that_takes_too_long_is_cancelled_at_its_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = BlockingScenario()
    slow = agent("slow", waiting.script, waiting.tool)
    async with (
        run_agent_service(slow) as running,
        connect_remote_agent(slow, running.url) as far,
        supervisor(asks("slow"), agents=[far], env={"AGENT_TIMEOUT_SECONDS": str(LIMIT)}) as client,
    ):
        await ask_until_out_of_time(client, "Well?", waiting, monkeypatch)
        await far.connection.aclose()  # the cancellation is on its way
    assert running.methods() == ["SendStreamingMessage", "CancelTask"]


@pytest.mark.sample(1)
@both_placements
async def test_a_run_that_takes_too_long_fails_and_takes_the_agent_with_it(
    where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = BlockingScenario()
    async with (
        place_agent(agent("slow", waiting.script, waiting.tool), where) as far,
        supervisor(asks("slow"), agents=[far], env={"RUN_TIMEOUT_SECONDS": str(LIMIT)}) as client,
    ):
        stream = await ask_until_out_of_time(client, "Well?", waiting, monkeypatch)
        async with asyncio.timeout(120):
            await waiting.cancelled.wait()
    assert (stream.last.state, stream.last.status_text) == (
        "failed",
        f"I stopped: the request took longer than {LIMIT} seconds. A narrower question may help.",
    )
    assert stream.notifications[2:] == ["❌ Slow: Tool Wait failed\n", "❌ Supervisor: Slow failed\n"]
    assert stream.named("final_result") == []


@pytest.mark.parametrize("variable", ["AGENT_TIMEOUT_SECONDS", "RUN_TIMEOUT_SECONDS"])
async def test_a_service_is_told_how_much_time_is_left(variable: str) -> None:
    memo = agent("memo", Script(Turn(Say("Done."))))
    async with (
        run_agent_service(memo) as running,
        connect_remote_agent(memo, running.url) as far,
        supervisor(asks("memo"), agents=[far], env={variable: "40"}) as client,
    ):
        assert (await client.ask("Well?")).answer == "Done."
    (message,) = running.messages()
    assert 0 < message["metadata"]["caipe.timeout_seconds"] <= 40


async def test_a_service_stops_when_its_sender_waits_no_longer() -> None:
    waiting = BlockingScenario()
    async with (
        run_agent_service(agent("slow", waiting.script, waiting.tool)) as running,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
    ):
        client = Client(running.url, http)
        message = V10.message("Well?", metadata={"caipe.timeout_seconds": 1.5})
        stream = ReceivedStream([frame async for frame in client.open(V10.stream, message)])
        async with asyncio.timeout(120):
            await waiting.cancelled.wait()
    assert stream.last.state == "failed"
    assert "longer than 1.5 seconds" in stream.last.status_text


async def test_a_service_with_less_time_of_its_own_fails_the_step_in_its_own_words() -> None:
    waiting = BlockingScenario()
    async with (
        place_agent(agent("slow", waiting.script, waiting.tool), "remote", RUN_TIMEOUT_SECONDS="1.5") as far,
        supervisor(asks("slow"), agents=[far]) as client,
    ):
        stream = await client.ask("Well?")
    assert stream.answer == (
        "Agent slow failed: I stopped: the request took longer than 1.5 seconds. "
        "A narrower question may help."
    )
    assert stream.notifications[2:] == ["❌ Slow: Tool Wait failed\n", "❌ Supervisor: Slow failed\n"]


# --- questions to people --------------------------------------------------------------------------


def github(*turns: Turn) -> LocalAgent:
    script = Script(*(turns or (Turn(Call("ask_form")), Turn(Say("Created {{tool:ask_form.repo}}.")))))
    return agent("github", script, form_tool(), form_tool(name="ask_again"))


def form(stream: ReceivedStream) -> dict[str, Any]:
    (frame,) = stream.named("UserInputMetaData")
    data: dict[str, Any] = frame.artifact["parts"][0]["data"]
    return data


@pytest.mark.sample(2)
@both_placements
@both_versions
async def test_an_agent_asks_and_the_answer_reaches_it(where: Where, dialect: Dialect) -> None:
    repo = a_name()
    async with place_agent(github(), where) as far, supervisor(asks("github"), agents=[far]) as client:
        stream = await paused(client, dialect)
        more = await answered(
            client, dialect, dialect.data({"repo": repo, "stars": 2}), contextId=stream.context_id
        )
    assert (form(stream)["input_title"], [field["field_name"] for field in form(stream)["input_fields"]]) == (
        "Create GitHub Repo",
        ["repo", "stars"],
    )
    assert stream.notifications == [
        "🔧 Supervisor: Calling Agent Github...\n",
        "🔧 Github: Calling tool: Ask_Form\n",
    ]
    assert more.notifications == ["✅ Github: Tool Ask_Form completed\n", "✅ Supervisor: Github completed\n"]
    assert more.answer == f"Created {repo}."


@pytest.mark.sample(1)
@both_placements
async def test_an_agent_asks_twice(where: Where) -> None:
    first, two = a_name(), a_name()
    turns = (
        Turn(Call("ask_form")),
        Turn(Call("ask_again")),
        Turn(Say("{{tool:ask_form.repo}} {{tool:ask_again.repo}}")),
    )
    async with place_agent(github(*turns), where) as far, supervisor(asks("github"), agents=[far]) as client:
        stream = await paused(client, V10)
        half = await answered(client, V10, V10.data({"repo": first}), taskId=stream.task_id)
        more = await answered(
            client,
            V10,
            V10.data({"resume": {form(half)["request_id"]: {"repo": two}}}),
            taskId=stream.task_id,
        )
    assert (half.last.state, more.answer) == ("input-required", f"{first} {two}")


@pytest.mark.sample(1)
@both_placements
async def test_an_agent_asks_two_things_at_once(where: Where) -> None:
    """In the supervisor's process both forms are shown; a service's are shown one after the other."""
    turns = (
        Turn(Call("ask_form"), Call("ask_again")),
        Turn(Say("{{tool:ask_form.repo}} {{tool:ask_again.repo}}")),
    )
    names: dict[str, str] = {}
    async with place_agent(github(*turns), where) as far, supervisor(asks("github"), agents=[far]) as client:
        stream = await paused(client, V10)
        task_id = stream.task_id
        while stream.last.state == "input-required":
            for frame in stream.named("UserInputMetaData"):
                names.setdefault(frame.artifact["parts"][0]["data"]["request_id"], a_name())
            open_ones = stream.events[-1].requests  # type: ignore[union-attr]
            stream = await answered(
                client,
                V10,
                V10.data({"resume": {open_ones[0]: {"repo": names[open_ones[0]]}}}),
                taskId=task_id,
            )
    assert len(names) == 2
    assert set(stream.answer.split()) == set(names.values())


async def test_the_time_a_person_takes_is_not_the_agents() -> None:
    patience, thinking = 40.0, 2.0
    async with (
        run_agent_service(github()) as running,
        connect_remote_agent(github(), running.url) as far,
        supervisor(asks("github"), agents=[far], env={"AGENT_TIMEOUT_SECONDS": str(patience)}) as client,
    ):
        stream = await paused(client, V10)
        await asyncio.sleep(thinking)  # time itself is what is tested
        began = time.monotonic()
        assert (
            await answered(client, V10, V10.data({"repo": a_name()}), taskId=stream.task_id)
        ).last.state == "completed"
        worked = time.monotonic() - began
    timeouts = [message["metadata"]["caipe.timeout_seconds"] for message in running.messages()]
    assert len(timeouts) == 2
    assert timeouts[1] >= patience - worked  # however slow the machine is, only the work counts


@pytest.mark.sample(1)
@both_placements
async def test_two_agents_that_ask_at_once_are_answered_apart(where: Where) -> None:
    first_name, two = a_name(), a_name()
    script = Script(Turn(Call("ask_form")), Turn(Say("{{user}}: {{tool:ask_form.repo}}")))
    async with (
        place_agent(agent("github", script, form_tool()), where) as far,
        supervisor(asks("github", "github"), agents=[far]) as client,
    ):
        stream = await paused(client, V10)
        first, second = (
            frame.artifact["parts"][0]["data"]["request_id"] for frame in stream.named("UserInputMetaData")
        )
        half = await answered(
            client, V10, V10.data({"resume": {first: {"repo": first_name}}}), taskId=stream.task_id
        )
        more = await answered(
            client, V10, V10.data({"resume": {second: {"repo": two}}}), taskId=stream.task_id
        )
    assert half.last.state == "input-required"
    heard = "".join([*half.texts("subagent_result"), *more.texts("subagent_result")])
    assert first_name in heard
    assert two in heard
    assert more.last.state == "completed"


@pytest.mark.sample(1)
@both_placements
async def test_a_question_after_a_cancelled_pause_is_no_answer_to_it(where: Where) -> None:
    repo = a_name()
    async with place_agent(github(), where) as far, supervisor(asks("github"), agents=[far]) as client:
        stream = await paused(client, V10)
        await client.call(V10.cancel, {"id": stream.task_id})
        again = await paused(client, V10, contextId=stream.context_id)
        more = await answered(client, V10, V10.data({"repo": repo}), taskId=again.task_id)
    assert again.notifications == [
        "🔧 Supervisor: Calling Agent Github...\n",
        "🔧 Github: Calling tool: Ask_Form\n",
    ]
    assert more.answer == f"Created {repo}."


@both_versions
async def test_a_stranger_that_asks_in_plain_words_is_answered_in_plain_words(dialect: Dialect) -> None:
    repo = a_name()
    steps = [
        {"status": "working", "text": "One moment."},
        {"status": "input-required", "text": "Which repository?"},
        {"artifact": "a", "text": "Created {reply}."},
        {"status": "completed"},
    ]
    script = Script(
        Turn(Call("task", {"description": json.dumps(steps), "subagent_type": "github"})),
        Turn(Say("{{tool:github}}")),
    )
    listener = socket.create_server(("127.0.0.1", 0))
    app = build(f"http://127.0.0.1:{listener.getsockname()[1]}/", Stage(), True)
    async with (
        serve_app(app, listener) as url,
        connect_remote_agent(github(), url) as far,
        supervisor(script, agents=[far]) as client,
    ):
        stream = await paused(client, dialect)
        more = await answered(client, dialect, repo, contextId=stream.context_id)
    assert form(stream)["response"] == "Which repository?"
    assert more.answer == f"Created {repo}."
