"""Self-service workflows on stage: a GitHub on a loopback port, the supervisor and an agent service as
processes, a person who answers."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from ai_platform_engineering.core.events import (
    AnyEvent,
    Approval,
    Form,
    InputRequested,
    PlanUpdated,
    ToolStarted,
)
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.demo.github.app import DEMO_TOKEN, create_app
from ai_platform_engineering.demo.github.sample_data import ORGANISATION, build_sample_state
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
from tests.support.agent_services import Where, run_server_process
from tests.support.dialects import V03
from tests.support.harness import FAST, PLAIN, Client, Frame, ReceivedStream, serve_app
from tests.support.processes import Program

ORG = ORGANISATION
PATIENCE = 120.0


def random_name(of: str = "repo") -> str:
    return f"{of}-{secrets.token_hex(4)}"


@dataclass(slots=True)
class Hold:
    """A request that is kept waiting, before or after it has taken effect, until it is let go."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    free: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.reached.wait()

    async def block(self) -> None:
        self.reached.set()
        await self.free.wait()


class GitHub:
    """The stand-in over its state; `wrote` are the requests that came to change something, whatever became
    of them."""

    def __init__(self, url: str = "") -> None:
        self.url, self.state = url, build_sample_state()
        self.wrote: list[str] = []
        self.holds: dict[tuple[str, str], Hold] = {}
        self._app = create_app(self.state)

    def hold(self, when: str, request: str) -> Hold:
        """`when` is "before" or "after" the request, which is a method and a path."""
        return self.holds.setdefault((when, request), Hold())

    def release(self) -> None:
        for hold in self.holds.values():
            hold.free.set()
        self.holds.clear()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = f"{scope['method']} {scope['path']}"
        if scope["method"] != "GET":
            self.wrote.append(request)
        await self._passing("before", request)
        sent: list[Any] = []

        async def keep_message(message: Any) -> None:
            sent.append(message)

        await self._app(scope, receive, keep_message)
        await self._passing("after", request)
        for message in sent:
            await send(message)

    async def _passing(self, when: str, request: str) -> None:
        if hold := self.holds.get((when, request)):
            await hold.block()

    async def repository(self, name: str, owner: str = ORG) -> dict[str, Any] | None:
        """What GitHub says when it is asked for the repository."""
        async with httpx.AsyncClient(
            base_url=self.url, headers={"Authorization": f"Bearer {DEMO_TOKEN}"}, verify=PLAIN
        ) as http:
            response = await http.get(f"repos/{owner}/{name}")
        return response.json() if response.status_code == 200 else None

    @property
    def settings(self) -> dict[str, str]:
        return {"GITHUB_TOKEN": DEMO_TOKEN, "GITHUB_API_URL": self.url}


@contextlib.asynccontextmanager
async def serve_github() -> AsyncIterator[GitHub]:
    hub = GitHub()
    async with serve_app(hub) as hub.url:
        try:
            yield hub
        finally:
            hub.release()


