"""An MCP server over HTTP whose every byte is the test's choice; by default it answers properly."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

FAKE_TASK = "a connection of the fake server"

Behaviour = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Exchange:
    """One request and the means to answer it."""

    method: str
    headers: dict[str, str]
    message: dict[str, Any]
    writer: asyncio.StreamWriter

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def respond(
        self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str
    ) -> None:
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
        await self.write(head.encode() + body)

    async def result(self, result: dict[str, Any], **headers: str) -> None:
        await self.respond(
            200,
            json.dumps({"jsonrpc": "2.0", "id": self.message["id"], "result": result}).encode(),
            **headers,
        )

    async def stream(self, *events: str) -> None:
        """Opens an event stream and sends this much of it."""
        await self.write(
            b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            + "".join(events).encode()
        )

    def event(self, message: dict[str, Any], event_id: str = "") -> str:
        named = f"id: {event_id}\n" if event_id else ""
        return f"{named}event: message\ndata: {json.dumps({'jsonrpc': '2.0', **message})}\n\n"

    def close(self) -> None:
        self.writer.close()


@dataclass
class HttpServer:
    """`behaviours` maps a JSON-RPC method, or `GET` and `DELETE`, to what replaces a proper answer."""

    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    seen: list[Exchange] = field(default_factory=list)
    url: str = ""
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    def methods(self) -> list[str]:
        return [exchange.message.get("method", exchange.method) for exchange in self.seen]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name(FAKE_TASK)
        self._serving.add(task)
        with contextlib.suppress(
            ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError
        ):  # the end of the test, too
            while not writer.is_closing():
                await self._answer(await _request(reader, writer))
        writer.close()

    async def _answer(self, exchange: Exchange) -> None:
        self.seen.append(exchange)
        name = exchange.message.get("method", exchange.method)
        await self.behaviours.get(name, proper)(exchange)


async def proper(exchange: Exchange) -> None:
    message = exchange.message
    match message.get("method", exchange.method):
        case "initialize":
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}}
            await exchange.result(
                {**result, "serverInfo": {"name": "bytes", "version": "1"}}, mcp_session_id="s-1"
            )
        case "tools/list":
            schema = {"type": "object", "properties": {"value": {"type": "string"}}}
            harmless = {"name": "read", "inputSchema": schema, "annotations": {"readOnlyHint": True}}
            await exchange.result({"tools": [{"name": "say", "inputSchema": schema}, harmless]})
        case "tools/call":
            await exchange.result(
                {"content": [{"type": "text", "text": message["params"]["arguments"].get("value", "")}]}
            )
        case "ping":
            await exchange.result({})
        case "GET":
            await exchange.respond(405)
        case "DELETE":
            await exchange.respond(200)
        case _:
            await exchange.respond(202)


async def _request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Exchange(head[0].split()[0], headers, json.loads(body) if body else {}, writer)


@contextlib.asynccontextmanager
async def http_server(**behaviours: Behaviour) -> AsyncIterator[HttpServer]:
    """The server on a free loopback port, in this event loop."""
    server = HttpServer({name.replace("__", "/"): behaviour for name, behaviour in behaviours.items()})
    listening = await asyncio.start_server(server._connected, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    try:
        yield server
    finally:
        listening.close()
        for task in server._serving:
            task.cancel()
        await asyncio.gather(*server._serving, return_exceptions=True)
        await listening.wait_closed()
