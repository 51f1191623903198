"""An MCP server as a process of ours: messages are lines on its input and output, and what it says beside goes to our log."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse
from pydantic import ValidationError

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.server import (
    SecretRedactor,
    child_environment,
    find_executable,
    sanitize_line,
)
from ai_platform_engineering.mcp_client.server_process import OrphanReaper, ServerProcess

log = logging.getLogger(__name__)

_CHUNK = 64 * 1024
_LONGEST_MESSAGE = 64 * 1024 * 1024
_MOST_GARBAGE = 8 * 1024 * 1024  # a server that writes this much of anything else is not an MCP server
_LONGEST_LINE = 500
_LONGEST_READ = (
    4000  # more than is shown, so that a secret at the end of that is still whole when it is looked for
)
_MOST_LINES = 200  # of stderr, per start: a chatty server must not fill our log
_BUFFERED = 32

ServerMessage = SessionMessage | Exception


class StdioTransport:
    """Both directions of one running server, as the streams that the library's session wants."""

    def __init__(self, child: ServerProcess, name: str, veil: SecretRedactor) -> None:
        self._child = child
        self._name = name
        self._veil = veil
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrived: MemoryObjectSendStream[ServerMessage]
        self._leaving: MemoryObjectReceiveStream[SessionMessage]
        self._arrived, self.incoming = anyio.create_memory_object_stream[ServerMessage](_BUFFERED)
        self.outgoing, self._leaving = anyio.create_memory_object_stream[SessionMessage](_BUFFERED)
        self._ends: dict[
            str | int, int
        ] = {}  # request -> how many bytes must be read before the server can know it
        self._read = 0  # how many bytes a dead server has read
        self._garbage = 0
        self._last_words: deque[bytes] = deque(maxlen=5)
        self._stderr_read = asyncio.Event()

    def was_not_delivered(self, request_id: str | int) -> bool:
        """The server is gone and cannot have read this request."""
        return self.closed.done() and self._ends.get(request_id, self._read + 1) > self._read

    async def explain_failure(self) -> str:
        """What a server that does not answer, or no longer, left as a reason; words for people."""
        if not self.closed.done():
            if self._garbage:
                return "what it writes to its output is not MCP"
            return ""
        code = await self._child.wait_for_exit(within=1.0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stderr_read.wait(), 0.5)
        if self._garbage > _MOST_GARBAGE:
            return "what it writes to its output is not MCP"
        if code is None:
            how = "it closed its output"
        elif code < 0:
            how = f"it was ended by signal {-code}"
        else:
            how = f"it exited with code {code}"
        said = [words[:200] for line in self._last_words if (words := self._cleaned(line))]
        if said:
            return f"{how}: {' | '.join(said)}"
        return how

    @asynccontextmanager
    async def run_pumps(self) -> AsyncIterator[None]:
        reader, writer, errors = (
            asyncio.create_task(pump())
            for pump in (self._read_messages, self._write_messages, self._read_stderr)
        )
        try:
            yield
        finally:
            await _stopped(writer)  # before the pipe is closed under it
            try:
                await self._child.terminate()
            finally:
                await _stopped(reader, errors)
                for stream in (self._arrived, self.incoming, self.outgoing, self._leaving):
                    stream.close()

    async def _read_messages(self) -> None:
        try:
            async for line in self._lines():
                if (message := self._parsed(line)) is not None:
                    if (
                        isinstance(message.root, JSONRPCResponse | JSONRPCError)
                        and message.root.id is not None
                    ):
                        self._ends.pop(message.root.id, None)
                    await self._arrived.send(SessionMessage(message))
                elif self._garbage > _MOST_GARBAGE:
                    break
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the session has ended
        finally:
            self._lose()

    async def _lines(self) -> AsyncIterator[bytes]:
        held: list[bytes] = []
        size = 0
        while chunk := await self._child.stdout.read(_CHUNK):
            first, *rest = chunk.split(b"\n")
            held.append(first)
            size += len(first)
            if size > _LONGEST_MESSAGE:
                self._garbage += size
                return
            if rest:
                yield b"".join(held)
                for line in rest[:-1]:
                    yield line
                held, size = [rest[-1]], len(rest[-1])

    def _parsed(self, line: bytes) -> JSONRPCMessage | None:
        line = line.strip()
        if line.startswith(b"{"):  # a look that is cheap: garbage may come fast
            with contextlib.suppress(ValidationError):
                return JSONRPCMessage.model_validate_json(line)
        if line:
            if not self._garbage:
                log.warning(
                    "mcp %s: it writes something else than MCP to its output; such lines are skipped",
                    self._name,
                )
            self._garbage += len(line)
        return None

    async def _write_messages(self) -> None:
        try:
            async for message in self._leaving:
                data = message.message.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n"
                if isinstance(message.message.root, JSONRPCRequest):
                    self._ends[message.message.root.id] = self._child.bytes_written + len(data)
                await self._child.write(data)
        except OSError:
            pass  # it has stopped reading; the end of its output tells the rest

    async def _read_stderr(self) -> None:
        count, line = 0, b""
        while chunk := await self._child.stderr.read(_CHUNK):
            *lines, line = (line + chunk).split(b"\n")
            line = line[:_LONGEST_READ]
            for whole in lines:
                count += 1
                self._overheard(whole[:_LONGEST_READ], count)
        self._overheard(line, count + 1)
        self._stderr_read.set()

    def _overheard(self, line: bytes, count: int) -> None:
        if not line.strip():
            return
        self._last_words.append(line)
        if count <= _MOST_LINES:
            log.debug("mcp %s says: %s", self._name, self._cleaned(line))
        elif count == _MOST_LINES + 1:
            log.debug("mcp %s says more, which is left out", self._name)

    def _cleaned(self, line: bytes) -> str:
        """A line without secrets and control characters, and not longer than a log wants it."""
        return sanitize_line(self._veil(line.decode(errors="replace")), _LONGEST_LINE)

    def _lose(self) -> None:
        self._read = self._child.bytes_written - self._child.count_unread_bytes()
        if not self.closed.done():
            self.closed.set_result(None)
        self._arrived.close()


@asynccontextmanager
async def open_stdio_transport(
    server: McpServer, ours: Mapping[str, str], guard: OrphanReaper, name: str, veil: SecretRedactor
) -> AsyncIterator[StdioTransport]:
    """Starts the server and ends it afterwards. Raises OSError with words for people."""
    found = find_executable(server, ours)
    if found is None:
        raise FileNotFoundError(f"the program {server.command} is not installed, or not on the PATH")
    if server.cwd is not None and not Path(server.cwd).is_dir():  # noqa: ASYNC240 - one look at a local folder, before a process is started
        raise FileNotFoundError(f"its folder {server.cwd} does not exist")
    child = await ServerProcess.start(
        found, server.args, env=child_environment(server, ours), cwd=server.cwd, guard=guard
    )
    link = StdioTransport(child, name, veil)
    async with link.run_pumps():
        yield link


async def _stopped(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
