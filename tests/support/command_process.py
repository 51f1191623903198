"""One of our commands as a process that the command server forked; it looks like a process of asyncio."""

import asyncio
import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import fork_program
from tests.support.command_server import CommandRequest

Entry = tuple[str, str]  # a module and the name of its function
CAIPE = ("ai_platform_engineering.cli.main", "main")
UVICORN = ("uvicorn.main", "main")
ROOT = Path(__file__).resolve().parent.parent.parent


class CommandProcess:
    """A running command."""

    def __init__(self, report: asyncio.StreamReader, report_writer: asyncio.StreamWriter) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._report = report
        self._report_writer = report_writer
        self._exit: asyncio.Task[int] | None = None

    async def read_pid(self) -> None:
        line = await self._report.readline()
        assert line, "the command server has ended"
        self.pid = int(line)
        self._exit = asyncio.create_task(self._read_exit())

    async def wait(self) -> int:
        assert self._exit is not None
        return await asyncio.shield(self._exit)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def _read_exit(self) -> int:
        self.returncode = int(await self._report.readline() or -signal.SIGKILL)
        self._report_writer.close()
        return self.returncode


@dataclass(frozen=True, slots=True)
class _RunningServer:
    """The command server of this process, and where it listens for `fork_program.py`."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    folder: "tempfile.TemporaryDirectory[str]"
    address: str

    @classmethod
    def start(cls) -> "_RunningServer":
        folder = tempfile.TemporaryDirectory(prefix="caipe-")  # a socket's path has to be short
        address = f"{folder.name}/socket"
        control, for_server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with for_server, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(address)
            listener.listen()
            descriptors = [for_server.fileno(), listener.fileno()]
            command = [sys.executable, "-m", "tests.support.command_server", *map(str, descriptors)]
            process = subprocess.Popen(command, cwd=ROOT, pass_fds=descriptors)
        return cls(process, control, folder, address)

    def stop(self) -> None:
        self.control.close()
        self.process.wait(timeout=10)
        self.folder.cleanup()


_servers: list[_RunningServer] = []


def forked_python(*arguments: str) -> list[str]:
    """The command of a Python program, `-m MODULE ...` or `FILE ...`, that the command server forks.

    A tool server starts in a fiftieth of the time that its imports take. The tests that are about its process
    start an interpreter.
    """
    address = _find_server().address
    return [sys.executable, "-I", "-S", fork_program.__file__, address, *arguments]


async def fork_command(
    entry: Entry,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    folder: Path | None = None,
    stdin: int | None = None,
    output: int | None = None,
    terminal: bool = False,
) -> CommandProcess:
    """Runs a function as a process.

    `stdin` and `output` are descriptors for the standard streams. Without `output` there are pipes to read.
    """
    report, report_for_server = socket.socketpair()
    report.setblocking(False)
    process = CommandProcess(*await asyncio.open_connection(sock=report))
    streams = [os.open(os.devnull, os.O_RDONLY) if stdin is None else os.dup(stdin)]
    if output is None:
        for name in ("stdout", "stderr"):
            reading, writing = os.pipe()
            setattr(process, name, await _open_reader(reading))
            streams.append(writing)
    else:
        streams += [os.dup(output), os.dup(output)]
    request = CommandRequest(
        *entry,
        arguments=list(arguments),
        environment=dict(env),
        folder=str(folder or Path.cwd()),
        terminal=terminal,
    )
    socket.send_fds(_find_server().control, [request.encode()], [*streams, report_for_server.fileno()])
    report_for_server.close()
    for descriptor in streams:
        os.close(descriptor)
    await process.read_pid()
    return process


async def _open_reader(descriptor: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb"))
    return reader


def _find_server() -> _RunningServer:
    """The command server of this process, which is started at its first use."""
    if not _servers:
        server = _RunningServer.start()
        _servers.append(server)
        atexit.register(server.stop)
    return _servers[0]
