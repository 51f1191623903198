"""A process that has imported the product and forks into its commands, tool servers and workers of the tests.

What is started this way is a process like any other: it has its own environment, folder, standard streams,
signals and exit code. It is only spared seconds of imports, which were most of what starting a server cost a
test. It ends with whoever started it.
"""

import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import termios
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

IMPORTS = (
    "ai_platform_engineering.cli.main",
    "ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main",
    "ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent_service",
    # Imported later by the commands themselves, at the first question and the first start of a tool server.
    "ai_platform_engineering.mcp_client.protocol",
    "ai_platform_engineering.models.openai_models",
    "uvicorn",
    # Tool servers, which `fork_program.py` has forked.
    "ai_platform_engineering.mcp_servers.github.server",
    "ai_platform_engineering.mcp_servers.knowledge_base.server",
    "ai_platform_engineering.mcp_servers.netutils.server",
    "ai_platform_engineering.mcp_servers.victorops.server",
    "mcp.server.mcpserver",
    # Imported by the tests.
    "langchain_anthropic",
    "langchain_aws",
    "openpyxl",
    "playwright.async_api",
    "psycopg",
    "pymongo",
    "slack_bolt.async_app",
)
REQUEST_BYTES = 1024 * 1024
_NO_EFFECT = frozenset({"-P", "-u"})  # options: no folder is added to the path, and pipes are not buffered
STREAMS = 3  # standard input, output and error; a fourth descriptor takes the process id and the exit code


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command, and what it is to find around itself."""

    module: str
    function: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    terminal: bool  # whether standard input is a terminal that becomes the controlling one

    def encode(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields).encode()


class _CommandServer:
    """Forks on request, and reports exit codes."""

    def __init__(self, lifeline: socket.socket, listener: socket.socket) -> None:
        self._lifeline = lifeline
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._reports: dict[int, socket.socket] = {}
        self._wakeup, wakeup_writer = socket.socketpair()
        for end in (self._wakeup, wakeup_writer):
            end.setblocking(False)
        self._wakeup_writer = wakeup_writer
        signal.set_wakeup_fd(wakeup_writer.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for end in (lifeline, listener, self._wakeup):
            self._selector.register(end, selectors.EVENT_READ)

    def run(self) -> Callable[[], Any] | None:
        """Serves until the other end of the lifeline is closed; in a forked process it returns the command to
        be called."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._wakeup:
                    self._reap()
                elif key.fileobj is self._lifeline:
                    self._kill_all()
                    return None
                elif key.fileobj is self._listener:
                    if command := self._accept():
                        return command
                else:
                    self._kill_orphan(key.fd)

    def _accept(self) -> Callable[[], Any] | None:
        connection, _ = self._listener.accept()
        with connection:
            request, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES, STREAMS + 1)
        return self._fork(CommandRequest(**json.loads(request)), descriptors) if request else None

    def _fork(self, request: CommandRequest, descriptors: list[int]) -> Callable[[], Any] | None:
        pid = os.fork()
        if pid == 0:
            return self._become(request, descriptors)
        for descriptor in descriptors[:STREAMS]:
            os.close(descriptor)
        report = socket.socket(fileno=descriptors[STREAMS])
        with contextlib.suppress(OSError):  # who asked may have ended
            report.sendall(f"{pid}\n".encode())
        self._selector.register(report, selectors.EVENT_READ)
        self._reports[pid] = report
        return None

    def _kill_orphan(self, descriptor: int) -> None:
        """Ends a process whose caller has ended, the only thing that can be read from a report."""
        for pid, report in self._reports.items():
            if report.fileno() == descriptor:
                self._selector.unregister(report)
                os.kill(pid, signal.SIGKILL)

    def _become(self, request: CommandRequest, descriptors: list[int]) -> Callable[[], Any]:
        """Makes the forked process look like one that was started."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for stream, descriptor in enumerate(descriptors[:STREAMS]):
            os.dup2(descriptor, stream)
        if request.terminal:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
        self._selector.close()
        for end in (
            self._lifeline,
            self._listener,
            self._wakeup,
            self._wakeup_writer,
            *self._reports.values(),
        ):
            end.close()
        os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(request.environment)
        os.chdir(request.folder)
        sys.argv = request.arguments
        function: Callable[[], Any] = getattr(importlib.import_module(request.module), request.function)
        return function

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wakeup.recv(4096):
                pass
        for pid, report in list(self._reports.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            with contextlib.suppress(OSError):  # nobody may be waiting any more
                report.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            with contextlib.suppress(KeyError):
                self._selector.unregister(report)
            report.close()
            del self._reports[pid]

    def _kill_all(self) -> None:
        for pid in self._reports:
            os.kill(pid, signal.SIGKILL)


def run_python() -> None:
    """Runs `-c CODE`, `-m MODULE ...` or `FILE ...`, as an interpreter of its own would."""
    arguments = [argument for argument in sys.argv[1:3] if argument not in _NO_EFFECT] + sys.argv[3:]
    match arguments:
        case ["-c", code]:
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - as it is
        case ["-m", module, *_]:
            sys.argv = arguments[1:]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [file, *_]:
            sys.argv = arguments
            runpy.run_path(file, run_name="__main__")


def main() -> None:
    lifeline, listener = (socket.socket(fileno=int(descriptor)) for descriptor in sys.argv[1:])
    for module in IMPORTS:
        importlib.import_module(module)
    assert threading.active_count() == 1, "a process with threads cannot be forked safely"
    gc.collect()
    gc.freeze()  # the pages stay shared with the forked processes
    command = _CommandServer(lifeline, listener).run()
    if command is not None:
        sys.exit(command())


if __name__ == "__main__":
    main()