@dataclass(slots=True)
class Person:
    """Somebody who asks once and then answers what is asked; `seen` is the last that came back."""

    client: Client
    stream: ReceivedStream = field(default_factory=lambda: ReceivedStream([]))

    async def say(self, *parts: str | dict[str, Any]) -> ReceivedStream:
        """A new question."""
        written = [V03.data(part) if isinstance(part, dict) else part for part in parts]
        return await self._told(*written)

    async def fill(self, **values: Any) -> ReceivedStream:
        """Answers the form that stands open."""
        return await self.decide(values)

    async def approve(self) -> ReceivedStream:
        return await self.decide({"type": "approve"})

    async def decide(self, decision: Mapping[str, Any]) -> ReceivedStream:
        return await self._told(
            V03.data({"resume": {self.request.request_id: dict(decision)}}), taskId=self.stream.task_id
        )

    async def _told(self, *parts: Any, **more: Any) -> ReceivedStream:
        frames: list[Frame] = []
        self.stream = ReceivedStream(frames)
        async for frame in self.client.open(V03.stream, V03.message(*parts, **more)):
            frames.append(frame)
        return self.stream

    async def follow(self) -> ReceivedStream:
        """Comes back to the task, with all that has happened and what follows."""
        task_id = self.stream.task_id
        frames = [frame async for frame in self.client.open(V03.subscribe, {"id": task_id})]
        if "error" in frames[-1].body:  # it has ended meanwhile: only a reader with a number is served
            frames = await self._read_ended(task_id)
        self.stream = ReceivedStream(frames)
        return self.stream

    async def _read_ended(self, task_id: str) -> list[Frame]:
        """The frames of a task that has ended; each subscription gives those up to the next pause."""
        frames: list[Frame] = []
        cursor = "0"
        while not frames or frames[-1].state == "input-required":
            subscription = self.client.open(V03.subscribe, {"id": task_id}, Last_Event_ID=cursor)
            frames += [frame async for frame in subscription]
            cursor = frames[-1].id or ""
        return frames

    @property
    def request(self) -> InputRequested:
        """What was asked last, and still is."""
        assert self.stream.last.state == "input-required", (
            self.stream.last.body if not self.stream.named("final_result") else self.stream.answer
        )
        return [event for event in self.stream.events if isinstance(event, InputRequested)][-1]

    @property
    def form(self) -> Form:
        assert isinstance(self.request.asked, Form), self.request
        return self.request.asked

    @property
    def approval(self) -> Approval:
        assert isinstance(self.request.asked, Approval), self.request
        return self.request.asked


class Server:
    """`caipe serve` with what it stores in a folder: killed and started again, it is the same one."""

    def __init__(self, folder: Path, **env: str) -> None:
        self._env = {**FAST, "CAIPE_HOME": str(folder / "supervisor"), **env}
        self._running = contextlib.AsyncExitStack()
        self.process: Program
        self.client: Client

    async def __aenter__(self) -> "Server":
        self.process, self.client = await self._running.enter_async_context(
            run_server_process("caipe", "serve", **self._env)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    async def restart(self) -> Client:
        """Kills the process and starts another one."""
        await self._running.aclose()  # SIGKILL: it has no time for anything
        await self.__aenter__()
        return self.client


@contextlib.asynccontextmanager
async def serve_github_agent(
    where: Where, folder: Path, hub: GitHub, **env: str
) -> AsyncIterator[dict[str, str]]:
    """What a supervisor must be told of GitHub's agent, which is in its process or a service with the
    credentials."""
    if where == "in-process":
        yield hub.settings
        return
    own = {**FAST, "CAIPE_HOME": str(folder / "service"), **hub.settings, **env}
    async with run_server_process("caipe", "agent", "github", **own) as (_, client):
        yield {"DISTRIBUTED_AGENTS": "github", "GITHUB_AGENT_URL": client.url}


@contextlib.asynccontextmanager
async def serve_supervisor(folder: Path, **variables: str) -> AsyncIterator[Client]:
    """The supervisor in this process, with the agents, workflows and the storage of the settings; tool
    servers are processes."""
    variables_with_defaults = {**FAST, "CAIPE_HOME": str(folder / "home"), "TMPDIR": str(folder), **variables}
    async with (
        serve_app(build_app(Settings.from_variables(variables_with_defaults), variables_with_defaults)) as at,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
    ):
        yield Client(at, http)


def write_workflow(folder: Path, workflow: Mapping[str, Any]) -> Path:
    """A workflow as a file; JSON is YAML."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{workflow['name']}.yaml"
    path.write_text(json.dumps(workflow))
    return path


def step_statuses(events: list[AnyEvent]) -> dict[str, str]:
    """The last plan: title of the step and its state."""
    return {
        step.title: step.status
        for step in [event for event in events if isinstance(event, PlanUpdated)][-1].steps
    }


def called_tools(events: list[AnyEvent]) -> list[str]:
    """What was called, in order: agents and their tools."""
    return [f"{event.agent}/{event.tool}" for event in events if isinstance(event, ToolStarted)]
