"""An agent with a very large tool server, in the supervisor's process or as a service, and the supervisor
that delegates every question to it."""

import contextlib
import json
import re
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent_service import (
    build_service,
)
from tests.support.agent_services import (
    CastingByTools,
    Where,
    run_supervisor,
    write_agent_definition,
)
from tests.support.dialects import V10
from tests.support.fakes.mcp_servers import FAKES
from tests.support.fakes.request import Request
from tests.support.fakes.script import Book, Call, Casting, Say, Script, Turn
from tests.support.fakes.serving import ModelServer
from tests.support.harness import FAST, Client, ReceivedStream, serve_app
from tests.support.providers import OPENAI

NAME = "fleet"
_RESULT_ID = re.compile(r"Stored result (r-[0-9a-f]+):")
_DELEGATING = Script(
    Turn(Call("task", {"description": "{{user}}", "subagent_type": NAME})), Turn(Say("{{tool:fleet}}"))
)


@dataclass
class FleetAgent:
    """The agent's scripts by pattern of its question, and what its model and its tool server were asked."""

    folder: Path
    scripts: Mapping[str, Script]
    where: Where = "in-process"
    odd: str = field(default_factory=lambda: f"odd-{secrets.token_hex(4)}")

    @property
    def casting(self) -> Casting:
        return CastingByTools(_DELEGATING, Book(self.scripts))

    @property
    def calls(self) -> list[list[Any]]:
        """What arrived at the tool server."""
        file = self.folder / "calls.jsonl"
        if not file.exists():
            return []
        return [json.loads(line) for line in file.read_text().splitlines()]

    def write_definition(self) -> None:
        arguments = ["-S", str(FAKES / "mcp_fleet.py"), str(self.folder / "calls.jsonl"), self.odd]
        server = {"command": sys.executable, "args": arguments}
        write_agent_definition(self.folder / "agents", NAME, server)

    @contextlib.asynccontextmanager
    async def run(self, **variables: str) -> AsyncIterator[tuple[ModelServer, Client]]:
        """The supervisor with the agent; reentrant, with what the folder holds."""
        self.write_definition()
        variables = {"MCP_SANDBOX": "off", "ASK_ON_UNTRUSTED_CONTENT": "true", **variables}
        async with OPENAI.serve(self.casting) as model, contextlib.AsyncExitStack() as stack:
            if self.where == "remote":
                url = await stack.enter_async_context(self._serve(model, variables))
                variables |= {"DISTRIBUTED_AGENTS": NAME, "FLEET_AGENT_URL": url}
            yield model, await stack.enter_async_context(run_supervisor(self.folder, model, **variables))

    @contextlib.asynccontextmanager
    async def _serve(self, model: ModelServer, variables: Mapping[str, str]) -> AsyncIterator[str]:
        environment = {
            **FAST,
            "AGENTS_CONFIG": str(self.folder / "agents"),
            "CAIPE_HOME": str(self.folder / "service"),
            "HOME": str(self.folder),
            **OPENAI.settings(model),
            **variables,
        }
        async with serve_app(build_service(NAME, Settings.from_variables(environment), environment)) as url:
            yield url


async def ask(client: Client, text: str, **more: Any) -> ReceivedStream:
    return await _send(client, text, **more)


async def decide(client: Client, stream: ReceivedStream, **decision: Any) -> ReceivedStream:
    """Answers the one request of a run; what follows."""
    [request] = [frame.artifact for frame in stream.named("UserInputMetaData")]
    data = next(part for part in request["parts"] if "data" in part)["data"]
    answer = {"digest": data["digest"], **decision}
    return await _send(client, V10.data({"resume": {data["request_id"]: answer}}), taskId=stream.task_id)


async def _send(client: Client, part: Any, **more: Any) -> ReceivedStream:
    return ReceivedStream([frame async for frame in client.open(V10.stream, V10.message(part, **more))])


def agent_requests(model: ModelServer) -> list[Request]:
    """The requests of the agent, without the supervisor's."""
    return [request for request in model.requests if "task" not in request.tools]


def schema_chars(request: Request) -> int:
    """The characters of the tools part of a request's body."""
    return len(json.dumps(request.raw["tools"], ensure_ascii=False))


def body_chars(request: Request) -> int:
    return len(json.dumps(request.raw, ensure_ascii=False))


def read_result_id(request: Request) -> str:
    """The id of the last stored result in the conversation."""
    return _RESULT_ID.findall("\n".join(message.text for message in request.messages))[-1]


def on_result(tool: str, **arguments: Any) -> Callable[[Request], Turn]:
    """A turn that calls a tool for the stored result of the conversation."""
    return lambda request: Turn(Call(tool, {"result_id": read_result_id(request), **arguments}))
