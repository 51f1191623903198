"""Shipped agents with their real tool servers on the demo estate, in the supervisor's process or as services.

A tool server has the network guard in its environment: a connection beyond this machine fails the test.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ai_platform_engineering.agents.agent_catalog import load_catalog
from ai_platform_engineering.agents.installed_commands import missing_commands, resolve_commands
from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.demo.estate.stand_in import RunningStandIn, StandIn
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent, McpTools
from tests.conftest import need
from tests.support.agent_services import CastingByTools, Where, place_agent
from tests.support.dialects import V10
from tests.support.fakes.mcp_servers import (
    LONG,
    child_test_environment,
    list_processes,
    network_guard_environment,
)
from tests.support.fakes.script import Book, Call, Casting, Say, Script, Turn
from tests.support.harness import Client, ReceivedStream, serve_app, supervisor
from tests.support.providers import OPENAI
from tests.support.real_servers import SERVERS_HOME


@dataclass(frozen=True, slots=True)
class EstateServers:
    """Stand-ins on loopback and the sessions of the tool servers that are pointed to them."""

    urls: Mapping[str, str]
    definitions: Mapping[str, AgentDefinition]
    sessions: McpSessionPool

    def agent(self, name: str) -> LocalAgent:
        definition = self.definitions[name]
        return LocalAgent(definition, McpTools(self.sessions, definition))


@contextlib.asynccontextmanager
async def run_estate_servers(
    folder: Path, stand_ins: Mapping[StandIn, Any], start_seconds: float = 120
) -> AsyncIterator[EstateServers]:
    """The applications of the stand-ins; their tool servers start on first use and are shared."""
    urls: dict[str, str] = {}
    variables: dict[str, str] = {}
    async with contextlib.AsyncExitStack() as stack:
        for stand_in, app in stand_ins.items():
            url = await stack.enter_async_context(serve_app(app))
            urls[stand_in.name] = url
            variables |= stand_in.variables(RunningStandIn(url, folder))
        definitions = {name: _load_definition(name, variables) for name in urls}
        environment = child_test_environment(folder)
        sessions = McpSessionPool(connect_timeout=start_seconds, call_timeout=LONG, environment=environment)
        stack.push_async_callback(sessions.aclose)
        yield EstateServers(urls, definitions, sessions)
    assert list_processes(folder) == {}


def _load_definition(name: str, variables: Mapping[str, str]) -> AgentDefinition:
    entry = load_catalog(variables, agents_config=None).get(name)
    assert entry is not None
    assert entry.missing == ()
    missing = missing_commands(entry.definition, SERVERS_HOME)
    need(", ".join(missing), not missing, "`make servers` installs it")
    definition = resolve_commands(entry.definition, SERVERS_HOME)
    guard = network_guard_environment()
    servers = {
        server_name: server.model_copy(update={"env": {**server.env, **guard}})
        for server_name, server in definition.mcp_servers.items()
    }
    return definition.model_copy(update={"mcp_servers": servers})


def delegate(agent: str, text: str) -> Script:
    """A supervisor's model that gives one agent a task and repeats its answer."""
    return Script(
        Turn(Call("task", {"description": text, "subagent_type": agent})),
        Turn(Say(f"So: {{{{tool:{agent}}}}}")),
    )


@dataclass(frozen=True, slots=True)
class EstateSupervisor:
    """A supervisor with agents on the estate, and what its models have refused."""

    client: Client
    refusals: Sequence[str]

    async def ask(self, text: str) -> ReceivedStream:
        return await self._send(text)

    async def decide(self, stream: ReceivedStream, decision: str) -> ReceivedStream:
        """Answers the one request for approval."""
        [request] = [frame.artifact["parts"][0]["data"] for frame in stream.named("UserInputMetaData")]
        answer = {"resume": {request["request_id"]: {"type": decision}}}
        return await self._send(V10.data(answer), taskId=stream.task_id)

    async def _send(self, part: Any, **more: Any) -> ReceivedStream:
        message = V10.message(part, **more)
        return ReceivedStream([frame async for frame in self.client.open(V10.stream, message)])


@contextlib.asynccontextmanager
async def run_estate_supervisor(
    servers: EstateServers,
    where: Where,
    supervisor_model: Casting,
    agents: Mapping[str, Mapping[str, Script]],
) -> AsyncIterator[EstateSupervisor]:
    """`agents` are scripts by the text of the task, for each agent; one model over HTTP plays all."""
    tasks = {pattern: script for scripts in agents.values() for pattern, script in scripts.items()}
    async with OPENAI.serve(CastingByTools(supervisor_model, Book(tasks))) as model:
        settings = OPENAI.settings(model)
        async with contextlib.AsyncExitStack() as stack:
            placed: list[Any] = []
            for name in agents:
                agent = place_agent(servers.agent(name), where, **settings)
                placed.append(await stack.enter_async_context(agent))
            client = await stack.enter_async_context(supervisor(None, agents=placed, env=settings))
            yield EstateSupervisor(client, model.refusals)
