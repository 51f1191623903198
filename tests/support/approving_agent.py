"""An agent whose tools ask for approval, in-process or as a service, and a client that sends decisions."""

import contextlib
import json
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from ai_platform_engineering.core.agent_definition import AgentDefinition, McpServer, ToolPolicy
from ai_platform_engineering.core.events import AnyEvent
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent, McpTools
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgent, PlacedAgents
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent_service import (
    create_service,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.runtime.storage import Storage
from tests.support.agent_services import Where, connect_remote_agent
from tests.support.dialects import V10
from tests.support.fakes.mcp_servers import FAKES, open_sessions
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Casting, Say, Script, Turn
from tests.support.harness import ASKING, FAST, PLAIN, Client, ReceivedStream, serve_app
from tests.support.storages import in_folder

everywhere = pytest.mark.parametrize("where", ["in-process", "remote"])
DELEGATING = Script(
    Turn(Call("task", {"description": "{{user}}", "subagent_type": "desk"}, id="c0")),
    Turn(Say("So: {{tool:desk}}")),
)

Answer = Mapping[str, Any]
E = TypeVar("E", bound=AnyEvent)


def approval_decision(**more: Any) -> dict[str, Any]:
    return {"type": "approve", **more}


@dataclass
class NotesAgent:
    """An agent with the tools of `mcp_notes`: its script, its policy, and the storage of its service."""

    folder: Path
    script: Casting
    where: Where = "in-process"
    policy: Mapping[str, Any] = field(default_factory=dict)
    outer: Casting = DELEGATING
    env: Mapping[str, str] = field(default_factory=dict)
    name: str = "desk"
    kept: Storage | None = None  # of its service

    def __post_init__(self) -> None:
        self.model, self.supervisor = (
            ScriptedChatModel(script=self.script),
            ScriptedChatModel(script=self.outer),
        )

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}-calls.jsonl"

    @property
    def recorded_calls(self) -> list[dict[str, Any]]:
        """What arrived at the tools' server."""
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def agent(self, sessions: McpSessionPool) -> LocalAgent:
        server = McpServer(command=sys.executable, args=("-S", str(FAKES / "mcp_notes.py"), str(self.file)))
        policy = ToolPolicy(**self.policy)
        definition = AgentDefinition(
            name=self.name, description="Keeps notes.", mcp_servers={"notes": server}, tools=policy
        )
        settings = Settings.from_variables(self.env)
        return LocalAgent(
            definition, McpTools(sessions, definition, read_only=settings.people.read_only), self.model
        )

    @contextlib.asynccontextmanager
    async def placed(
        self, sessions: McpSessionPool, storage: Storage | None = None
    ) -> AsyncIterator[PlacedAgent]:
        agent = self.agent(sessions)
        if self.where == "in-process":
            yield agent
            return
        async with self.served(sessions, storage) as url, connect_remote_agent(agent, url) as far:
            yield far

    @contextlib.asynccontextmanager
    async def served(
        self, sessions: McpSessionPool, storage: Storage | None = None, at: socket.socket | None = None
    ) -> AsyncIterator[str]:
        """The agent as a service; its address."""
        self.kept = storage or Storage.in_memory()
        app = create_service(
            Settings.from_variables({**FAST, **ASKING, **self.env}),
            placed=PlacedAgents([self.agent(sessions)]),
            storage=self.kept,
        )
        async with serve_app(app, at) as url:
            yield url

    def tool_results(self, number: int = -1) -> list[str]:
        """The tool results that the agent's model was shown in a request, since the question."""
        return [message.text for message in self.model.requests[number].since_user if message.role == "tool"]


@dataclass
class Person:
    """Speaks to the supervisor as a client does."""

    client: Client
    storage: Storage

    async def ask(self, text: str = "Go.", **more: Any) -> ReceivedStream:
        return await self._sent(text, **more)

    async def answer(self, stream: ReceivedStream, answers: Mapping[str, Answer]) -> ReceivedStream:
        """By request id; what follows."""
        return await self._sent(V10.data({"resume": dict(answers)}), taskId=stream.task_id)

    async def refused(self, stream: ReceivedStream, answers: Mapping[str, Answer]) -> str:
        """The error that the answer gets."""
        message = V10.message(V10.data({"resume": dict(answers)}), taskId=stream.task_id)
        return str((await self.client.call(V10.send, message))["error"]["message"])

    async def _sent(self, *parts: Any, **more: Any) -> ReceivedStream:
        return ReceivedStream(
            [frame async for frame in self.client.open(V10.stream, V10.message(*parts, **more))]
        )


@contextlib.asynccontextmanager
async def run_supervisor_with(
    desk: NotesAgent, agents: Sequence[PlacedAgent], storage: Storage | None = None
) -> AsyncIterator[Person]:
    run_storage = storage or Storage.in_memory()
    settings = Settings.from_variables({**FAST, **ASKING, **desk.env})
    app = create_app(settings, agents=agents, model=desk.supervisor, storage=run_storage)
    async with serve_app(app) as url, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
        yield Person(Client(url, http), run_storage)


@contextlib.asynccontextmanager
async def run_on_disk(desk: NotesAgent, sessions: McpSessionPool) -> AsyncIterator[Person]:
    """The supervisor, and the service of a remote agent, on the storage in the folder; reentrant."""
    service_storage = None
    if desk.where == "remote":
        service_storage = Storage.from_settings(Settings.from_variables({}).storage, desk.folder, "service")
    async with (
        desk.placed(sessions, service_storage) as agent,
        run_supervisor_with(desk, [agent], in_folder(desk.folder)) as person,
    ):
        yield person


@contextlib.asynccontextmanager
async def run_in_memory(desk: NotesAgent, *others: NotesAgent) -> AsyncIterator[Person]:
    """The supervisor with the agents as they are placed; nothing is stored on disk."""
    async with open_sessions(desk.folder) as sessions, contextlib.AsyncExitStack() as stack:
        agents = [await stack.enter_async_context(agent.placed(sessions)) for agent in (desk, *others)]
        yield await stack.enter_async_context(run_supervisor_with(desk, agents))


def requests(stream: ReceivedStream) -> list[dict[str, Any]]:
    """The requests to people, as they leave the server."""
    return [frame.artifact["parts"][0]["data"] for frame in stream.named("UserInputMetaData")]


def only_request_id(stream: ReceivedStream) -> str:
    """The id of the one request."""
    [request] = requests(stream)
    return str(request["request_id"])


def request_ids_by_note(stream: ReceivedStream) -> dict[str, str]:
    """The ids of approvals by the note that they are about."""
    return {request["arguments"]["note"]: request["request_id"] for request in requests(stream)}


def events_of_kind(stream: ReceivedStream, kind: type[E]) -> list[E]:
    return [event for event in stream.events if isinstance(event, kind)]
