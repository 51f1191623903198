"""A server that writes down requests as they arrive and answers with given bytes, cut where the test says."""

import asyncio
import contextlib
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

_TURNS = 4  # of the event loop after each piece, so that the reader sees the pieces apart


class Ending(Enum):
    """What happens to the connection after the last piece."""

    KEEP = "kept for the next request"
    CLOSE = "closed in order"
    ABORT = "reset"
    HANG = "left open without another byte"


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """The bytes of a response, head included, in the pieces in which they are written."""

    pieces: tuple[bytes, ...]
    ending: Ending = Ending.KEEP
    pace: asyncio.Semaphore | None = None  # released by the test for each piece

    def cut(self, points: Iterable[int]) -> "RawAnswer":
        """The same bytes, cut at these points."""
        whole = b"".join(self.pieces)
        marks = sorted({point for point in points if 0 < point < len(whole)})
        pieces = [whole[start:end] for start, end in zip([0, *marks], [*marks, len(whole)], strict=True)]
        return RawAnswer(tuple(pieces), self.ending)

    def __len__(self) -> int:
        return sum(map(len, self.pieces))


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request as it arrived; the names of its headers are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class RawServer:
    """What came in."""

    url: str = ""
    requests: list[RawRequest] = field(default_factory=list)
    connections: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)  # a client closed its connection


@contextlib.asynccontextmanager
async def serve_raw(answer: Callable[[RawRequest], RawAnswer]) -> AsyncIterator[RawServer]:
    """Runs the server while the context is open."""
    server = RawServer()
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        server.connections += 1
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                while (request := await _read_request(reader)) is not None:
                    server.requests.append(request)
                    if not await _write_answer(writer, answer(request)):
                        break
                await reader.read()
        finally:
            server.left.set()
            writer.close()
            tasks.discard(task)

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read_request(reader: asyncio.StreamReader) -> RawRequest | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return RawRequest(method, target, headers, body)


async def _write_answer(writer: asyncio.StreamWriter, answer: RawAnswer) -> bool:
    """Whether another request may follow."""
    for piece in answer.pieces:
        if answer.pace is not None:
            await answer.pace.acquire()
        writer.write(piece)
        await writer.drain()
        for _ in range(_TURNS):
            await asyncio.sleep(0)
    match answer.ending:
        case Ending.KEEP:
            return True
        case Ending.CLOSE:
            writer.write_eof()
        case Ending.ABORT:
            writer.transport.abort()
        case Ending.HANG:
            pass
    return False


# --- bodies ---------------------------------------------------------------------------------------


def chunked(
    pieces: Sequence[bytes],
    *,
    status: str = "200 OK",
    headers: Sequence[str] = ("content-type: text/event-stream",),
    encoding: str | None = None,
    end: bytes = b"0\r\n\r\n",
    ending: Ending = Ending.KEEP,
) -> RawAnswer:
    """A chunked response; each piece is one HTTP chunk and written on its own."""
    lines = [f"HTTP/1.1 {status}", *headers, "transfer-encoding: chunked"]
    if encoding is not None:
        lines.append(f"content-encoding: {encoding}")
        pieces = _compress(pieces, encoding)
    head = "\r\n".join([*lines, "", ""]).encode()
    written = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece]
    return RawAnswer((head, *written, end) if end else (head, *written), ending)


def whole(
    body: bytes,
    *,
    status: str = "200 OK",
    headers: Sequence[str] = ("content-type: application/json",),
    ending: Ending = Ending.KEEP,
) -> RawAnswer:
    """A response with a length."""
    lines = [f"HTTP/1.1 {status}", *headers, f"content-length: {len(body)}", "", ""]
    return RawAnswer(("\r\n".join(lines).encode() + body,), ending)


def until_close(body: bytes) -> RawAnswer:
    """A response that ends with its connection."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return RawAnswer((head, body), Ending.CLOSE)


def _compress(pieces: Sequence[bytes], encoding: str) -> list[bytes]:
    window = zlib.MAX_WBITS | 16 if encoding == "gzip" else zlib.MAX_WBITS
    compressor = zlib.compressobj(wbits=window)
    compressed = [compressor.compress(piece) + compressor.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return [*compressed, compressor.flush()]
