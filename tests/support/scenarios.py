"""The shared parts of scenario tests: scripted agents behind any kind of model, and reading of the stream."""

import contextlib
import functools
import itertools
import json
import ssl
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import httpx
import pytest
import trustme
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool, StructuredTool

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from tests.support.fakes.anthropic_server import AnthropicServer
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.openai_server import OpenAIServer
from tests.support.fakes.request import Request
from tests.support.fakes.script import Book, Call, Casting, Gate, Say, Script, Turn
from tests.support.fakes.serving import ModelServer, serving
from tests.support.harness import FAST, Client, Frame, ReceivedStream, agent, serve_app

SUPERVISOR = "supervisor"
KINDS = ("in-process", "openai", "anthropic")
VERSIONS = ("0.3", "1.0")
# Each kind of model and each version of the protocol, where not every pair has to be tried.
PAIRS = (("in-process", "0.3"), ("in-process", "1.0"), ("openai", "1.0"), ("anthropic", "0.3"))
_COUNT = itertools.count()
_NO_TLS = ssl.SSLContext(
    ssl.PROTOCOL_TLS_CLIENT
)  # all is plain HTTP on loopback: no certificates need to be loaded
NOTIFICATIONS = ("tool_notification_start", "tool_notification_end")


# --- a team and its models ------------------------------------------------------------------------


@dataclass(frozen=True)
class ScriptedAgent:
    """A domain agent with a scripted model: its script, its tools and its own sub-agents."""

    name: str
    script: Casting
    tools: tuple[BaseTool, ...] = ()
    members: "tuple[ScriptedAgent, ...]" = ()

    def walk(self) -> Iterator["ScriptedAgent"]:
        """The agent and all agents below it."""
        yield self
        for member in self.members:
            yield from member.walk()


@dataclass(frozen=True)
class ScriptedSystem:
    """A running supervisor: its client, and the requests that the models behind it received."""

    client: Client
    read_requests: Callable[[str], list[Request]]

    def requests(self, name: str = SUPERVISOR) -> list[Request]:
        """The requests to one agent's model, in order."""
        return self.read_requests(name)

    async def ask(self, text: str = "Which?", **options: Any) -> ReceivedStream:
        return await self.client.ask(text, **options)


def scripted_agent(
    name: str, script: Casting, *tools: BaseTool, members: Sequence[ScriptedAgent] = ()
) -> ScriptedAgent:
    return ScriptedAgent(name, script, tools, tuple(members))


@contextlib.asynccontextmanager
async def run_scripted_system(
    script: Casting,
    *members: ScriptedAgent,
    kind: str = "in-process",
    tools: Sequence[BaseTool] = (),
    env: Mapping[str, str] | None = None,
    key: str = "test-key",
    accepted_key: str | None = None,
    streaming: bool = True,
    wrap: Callable[[Any], Any] = lambda app: app,
) -> AsyncIterator[ScriptedSystem]:
    """The real supervisor and its agents on a loopback port, with scripted models in the process or over
    HTTP.
    """
    castings = {SUPERVISOR: script}
    for member in members:
        castings |= {scripted.name: scripted.script for scripted in member.walk()}
    if kind == "in-process":
        models = {
            name: ScriptedChatModel(script=casting, model=name, streaming=streaming)
            for name, casting in castings.items()
        }
        agents = [_with_own_model(member, models) for member in members]
        async with _run_server(wrap, agents, tools, models[SUPERVISOR], env or {}) as client:
            yield ScriptedSystem(client, lambda name: models[name].requests)
        return
    make = OpenAIServer if kind == "openai" else _Anthropic
    async with serving(make(Book.for_model(castings), api_key=accepted_key)) as server:
        with pytest.MonkeyPatch.context() as patch:
            # The providers' clients read these themselves.
            patch.setenv(f"{kind.upper()}_BASE_URL", server.url)
            patch.setenv(f"{kind.upper()}_API_KEY", key)
            patch.setenv("SSL_CERT_FILE", _one_certificate().name)
            agents = [_with_named_model(member, kind) for member in members]
            # LangChain keeps one HTTP client per timeout for the whole process, and each test has an event
            # loop of its own.
            own = {"LLM_MODEL": f"{kind}:{SUPERVISOR}", "LLM_TIMEOUT_SECONDS": f"60.{next(_COUNT):06}"}
            async with _run_server(wrap, agents, tools, None, {**own, **(env or {})}) as client:
                yield ScriptedSystem(client, lambda name: _requests(server, name))


