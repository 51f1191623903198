"""The streaming response: follows a run's log from a cursor as server-sent events."""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ai_platform_engineering.a2a.codec import encode_snapshot
from ai_platform_engineering.a2a.frame_json import FrameRenderer
from ai_platform_engineering.core.events import StoredEvent, ends_turn
from ai_platform_engineering.runtime.log.run_log import RunRow
from ai_platform_engineering.runtime.runs.runs import Runs

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_PIECE = 128 * 1024  # characters; what one reader costs in memory, give or take an event


@dataclass(frozen=True, slots=True)
class StreamStart:
    """Where a stream begins; everything is checked and nothing is sent yet."""

    row: RunRow
    after: int = 0
    skip: int = 0  # how many frames of the next event the reader has seen
    snapshot: bool = False


def parse_cursor(value: str | None, last: int) -> tuple[int, int] | None:
    """`12` is after event 12; `12.1` means that one frame of event 12 was seen. None for what cannot be a cursor of ours."""
    whole, dot, part = (value or "").partition(".")
    if not _is_number(whole) or (dot and not _is_number(part)):
        return None
    after, skip = (int(whole) - 1, int(part)) if dot else (int(whole), 0)
    if after >= 0 and after + bool(skip) <= last:
        return (after, skip)
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


class OpenStreams:
    """The open streams of a server; they end together when it stops, so that it need not wait for readers."""

    def __init__(self, runs: Runs, keep_alive: float) -> None:
        self.runs, self.keep_alive = runs, keep_alive
        self.scopes: set[anyio.CancelScope] = set()

    def cancel_all(self) -> None:
        for scope in list(self.scopes):
            scope.cancel()

    async def wait_until_closed(self, seconds: float) -> None:
        """Waits until all have ended by themselves, or for so long."""
        with anyio.move_on_after(seconds):
            while self.scopes:  # noqa: ASYNC110 - only when the server stops
                await asyncio.sleep(0.01)

    @contextlib.contextmanager
    def track(self) -> Iterator[None]:
        """A wait that ends with the streams; what it waited for may still be under way."""
        with anyio.CancelScope() as scope:
            self.scopes.add(scope)
            try:
                yield
            finally:
                self.scopes.discard(scope)


class LogStream(Response):
    """A reader of the log. It asks for what is after its number, sends it in pieces, and waits; no queue, no eviction."""

    def __init__(self, opened: StreamStart, request_id: Any, *, is_v03: bool, streams: OpenStreams) -> None:
        self.background = None
        self._row = opened.row
        self._after = opened.after
        self._skip = opened.skip
        self._snapshot = opened.snapshot
        self._streams, self._runs = streams, streams.runs
        self._done = opened.row.status == "ended" and opened.after == opened.row.last_seq  # it has everything
        self._ahead: deque[StoredEvent] = deque()  # read and not yet sent
        self._render = FrameRenderer(opened.row.ref, is_v03=is_v03)
        self._head = '\ndata: {"jsonrpc":"2.0","id":' + json.dumps(request_id) + ',"result":'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            group.start_soon(watch)
            self._streams.scopes.add(group.cancel_scope)
            try:
                await self._write(send)
            finally:
                self._streams.scopes.discard(group.cancel_scope)
            group.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send) -> None:
        while not self._done:
            body = await self._batch()
            if not body and not self._done:
                try:
                    async with asyncio.timeout(self._streams.keep_alive):
                        await self._runs.wait_for_event(self._row.run_id, self._after)
                    continue
                except TimeoutError:
                    body = b": keep-alive\n\n"
            await send(
                {"type": "http.response.body", "body": body, "more_body": True}
            )  # waits while the reader is slow

    async def _batch(self) -> bytes:
        out: list[str] = []
        if self._snapshot:
            self._snapshot = False
            task = encode_snapshot(self._row.ref, await self._runs.events(self._row.run_id, self._after))
            out.append(self._frame(str(self._after), self._render.render_snapshot(task)))
        if not self._ahead:
            self._ahead.extend(await self._runs.read(self._row.run_id, self._after))
        size = 0
        while self._ahead and size < _PIECE and not self._done:
            item = self._ahead.popleft()
            results = self._render.render_event(item)
            for part, result in enumerate(results, 1):
                if part > self._skip:
                    out.append(
                        self._frame(str(item.seq) if part == len(results) else f"{item.seq}.{part}", result)
                    )
                    size += len(out[-1])
            self._after = item.seq
            self._skip = 0
            self._done = ends_turn(item.event)
        return "".join(out).encode()

    def _frame(self, number: str, result: str) -> str:
        return f"id: {number}{self._head}{result}}}\n\n"
