"""The way out of a company network: a plain server behind TLS with a private CA, and a proxy that tunnels and
writes down where to."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import trustme

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Tunnel:
    """`proxy` is for HTTPS_PROXY, `bundle` for the client's CA variable; behind the proxy lives `host`, which
    no DNS knows."""

    host: str
    proxy: str
    bundle: Path
    asked: list[str] = field(default_factory=list)  # what the proxy was asked to connect to

    @property
    def url(self) -> str:
        return f"https://{self.host}"


@contextlib.asynccontextmanager
async def tunnel_to(url: str, host: str, folder: Path) -> AsyncIterator[Tunnel]:
    """The plain server at `url` as `https://host`, reachable through the proxy alone."""
    authority = trustme.CA()
    bundle = folder / "private-ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(context)
    inside = urlsplit(url)
    tasks: set[asyncio.Task[None]] = set()

    def served(handle: Handler) -> Handler:
        async def tracked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    await handle(reader, writer)
            finally:
                writer.close()
                tasks.discard(task)

        return tracked

    async def unwrap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _join(reader, writer, inside.hostname or "", inside.port or 80)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)
        tunnel.asked.append(f"{method.decode()} {target.decode()}")
        if method != b"CONNECT" or target.decode() != f"{host}:443":
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await _join(reader, writer, "127.0.0.1", secure.sockets[0].getsockname()[1])

    secure = await asyncio.start_server(served(unwrap), "127.0.0.1", 0, ssl=context)
    proxy = await asyncio.start_server(served(connect), "127.0.0.1", 0)
    tunnel = Tunnel(host, f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}", bundle)
    try:
        yield tunnel
    finally:
        for server in (proxy, secure):
            server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    """Carries bytes both ways until both sides have ended."""
    other_reader, other_writer = await asyncio.open_connection(host, port)
    try:
        await asyncio.gather(_carry(reader, other_writer), _carry(other_reader, writer))
    finally:
        other_writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65536):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:
        writer.close()
