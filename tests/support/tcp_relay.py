"""A network cable between a client and a server on this machine: it can be pulled and put back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class TcpRelay:
    """Passes bytes on to the port until it is cut; while it is, new connections are closed at once.

    While it is frozen, connections stay open and nothing passes."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._is_cut = False
        self._flows = asyncio.Event()
        self._flows.set()
        self._open: set[asyncio.StreamWriter] = set()
        self.refused = asyncio.Event()  # somebody has tried while it was cut

    def cut(self) -> None:
        self._is_cut = True
        for writer in self._open:
            writer.transport.abort()

    def freeze(self) -> None:
        self._flows.clear()

    def mend(self) -> None:
        self._is_cut = False
        self._flows.set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            self.refused.set()
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:  # the server is away
            writer.transport.abort()
            return
        self._open |= {writer, far_writer}
        try:
            await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        finally:
            self._open -= {writer, far_writer}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65536):
                await self._flows.wait()
                writer.write(piece)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def relay_to(port: int) -> AsyncIterator[tuple[TcpRelay, str]]:
    """The relay, and its address."""
    relay = TcpRelay(port)
    server = await asyncio.start_server(relay.handle, "127.0.0.1", 0)
    try:
        yield relay, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        relay.cut()
        server.close()
