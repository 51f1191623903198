"""A supervisor for clients of others, which run as processes: questions with a tool, a delegation, a form, an
approval, and one that takes as long as the test wants."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import interrupt
from starlette.types import ASGIApp, Receive, Scope, Send

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from tests.support.asking_agent import Repos
from tests.support.echo_supervisor import FORM, BlockingScenario, VersionScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.harness import agent, serve_app

PROGRAMS = Path(__file__).parent / "fakes"
NARRATION = "Let me look. "

# What a client asks; the model's script is chosen by it.
VERSION = "Which version?"
FORM_QUESTION = "Create a repo with a form."
APPROVAL = "Create a repo now."
DELEGATION = "Ask the agent."
WAIT = "Wait."
HOLD = "Hold."

_SECONDS = 180.0  # a loaded machine takes long to import a framework


@dataclass
class ClientStage:
    """The tools behind the supervisor, and what they were called with."""

    version: VersionScenario = field(default_factory=VersionScenario)
    waiting: BlockingScenario = field(default_factory=BlockingScenario)
    holding: BlockingScenario = field(default_factory=BlockingScenario)  # never let go
    repos: Repos = field(default_factory=Repos)
    url: str = ""
    paths: set[str] = field(default_factory=set)  # that were requested

    @property
    def tools(self) -> list[BaseTool]:
        return [self.version.tool, self.waiting.tool, _rename(self.holding.tool, "hold"), _form_tool()]

    @property
    def agents(self) -> list[Any]:
        creating = Script(
            Turn(Call("create_repo", {"name": "blog", "stars": 1}, id="c0")),
            Turn(Say("{{tool:create_repo}}")),
        )
        looking = Script(
            Turn(Say("I look. "), Call("agent_version")), Turn(Say("{{tool:agent_version.version}} runs."))
        )
        return [
            agent("github", creating, self.repos.tool),
            agent("argocd", looking, _rename(self.version.tool, "agent_version")),
        ]

    @property
    def book(self) -> Book:
        return Book(
            {
                VERSION: self.version.script,
                WAIT: self.waiting.script,
                HOLD: Script(Turn(Say("Please hold. "), Call("hold")), Turn(Say("Held."))),
                FORM_QUESTION: Script(
                    Turn(Say("One moment. "), Call("ask_form")), Turn(Say("Made {{tool:ask_form.repo}}."))
                ),
                APPROVAL: _delegate("github", "So: {{tool:github}}"),
                DELEGATION: _delegate("argocd", "Argo CD says: {{tool:argocd}}"),
            }
        )


def _delegate(name: str, answer: str) -> Script:
    call = Call("task", {"description": "Go on.", "subagent_type": name})
    return Script(Turn(Say(NARRATION), call), Turn(Say(answer)))


def _rename(tool: BaseTool, name: str) -> BaseTool:
    return tool.model_copy(update={"name": name})


def _form_tool() -> BaseTool:
    async def ask_form() -> str:
        """Asks."""
        return json.dumps(interrupt(FORM))

    return StructuredTool.from_function(coroutine=ask_form, name="ask_form")


class _PathRecorder:
    """Records the paths of requests."""

    def __init__(self, app: ASGIApp, paths: set[str]) -> None:
        self._app = app
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._paths.add(scope["path"])
        await self._app(scope, receive, send)


@contextlib.asynccontextmanager
async def serve_stage(env: Mapping[str, str] | None = None) -> AsyncIterator[ClientStage]:
    """The supervisor on a loopback port that its card names."""
    stage = ClientStage()
    listener = socket.create_server(("127.0.0.1", 0))
    settings = Settings.from_variables(
        {"A2A_PORT": str(listener.getsockname()[1]), "STREAM_COALESCE_SECONDS": "0", **(env or {})}
    )
    model = ScriptedChatModel(script=stage.book)
    app = create_app(settings, agents=stage.agents, tools=stage.tools, model=model)
    app.add_middleware(_PathRecorder, paths=stage.paths)
    async with serve_app(app, listener) as url:
        stage.url = url
        yield stage


async def run_program(
    command: list[str], stage: ClientStage, env: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """The lines of JSON that the client's program prints; at `subscribed` the waiting tool is let go."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=env
    )
    assert process.stdout is not None
    assert process.stderr is not None
    lines: list[dict[str, Any]] = []
    errors = asyncio.create_task(process.stderr.read())
    try:
        async with asyncio.timeout(_SECONDS):
            async for raw in process.stdout:
                if not raw.startswith(b"{"):
                    continue  # a framework's own words
                line = json.loads(raw)
                if line.get("subscribed"):
                    stage.waiting.released.set()
                else:
                    lines.append(line)
            code = await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    assert code == 0, (await errors).decode()[-4000:]
    return lines
