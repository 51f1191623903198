"""Runs whose asker has gone: with RUN_UNFOLLOWED_SECONDS they end with what they found; whoever follows, or
comes back in time, has the ordinary budget."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

import httpx
import pytest
from langchain_core.tools import BaseTool, tool

from ai_platform_engineering.core.events import Answered, ends_turn
from ai_platform_engineering.runtime.log.run_log import RunLog
from tests.support.agent_services import Where, eventually, place_agent, run_agent_service
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Hang, Say, Script, Turn
from tests.support.harness import PLAIN, Client, Frame, ReceivedStream, agent
from tests.support.runaway_loops import anything, delegate, look
from tests.support.storages import in_folder, supervisor_on

PATIENCE = 120.0
# Nothing else ends these runs.
ENDLESS = {
    "RUN_MODEL_CALL_LIMIT": "1000000",
    "RUN_TOOL_CALL_LIMIT": "1000000",
    "MODEL_CALL_LIMIT": "1000000",
    "TOOL_CALL_LIMIT": "1000000",
    "LANGGRAPH_RECURSION_LIMIT": "1000000",
}
NOBODY = "nobody has followed this request for"


def look_for_ever(_: Request) -> Turn:
    return Turn(look(anything()))


def delegate_once(request: Request) -> Turn:
    return Turn(Say("It said: {{tool:task}}")) if request.position else Turn(delegate("Dig"))


def answer_at_last(request: Request) -> Turn:
    return Turn(Say("All is well.")) if request.position else Turn(look("it"))


@dataclass
class Shaft:
    """A tool that can be held, and tells when it was called."""

    held: bool = False
    called: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def tool(self) -> BaseTool:
        @tool("look")
        async def look_down(at: str) -> str:
            """Look."""
            self.called.set()
            if self.held:
                await self.released.wait()
            await asyncio.sleep(0.01)  # a loop without any wait would starve the readers
            return "It is dark."

        return look_down


async def ask_and_leave(client: Client, shaft: Shaft) -> str:
    """Asks, reads until the tool is called, and goes away; the task's id."""
    frames: list[Frame] = []
    stream: AsyncIterator[Frame] = client.stream("Dig")
    async for frame in stream:
        frames.append(frame)
        if shaft.called.is_set():
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return ReceivedStream(frames).task_id


async def ended(log: RunLog, run_id: str) -> Answered:
    """The end of the run, read from the log: whoever asks the server for it follows it."""
    after = 0
    async with asyncio.timeout(PATIENCE):
        while True:
            for item in await log.read(run_id, after):
                after = item.seq
                if ends_turn(item.event):
                    assert isinstance(item.event, Answered), item.event
                    return item.event
            await log.wait_for_event(run_id, after)


async def unfollowed(log: RunLog, run_id: str, *, followed: bool = False) -> datetime | None:
    """Waits until the log says that nobody, or somebody, follows the run."""
    async with asyncio.timeout(PATIENCE):
        while True:
            since = await log.find_unfollowed_since(run_id)
            if (since is None) is followed:
                return since
            await asyncio.sleep(0.01)


@pytest.mark.sample(2)
@pytest.mark.parametrize("held", [False, True], ids=["a loop", "a tool that hangs"])
@pytest.mark.parametrize("where", ["in-process", "remote"])
async def test_a_run_that_nobody_follows_ends_with_what_it_found(
    where: Where, held: bool, tmp_path: Path
) -> None:
    shaft = Shaft(held=held)
    digger = agent("digger", Script(look_for_ever), shaft.tool)
    model = ScriptedChatModel(script=Script(delegate_once))
    env = {**ENDLESS, "RUN_UNFOLLOWED_SECONDS": "0.3"}
    async with (
        place_agent(digger, where, **ENDLESS) as placed,
        supervisor_on(storage := in_folder(tmp_path), model, agents=[placed], env=env) as client,
    ):
        run_id = await ask_and_leave(client, shaft)
        end = await ended(storage.log, run_id)
    assert NOBODY in end.text


async def test_the_supervisors_own_loop_ends_in_the_same_way(tmp_path: Path) -> None:
    shaft = Shaft()
    model = ScriptedChatModel(script=Script(look_for_ever))
    env = {**ENDLESS, "RUN_UNFOLLOWED_SECONDS": "0.3"}
    async with supervisor_on(storage := in_folder(tmp_path), model, tools=[shaft.tool], env=env) as client:
        end = await ended(storage.log, await ask_and_leave(client, shaft))
    assert NOBODY in end.text
    assert "look: It is dark." in end.text
    assert "What is missing" in end.text


