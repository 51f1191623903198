"""A small web site on a loopback port, written down to the byte, and a network in which its names stand for
chosen addresses."""

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

import httpcore

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
PUBLIC = "93.184.215.14"


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Page:
    """A response. Without `length` the end of the connection is the end of the body."""

    body: bytes | str = b""
    kind: str = "text/html; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None
    endless: bool = False

    def __bytes__(self) -> bytes:
        named = {**({"Content-Type": self.kind} if self.kind else {}), **self.headers, "Connection": "close"}
        if self.length is not None:
            named["Content-Length"] = str(self.length)
        lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        body = self.body.encode() if isinstance(self.body, str) else self.body
        return f"HTTP/1.1 {self.status} Said\r\n{lines}\r\n".encode("latin-1") + body


Answer = Page | Callable[[Request], Page]


@dataclass(slots=True)
class Site:
    pages: dict[str, Answer] = field(default_factory=dict)
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    now: int = 0
    most: int = 0  # requests at the same time
    gate: asyncio.Barrier | None = None  # pages below the first go through it together
    working: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.working.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(
                line.lower().split(": ", 1)[:1] + line.split(": ", 1)[1:] for line in head[1:] if line
            )
            request = Request(head[0].split(" ")[1], headers)
            self.requests.append(request)
            self.now += 1
            self.most = max(self.most, self.now)
            if self.gate is not None and request.path not in ("/", "/robots.txt", "/sitemap.xml"):
                await self.gate.wait()
            self.now -= 1
            page = self.pages.get(request.path, Page("Not here.", "text/plain", 404))
            page = page if isinstance(page, Page) else page(request)
            writer.write(bytes(page))
            await writer.drain()
            if page.endless:
                await reader.read()  # until the client has gone
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self.working.discard(task)


@contextlib.asynccontextmanager
async def serve_site(
    pages: Mapping[str, Answer] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Site]:
    served = Site(dict(pages or {}))
    server = await asyncio.start_server(served.answer, "127.0.0.1", 0, ssl=tls)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        tasks = list(served.working)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class FakeNetwork:
    """A network with names of its own. Every attempt to connect is written down; only addresses with a `port`
    are answered."""

    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    lookups: list[str] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)

    async def addresses(self, name: str) -> tuple[IPAddress, ...]:
        self.lookups.append(name)
        if name not in self.names:
            raise OSError("no such name")
        return tuple(ipaddress.ip_address(text) for text in self.names[name])

    async def connect(self, address: IPAddress, port: int) -> httpcore.AsyncNetworkStream:
        self.attempts.append(str(address))
        if str(address) not in self.ports:
            raise ConnectionRefusedError
        return await httpcore.AnyIOBackend().connect_tcp("127.0.0.1", self.ports[str(address)])
