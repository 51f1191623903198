"""A reader whose line drops after so many bytes of the raw response, wherever that is: in the head, in a
chunk, in a character."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.harness import Frame

_SIZE = 16 * 1024


@dataclass(frozen=True, slots=True)
class PartialResponse:
    """What arrived before the line dropped or the response ended."""

    frames: list[Frame]
    dropped: bool
    plain: bytes  # the body, when it was no stream


async def read_partial(
    url: str,
    method: str,
    params: Any,
    cursor: str | None = None,
    *,
    most: int | None = None,
    mark: bytes = b"",
    seen: asyncio.Event | None = None,
) -> PartialResponse:
    """The first `most` bytes of the response, or all of it. `seen` is set when the mark has arrived."""
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    received, dropped = b"", False
    try:
        writer.write(_request(host, method, params, cursor))
        while not dropped and (more := await reader.read(_SIZE)):
            received = (received + more)[:most]
            dropped = len(received) == most
            if seen is not None and mark in received:
                seen.set()
    finally:
        writer.transport.abort()
    return _piece(received, dropped)


def _request(host: str, method: str, params: Any, cursor: str | None) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": "1", "method": method, "params": params})
    headers: Mapping[str, str] = {
        "Host": host,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **({} if "/" in method else {"A2A-Version": "1.0", "A2A-Extensions": "urn:caipe:events:1"}),
        **({} if cursor is None else {"Last-Event-ID": cursor}),
    }
    lines = ["POST / HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def _piece(held: bytes, dropped: bool) -> PartialResponse:
    head, _, rest = held.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return PartialResponse([], dropped, rest)
    body = unchunked(rest)
    *complete_frames, _ = body.split(b"\n\n")
    return PartialResponse([frame for raw in complete_frames if (frame := _frame(raw))], dropped, body)


def unchunked(rest: bytes) -> bytes:
    """The body, as far as it arrived."""
    body = b""
    while b"\r\n" in rest:
        size, _, rest = rest.partition(b"\r\n")
        if not size:
            break
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


def _frame(raw: bytes) -> Frame | None:
    fields = dict(line.split(b": ", 1) for line in raw.split(b"\n") if not line.startswith(b":"))
    if b"data" not in fields:
        return None
    return Frame(fields[b"id"].decode() if b"id" in fields else None, raw, json.loads(fields[b"data"]))
