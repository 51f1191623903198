"""PLACEMENT_FALLBACK: an agent runs in the supervisor's process when its service is gone before it took
the work, and never after.
"""

import asyncio
import contextlib
import json
import random
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.core.events import Notice
from tests.support.agent_services import run_agent_service, run_supervisor, write_agent_definition
from tests.support.fakes.mcp_servers import list_server_pids
from tests.support.fakes.openai_server import OpenAIServer
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.harness import Client, agent
from tests.support.ports import closed_port, free_port
from tests.support.providers import OPENAI
from tests.support.server_starts import is_server_start

NUMBER = random.randint(10**6, 10**9)
ASSIGNMENT = f"double {NUMBER}"
BOOK = Book(
    {f"^{ASSIGNMENT}$": Script(Turn(Call("double", {"number": NUMBER})), Turn(Say("{{tool:double}}")))},
    default=Script(
        Turn(Call("task", {"description": ASSIGNMENT, "subagent_type": "sums"})),
        Turn(Say("So: {{tool:sums}}")),
    ),
)
SHOWN_HERE = ["🔧 Sums: Calling tool: Double\n", "✅ Sums: Tool Double completed\n"]
FAILED = ["🔧 Supervisor: Calling Agent Sums...\n", "❌ Supervisor: Sums failed\n"]


@dataclass(slots=True)
class Fragile:
    """A service that has a card and does one thing when it is called: `body` is what it says before it is
    gone for good.
    """

    ours: bool
    body: bytes = b""
    calls: int = 0
    url: str = ""
    _server: asyncio.Server | None = field(default=None)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            if head.startswith("get"):
                writer.write(_response(json.dumps(self._card()).encode(), "application/json"))
            else:
                length = next(
                    int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length")
                )
                await reader.readexactly(length)
                self.calls += 1
                assert self._server is not None
                self._server.close()
                writer.write(self.body)
            await writer.drain()
        writer.close()

    def _card(self) -> dict[str, Any]:
        extensions = [{"uri": "urn:caipe:events:1"}] if self.ours else []
        return {
            "name": "Sums",
            "description": "Sums.",
            "version": "1",
            "supportedInterfaces": [
                {"url": self.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ],
            "capabilities": {"streaming": True, "extensions": extensions},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "s", "name": "s", "description": "s", "tags": ["s"]}],
        }


