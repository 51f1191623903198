"""The server under test on a loopback port, and what leaves it, byte by byte."""

import asyncio
import contextlib
import json
import socket
import ssl
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from ai_platform_engineering.a2a.codec import decode
from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.events import AnyEvent
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent, StaticTools
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.net.http_connections import server_options
from ai_platform_engineering.skills_middleware.skill_catalog import SkillCatalog
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Script

# A knowledge base costs a second of work at each start; the tests that are about it switch it on.
# Tools of tests say nothing of their effects, so they count as writing: each second call would ask a person.
# The tests that are about asking switch that on.
# The fake tool servers leave signs in files, which a sandbox would not let them do. The tests that are about
# their check switch it on.
FAST = {
    "LLM_RETRY_SECONDS": "0",
    "SHUTDOWN_SECONDS": "0",
    "ENABLE_RAG": "false",
    "ASK_ON_UNTRUSTED_CONTENT": "false",
    "MCP_SANDBOX": "off",
    "MCP_CHECK_SERVERS": "false",
}
ASKING = {"ASK_ON_UNTRUSTED_CONTENT": "true"}
PLAIN = ssl.SSLContext(
    ssl.PROTOCOL_TLS_CLIENT
)  # the wire is plain HTTP: no client need load the world's certificates


def agent(
    name: str,
    script: Script | BaseChatModel | None,
    *tools: BaseTool,
    agents: Sequence[LocalAgent] = (),
    model: str | None = None,
) -> LocalAgent:
    """A domain agent with a scripted model, a given one, or a named one (`provider:model`)."""
    own = ScriptedChatModel(script=script) if isinstance(script, Script) else script
    definition = AgentDefinition(name=name, description=f"Knows {name}.", model=model)
    return LocalAgent(definition, StaticTools(tools), own, tuple(agents))


@contextlib.asynccontextmanager
async def serve_app(app: Any, listener: socket.socket | None = None) -> AsyncIterator[str]:
    """The application on an ephemeral loopback port, or on the socket given; its address."""
    listener = listener or socket.create_server(("127.0.0.1", 0))
    options = server_options(app.connection_limits) if hasattr(app, "connection_limits") else {}
    config = uvicorn.Config(app, log_level="warning", **options)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    # The steps of serve() and shutdown() without their fixed waits, which would be most of a test's time.
    await server.startup(sockets=[listener])
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        if hasattr(app, "streams"):
            app.streams.cancel_all()
        for listening in server.servers:
            listening.close()
        for connection in list(server.server_state.connections):
            connection.shutdown()
        await _closed(server.server_state)
        await server.lifespan.shutdown()


async def _closed(state: Any) -> None:
    """Waits for open requests, and breaks them off when they take too long, as uvicorn does."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(3):
            while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.002)
    for task in list(state.tasks):
        task.cancel()
    await asyncio.gather(*state.tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def supervisor(
    model: Script | BaseChatModel | None,
    *,
    agents: Sequence[LocalAgent] = (),
    tools: Sequence[BaseTool] = (),
    env: Mapping[str, str] | None = None,
    skills: SkillCatalog | None = None,
) -> AsyncIterator["Client"]:
    """The real supervisor with a scripted (or given) model behind the real A2A server, and a client for its
    wire."""
    chosen = ScriptedChatModel(script=model) if isinstance(model, Script) else model
    app = create_app(
        Settings.from_variables({**FAST, **(env or {})}),
        agents=agents,
        tools=tools,
        model=chosen,
        skills=skills,
    )
    async with serve_app(app) as url, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
        yield Client(url, http)


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event as it came."""

    id: str | None
    raw: bytes
    body: dict[str, Any]

    @property
    def result(self) -> dict[str, Any]:
        return self.body.get("result") or {}

    @property
    def update(self) -> dict[str, Any]:
        """The payload, whatever the protocol version."""
        return next(
            (self.result[key] for key in ("task", "statusUpdate", "artifactUpdate") if key in self.result),
            self.result,
        )

    @property
    def artifact(self) -> dict[str, Any]:
        return self.update.get("artifact") or {}

    @property
    def name(self) -> str | None:
        return self.artifact.get("name")

    @property
    def text(self) -> str:
        return "".join(part.get("text") or "" for part in self.artifact.get("parts") or ())

    @property
    def metadata(self) -> dict[str, Any]:
        return self.artifact.get("metadata") or self.update.get("metadata") or {}

    @property
    def state(self) -> str | None:
        """The state of a status update or a task, in the words of protocol 0.3."""
        state = (self.update.get("status") or {}).get("state")
        return state.removeprefix("TASK_STATE_").lower().replace("_", "-") if state else None

    @property
    def status_text(self) -> str:
        """The text of a status message."""
        message = (self.update.get("status") or {}).get("message") or {}
        return "".join(part.get("text") or "" for part in message.get("parts") or ())

    @property
    def events(self) -> list[tuple[int, AnyEvent]]:
        return decode(self.result)


