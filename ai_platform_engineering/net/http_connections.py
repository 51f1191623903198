"""Limits of HTTP connections to a server of ours: how many, and how long each may keep it waiting.

uvicorn has none of them: whoever opens a connection and sends one byte a minute would keep it for ever.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ai_platform_engineering.core.settings import ServerSettings

log = logging.getLogger(__name__)

_MAX_HEADER_BYTES = 64 * 1024
_WRITE_BUFFER_BYTES = 64 * 1024  # in this process, before a response has to wait
_SEND_BUFFER_BYTES = 256 * 1024  # in the kernel, which would go up to some megabytes by itself
_WARNING_SECONDS = 60.0
_WRITE_FLOW = "caipe.write_flow"  # an ASGI extension: whether a response has to wait for its reader
_TOO_MANY = b"Too many connections. Try again in a moment, or raise A2A_MAX_CONNECTIONS.\n"
_LONG_HEADERS = b"The headers of the request are too long.\n"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits; times are in seconds."""

    connections: int
    header_seconds: float  # from the connection, or the first byte of a request, to the end of its headers
    body_seconds: float  # from there to the end of the body
    idle_seconds: float  # between two requests
    stalled_seconds: float  # without a byte that the reader of a response takes
    unsent_bytes: int  # of all responses whose readers are slow

    @classmethod
    def from_settings(cls, settings: ServerSettings) -> Self:
        return cls(
            settings.max_connections,
            settings.header_seconds,
            settings.body_seconds,
            settings.idle_seconds,
            settings.stalled_seconds,
            settings.max_unsent_bytes,
        )


def server_options(limits: ConnectionLimits) -> dict[str, Any]:
    """The options of a uvicorn server with the limits; each server has its own count."""
    own_state = {"limits": limits, "waiting": {}, "stalled": {}}
    protocol = type("LimitedHttp", (LimitedHttpProtocol,), own_state)
    return {"http": protocol, "ws": "none"}


def is_write_paused(scope: Mapping[str, Any]) -> bool:
    """Whether the reader of a response is slow, so that sending waits; true where the server does not say."""
    write_flow = (scope.get("extensions") or {}).get(_WRITE_FLOW)
    return write_flow is None or write_flow["control"].write_paused


class LimitedHttpProtocol(HttpToolsProtocol):
    """One HTTP connection with time limits.

    When there are too many, the one that has waited longest for a request is closed: a slow or idle client
    never keeps others out."""

    limits: ClassVar[ConnectionLimits]
    waiting: ClassVar[dict["LimitedHttpProtocol", None]]  # connections without a whole request, oldest first
    stalled: ClassVar[dict["LimitedHttpProtocol", None]]  # connections with a slow reader, oldest first
    _last_warning: ClassVar[float] = float("-inf")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.timeout_keep_alive = self.limits.idle_seconds  # type: ignore[assignment]
        self._request_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0
        self._header_bytes = 0
        self._reads_headers = True

    # --- requests -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        own_socket = transport.get_extra_info("socket")
        if own_socket is not None:
            own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._set_request_timer(self.limits.header_seconds)
        if len(self.connections) > self.limits.connections and not self._make_room():
            self._respond_and_close(b"503 Service Unavailable", _TOO_MANY)
            return
        self.waiting[self] = None

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._reads_headers:
            self._header_bytes += len(data)
            if self._header_bytes > _MAX_HEADER_BYTES and not self.transport.is_closing():
                self._respond_and_close(b"431 Request Header Fields Too Large", _LONG_HEADERS)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {_WRITE_FLOW: {"control": self.flow}}
        self._reads_headers = True
        self._header_bytes = 0
        self._set_request_timer(self.limits.header_seconds)

    def on_headers_complete(self) -> None:
        self._reads_headers = False
        self.waiting.pop(self, None)
        self._set_request_timer(self.limits.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._clear_request_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._abort_later()
        elif not self.pipeline:
            self.waiting[self] = None

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.pop(self, None)
        self.stalled.pop(self, None)
        self._clear_request_timer()
        self._clear_stall_timer()
        super().connection_lost(exc)

    def _make_room(self) -> bool:
        """Closes the connection that has waited longest; false when all of them are at work."""
        self._warn()
        oldest = next(iter(self.waiting), None)
        if oldest is None:
            return False
        oldest.waiting.pop(oldest)
        oldest.transport.abort()
        return True

    def _warn(self) -> None:
        now = time.monotonic()
        if now - type(self)._last_warning >= _WARNING_SECONDS:
            type(self)._last_warning = now
            log.warning("%d connections are open, the most that are allowed", self.limits.connections)

    def _set_request_timer(self, seconds: float) -> None:
        self._clear_request_timer()
        self._request_timer = self.loop.call_later(seconds, self._give_up_request)

    def _clear_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _give_up_request(self) -> None:
        log.debug("a connection is closed: its request did not arrive in time")
        self.transport.abort()

    def _respond_and_close(self, status: bytes, body: bytes) -> None:
        head = b"HTTP/1.1 %s\r\ncontent-type: text/plain; charset=utf-8\r\n" % status
        self.transport.write(head + b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body))
        self.transport.close()
        self._abort_later()

    def _abort_later(self) -> None:
        """Closing waits until everything is sent; a client that does not read would wait for ever."""
        self._clear_stall_timer()
        self._stall_timer = self.loop.call_later(self.limits.stalled_seconds, self.transport.abort)

    # --- readers that do not read ---------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stalled[self] = None
        self._watch_reader()
        self._limit_unsent_bytes()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stalled.pop(self, None)
        if not self.transport.is_closing():
            self._clear_stall_timer()

    def _limit_unsent_bytes(self) -> None:
        """Closes the connections whose readers have been slow for longest."""
        unsent = {connection: connection.transport.get_write_buffer_size() for connection in self.stalled}
        total = sum(unsent.values())
        for connection, size in unsent.items():
            if total <= self.limits.unsent_bytes:
                return
            total -= size
            log.warning(
                "a connection is closed: its reader is slow, and too many bytes wait for such readers"
            )
            self.stalled.pop(connection, None)
            connection.transport.abort()

    def _watch_reader(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._clear_stall_timer()
        self._stall_timer = self.loop.call_later(self.limits.stalled_seconds, self._check_reader)

    def _check_reader(self) -> None:
        if self.transport.get_write_buffer_size() < self._unsent_bytes:
            self._watch_reader()  # slow, but it reads
            return
        log.info("a connection is closed: its reader took nothing for %g s", self.limits.stalled_seconds)
        self.transport.abort()

    def _clear_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
