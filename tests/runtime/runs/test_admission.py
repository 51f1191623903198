"""How many runs work at once: the others wait with their place, too many are refused, and nothing is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool, tool

from ai_platform_engineering.a2a.on_behalf_of import on_behalf_of_headers
from ai_platform_engineering.core.events import Notice
from tests.support.asking_agent import ask_until_paused, form_tool, request_ids, send_answers
from tests.support.dialects import V10
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import Client, ReceivedStream, supervisor
from tests.support.health_witness import health_witness
from tests.support.storages import in_folder, supervisor_on

KEY = "the-delegate-key-of-these-tests"
REFUSED = -32004
PEOPLE = {"A2A_AUTH_DELEGATE_KEY": KEY}


class Hall:
    """A tool that works until it is let go, and the questions whose runs work."""

    def __init__(self) -> None:
        self.working: list[str] = []
        self.changed = asyncio.Condition()
        self.doors: dict[str, asyncio.Event] = {}

        @tool
        async def wait(name: str) -> str:
            """Waits."""
            self.working.append(name)
            async with self.changed:
                self.changed.notify_all()
            try:
                await self.door(name).wait()
            finally:
                self.working.remove(name)
            return f"waited={name}"

        self.tool: BaseTool = wait

    def door(self, name: str) -> asyncio.Event:
        return self.doors.setdefault(name, asyncio.Event())

    async def until_working(self, *names: str) -> None:
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(lambda: set(names) <= set(self.working))

    @property
    def model(self) -> ScriptedChatModel:
        def answer(request: Request) -> Turn:
            if request.tool_results:
                return Turn(Say("Done: {{tool:wait.waited}}"))
            return Turn(Call("wait", {"name": request.last_user}))

        return ScriptedChatModel(script=Script(answer))


def person(client: Client, name: str, thread: str | None = None) -> Client:
    headers = {"Authorization": f"Bearer {KEY}", **on_behalf_of_headers(name, thread)}
    return Client(client.url, client.http, headers)


def places(stream: ReceivedStream) -> list[str]:
    return [event.text for event in stream.events if isinstance(event, Notice) and event.position is not None]


class Asked:
    """A question that somebody asked, and what they see of it."""

    def __init__(self, client: Client, text: str) -> None:
        self.frames: list[Any] = []
        self.task = asyncio.create_task(self._follow(client, text))

    async def _follow(self, client: Client, text: str) -> ReceivedStream:
        async for frame in client.stream(text, version="1.0"):
            self.frames.append(frame)
        return ReceivedStream(self.frames)

    async def place(self) -> str:
        """The place that the reader sees while it waits."""
        async with asyncio.timeout(30):
            while not places(ReceivedStream(self.frames)):  # noqa: ASYNC110 - frames come as they come
                await asyncio.sleep(0.01)
        return places(ReceivedStream(self.frames))[-1]


@contextlib.asynccontextmanager
async def hall(**env: str) -> AsyncIterator[tuple[Hall, Client]]:
    room = Hall()
    async with supervisor(room.model, tools=[room.tool], env={**PEOPLE, **env}) as client:
        yield room, client
        for name in list(room.doors):
            room.door(name).set()


async def test_a_person_has_so_many_working_runs_and_sees_the_place_of_the_others() -> None:
    async with hall(RUNS_MAX_WORKING_PER_PERSON="1") as (room, client):
        ann, bob = person(client, "ann"), person(client, "bob")
        first = Asked(ann, "a1")
        await room.until_working("a1")
        second, third = Asked(ann, "a2"), None
        assert await second.place() == "Queued: this question is the next one."
        third = Asked(person(client, "ann", "another thread"), "a3")
        assert await third.place() == "Queued: 1 question before this one."
        other = Asked(bob, "b1")
        await room.until_working("a1", "b1")  # somebody else is not held up
        assert room.working == ["a1", "b1"]
        for name in ("a1", "a2", "a3", "b1"):
            room.door(name).set()
        streams = [await asked.task for asked in (first, second, third, other)]
    assert [stream.last.state for stream in streams] == ["completed"] * 4
    assert [len(places(stream)) for stream in streams] == [0, 1, 2, 0]


async def test_all_people_together_have_so_many_working_runs_in_the_order_they_came() -> None:
    async with hall(RUNS_MAX_WORKING="2") as (room, client):
        asked = [Asked(person(client, "ann"), "a1"), Asked(person(client, "bob"), "b1")]
        await room.until_working("a1", "b1")
        for number, name in enumerate(["cyd", "dan", "eve"]):
            asked.append(Asked(person(client, name), name))
            expected = ["this question is the next one", "1 question before this one"]
            expected.append("2 questions before this one")
            assert await asked[-1].place() == f"Queued: {expected[number]}."
        room.door("b1").set()
        await room.until_working("a1", "cyd")
        assert sorted(room.working) == ["a1", "cyd"]
        for name in ("a1", "cyd", "dan", "eve"):
            room.door(name).set()
        streams = [await one.task for one in asked]
    assert {stream.last.state for stream in streams} == {"completed"}


async def test_a_full_queue_refuses_with_a_sentence_and_stores_nothing() -> None:
    env = {"RUNS_MAX_WORKING_PER_PERSON": "1", "RUN_QUEUE_LIMIT_PER_PERSON": "1"}
    async with hall(**env) as (room, client):
        ann = person(client, "ann")
        asked = [Asked(ann, "a1")]
        await room.until_working("a1")
        asked.append(Asked(ann, "a2"))
        await asked[1].place()
        before = await list_tasks(ann)
        refused = await send(ann, "a3", messageId="late")
        assert refused["error"]["code"] == REFUSED
        assert refused["error"]["message"] == (
            "1 of your questions are already waiting. Wait for their answers, or cancel some."
        )
        assert await list_tasks(ann) == before
        for name in ("a1", "a2", "a3", "b1"):
            room.door(name).set()
        assert (await person(client, "bob").ask("b1")).answer == "Done: b1"
        await asyncio.gather(*(one.task for one in asked))
        assert (await ann.ask("a3", messageId="late")).answer == "Done: a3"


async def test_the_queue_of_all_is_bounded_and_a_repeated_message_finds_its_run() -> None:
    env = {"RUNS_MAX_WORKING": "1", "RUN_QUEUE_LIMIT": "1"}
    async with hall(**env) as (room, client):
        ann, bob = person(client, "ann"), person(client, "bob")
        working = V10.sent(await send(ann, "a1", messageId="m1", contextId="talk"))["id"]
        await room.until_working("a1")
        waiting = Asked(bob, "b1")
        await waiting.place()
        refused = await send(person(client, "cyd"), "c1")
        assert refused["error"]["message"].startswith("The server is busy: 1 questions are already waiting.")
        again = await send(ann, "a1", messageId="m1", contextId="talk")
        assert V10.sent(again)["id"] == working
        room.door("a1").set()
        room.door("b1").set()
        await waiting.task


async def test_many_questions_at_the_same_moment_do_not_slip_through() -> None:
    env = {"RUNS_MAX_WORKING_PER_PERSON": "2", "RUN_QUEUE_LIMIT_PER_PERSON": "3"}
    async with hall(**env) as (room, client), health_witness(client.url):
        ann = person(client, "ann")
        answers = await asyncio.gather(*(send(ann, f"a{number}") for number in range(40)))
        accepted = [answer for answer in answers if "result" in answer]
        assert len(accepted) == 5
        assert len(room.working) <= 2
        for number in range(40):
            room.door(f"a{number}").set()
        for answer in accepted:
            assert (await read_to_end(ann, V10.sent(answer)["id"])) == "completed"


async def test_a_run_that_waits_for_a_person_does_not_count() -> None:
    form = form_tool("repo", [{"field_name": "name", "field_label": "Name"}])
    script = Script(
        lambda request: (
            Turn(Call("repo"))
            if request.last_user == "Create" and not request.tool_results
            else Turn(Say("Answered {{user}}"))
        )
    )
    async with supervisor(script, tools=[form], env={"RUNS_MAX_WORKING": "1"}) as client:
        paused = await ask_until_paused(client, "Create")
        assert (await client.ask("Hello")).answer == "Answered Hello"
        finished = await send_answers(client, paused, {request_ids(paused)[0]: {"name": "x"}})
    assert finished.last.state == "completed"
    assert places(finished) == []


async def test_a_waiting_run_can_be_cancelled_and_leaves_its_place() -> None:
    async with hall(RUNS_MAX_WORKING_PER_PERSON="1") as (room, client):
        ann = person(client, "ann")
        first = Asked(ann, "a1")
        await room.until_working("a1")
        second = Asked(ann, "a2")
        await second.place()
        third = Asked(ann, "a3")
        await third.place()
        task_id = ReceivedStream(second.frames).task_id
        await ann.call("CancelTask", {"id": task_id})
        assert (await second.task).last.state == "canceled"
        room.door("a1").set()
        await room.until_working("a3")
        room.door("a3").set()
        assert (await third.task).answer == "Done: a3"
        assert (await first.task).answer == "Done: a1"


async def test_runs_of_an_earlier_process_are_admitted_one_after_the_other(tmp_path: Path) -> None:
    room = Hall()
    async with supervisor_on(in_folder(tmp_path), room.model, tools=[room.tool]) as client:
        sent = [V10.sent(await send(client, name))["id"] for name in ("a1", "a2", "a3")]
        await room.until_working("a1", "a2", "a3")
    again = Hall()
    env = {"RUNS_MAX_WORKING": "1", "RUN_QUEUE_LIMIT": "0"}
    async with supervisor_on(in_folder(tmp_path), again.model, tools=[again.tool], env=env) as client:
        for name in ("a1", "a2", "a3"):
            await again.until_working(name)
            assert again.working == [name]
            again.door(name).set()
        assert [await read_to_end(client, task_id) for task_id in sent] == ["completed"] * 3


async def send(client: Client, text: str, **more: Any) -> dict[str, Any]:
    """The whole answer to a message that does not wait."""
    return await client.call(V10.send, {**V10.message(text, **more), **V10.at_once})


async def list_tasks(client: Client) -> set[str]:
    return {task["id"] for task in (await client.call("ListTasks", {}))["result"]["tasks"]}


async def read_to_end(client: Client, task_id: str) -> str:
    """The state of a task when it has ended."""
    async with asyncio.timeout(30):
        while True:
            state = V10.state((await client.call("GetTask", {"id": task_id}))["result"])
            if state not in ("submitted", "working"):
                return state
            await asyncio.sleep(0.01)
