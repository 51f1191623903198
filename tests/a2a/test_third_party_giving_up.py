"""Work at a third-party agent that nobody waits for any more is stopped there; an agent that is gone is
noticed in time."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ai_platform_engineering.a2a.client import (
    ClientConversation,
    OutgoingMessage,
    RequestRefused,
    Unreachable,
)
from ai_platform_engineering.core.events import AnyEvent, TextDelta
from ai_platform_engineering.utils.a2a_common.a2a_remote_agent_connect import A2ARemoteAgentConnectTool
from tests.support.harness import serve_app

protocols = pytest.mark.parametrize("protocol", ["1.0", "0.3"])
CANCEL = {"1.0": "CancelTask", "0.3": "tasks/cancel"}
POLL = {"1.0": "GetTask", "0.3": "tasks/get"}


@dataclass
class HeldServer:
    """A server whose task works without end; its frames go out when the test lets them."""

    protocol: str
    streaming: bool = True
    first_frame: asyncio.Event = field(default_factory=asyncio.Event)
    methods: list[str] = field(default_factory=list)
    cancelled_ids: list[str] = field(default_factory=list)
    frames: list[Any] = field(default_factory=list)  # after the first one; then the stream stays open
    url: str = ""
    trouble: str = ""  # away: only the proxy in front of it answers; hangs: nobody does
    released: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def task(self) -> dict[str, Any]:
        status = {"state": "working" if self.protocol == "0.3" else "TASK_STATE_WORKING"}
        task = {"id": "the-task", "contextId": "c", "status": status}
        return {"kind": "task", **task} if self.protocol == "0.3" else task

    def frame(self) -> dict[str, Any]:
        return self.task if self.protocol == "0.3" else {"task": self.task}

    def status(self, text: str) -> dict[str, Any]:
        """A status update with a text."""
        part = {"kind": "text", "text": text}
        message = {"messageId": text, "role": "agent", "parts": [part]}
        update = {"taskId": "the-task", "status": {"state": "working", "message": message}}
        return {"kind": "status-update", **update} if self.protocol == "0.3" else {"statusUpdate": update}

    async def card(self, _: Request) -> Response:
        interface = {"url": self.url, "protocolBinding": "JSONRPC", "protocolVersion": self.protocol}
        capabilities = {"streaming": self.streaming}
        return JSONResponse(
            {"name": "held", "supportedInterfaces": [interface], "capabilities": capabilities, "skills": []}
        )

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        self.methods.append(body["method"])
        if self.trouble == "hangs":
            await self.released.wait()
        if self.trouble:
            return Response(status_code=502)
        match body["method"]:
            case "SendStreamingMessage" | "message/stream":
                return StreamingResponse(self._stream(), media_type="text/event-stream")
            case "SendMessage" | "message/send":
                await self.first_frame.wait()
                return JSONResponse(_result(self.frame()))
            case "CancelTask" | "tasks/cancel":
                self.cancelled_ids.append(body["params"]["id"])
                return JSONResponse(_result(self.task))
            case _:
                return JSONResponse(_result(self.task))

    async def _stream(self) -> AsyncIterator[bytes]:
        await self.first_frame.wait()
        for body in (_result(self.frame()), *self.frames):
            yield f"data: {json.dumps(body)}\n\n".encode()
        await asyncio.Event().wait()


def _result(value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "1", "result": value}


@contextlib.asynccontextmanager
async def connected(server: HeldServer, **options: Any) -> AsyncIterator[A2ARemoteAgentConnectTool]:
    routes = [
        Route("/", server.answer, methods=["POST"]),
        Route("/.well-known/agent-card.json", server.card),
    ]
    async with serve_app(Starlette(routes=routes)) as server.url:
        connection = A2ARemoteAgentConnectTool(name="held", description="", url=server.url, **options)
        yield connection
        await connection.aclose()
        await connection.http.aclose()


def send(connection: A2ARemoteAgentConnectTool) -> AsyncIterator[AnyEvent]:
    return connection.send(OutgoingMessage(str(uuid.uuid4()), "Well?"), ClientConversation())


async def read_all(events: AsyncIterator[AnyEvent]) -> None:
    async for _ in events:
        pass


async def wait_for_calls(server: HeldServer, count: int = 1) -> None:
    async with asyncio.timeout(60):
        while len(server.methods) < count:  # noqa: ASYNC110 - the server is told by the network
            await asyncio.sleep(0.01)


@protocols
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_cancel_before_the_first_frame_still_reaches_the_task(protocol: str, streaming: bool) -> None:
    server = HeldServer(protocol, streaming)
    async with connected(server) as connection:
        reading = asyncio.create_task(read_all(send(connection)))
        await wait_for_calls(server)
        reading.cancel()
        await asyncio.wait({reading})
        assert reading.cancelled()
        server.first_frame.set()
        await connection.aclose()
    assert server.cancelled_ids == ["the-task"]


@protocols
async def test_a_cancel_in_the_middle_of_a_stream(protocol: str) -> None:
    server = HeldServer(protocol)
    server.first_frame.set()
    server.frames.append(_result(server.status("One moment.")))
    async with connected(server) as connection:
        events = send(connection)
        assert isinstance(await anext(events), TextDelta)
        await events.aclose()
        await connection.aclose()
    assert server.cancelled_ids == ["the-task"]


@protocols
async def test_a_frame_that_we_do_not_read_stops_the_task(protocol: str) -> None:
    server = HeldServer(protocol)
    server.first_frame.set()
    server.frames.append({"jsonrpc": "2.0", "id": "1", "error": {"code": -32603, "message": "Lost."}})
    async with connected(server) as connection:
        with pytest.raises(RequestRefused, match="Lost"):
            await read_all(send(connection))
        await connection.aclose()
    assert server.cancelled_ids == ["the-task"]


@protocols
async def test_a_failure_of_ours_stops_the_task(protocol: str) -> None:
    async def store(_: str) -> None:
        raise RuntimeError("The log is closed.")

    server = HeldServer(protocol)
    server.first_frame.set()
    async with connected(server) as connection:
        conversation = ClientConversation(on_task_id=store)
        with pytest.raises(RuntimeError, match="The log is closed"):
            await read_all(connection.send(OutgoingMessage("m", "Well?"), conversation))
        await connection.aclose()
    assert server.cancelled_ids == ["the-task"]


@protocols
async def test_an_agent_without_a_stream_is_asked_for_its_task_at_once_and_polled(protocol: str) -> None:
    server = HeldServer(protocol, streaming=False)
    server.first_frame.set()
    async with connected(server) as connection:
        reading = asyncio.create_task(read_all(send(connection)))
        await wait_for_calls(server, 2)
        reading.cancel()
        await asyncio.wait({reading})
        await connection.aclose()
    assert server.methods[1] == POLL[protocol]
    assert server.methods[-1] == CANCEL[protocol]


@pytest.mark.parametrize(
    ("trouble", "words"), [("away", "cannot answer now"), ("hangs", "no longer answers")]
)
async def test_an_agent_that_is_gone_is_given_up_within_the_limit(trouble: str, words: str) -> None:
    """The attempts are counted: with pauses of 0.2 and 0.5 s the limit leaves time for two."""
    server = HeldServer("1.0", streaming=False)
    server.first_frame.set()
    async with connected(server, lost_timeout=0.6) as connection:
        reading = asyncio.create_task(read_all(send(connection)))
        await wait_for_calls(server, 2)
        calls_before = len(server.methods)
        server.trouble = trouble
        with pytest.raises(Unreachable, match=words) as raised:
            await reading
        server.released.set()
        await connection.aclose()
    assert raised.value.accepted is True
    polls = server.methods[calls_before:]
    assert 1 <= polls.count("GetTask") <= 2
    assert polls[-1] == "CancelTask"  # it may hear that, though it does not answer
