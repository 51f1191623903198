"""Processes of MCP servers: started in a group of their own, fed through a pipe, and ended whatever happens to us."""

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

from ai_platform_engineering.mcp_client import orphan_reaper as guarding

log = logging.getLogger(__name__)

_GRACE = 1.0  # seconds that a server gets to leave by itself, then after SIGTERM, then after SIGKILL
_READ_AHEAD = 256 * 1024


class OrphanReaper:
    """Our end of the guard process, which ends the servers when we cannot: started with the first of them, one for all."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._process: asyncio.subprocess.Process | None = None
        self._pipe = -1  # not a stream: what is told must be out before the next server is started
        self._starting = asyncio.Lock()
        self._groups: set[int] = set()

    async def start(self) -> None:
        async with self._starting:
            if self._process is not None and self._process.returncode is None:
                return
            self._hang_up()
            theirs, self._pipe = os.pipe()
            os.set_blocking(self._pipe, False)
            nowhere = asyncio.subprocess.DEVNULL
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", "-S", guarding.__file__, stdin=theirs, stdout=nowhere, stderr=nowhere,
                    start_new_session=True, env=self._environment,
                )  # fmt: skip
            except OSError as error:
                # Servers still end with us when they read their input to the end, as they should.
                log.warning(
                    "mcp: no guard process, %s: servers may be left behind if this process is killed",
                    type(error).__name__,
                )
            finally:
                os.close(theirs)
            for group in self._groups:
                self._tell(f"+{group}")

    def announce_start(self) -> str:
        """A mark for the environment of a server that is about to be started."""
        mark = secrets.token_hex(16)
        self._tell(f"?{mark}")
        return mark

    def confirm_start(self, mark: str, group: int | None) -> None:
        if group is None:
            self._tell(f"!{mark}")
        else:
            self._groups.add(group)
            self._tell(f"+{group} {mark}")

    def remove_group(self, group: int) -> None:
        self._groups.discard(group)
        self._tell(f"-{group}")

    async def aclose(self) -> None:
        self._hang_up()
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 4 * _GRACE)
            self._process = None

    def _tell(self, line: str) -> None:
        if self._pipe >= 0:
            with contextlib.suppress(OSError):
                os.write(self._pipe, f"{line}\n".encode())

    def _hang_up(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


class ServerProcess:
    """One running server. What we write goes through a pipe of ours, so that we can tell what a dead server has not read."""

    def __init__(
        self, transport: asyncio.SubprocessTransport, stdin: int, guard: OrphanReaper, streams: "_Streams"
    ) -> None:
        self._transport = transport
        self._stdin = stdin
        self._guard = guard
        self.pid: int = transport.get_pid()
        self.stdout, self.stderr = streams.readers
        self._exit = streams.exit
        self.bytes_written = 0

    @classmethod
    async def start(
        cls,
        program: str,
        args: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        guard: OrphanReaper,
    ) -> "ServerProcess":
        await guard.start()
        loop = asyncio.get_running_loop()
        mark = guard.announce_start()
        theirs, ours = os.pipe()
        try:
            os.set_blocking(ours, False)
            transport, streams = await loop.subprocess_exec(
                _Streams, program, *args, stdin=theirs, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                env={**env, guarding.MARK_VARIABLE: mark}, cwd=cwd, start_new_session=True,
            )  # fmt: skip
        except BaseException as error:
            os.close(ours)
            if isinstance(error, OSError):  # there is no process; after a cancellation there may be one
                guard.confirm_start(mark, None)
            raise
        finally:
            os.close(theirs)
        child = cls(transport, ours, guard, streams)
        guard.confirm_start(mark, child.pid)
        return child

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
                await self._writable()
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
            await asyncio.wait_for(self._exit.wait(), within)
        return self.returncode

    async def terminate(self) -> None:
        """Ends the server and whatever it has started: asks, then insists."""
        gone = False
        try:
            self._close_stdin()
            for number in (0, signal.SIGTERM, signal.SIGKILL):
                self._signal(number)
                if gone := await self._gone():
                    break
        finally:
            if not gone:  # a second cancellation may have cut the waiting short
                self._signal(signal.SIGKILL)
            self._guard.remove_group(self.pid)
            self._transport.close()

    async def _gone(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await self._exit.wait()
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

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_writer(self._stdin, tell)
        try:
            await ready
        finally:
            loop.remove_writer(self._stdin)

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1


class _Streams(asyncio.SubprocessProtocol):
    """A server's two outputs as streams that hold the server back when nobody reads them."""

    def __init__(self) -> None:
        self.readers = asyncio.StreamReader(limit=_READ_AHEAD), asyncio.StreamReader(limit=_READ_AHEAD)
        self.exit = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        for fd, reader in enumerate(self.readers, 1):
            if (pipe := transport.get_pipe_transport(fd)) is not None:
                reader.set_transport(pipe)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.readers[fd - 1].feed_data(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd in (1, 2):
            self.readers[fd - 1].feed_eof()

    def process_exited(self) -> None:
        self.exit.set()
