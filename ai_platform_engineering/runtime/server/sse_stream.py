"""The streaming response: the events of a run, from a cursor on, as server-sent events."""

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
_BATCH_SIZE = 128 * 1024  # characters that one reader costs in memory, plus at most one event


@dataclass(frozen=True, slots=True)
class StreamStart:
    """The run and the cursor where a stream starts; everything is checked and nothing is sent yet."""

    row: RunRow
    after: int = 0
    skip: int = 0  # how many frames of the next event the reader has received
    snapshot: bool = False


def parse_cursor(value: str | None, last: int) -> tuple[int, int] | None:
    """The sequence number after which a reader goes on, and how many later frames it has received.

    `12` is after event 12; `12.1` means that one frame of event 12 was received. None for what is no cursor
    of ours, whose run has `last` as its last sequence number."""
    seq, dot, frame_number = (value or "").partition(".")
    if not _is_number(seq):
        return None
    if not dot:
        after = int(seq)
        skip = 0
    elif _is_number(frame_number):
        after = int(seq) - 1
        skip = int(frame_number)
    else:
        return None
    if after >= 0 and after + bool(skip) <= last:
        return after, skip
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


class OpenStreams:
    """The open streams of a server; they end together when it stops, so that it need not wait for readers."""

    def __init__(self, runs: Runs, keep_alive: float) -> None:
        self.runs = runs
        self.keep_alive = keep_alive
        self.scopes: set[anyio.CancelScope] = set()

    def cancel_all(self) -> None:
        for scope in list(self.scopes):
            scope.cancel()

    async def wait_until_closed(self, seconds: float) -> None:
        """Waits until all streams have ended by themselves, at most for the seconds."""
        with anyio.move_on_after(seconds):
            while self.scopes:  # noqa: ASYNC110 - only when the server stops
                await asyncio.sleep(0.01)

    @contextlib.contextmanager
    def track(self) -> Iterator[None]:
        """A block that is cancelled with the streams; what it waited for may go on."""
        with anyio.CancelScope() as scope:
            self.scopes.add(scope)
            try:
                yield
            finally:
                self.scopes.discard(scope)


class LogStream(Response):
    """A streaming response from the run log: sends the events after its cursor in batches, and waits.

    There is no queue, so a slow reader loses nothing."""

    def __init__(self, start: StreamStart, request_id: Any, *, is_v03: bool, streams: OpenStreams) -> None:
        self.background = None
        self._row = start.row
        self._after = start.after
        self._skip = start.skip
        self._needs_snapshot = start.snapshot
        self._streams = streams
        self._runs = streams.runs
        self._done = start.row.status == "ended" and start.after == start.row.last_seq
        self._unsent: deque[StoredEvent] = deque()
        self._renderer = FrameRenderer(start.row.ref, is_v03=is_v03)
        self._frame_head = '\ndata: {"jsonrpc":"2.0","id":' + json.dumps(request_id) + ',"result":'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        async with anyio.create_task_group() as group:

            async def watch_disconnect() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            group.start_soon(watch_disconnect)
            self._streams.scopes.add(group.cancel_scope)
            try:
                await self._write(send)
            finally:
                self._streams.scopes.discard(group.cancel_scope)
            group.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send) -> None:
        while not self._done:
            body = await self._read_batch()
            if not body and not self._done:
                try:
                    async with asyncio.timeout(self._streams.keep_alive):
                        await self._runs.wait_for_event(self._row.run_id, self._after)
                    continue
                except TimeoutError:
                    body = b": keep-alive\n\n"
            # Waits while the reader is slow.
            await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _read_batch(self) -> bytes:
        frames: list[str] = []
        if self._needs_snapshot:
            self._needs_snapshot = False
            task = encode_snapshot(self._row.ref, await self._runs.events(self._row.run_id, self._after))
            frames.append(self._render_frame(str(self._after), self._renderer.render_snapshot(task)))
        if not self._unsent:
            self._unsent.extend(await self._runs.read(self._row.run_id, self._after))
        size = 0
        while self._unsent and size < _BATCH_SIZE and not self._done:
            item = self._unsent.popleft()
            results = self._renderer.render_event(item)
            for number, result in enumerate(results, 1):
                if number > self._skip:
                    event_id = str(item.seq) if number == len(results) else f"{item.seq}.{number}"
                    frame = self._render_frame(event_id, result)
                    frames.append(frame)
                    size += len(frame)
            self._after = item.seq
            self._skip = 0
            self._done = ends_turn(item.event)
        return "".join(frames).encode()

    def _render_frame(self, event_id: str, result: str) -> str:
        return f"id: {event_id}{self._frame_head}{result}}}\n\n"
