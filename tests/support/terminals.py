"""A program in a real pseudo-terminal: what a person types, and what stands on the screen."""

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from tests.support.command_process import CAIPE, CommandProcess, fork_command
from tests.support.processes import BIN, TIMEOUT, process_environment

_SEQUENCES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>78M])")


@dataclass(slots=True)
class PseudoTerminal:
    process: CommandProcess
    master: int
    raw: str = ""

    @property
    def text(self) -> str:
        """All that was written, without the sequences that move the cursor."""
        return _SEQUENCES.sub("", self.raw).replace("\r", "")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    async def wait_for_text(self, pattern: str, after: int = 0) -> int:
        """Waits until the text matches behind a position; where the match ends."""
        async with asyncio.timeout(TIMEOUT):
            while not (match := re.compile(pattern).search(self.text, after)):
                assert self.process.returncode is None or self.master < 0, (
                    f"it ended without {pattern!r}:\n{self.text}"
                )
                await asyncio.sleep(0.02)
        return match.end()

    async def wait_for_exit(self) -> int:
        async with asyncio.timeout(TIMEOUT):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def start_in_terminal(
    *command: str, env: Mapping[str, str] | None = None, columns: int = 100
) -> AsyncIterator[PseudoTerminal]:
    """One of our commands with a terminal of its own."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    name, *arguments = command
    process = await fork_command(
        CAIPE,
        [str(BIN / name), *arguments],
        env={**process_environment(env), "TERM": "xterm-256color"},
        stdin=slave,
        output=slave,
        terminal=True,
    )
    os.close(slave)
    terminal = PseudoTerminal(process, master)
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            piece = os.read(master, 65536)
        except OSError:
            piece = b""
        if not piece:
            loop.remove_reader(master)
        if b"\x1b[6n" in piece:
            os.write(master, b"\x1b[1;1R")  # a terminal answers where its cursor is
        terminal.raw += piece.decode(errors="replace")

    loop.add_reader(master, read)
    try:
        yield terminal
    finally:
        loop.remove_reader(master)
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()
        os.close(master)
