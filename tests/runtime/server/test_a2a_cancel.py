"""Cancel: the work really stops, every reader learns it last, and nothing stays open behind it."""

import asyncio
import json

from langchain_core.tools import BaseTool, StructuredTool

from ai_platform_engineering.core.transcript import fold
from tests.runtime.server.test_a2a_streams import ONE_BY_ONE, reading
from tests.support.dialects import V03, V10, Dialect, artifact, both_versions, text_of
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Hang, Say, Script, Turn
from tests.support.harness import ReceivedStream, agent, supervisor


@both_versions
async def test_a_cancel_stops_the_work_and_closes_what_was_open_for_every_reader(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    inner = agent("argocd", Script(Turn(Say("Looking. "), Call("wait"))), waiting.tool)
    todos = [
        {"agent": "argocd", "title": "Look", "status": "in_progress"},
        {"title": "Report", "status": "pending"},
    ]
    script = Script(
        Turn(Call("write_todos", {"title": "Look and report", "todos": todos})),
        Turn(Say("I ask. "), Call("task", {"description": "look", "subagent_type": "argocd"})),
    )
    async with supervisor(script, agents=[inner], env=ONE_BY_ONE) as client:
        task = dialect.sent(await client.call(dialect.send, {**dialect.message("Look."), **dialect.at_once}))
        await waiting.started.wait()
        async with reading(client, dialect, task["id"], "0", "1", "0") as (first, second, third):
            cancelled = (await client.call(dialect.cancel, {"id": task["id"]}))["result"]
    assert waiting.cancelled.is_set()
    assert [frame.raw for frame in first.frames] == [frame.raw for frame in third.frames]
    assert [frame.raw for frame in second.frames] == [frame.raw for frame in first.frames[2:]]
    stream = ReceivedStream(first.frames)
    assert (stream.states.count("canceled"), stream.last.state) == (1, "canceled")
    assert dialect.state(cancelled) == "canceled"
    assert stream.notifications[-2:] == ["❌ Argocd: Tool Wait failed\n", "❌ Supervisor: Argocd failed\n"]
    assert [frame.metadata["status"] for frame in stream.named("tool_notification_end")] == [
        "unknown",
        "unknown",
    ]
    plan = stream.named("execution_plan_update")[-1].artifact["parts"][0]["data"]
    assert [(step["title"], step["status"]) for step in plan["steps"]] == [
        ("Look", "failed"),
        ("Report", "skipped"),
    ]
    view = fold(stream.events)
    assert view.running == ()


@both_versions
async def test_a_cancel_stops_the_model_and_keeps_what_it_had_said(dialect: Dialect) -> None:
    model = ScriptedChatModel(script=Script(Turn(Say("The answer ", "begins"), Hang())))
    async with supervisor(model, env=ONE_BY_ONE) as client:
        frames = []
        async for frame in client.open(dialect.stream, dialect.message("Well?")):
            frames.append(frame)
            if frame.text == "begins" and frame.name == "streaming_result":
                await client.call(dialect.cancel, {"id": ReceivedStream(frames).task_id})
        stored = (await client.call(dialect.get, {"id": ReceivedStream(frames).task_id}))["result"]
    assert len(model.abandoned) == 1
    assert frames[-1].state == "canceled"
    assert ReceivedStream(frames).texts("partial_result") == ["The answer begins"]
    assert text_of(artifact(stored, "partial_result")) == "The answer begins"
    assert ReceivedStream(frames).named("final_result") == []


class Stubborn:
    """A tool that does not let itself be cancelled."""

    def __init__(self) -> None:
        self.started, self.asked_to_stop, self.released = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @property
    def tool(self) -> BaseTool:
        async def work() -> str:
            """Works."""
            self.started.set()
            while not self.released.is_set():
                try:
                    await self.released.wait()
                except asyncio.CancelledError:
                    self.asked_to_stop.set()
            return json.dumps({"done": "too late"})

        return StructuredTool.from_function(coroutine=work, name="work")


async def test_a_tool_that_ignores_the_cancel_cannot_write_any_more() -> None:
    stubborn = Stubborn()
    script = Script(Turn(Call("work")), Turn(Say("It says {{tool:work.done}}.")))
    async with supervisor(script, tools=[stubborn.tool]) as client:
        task = V10.sent(await client.call(V10.send, {**V10.message("Work."), **V10.at_once}))
        await stubborn.started.wait()
        (work,) = [one for one in asyncio.all_tasks() if one.get_name() == f"run:{task['id']}"]
        async with reading(client, V10, task["id"], "0") as (reader,):
            cancelled = (await client.call(V10.cancel, {"id": task["id"]}))["result"]
        assert stubborn.asked_to_stop.is_set()
        assert not work.done()
        stubborn.released.set()
        await asyncio.wait({work})
        stored = (await client.call(V10.get, {"id": task["id"]}))["result"]
        nothing = await client.call(
            V10.subscribe, {"id": task["id"]}, Last_Event_ID=reader.frames[-1].id or ""
        )
    assert V10.state(cancelled) == V10.state(stored) == reader.frames[-1].state == "canceled"
    assert stored["metadata"]["caipe.seq"] == reader.frames[-1].id
    assert "too late" not in json.dumps(stored)
    assert nothing["error"]["code"] == -32004


async def test_a_queued_question_can_be_cancelled_while_the_one_before_works() -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        first = V03.sent(await client.call(V03.send, {**V03.message("One.", contextId="c"), **V03.at_once}))
        await waiting.started.wait()
        second = V03.sent(await client.call(V03.send, {**V03.message("Two.", contextId="c"), **V03.at_once}))
        assert V03.state((await client.call(V03.cancel, {"id": second["id"]}))["result"]) == "canceled"
        third = V03.sent(await client.call(V03.send, {**V03.message("Three.", contextId="c"), **V03.at_once}))
        async with (
            reading(client, V03, first["id"], "0") as (reader,),
            reading(client, V03, third["id"], "0") as (last,),
        ):
            waiting.released.set()
    assert ReceivedStream(reader.frames).answer == ReceivedStream(last.frames).answer == waiting.answer


async def test_after_a_cancel_the_conversation_goes_on() -> None:
    waiting = BlockingScenario()
    script = Script(
        lambda request: Turn(Call("wait")) if request.last_user == "Wait." else Turn(Say("You said {{user}}"))
    )
    async with supervisor(script, tools=[waiting.tool]) as client:
        task = V10.sent(await client.call(V10.send, {**V10.message("Wait.", contextId="c"), **V10.at_once}))
        await waiting.started.wait()
        await client.call(V10.cancel, {"id": task["id"]})
        stream = await client.ask("Go on.", version="1.0", contextId="c")
    assert stream.answer == "You said Go on."