@functools.cache
def _one_certificate() -> IO[bytes]:
    """A file with one certificate: every client of a provider loads a whole bundle of them, for
    connections that nobody makes here.
    """
    file = tempfile.NamedTemporaryFile(suffix=".pem")  # noqa: SIM115 - gone when the process ends
    file.write(trustme.CA().cert_pem.bytes())
    file.flush()
    return file


class _Anthropic(AnthropicServer):
    """Takes the key also as a bearer token, which is how the current client sends it."""

    def given_key(self, headers: Mapping[str, str]) -> str | None:
        return super().given_key(headers) or headers.get("authorization", "").removeprefix("Bearer ") or None


def _requests(server: ModelServer, name: str) -> list[Request]:
    return [request for request in server.requests if request.model == name]


def _with_own_model(member: ScriptedAgent, models: Mapping[str, BaseChatModel]) -> LocalAgent:
    subagents = [_with_own_model(inner, models) for inner in member.members]
    return agent(member.name, models[member.name], *member.tools, agents=subagents)


def _with_named_model(member: ScriptedAgent, provider: str) -> LocalAgent:
    subagents = [_with_named_model(inner, provider) for inner in member.members]
    return agent(member.name, None, *member.tools, agents=subagents, model=f"{provider}:{member.name}")


@contextlib.asynccontextmanager
async def _run_server(
    wrap: Callable[[Any], Any],
    agents: Sequence[LocalAgent],
    tools: Sequence[BaseTool],
    model: BaseChatModel | None,
    env: Mapping[str, str],
) -> AsyncIterator[Client]:
    app = create_app(Settings.from_variables({**FAST, **env}), agents=agents, tools=tools, model=model)
    async with serve_app(wrap(app)) as url, httpx.AsyncClient(timeout=120, verify=_NO_TLS) as http:
        yield Client(url, http)


# --- values, tools and calls ----------------------------------------------------------------------


def token(prefix: str = "v") -> str:
    """A word that no other run and no other text has."""
    return f"{prefix}{uuid.uuid4().hex[:12]}"


def tool(name: str, answer: str | Callable[..., Awaitable[str]]) -> BaseTool:
    """A tool that returns this text, or what this function returns."""

    async def fixed() -> str:
        return str(answer)

    return StructuredTool.from_function(
        coroutine=fixed if isinstance(answer, str) else answer, name=name, description=f"Gives {name}."
    )


def delegate(
    name: str, description: str = "Do it.", *, id: str | None = None, step_id: str | None = None
) -> Call:
    """The supervisor's call of an agent."""
    step = {} if step_id is None else {"step_id": step_id}
    return Call("task", {"subagent_type": name, "description": description, **step}, id=id)


def version_team(value: str, *narrations: str) -> tuple[Script, ScriptedAgent]:
    """A supervisor that asks Argo CD for its version, which only the tool knows, and answers with it."""
    narration = [Say(text) for text in narrations]
    argocd = scripted_agent(
        "argocd",
        Script(
            Turn(Call("version_service__version", {}, id="inner")),
            Turn(Say("Argo CD has version={{tool:version_service__version.version}}")),
        ),
        tool("version_service__version", f"version={value}"),
    )
    return Script(
        Turn(*narration, delegate("argocd", id="outer")), Turn(Say("It runs {{tool:argocd.version}}"))
    ), argocd


# --- reading --------------------------------------------------------------------------------------


async def collect_frames(frames: AsyncIterator[Frame], gate: Gate, *names: str) -> ReceivedStream:
    """Everything that arrives; the text of the named artifacts is reported to the gate the moment it is
    there.
    """
    received: list[Frame] = []
    async for frame in frames:
        received.append(frame)
        if frame.name in names:
            gate.seen(frame.text)
    return ReceivedStream(received)


def read_event_metadata(frame: Frame) -> dict[str, Any]:
    """Our event as the frame's metadata carries it, before anything is filled in."""
    carried = frame.metadata.get("caipe.event")
    return dict(json.loads(carried)) if carried else {}


def data_of(frame: Frame) -> list[Any]:
    """The data parts of an artifact, whatever the protocol version."""
    return [part["data"] for part in frame.artifact.get("parts") or () if "data" in part]


def plans(stream: ReceivedStream) -> list[dict[str, Any]]:
    """The plan each time it was sent."""
    return [data_of(frame)[0] for frame in stream.named("execution_plan_update")]


def frames_of_call(stream: ReceivedStream, call_id: str) -> list[Frame]:
    """The frames of one delegation: its start, all that happened inside, its end."""
    frames: list[Frame] = []
    for frame in stream.frames:
        frame_call_id = str(frame.metadata.get("tool_call_id") or "")
        if frame_call_id == call_id or frame_call_id.startswith(f"{call_id}/"):
            frames.append(frame)
    return frames
