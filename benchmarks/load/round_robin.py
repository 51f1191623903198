"""A load balancer that gives each connection to the next server; clients here open one for each request.

python -m benchmarks.load.round_robin PORT SERVER_PORT...
"""

import asyncio
import itertools
import sys
from collections.abc import Iterator
from typing import cast

import uvloop

_MAX_BUFFERED = 256 * 1024  # bytes to a slow side, before the other one is not read any more


class Side(asyncio.Protocol):
    """One side of a connection; what arrives here leaves on the other side."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None
        self._waiting: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has no base class
        self.transport.set_write_buffer_limits(high=_MAX_BUFFERED)

    def join(self, other: "Side") -> None:
        """Passes on what has arrived, and all that follows."""
        self.other = other
        for data in self._waiting:
            self.data_received(data)
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self._waiting.append(data)
        else:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class ClientSide(Side):
    """The side of a client: a connection to the next server is opened for it."""

    def __init__(self, ports: Iterator[int]) -> None:
        super().__init__()
        self._ports = ports
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, server_side = await loop.create_connection(Side, "127.0.0.1", next(self._ports))
        except OSError:
            if self.transport is not None:
                self.transport.abort()
            return
        server_side.join(self)
        self.join(server_side)


async def serve(port: int, server_ports: list[int]) -> None:
    ports = itertools.cycle(server_ports)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ClientSide(ports), "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), [int(port) for port in sys.argv[2:]]))
