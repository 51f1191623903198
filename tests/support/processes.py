"""Our commands as processes, with an environment that holds only what a test sets, or in a thread."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner

from ai_platform_engineering.cli.main import main
from tests.support.command_process import CAIPE, UVICORN, CommandProcess, Entry, fork_command

BIN = Path(sys.executable).parent  # not resolved: the link in .venv is where the commands are
INHERITED_VARIABLES = ("PATH", "LANG", "TMPDIR", "PYTHONPATH", "CAIPE_TEST_GUARD_FILE", "CAIPE_HOME")
FORKED: Mapping[str, Entry] = {"caipe": CAIPE, "uvicorn": UVICORN}
TIMEOUT = 120.0  # a busy machine takes long to start a process


@dataclass(slots=True)
class CommandResult:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@dataclass(slots=True)
class Program:
    """A running command; what it wrote to stderr can be waited for."""

    process: asyncio.subprocess.Process | CommandProcess
    err: str = ""
    _stderr_changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def read_stderr(self) -> None:
        assert self.process.stderr is not None
        while piece := await self.process.stderr.read(4096):
            async with self._stderr_changed:
                self.err += piece.decode()
                self._stderr_changed.notify_all()
        async with self._stderr_changed:
            self._stderr_changed.notify_all()

    async def wait_for_stderr(self, pattern: str) -> re.Match[str]:
        """Waits until stderr matches."""
        async with asyncio.timeout(TIMEOUT), self._stderr_changed:
            await self._stderr_changed.wait_for(
                lambda: re.search(pattern, self.err) or self.process.returncode is not None
            )
        match = re.search(pattern, self.err)
        assert match, f"{pattern!r} was not said: {self.err}"
        return match

    async def wait_for_exit(self) -> CommandResult:
        """Waits for the end."""
        assert self.process.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            out = (await self.process.stdout.read()).decode()
            code = await self.process.wait()
        return CommandResult(code, out, self.err)

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


def process_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Just enough to start Python, with the test's own folder as home.

    The knowledge base and the check of tool servers are off unless a test turns them on.
    """
    own = {"HOME": os.getcwd(), "ENABLE_RAG": "false", "MCP_CHECK_SERVERS": "false"}
    return {
        **{name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ},
        **own,
        **(env or {}),
    }


@contextlib.asynccontextmanager
async def start_command(
    *command: str, env: Mapping[str, str] | None = None, stdin: str | bytes | None = None
) -> AsyncIterator[Program]:
    """One of our commands, in the current folder; it does not outlive the context.

    `caipe` and `uvicorn` are forked by the command server, the others are executed.
    """
    with _open_stdin(stdin) as descriptor:
        process = await _start(command, process_environment(env), descriptor)
    program = Program(process)
    watching = asyncio.create_task(program.read_stderr())
    try:
        yield program
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await watching


@contextlib.contextmanager
def _open_stdin(content: str | bytes | None) -> Iterator[int]:
    """A descriptor to read the content from; without one it is at its end at once."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(content.encode() if isinstance(content, str) else content or b"")
    try:
        yield reading
    finally:
        os.close(reading)


async def _start(
    command: tuple[str, ...], env: Mapping[str, str], stdin: int
) -> asyncio.subprocess.Process | CommandProcess:
    name, *arguments = command
    program = str(BIN / name)
    if name in FORKED:
        return await fork_command(FORKED[name], [program, *arguments], env=env, stdin=stdin)
    return await asyncio.create_subprocess_exec(
        program,
        *arguments,
        env=env,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run_command(
    *command: str, env: Mapping[str, str] | None = None, stdin: str | bytes | None = None
) -> CommandResult:
    """One of our commands to its end."""
    async with start_command(*command, env=env, stdin=stdin) as program:
        done = await program.wait_for_exit()
    return CommandResult(done.code, done.out, program.err)


async def invoke_caipe(
    *arguments: str, env: Mapping[str, str] | None = None, stdin: str | None = None
) -> CommandResult:
    """`caipe` in a thread of this process: the same code, spared the start of an interpreter."""
    result = await asyncio.to_thread(CliRunner().invoke, main, arguments, input=stdin, env=dict(env or {}))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return CommandResult(result.exit_code, result.stdout, result.stderr)
