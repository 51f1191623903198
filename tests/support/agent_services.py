"""Agents as services for tests: in this process with their requests recorded, or as processes."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgent, PlacedAgents
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent_service import (
    create_service,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
from ai_platform_engineering.multi_agents.platform_engineer.remote_agents import RemoteAgent
from ai_platform_engineering.utils.a2a_common.a2a_remote_agent_connect import A2ARemoteAgentConnectTool
from tests.conftest import ROOT
from tests.support.command_process import forked_python
from tests.support.fakes.mcp_servers import network_guard_environment
from tests.support.fakes.script import Casting, Request, Script
from tests.support.fakes.serving import ModelServer
from tests.support.harness import FAST, PLAIN, Client, serve_app
from tests.support.processes import Program, start_command
from tests.support.providers import OPENAI

REAL = str(ROOT / "tests" / "support" / "fakes" / "mcp_real.py")

Where = Literal["in-process", "remote"]


@dataclass(slots=True)
class AgentService:
    """An agent behind A2A in this process; `requests` are the JSON-RPC calls that it got."""

    agent: LocalAgent
    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)

    def methods(self) -> list[str]:
        return [request["method"] for request in self.requests]

    def messages(self) -> list[dict[str, Any]]:
        return [request["params"]["message"] for request in self.requests if "message" in request["params"]]


class _RecordingApp:
    """An application that records the bodies of the requests to it."""

    def __init__(self, app: Any, requests: list[dict[str, Any]]) -> None:
        self._app, self._requests, self.streams = app, requests, app.streams

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = bytearray()

        async def receive_and_record() -> Any:
            message = await receive()
            body.extend(message.get("body", b""))
            if message["type"] == "http.request" and body and not message.get("more_body"):
                self._requests.append(json.loads(bytes(body)))
                body.clear()
            return message

        await self._app(scope, receive_and_record, send)


@contextlib.asynccontextmanager
async def run_agent_service(
    agent: LocalAgent, listener: socket.socket | None = None, **env: str
) -> AsyncIterator[AgentService]:
    app = create_service(Settings.from_variables({**FAST, **env}), placed=PlacedAgents([agent]))
    running = AgentService(agent, "")
    async with serve_app(_RecordingApp(app, running.requests), listener) as running.url:
        yield running


@contextlib.asynccontextmanager
async def connect_remote_agent(agent: LocalAgent, url: str, **options: Any) -> AsyncIterator[RemoteAgent]:
    """The agent as the supervisor sees it when its service is at an address."""
    connection = A2ARemoteAgentConnectTool(name=agent.definition.name, description="", url=url, **options)
    try:
        yield RemoteAgent(agent.definition, connection)
    finally:
        await connection.aclose()
        await connection.http.aclose()


@contextlib.asynccontextmanager
async def place_agent(agent: LocalAgent, where: Where, **env: str) -> AsyncIterator[PlacedAgent]:
    """The agent in the supervisor's process, or as a service."""
    if where == "in-process":
        yield agent
        return
    async with run_agent_service(agent, **env) as running, connect_remote_agent(agent, running.url) as far:
        yield far


@contextlib.asynccontextmanager
async def run_supervisor(folder: Path, model: ModelServer, **variables: str) -> AsyncIterator[Client]:
    """The supervisor in this process with the agents in the folder's `agents`.

    Its tool servers have the folder in their environment, and are found by it.
    """
    environment = {
        **FAST,
        "AGENTS_CONFIG": str(folder / "agents"),
        "CAIPE_HOME": str(folder / "home"),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        **OPENAI.settings(model),
        **variables,
    }
    async with (
        serve_app(build_app(Settings.from_variables(environment), environment)) as url,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
    ):
        yield Client(url, http)


@contextlib.asynccontextmanager
async def run_server_process(*command: str, **env: str) -> AsyncIterator[tuple[Program, Client]]:
    """A server process and a client for it; it finds a free port."""
    async with (
        start_command(*command, env={"A2A_PORT": "0", **env}) as process,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
    ):
        match = await process.wait_for_stderr(r"serving on (http://\S+)")
        url = match[1]
        await http.get(f"{url}health")  # it listens before it is up
        yield process, Client(url, http)


def model_of(server: ModelServer) -> dict[str, str]:
    """The scripted model for a process."""
    return {
        "LLM_MODEL": "openai:scripted",
        "OPENAI_BASE_URL": server.url,
        "OPENAI_API_KEY": "scripted",
        **FAST,
    }


def real_server() -> dict[str, Any]:
    command, *args = forked_python(REAL)
    return {"command": command, "args": args, "env": network_guard_environment()}


def write_agent_definition(
    folder: Path, name: str, server: Mapping[str, Any] | None = None, **more: Any
) -> None:
    """Writes the definition of an agent with an MCP server of its own."""
    folder.mkdir(exist_ok=True)
    definition: dict[str, Any] = {"name": name, "description": f"Knows {name}."}
    if "url" not in more or server is not None:
        definition["mcpServers"] = {name: dict(server or real_server())}
    definition |= more
    (folder / f"{name}.json").write_text(json.dumps(definition))


class CastingByTools(Casting):
    """One model for all: a supervisor's request has the tool that delegates, an agent's has not."""

    def __init__(self, supervisor: Casting, agents: Casting) -> None:
        self._supervisor = supervisor
        self._agents = agents

    def choose(self, request: Request) -> Script:
        if "task" in request.tools:
            return self._supervisor.choose(request)
        return self._agents.choose(request)


async def read_readiness(client: Client) -> dict[str, Any]:
    response = await client.http.get(f"{client.url}ready")
    report: dict[str, Any] = response.json()
    return report


async def eventually(look: Callable[[], Any], done: Callable[[Any], bool]) -> Any:
    """Looks again until it is so; for states of other processes, which have no event to wait for."""
    async with asyncio.timeout(120):
        while True:
            state = await look()
            if done(state):
                return state
            await asyncio.sleep(0.02)
