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
ADDRESS_VARIABLE = "CAIPE_TEST_COMMAND_SERVER"
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
    """A command server that this process has started."""

    process: subprocess.Popen[bytes]
    lifeline: socket.socket
    folder: "tempfile.TemporaryDirectory[str]"

    @classmethod
    def start(cls) -> "_RunningServer":
        folder = tempfile.TemporaryDirectory(prefix="caipe-")  # a socket's path has to be short
        lifeline, for_server = socket.socketpair()
        with for_server, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"{folder.name}/socket")
            listener.listen(socket.SOMAXCONN)
            descriptors = [for_server.fileno(), listener.fileno()]
            command = [sys.executable, "-m", "tests.support.command_server", *map(str, descriptors)]
            process = subprocess.Popen(command, cwd=ROOT, pass_fds=descriptors)
        return cls(process, lifeline, folder)

    def stop(self) -> None:
        self.lifeline.close()
        self.process.wait(timeout=10)
        self.folder.cleanup()


def find_server_address() -> str:
    """Where the command server of all workers listens; it is started at its first use."""
    if ADDRESS_VARIABLE not in os.environ:
        server = _RunningServer.start()
        os.environ[ADDRESS_VARIABLE] = f"{server.folder.name}/socket"
        atexit.register(server.stop)
    return os.environ[ADDRESS_VARIABLE]


def forked_python(*arguments: str) -> list[str]:
    """The command of a Python program, `-m MODULE ...` or `FILE ...`, that the command server forks.

    A tool server starts in a fiftieth of the time that its imports take. The tests that are about its process
    start an interpreter.
    """
    return [sys.executable, "-I", "-S", fork_program.__file__, find_server_address(), *arguments]


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
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(find_server_address())
        socket.send_fds(connection, [request.encode()], [*streams, report_for_server.fileno()])
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
