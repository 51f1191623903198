"""The stdio transport: messages are lines on a server's input and output; its stderr is logged."""

import asyncio
import contextlib
import logging
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.json_limits import JsonTooLarge
from ai_platform_engineering.mcp_client import server_launcher
from ai_platform_engineering.mcp_client.connection_context import ConnectionContext
from ai_platform_engineering.mcp_client.secret_redactor import SecretRedactor, sanitize_line
from ai_platform_engineering.mcp_client.server_environment import child_environment, find_executable
from ai_platform_engineering.mcp_client.server_process import ServerProcess
from ai_platform_engineering.mcp_client.transport import ServerMessage
from ai_platform_engineering.net.bounded_responses import ResponseLimits

log = logging.getLogger(__name__)

_CHUNK_BYTES = 64 * 1024
_MAX_GARBAGE_BYTES = 8 * 1024 * 1024  # a server that writes this much of anything else is not an MCP server
_MAX_LOG_LINE_CHARS = 500
# More than is logged, so that a secret at the end of that is still whole when it is redacted.
_MAX_STDERR_LINE_BYTES = 4000
_MAX_LOG_LINES = 200  # of stderr, per start: a chatty server must not fill our log
_MAX_REASON_LINES = 5
_MAX_REASON_LINE_CHARS = 200
_EXIT_TIMEOUT = 1.0
_STDERR_TIMEOUT = 0.5
_STREAM_BUFFER = 32
_SANDBOX_NOTE = (
    " in the sandbox (what it may need of this machine is named under `sandbox` in its definition)"
)
_NOT_MCP = "what it writes to its output is not MCP"


