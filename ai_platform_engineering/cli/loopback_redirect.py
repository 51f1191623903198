"""A small HTTP server on loopback that an authorization server sends the browser to (RFC 8252)."""

import asyncio
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

from ai_platform_engineering.core.errors import CaipeError

_PATH = "/callback"
_MAX_HEAD_BYTES = 32 * 1024
_READ_SECONDS = 10.0
_WAIT_SECONDS = 600.0
_PAGE = b"<!doctype html><meta charset=utf-8><title>Sign-in</title><p>Go on in the terminal."


class LoopbackRedirect:
    """Waits for the browser; other requests are answered with an error."""

    def __init__(self, port: int) -> None:
        """`port`: 0 for any that is free."""
        self._port = port
        self._server: asyncio.Server | None = None
        self._answers: asyncio.Queue[dict[str, str]] = asyncio.Queue(maxsize=100)

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(
                self._serve, "127.0.0.1", self._port, limit=_MAX_HEAD_BYTES
            )
        except OSError as error:
            raise CaipeError(f"Port {self._port} cannot be used: {error.strerror}.") from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def url(self) -> str:
        """The address for the authorization server."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{_PATH}"

    async def wait_for(self, state: str) -> dict[str, str]:
        """The answer to the sign-in of this state; others are ignored. Raises CaipeError."""
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                while True:
                    answer = await self._answers.get()
                    if answer.get("state") == state:
                        return answer
        except TimeoutError:
            raise CaipeError("The browser did not come back in time. Begin again.") from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status = b"404 Not Found"
        try:
            async with asyncio.timeout(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            method, target, *_ = head.decode("latin-1").split(" ", 2)
            parts = urlsplit(target)
            if method == "GET" and parts.path == _PATH and not self._answers.full():
                query = parse_qs(parts.query)
                self._answers.put_nowait({name: values[0] for name, values in query.items()})
                status = b"200 OK"
        except (ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            status = b"400 Bad Request"
        headers = b"Content-Type: text/html\r\nCache-Control: no-store\r\nConnection: close\r\n"
        writer.write(b"HTTP/1.1 " + status + b"\r\n" + headers + b"\r\n" + _PAGE)
        writer.close()