def _response(body: bytes, kind: str, status: str = "200 OK", length: int | None = None) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {length or len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _first_frame() -> bytes:
    task = {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_SUBMITTED"}}
    frame = json.dumps({"jsonrpc": "2.0", "id": "1", "result": {"task": task}})
    return _response(f"data: {frame}\n\n".encode(), "text/event-stream", length=10**6)


@contextlib.asynccontextmanager
async def fragile(ours: bool, body: bytes = b"") -> AsyncIterator[Fragile]:
    fake = Fragile(ours, body)
    fake._server = await asyncio.start_server(fake._connected, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{fake._server.sockets[0].getsockname()[1]}/"
    try:
        yield fake
    finally:
        fake._server.close()


@contextlib.asynccontextmanager
async def running(folder: Path, model: OpenAIServer, url: str, **variables: str) -> AsyncIterator[Client]:
    """The supervisor with the agent `sums` at an address; its tool server would be found by
    `servers_running`.
    """
    if not (folder / "agents").exists():
        write_agent_definition(folder / "agents", "sums")
    remote = {"DISTRIBUTED_AGENTS": "sums", "SUMS_AGENT_URL": url, "SKIP_AGENT_CONNECTIVITY_CHECK": "true"}
    async with run_supervisor(folder, model, **remote, **variables) as client:
        yield client


def assigned(model: OpenAIServer) -> int:
    """How often a model was asked to do the agent's work."""
    return sum(request.last_user == ASSIGNMENT for request in model.requests)


@contextlib.asynccontextmanager
async def answering(body: bytes | None) -> AsyncIterator[str]:
    """A server that gives one answer to everybody; without one it listens and says nothing."""
    released = asyncio.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if body is None:
            await released.wait()
        else:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(body)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        released.set()
        server.close()


@pytest.mark.sample(2)
@pytest.mark.parametrize("how", ["refuses", "is not up yet", "says nothing"])
async def test_an_unreachable_agent_runs_here_with_a_notice(tmp_path: Path, how: str) -> None:
    bodies = {
        "is not up yet": _response(b"later", "text/plain", "503 Service Unavailable"),
        "says nothing": None,
    }
    async with contextlib.AsyncExitStack() as stack:
        model = await stack.enter_async_context(OPENAI.serve(BOOK))
        refuses = how == "refuses"
        url = (
            f"http://127.0.0.1:{closed_port()}/"
            if refuses
            else await stack.enter_async_context(answering(bodies[how]))
        )
        variables = {"PLACEMENT_FALLBACK": "true", "AGENT_CONNECT_TIMEOUT_SECONDS": "0.5"}
        client = await stack.enter_async_context(running(tmp_path, model, url, **variables))
        stream = await client.ask("How much?")
        assert len(list_server_pids(tmp_path)) == 1
    assert stream.answer == f"So: {2 * NUMBER}"
    assert stream.notifications == [
        "🔧 Supervisor: Calling Agent Sums...\n",
        *SHOWN_HERE,
        "✅ Supervisor: Sums completed\n",
    ]
    (notice,) = [e for e in stream.events if isinstance(e, Notice) and not is_server_start(e)]
    assert (notice.code, notice.agent) == ("fallback", "sums")
    assert notice.text == "The service of sums cannot be reached; the agent runs in-process instead."
    assert notice.text in [frame.status_text for frame in stream.frames]
    assert url not in notice.text


async def test_without_the_setting_the_step_fails_and_nothing_runs_here(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{closed_port()}/"
    async with OPENAI.serve(BOOK) as model, running(tmp_path, model, url) as client:
        stream = await client.ask("How much?")
        assert list_server_pids(tmp_path) == []
    assert stream.answer == f"So: Agent sums failed: {url} cannot be reached: nothing listens at its address."
    assert (stream.notifications, assigned(model)) == (FAILED, 0)
    assert [event for event in stream.events if isinstance(event, Notice)] == []


async def test_a_service_that_is_back_is_used_again_and_both_places_remember_for_themselves(
    tmp_path: Path,
) -> None:
    port = free_port()
    async with (
        OPENAI.serve(BOOK) as model,
        running(tmp_path, model, f"http://127.0.0.1:{port}/", PLACEMENT_FALLBACK="true") as client,
    ):
        first = await client.ask("How much?")
        far = agent("sums", Script(Turn(Say("from afar"))))
        async with run_agent_service(far, socket.create_server(("127.0.0.1", port))) as there:
            second = await client.ask("And now?", contextId=first.context_id)
        third = await client.ask("And now?", contextId=first.context_id)
    assert [stream.answer for stream in (first, second, third)] == [
        f"So: {2 * NUMBER}",
        "So: from afar",
        f"So: {2 * NUMBER}",
    ]
    assert [
        [e.code for e in stream.events if isinstance(e, Notice) and not is_server_start(e)]
        for stream in (first, second, third)
    ] == [
        ["fallback"],
        [],
        ["fallback"],
    ]
    assert len(there.messages()) == 1
    histories = [
        request.messages
        for request in model.requests
        if request.last_user == ASSIGNMENT and request.position == 0
    ]
    assert [len(messages) for messages in histories] == [1, 5]


@pytest.mark.sample(2)
@pytest.mark.parametrize("ours", [True, False], ids=["ours", "a third-party agent"])
@pytest.mark.parametrize("body", [b"", _first_frame()], ids=["without a word", "after the first frame"])
async def test_work_that_was_accepted_is_never_done_here_as_well(
    tmp_path: Path, ours: bool, body: bytes
) -> None:
    # A server of ours, and a task that has begun, are asked for again for a while.
    patience = {"AGENT_TIMEOUT_SECONDS": "2"} if ours or body else {}
    async with (
        OPENAI.serve(BOOK) as model,
        fragile(ours, body) as fake,
        running(tmp_path, model, fake.url, PLACEMENT_FALLBACK="true", **patience) as client,
    ):
        stream = await client.ask("How much?")
        assert list_server_pids(tmp_path) == []
    assert (stream.notifications, assigned(model), fake.calls) == (FAILED, 0, 1)
    assert stream.answer.startswith("So: Agent sums failed: ")
    assert [event for event in stream.events if isinstance(event, Notice)] == []


async def test_an_agent_whose_variables_only_the_service_has_does_not_run_here(tmp_path: Path) -> None:
    write_agent_definition(tmp_path / "agents", "sums", requires=["SUMS_KEY"])
    url = f"http://127.0.0.1:{closed_port()}/"
    async with (
        OPENAI.serve(BOOK) as model,
        running(tmp_path, model, url, PLACEMENT_FALLBACK="true") as client,
    ):
        stream = await client.ask("How much?")
        assert list_server_pids(tmp_path) == []
    assert (stream.notifications, assigned(model)) == (FAILED, 0)


async def test_an_agent_that_is_only_an_address_does_not_run_here(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{closed_port()}/"
    write_agent_definition(tmp_path / "agents", "sums", url=url)
    async with (
        OPENAI.serve(BOOK) as model,
        running(tmp_path, model, url, PLACEMENT_FALLBACK="true") as client,
    ):
        stream = await client.ask("How much?")
    assert (stream.notifications, assigned(model)) == (FAILED, 0)


async def test_wrong_credentials_are_no_reason_to_run_here(tmp_path: Path) -> None:
    async with (
        OPENAI.serve(BOOK) as model,
        answering(_response(b"no", "text/plain", "401 Unauthorized")) as url,
        running(tmp_path, model, url, PLACEMENT_FALLBACK="true", SUMS_AGENT_TOKEN="wrong-secret") as client,
    ):
        stream = await client.ask("How much?")
    assert (stream.notifications, assigned(model)) == (FAILED, 0)
    assert "Check <NAME>_AGENT_TOKEN or AGENT_TOKEN." in stream.answer
    assert b"wrong-secret" not in stream.raw
