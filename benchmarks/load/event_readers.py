"""Readers of event streams over A2A: when each event arrived, and thousands that only stay connected."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.load.a2a_streams import Question

_LINE_LIMIT = 2**22
_OPENING_AT_ONCE = 50


@dataclass(slots=True)
class TimedReader:
    """A stream that was read: by the number of each event the time when its last frame had arrived."""

    task_id: str = ""
    opened_at: float = 0.0
    arrivals: dict[int, float] = field(default_factory=dict)
    has_task: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, port: int, method: str, params: dict[str, Any]) -> None:
        """Sends the request and reads its stream to the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_LINE_LIMIT)
        try:
            writer.write(make_request(port, method, params))
            async for line in reader:
                if line.startswith(b"id: "):
                    self._note(line[4:].decode().strip())
                elif line.startswith(b"data: ") and not self.task_id:
                    self._note_task(json.loads(line[6:]))
                elif line == b"0\r\n":
                    return
        finally:
            writer.close()

    def _note(self, event_id: str) -> None:
        self.opened_at = self.opened_at or time.time()
        if "." not in event_id:
            self.arrivals[int(event_id)] = time.time()

    def _note_task(self, frame: dict[str, Any]) -> None:
        if "result" not in frame:
            raise SystemExit(f"a stream was refused: {json.dumps(frame)[:300]}")
        result = frame["result"]
        self.task_id = result["id"] if result["kind"] == "task" else result["taskId"]
        self.has_task.set()


def make_request(port: int, method: str, params: dict[str, Any]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    head = (
        f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def make_message(question: Question) -> dict[str, Any]:
    """The parameters of `message/stream`."""
    message = {
        "role": "user",
        "kind": "message",
        "messageId": f"m{time.time_ns()}",
        "parts": [{"kind": "text", "text": question.text()}],
    }
    return {"message": message}


class _IdleConnection(asyncio.Protocol):
    """A reader that throws away what it reads."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._transport: asyncio.Transport | None = None
        self.is_open = asyncio.get_running_loop().create_future()
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.is_open.done():
            self.is_open.set_result(data.startswith(b"HTTP/1.1 200") and b"text/event-stream" in data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if not self.is_open.done():
            self.is_open.set_result(False)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


@dataclass(slots=True)
class IdleReaders:
    """Streams of runs in which nothing happens."""

    connections: list[_IdleConnection] = field(default_factory=list)

    async def open(self, ports: Sequence[int], task_ids: Sequence[str], count: int) -> None:
        """Opens so many streams: each run is read through all ports."""
        gate = asyncio.Semaphore(_OPENING_AT_ONCE)

        async def open_one(number: int) -> None:
            port = ports[number % len(ports)]
            task_id = task_ids[(number // len(ports)) % len(task_ids)]
            request = make_request(port, "tasks/resubscribe", {"id": task_id})
            async with gate:
                loop = asyncio.get_running_loop()
                _, connection = await loop.create_connection(
                    lambda: _IdleConnection(request), "127.0.0.1", port
                )
                self.connections.append(connection)
                if not await connection.is_open:
                    raise SystemExit("the stream of an idle reader was refused")

        await asyncio.gather(*(open_one(number) for number in range(count)))

    def count_lost(self) -> int:
        return sum(connection.is_lost for connection in self.connections)

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