class StdioTransport:
    """Both directions of one running server, as the streams that the library's session wants."""

    def __init__(
        self,
        process: ServerProcess,
        name: str,
        redactor: SecretRedactor,
        limits: ResponseLimits,
        *,
        in_sandbox: bool = False,
    ) -> None:
        self._process = process
        self._limits = limits
        self._in_sandbox = in_sandbox
        self._name = name
        self._redactor = redactor
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._incoming_sender: MemoryObjectSendStream[ServerMessage]
        self._outgoing_receiver: MemoryObjectReceiveStream[SessionMessage]
        self._incoming_sender, self.incoming = anyio.create_memory_object_stream[ServerMessage](
            _STREAM_BUFFER
        )
        self.outgoing, self._outgoing_receiver = anyio.create_memory_object_stream[SessionMessage](
            _STREAM_BUFFER
        )
        # Request id -> how many bytes must be read before the server can know the request.
        self._request_ends: dict[str | int, int] = {}
        self._bytes_read = 0  # by a dead server
        self._garbage_bytes = 0
        self._too_large = ""  # why a message was not read; the connection ends with it
        self._last_stderr_lines: deque[bytes] = deque(maxlen=_MAX_REASON_LINES)
        self._stderr_ended = asyncio.Event()

    def was_not_delivered(self, request_id: str | int) -> bool:
        """Whether the server is gone and cannot have read this request."""
        request_end = self._request_ends.get(request_id, self._bytes_read + 1)
        return self.closed.done() and request_end > self._bytes_read

    async def explain_failure(self) -> str:
        """Why the server does not answer, or no longer, in words for people."""
        if not self.closed.done():
            return _NOT_MCP if self._garbage_bytes else ""
        exit_code = await self._process.wait_for_exit(within=_EXIT_TIMEOUT)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stderr_ended.wait(), _STDERR_TIMEOUT)
        if self._too_large:
            return f"what it sent is not read. {self._too_large}"
        if self._garbage_bytes > _MAX_GARBAGE_BYTES:
            return _NOT_MCP
        reason = _explain_exit(exit_code)
        if self._in_sandbox and exit_code:
            reason += _SANDBOX_NOTE
        stderr_lines = list(filter(None, map(self._clean_line, self._last_stderr_lines)))
        if not stderr_lines:
            return reason
        return f"{reason}: {' | '.join(line[:_MAX_REASON_LINE_CHARS] for line in stderr_lines)}"

    @asynccontextmanager
    async def run_pumps(self) -> AsyncIterator[None]:
        """Moves messages between the process and the streams; ends the process on the way out."""
        reader = asyncio.create_task(self._read_messages())
        writer = asyncio.create_task(self._write_messages())
        stderr_reader = asyncio.create_task(self._read_stderr())
        try:
            yield
        finally:
            await _stop_tasks(writer)  # before the pipe is closed under it
            try:
                await self._process.terminate()
            finally:
                await _stop_tasks(reader, stderr_reader)
                for stream in (self._incoming_sender, self.incoming, self.outgoing, self._outgoing_receiver):
                    stream.close()

    async def _read_messages(self) -> None:
        try:
            async for line in self._read_lines():
                message = self._parse_line(line)
                if message is not None:
                    await self._receive(message)
                elif self._garbage_bytes > _MAX_GARBAGE_BYTES:
                    break
        except JsonTooLarge as error:
            self._too_large = str(error)
            log.warning("mcp %s: what it sent is not read. %s", self._name, error)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the session has ended
        finally:
            self._note_end()

    async def _receive(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._request_ends.pop(message.id, None)
        await self._incoming_sender.send(SessionMessage(message))

    async def _read_lines(self) -> AsyncIterator[bytes]:
        """The lines of the server's output. Raises JsonTooLarge at one that is too long."""
        parts: list[bytes] = []
        size = 0
        while chunk := await self._process.stdout.read(_CHUNK_BYTES):
            first, *more_lines = chunk.split(b"\n")
            parts.append(first)
            size += len(first)
            if size > self._limits.message_bytes:
                raise self._limits.too_long()
            if more_lines:
                yield b"".join(parts)
                for line in more_lines[:-1]:
                    yield line
                parts = more_lines[-1:]
                size = len(more_lines[-1])

    def _parse_line(self, line: bytes) -> JSONRPCMessage | None:
        line = line.strip()
        if line.startswith(b"{"):  # a cheap check first: garbage may come fast
            with contextlib.suppress(ValidationError):
                self._limits.check(line)
                return jsonrpc_message_adapter.validate_json(line, by_name=False)
        if line:
            if not self._garbage_bytes:
                log.warning(
                    "mcp %s: it writes something else than MCP to its output; such lines are skipped",
                    self._name,
                )
            self._garbage_bytes += len(line)
        return None

    async def _write_messages(self) -> None:
        try:
            async for message in self._outgoing_receiver:
                data = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                if isinstance(message.message, JSONRPCRequest):
                    self._request_ends[message.message.id] = self._process.bytes_written + len(data)
                await self._process.write(data)
        except OSError:
            pass  # it has stopped reading; the end of its output tells the rest

    async def _read_stderr(self) -> None:
        count = 0
        rest = b""
        while chunk := await self._process.stderr.read(_CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[:_MAX_STDERR_LINE_BYTES]
            for line in lines:
                count += 1
                self._log_stderr_line(line[:_MAX_STDERR_LINE_BYTES], count)
        self._log_stderr_line(rest, count + 1)
        self._stderr_ended.set()

    def _log_stderr_line(self, line: bytes, count: int) -> None:
        if not line.strip():
            return
        self._last_stderr_lines.append(line)
        if count <= _MAX_LOG_LINES:
            log.debug("mcp %s says: %s", self._name, self._clean_line(line))
        elif count == _MAX_LOG_LINES + 1:
            log.debug("mcp %s says more, which is left out", self._name)

    def _clean_line(self, line: bytes) -> str:
        """A line without secrets and control characters, cut to what is logged."""
        return sanitize_line(self._redactor.redact(line.decode(errors="replace")), _MAX_LOG_LINE_CHARS)

    def _note_end(self) -> None:
        self._bytes_read = self._process.bytes_written - self._process.count_unread_bytes()
        if not self.closed.done():
            self.closed.set_result(None)
        self._incoming_sender.close()


@asynccontextmanager
async def open_stdio_transport(
    server: McpServer, name: str, context: ConnectionContext, redactor: SecretRedactor
) -> AsyncIterator[StdioTransport]:
    """Starts the server and ends it afterwards. Raises OSError with words for people."""
    executable = await asyncio.to_thread(_find_program, server, context.environment)
    in_sandbox = await context.sandbox.is_used()
    working_folder = await asyncio.to_thread(context.folders.create)
    try:
        command = [executable, *server.args]
        launcher_options: tuple[str, ...] = ()
        if in_sandbox:
            command = await asyncio.to_thread(context.sandbox.wrap, server, command, working_folder)
            launcher_options = (server_launcher.KEEP_CAPABILITIES,)
        process = await ServerProcess.start(
            [sys.executable, "-I", "-S", server_launcher.__file__, *launcher_options, *command],
            env=child_environment(server, context.environment, working_folder),
            cwd=server.cwd or str(working_folder),
            reaper=context.reaper,
        )
        limits = context.limits.response_limits
        transport = StdioTransport(process, name, redactor, limits, in_sandbox=in_sandbox)
        async with transport.run_pumps():
            yield transport
    finally:
        await asyncio.to_thread(context.folders.remove, working_folder)


def _find_program(server: McpServer, environment: Mapping[str, str]) -> str:
    """The file of the server's program; looks at folders, so it is called in a thread."""
    executable = find_executable(server, environment)
    if executable is None:
        raise FileNotFoundError(f"the program {server.command} is not installed, or not on the PATH")
    if server.cwd is not None and not Path(server.cwd).is_dir():
        raise FileNotFoundError(f"its folder {server.cwd} does not exist")
    return executable


def _explain_exit(exit_code: int | None) -> str:
    if exit_code is None:
        return "it closed its output"
    if exit_code < 0:
        return f"it was ended by signal {-exit_code}"
    return f"it exited with code {exit_code}"


async def _stop_tasks(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