async def test_a_run_that_somebody_follows_has_its_ordinary_budget(tmp_path: Path) -> None:
    shaft = Shaft(held=True)
    model = ScriptedChatModel(script=Script(answer_at_last))
    env = {"RUN_UNFOLLOWED_SECONDS": "0.1"}
    async with supervisor_on(storage := in_folder(tmp_path), model, tools=[shaft.tool], env=env) as client:
        frames: list[Frame] = []
        async for frame in client.stream("Dig"):
            frames.append(frame)
            if shaft.called.is_set() and not shaft.released.is_set():
                await unfollowed(storage.log, ReceivedStream(frames).task_id, followed=True)
                await asyncio.sleep(0.3)  # longer than a run without followers would have
                shaft.released.set()
    assert ReceivedStream(frames).answer == "All is well."


async def test_whoever_comes_back_in_time_finds_the_ordinary_budget(tmp_path: Path) -> None:
    shaft = Shaft(held=True)
    model = ScriptedChatModel(script=Script(answer_at_last))
    env = {"RUN_UNFOLLOWED_SECONDS": "3600"}
    async with supervisor_on(storage := in_folder(tmp_path), model, tools=[shaft.tool], env=env) as client:
        log = storage.log
        run_id = await ask_and_leave(client, shaft)
        left_at = await unfollowed(log, run_id)
        assert left_at is not None
        await client.call("tasks/get", {"id": run_id})  # a client that polls follows as well
        await eventually(partial(log.find_unfollowed_since, run_id), lambda since: since != left_at)
        frames: list[Frame] = []
        async for frame in client.open("tasks/resubscribe", {"id": run_id}):
            frames.append(frame)
            if not shaft.released.is_set():
                await unfollowed(log, run_id, followed=True)
                shaft.released.set()
    assert ReceivedStream(frames).answer == "All is well."


async def test_a_restart_gives_a_run_that_nobody_follows_no_time_anew(tmp_path: Path) -> None:
    shaft = Shaft()
    hanging = ScriptedChatModel(script=Script(Turn(look("it")), Turn(Hang())))
    env = {"RUN_UNFOLLOWED_SECONDS": "3600"}
    async with supervisor_on(storage := in_folder(tmp_path), hanging, tools=[shaft.tool], env=env) as client:
        run_id = await ask_and_leave(client, shaft)
        left_at = await unfollowed(storage.log, run_id)
    looping = ScriptedChatModel(script=Script(look_for_ever))
    # Long over when the next process begins.
    env = {**ENDLESS, "RUN_UNFOLLOWED_SECONDS": "0.001"}
    async with supervisor_on(storage := in_folder(tmp_path), looping, tools=[shaft.tool], env=env):
        log = storage.log
        end = await ended(log, run_id)
        assert await log.find_unfollowed_since(run_id) == left_at
    assert NOBODY in end.text
    assert len(looping.requests) == 2, "only the last turn, and that once more"


@pytest.mark.parametrize("delegated", [True, False], ids=["a delegation", "a question"])
async def test_a_service_leaves_it_to_the_supervisor_whether_anybody_follows(delegated: bool) -> None:
    shaft = Shaft(held=True)
    budget = {"model_calls": 10, "tool_calls": 10}
    parts = [{"text": "Dig"}, *([{"data": {"caipe.budget": budget}}] if delegated else [])]
    message = {"role": "ROLE_USER", "messageId": "m1", "parts": parts}
    digger = agent("digger", Script(answer_at_last), shaft.tool)
    async with (
        run_agent_service(digger, RUN_UNFOLLOWED_SECONDS="0.2") as service,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
    ):
        client = Client(service.url, http)
        params = {"message": message, "configuration": {"returnImmediately": True}}
        sent = await client.call("SendMessage", params)
        await shaft.called.wait()
        await asyncio.sleep(0.5)  # longer than a question without followers has
        shaft.released.set()
        task_id = sent["result"]["task"]["id"]
        shown = await read_texts(client, task_id)
    outcome = "completed" if delegated else "failed"
    assert f"Digger: Tool Look {outcome}" in shown


async def read_texts(client: Client, task_id: str) -> str:
    """All that people are shown of a task, when it has ended."""
    async with asyncio.timeout(PATIENCE):
        while True:
            task = (await client.call("GetTask", {"id": task_id}))["result"]
            if task["status"]["state"] == "TASK_STATE_COMPLETED":
                return "".join(str(part.get("text")) for one in task["artifacts"] for part in one["parts"])
            await asyncio.sleep(0.02)
