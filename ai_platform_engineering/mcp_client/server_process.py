"""Processes of MCP servers, each in a process group of its own; they are ended whatever happens to us."""

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import signal
import struct
import sys
import termios
from collections.abc import Mapping, Sequence
from typing import Any

from ai_platform_engineering.mcp_client import orphan_reaper
from ai_platform_engineering.mcp_client.working_folders import WorkingFolders

log = logging.getLogger(__name__)

_GRACE = 1.0  # seconds that a server gets to leave by itself, then after SIGTERM, then after SIGKILL
_READ_AHEAD_BYTES = 256 * 1024


class OrphanReaper:
    """Our end of the reaper process, which ends the servers when we cannot.

    It is started with the first of them, one for all.
    """

    def __init__(self, environment: Mapping[str, str], folders: WorkingFolders) -> None:
        self._environment = dict(environment)
        self._folders = folders
        self._process: asyncio.subprocess.Process | None = None
        # Not a stream: what is written must be out before the next server is started.
        self._pipe = -1
        self._starting = asyncio.Lock()
        self._groups: set[int] = set()

    async def start(self) -> None:
        async with self._starting:
            if self._process is not None and self._process.returncode is None:
                return
            self._close_pipe()
            read_end, self._pipe = os.pipe()
            os.set_blocking(self._pipe, False)
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-I",
                    "-S",
                    orphan_reaper.__file__,
                    str(self._folders.root),
                    stdin=read_end,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                    env=self._environment,
                )
            except OSError as error:
                # Servers still end with us when they read their input to the end, as they should.
                log.warning(
                    "mcp: no guard process, %s: servers may be left behind if this process is killed",
                    type(error).__name__,
                )
            finally:
                os.close(read_end)
            for group in self._groups:
                self._write_line(f"+{group}")

    def announce_start(self) -> str:
        """A mark for the environment of a server that is about to be started."""
        mark = secrets.token_hex(16)
        self._write_line(f"?{mark}")
        return mark

    def confirm_start(self, mark: str, group: int | None) -> None:
        """Names the process group of an announced server; None when it could not be started."""
        if group is None:
            self._write_line(f"!{mark}")
        else:
            self._groups.add(group)
            self._write_line(f"+{group} {mark}")

    def remove_group(self, group: int) -> None:
        """The process group has ended."""
        self._groups.discard(group)
        self._write_line(f"-{group}")

    async def aclose(self) -> None:
        self._close_pipe()
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 4 * _GRACE)
            self._process = None

    def _write_line(self, line: str) -> None:
        if self._pipe >= 0:
            with contextlib.suppress(OSError):
                os.write(self._pipe, f"{line}\n".encode())

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


class ServerProcess:
    """The process of one running server.

    What we write goes through a pipe of ours, so that we can tell what a dead server has not read.
    """

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        stdin: int,
        reaper: OrphanReaper,
        streams: "_OutputStreams",
    ) -> None:
        self._transport = transport
        self._stdin = stdin
        self._reaper = reaper
        self.pid: int = transport.get_pid()
        self.stdout, self.stderr = streams.readers
        self._exited = streams.exited
        self.bytes_written = 0

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        reaper: OrphanReaper,
    ) -> "ServerProcess":
        await reaper.start()
        loop = asyncio.get_running_loop()
        mark = reaper.announce_start()
        read_end, write_end = os.pipe()
        try:
            os.set_blocking(write_end, False)
            transport, streams = await loop.subprocess_exec(
                _OutputStreams,
                *command,
                stdin=read_end,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**env, orphan_reaper.MARK_VARIABLE: mark},
                cwd=cwd,
                start_new_session=True,
            )
        except BaseException as error:
            os.close(write_end)
            if isinstance(error, OSError):  # there is no process; after a cancellation there may be one
                reaper.confirm_start(mark, None)
            raise
        finally:
            os.close(read_end)
        process = cls(transport, write_end, reaper, streams)
        reaper.confirm_start(mark, process.pid)
        return process

    @property
    def returncode(self) -> int | None:
        return self._transport.get_returncode()

    async def write(self, data: bytes) -> None:
        """Writes all of it; raises OSError when nobody reads any more."""
        view = memoryview(data)
        while view:
            try:
                count = os.write(self._stdin, view)
            except BlockingIOError:
                await self._wait_until_writable()
                continue
            self.bytes_written += count
            view = view[count:]

    def count_unread_bytes(self) -> int:
        """How many of the bytes that we wrote the server has not taken; 0 where the system cannot say."""
        if self._stdin < 0:
            return 0
        try:
            (count,) = struct.unpack("i", fcntl.ioctl(self._stdin, termios.FIONREAD, bytes(4)))
        except OSError:
            return 0
        return int(count)

    async def wait_for_exit(self, within: float) -> int | None:
        """The exit code, if there is one in time."""
        # Not a wait for the transport: that also waits for pipes which a child of the server may hold open.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._exited.wait(), within)
        return self.returncode

    async def terminate(self) -> None:
        """Ends the server and whatever it has started: asks, then insists."""
        has_ended = False
        try:
            self._close_stdin()
            for number in (0, signal.SIGTERM, signal.SIGKILL):
                self._signal(number)
                has_ended = await self._wait_for_group_end()
                if has_ended:
                    break
        finally:
            if not has_ended:  # a second cancellation may have cut the waiting short
                self._signal(signal.SIGKILL)
            self._reaper.remove_group(self.pid)
            self._transport.close()

    async def _wait_for_group_end(self) -> bool:
        """Waits for a moment; whether the whole process group has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await self._exited.wait()
                while self._signal(0):  # noqa: ASYNC110 - nobody tells when a group is empty
                    await asyncio.sleep(0.01)
                return True
        return False

    def _signal(self, number: int) -> bool:
        """Signals the whole group; False when nobody is left in it."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            return self.returncode is None
        return True

    async def _wait_until_writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def set_ready() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_writer(self._stdin, set_ready)
        try:
            await ready
        finally:
            loop.remove_writer(self._stdin)

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1


class _OutputStreams(asyncio.SubprocessProtocol):
    """A server's two outputs as streams that hold the server back when nobody reads them."""

    def __init__(self) -> None:
        stdout = asyncio.StreamReader(limit=_READ_AHEAD_BYTES)
        stderr = asyncio.StreamReader(limit=_READ_AHEAD_BYTES)
        self.readers = (stdout, stderr)
        self.exited = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        for fd, reader in enumerate(self.readers, 1):
            pipe = transport.get_pipe_transport(fd)
            if pipe is not None:
                reader.set_transport(pipe)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.readers[fd - 1].feed_data(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd in (1, 2):
            self.readers[fd - 1].feed_eof()

    def process_exited(self) -> None:
        self.exited.set()