@dataclass(slots=True)
class Client:
    """A plain JSON-RPC client over HTTP, independent of our client and of the SDK."""

    url: str
    http: httpx.AsyncClient
    headers: dict[str, str] = field(default_factory=dict)

    def message(self, text: str, version: str = "0.3", **more: Any) -> dict[str, Any]:
        message_id = more.pop("messageId", None) or str(uuid.uuid4())
        if version == "0.3":
            return {
                "role": "user",
                "parts": [{"kind": "text", "text": text}],
                "messageId": message_id,
                **more,
            }
        return {"role": "ROLE_USER", "parts": [{"text": text}], "messageId": message_id, **more}

    async def call(self, method: str, params: Any, **headers: str) -> dict[str, Any]:
        """One JSON-RPC request; the whole answer."""
        body = {"jsonrpc": "2.0", "id": "1", "method": method, "params": params}
        response = await self.http.post(self.url, json=body, headers=self._headers(method, headers))
        answer: dict[str, Any] = response.json()
        return answer

    async def open(self, method: str, params: Any, **headers: str) -> AsyncIterator[Frame]:
        """A streaming request; frames as they arrive."""
        body = {"jsonrpc": "2.0", "id": "1", "method": method, "params": params}
        async with self.http.stream(
            "POST", self.url, json=body, headers=self._headers(method, headers)
        ) as response:
            async for frame in read_frames(response):
                yield frame

    def stream(
        self, text: str, *, version: str = "0.3", headers: Mapping[str, str] | None = None, **more: Any
    ) -> AsyncIterator[Frame]:
        """Asks and follows."""
        method = "message/stream" if version == "0.3" else "SendStreamingMessage"
        return self.open(method, {"message": self.message(text, version, **more)}, **(headers or {}))

    async def ask(self, text: str, *, version: str = "0.3", **more: Any) -> "ReceivedStream":
        """Asks and collects everything that leaves the server until the stream ends."""
        return ReceivedStream([frame async for frame in self.stream(text, version=version, **more)])

    def _headers(self, method: str, headers: Mapping[str, str]) -> dict[str, str]:
        # With our extension, as our own clients do: without it a client of 1.0 gets the plain shape.
        version = {} if "/" in method else {"A2A-Version": "1.0", "A2A-Extensions": "urn:caipe:events:1"}
        return {
            **self.headers,
            **version,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }


async def read_frames(response: httpx.Response) -> AsyncIterator[Frame]:
    """Server-sent events from raw bytes; comments are skipped."""
    buffer = b""
    async for piece in response.aiter_bytes():
        buffer += piece
        while b"\n\n" in buffer:
            raw, _, buffer = buffer.partition(b"\n\n")
            fields = dict(line.split(b": ", 1) for line in raw.split(b"\n") if not line.startswith(b":"))
            if b"data" in fields:
                number = fields[b"id"].decode() if b"id" in fields else None
                yield Frame(number, raw, json.loads(fields[b"data"]))


@dataclass(frozen=True, slots=True)
class ReceivedStream:
    """All frames of a stream, with the questions that tests ask of them."""

    frames: list[Frame]

    @property
    def raw(self) -> bytes:
        return b"\n\n".join(frame.raw for frame in self.frames)

    @property
    def events(self) -> list[AnyEvent]:
        return [event for frame in self.frames for _, event in frame.events]

    @property
    def task_id(self) -> str:
        first = self.frames[0].update
        return str(first.get("id") or first.get("taskId"))

    @property
    def context_id(self) -> str:
        return str(self.frames[0].update["contextId"])

    @property
    def states(self) -> list[str]:
        return [frame.state for frame in self.frames if frame.state and not frame.artifact]

    @property
    def last(self) -> Frame:
        return self.frames[-1]

    def named(self, *names: str) -> list[Frame]:
        return [frame for frame in self.frames if frame.name in names]

    def texts(self, *names: str) -> list[str]:
        return [frame.text for frame in self.named(*names)]

    @property
    def notifications(self) -> list[str]:
        """The notification words, in order."""
        return self.texts("tool_notification_start", "tool_notification_end")

    @property
    def streamed_texts(self) -> list[str]:
        """The supervisor's texts as a client of the wire joins them: one per artifact, replaced when not
        appended."""
        return joined(self.named("streaming_result"))

    @property
    def answer(self) -> str:
        final = self.named("final_result")
        assert len(final) == 1, f"{len(final)} final results"
        return final[0].text


def joined(frames: Iterable[Frame]) -> list[str]:
    texts: dict[str, str] = {}
    for frame in frames:
        key = frame.artifact["artifactId"]
        texts[key] = texts.get(key, "") + frame.text if frame.update.get("append") else frame.text
    return [text for text in texts.values() if text]
