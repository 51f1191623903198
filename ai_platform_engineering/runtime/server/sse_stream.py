"""The streaming response: the events of a run, from a cursor on, as server-sent events."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ai_platform_engineering.a2a.client_shape import ClientShape
from ai_platform_engineering.a2a.event_frames import RICH, needs_requests
from ai_platform_engineering.a2a.frame_json import FrameRenderer
from ai_platform_engineering.a2a.snapshots import encode_snapshot
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import InputRequested, ends_turn
from ai_platform_engineering.net.http_connections import is_write_paused
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.runs.event_encoding import encode_aside
from ai_platform_engineering.runtime.runs.runs import Runs

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_BATCH_SIZE = 64 * 1024  # characters that one reader costs in memory, plus at most one event
_EVENTS_PER_READ = 64
_RETRY_SECONDS = 10
_NOTHING = {"type": "http.response.body", "body": b"", "more_body": True}


@dataclass(frozen=True, slots=True)
class StreamStart:
    """The run and the cursor where a stream starts; everything is checked and nothing is sent yet."""

    row: RunRow
    after: int = 0
    skip: int = 0  # how many frames of the next event the reader has received
    snapshot: bool = False
    shape: ClientShape = RICH


class Envelope(NamedTuple):
    """What stands before and after a result in each frame of a stream."""

    head: str
    tail: str


BARE = Envelope("", "")  # of the HTTP+JSON binding: the result is the whole frame


def jsonrpc_envelope(request_id: Any) -> Envelope:
    return Envelope('{"jsonrpc":"2.0","id":' + json.dumps(request_id) + ',"result":', "}")


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


class TooManyStreams(CaipeError):
    """A stream that is not opened; the text says what to do."""

    code = "too_many_streams"
    retryable = True

    def __init__(self, message: str, status_code: int) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.headers = {"Retry-After": str(_RETRY_SECONDS)}


class OpenStreams:
    """The open streams of a server, within limits; they end together when it stops, so that it need not wait
    for readers."""

    def __init__(
        self, runs: Runs, keep_alive: float, *, max_streams: int = 500, max_user_streams: int = 100
    ) -> None:
        self.runs = runs
        self.keep_alive = keep_alive
        self.scopes: set[anyio.CancelScope] = set()
        self._max_streams = max_streams
        self._max_user_streams = max_user_streams
        self._owners: Counter[str] = Counter()

    def reserve(self, owner: str) -> Callable[[], None]:
        """Counts a stream of the owner before it is opened; the result, called once, counts it no longer.

        Raises TooManyStreams."""
        if self._owners.total() >= self._max_streams:
            raise TooManyStreams(
                f"{self._max_streams} streams are open. Try again later, or raise A2A_MAX_STREAMS.", 503
            )
        if self._owners[owner] >= self._max_user_streams:
            raise TooManyStreams(
                f"You have {self._max_user_streams} open streams. "
                "Close one, or raise A2A_MAX_STREAMS_PER_USER.",
                429,
            )
        self._owners[owner] += 1
        return partial(self._release, owner)

    async def run_within_limits(self, owner: str, answer: Callable[[], Awaitable[Response]]) -> Response:
        """Answers a call that takes as long as a run; a stream is counted until it ends.

        Raises TooManyStreams."""
        release = self.reserve(owner)
        response: Response | None = None
        try:
            response = await answer()
        finally:
            if isinstance(response, LogStream):
                response.release = release
            else:
                release()
        return response

    def _release(self, owner: str) -> None:
        self._owners[owner] -= 1
        if not self._owners[owner]:
            del self._owners[owner]

    def cancel_all(self) -> None:
        for scope in list(self.scopes):
            scope.cancel()

    async def wait_until_closed(self, seconds: float) -> None:
        """Waits until all streams have ended by themselves, at most for the seconds."""
        with anyio.move_on_after(seconds):
            while self.scopes:  # noqa: ASYNC110 - only when the server stops
                await asyncio.sleep(0.01)

    @contextlib.contextmanager
    def track(self) -> Iterator[anyio.CancelScope]:
        """A block that is cancelled with the streams; what it waited for may go on."""
        with anyio.CancelScope() as scope:
            self.scopes.add(scope)
            try:
                yield scope
            finally:
                self.scopes.discard(scope)


async def _watch_disconnect(receive: Receive, cancel_scope: anyio.CancelScope) -> None:
    """Cancels the scope when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    cancel_scope.cancel()


class LogStream(Response):
    """A streaming response from the run log: sends the events after its cursor in batches, and waits.

    There is no queue, so a slow reader loses nothing; while it does not read, nothing is held for it but what
    the connection has taken."""

    release: Callable[[], None] | None = None  # called when the stream has ended
    extra_headers: Mapping[str, str] = {}

    def __init__(self, start: StreamStart, envelope: Envelope, *, is_v03: bool, streams: OpenStreams) -> None:
        self.background = None
        self._row = start.row
        self._after = start.after
        self._skip = start.skip
        self._needs_snapshot = start.snapshot
        self._streams = streams
        self._runs = streams.runs
        self._done = start.row.status == "ended" and start.after == start.row.last_seq
        self._sent_end = False
        self._shape = start.shape
        self._renderer = FrameRenderer(start.row.ref, is_v03=is_v03, shape=start.shape)
        self._head = f"\ndata: {envelope.head}"
        self._tail = f"{envelope.tail}\n\n"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._respond(scope, receive, send)
        finally:
            if self.release is not None:
                self.release()

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        extra = [(name.lower().encode(), value.encode()) for name, value in self.extra_headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *extra]})
        with self._runs.following(self._row.run_id), self._streams.track() as cancel_scope:
            # A task and no task group, which costs as much as rendering a short run.
            watcher = asyncio.create_task(_watch_disconnect(receive, cancel_scope))
            try:
                await self._write(scope, send)
            finally:
                watcher.cancel()
        if not self._sent_end:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, scope: Scope, send: Send) -> None:
        while not self._done:
            if is_write_paused(scope):
                await send(_NOTHING)  # waits while the reader is slow, before anything is read for it
            body = await self._read_batch()
            if not body and not self._done:
                try:
                    async with asyncio.timeout(self._streams.keep_alive):
                        await self._runs.wait_for_event(self._row.run_id, self._after)
                    continue
                except TimeoutError:
                    body = b": keep-alive\n\n"
            await send({"type": "http.response.body", "body": body, "more_body": not self._done})
            self._sent_end = self._done

    async def _read_batch(self) -> bytes:
        frames: list[str] = []
        if self._needs_snapshot:
            self._needs_snapshot = False
            frames.append(self._render_frame(str(self._after), await self._render_snapshot()))
        size = 0
        for item in await self._runs.read(self._row.run_id, self._after, limit=_EVENTS_PER_READ):
            if size >= _BATCH_SIZE or self._done:
                break
            requests: Sequence[InputRequested] = ()
            if needs_requests(item.event):
                requests = await self._runs.requests(self._row.run_id)
            results = self._renderer.render_event(item, requests)
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

    async def _render_snapshot(self) -> str:
        events = await self._runs.events(self._row.run_id, self._after)

        def render() -> str:
            return self._renderer.render_snapshot(encode_snapshot(self._row.ref, events, self._shape))

        return await encode_aside(events, render)

    def _render_frame(self, event_id: str, result: str) -> str:
        return f"id: {event_id}{self._head}{result}{self._tail}"
