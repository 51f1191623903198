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
from dataclasses import dataclass, field

import pyte

from tests.support.command_process import CAIPE, CommandProcess, fork_command
from tests.support.processes import BIN, TIMEOUT, process_environment

_SEQUENCES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>78M])")


_SCROLLBACK = 10_000  # lines


@dataclass(slots=True)
class DrawnScreen:
    """A terminal emulator, fed what a program writes: the window as drawn, and what scrolled out of it."""

    columns: int
    rows: int
    _screen: pyte.HistoryScreen = field(init=False)
    _stream: pyte.ByteStream = field(init=False)

    def __post_init__(self) -> None:
        self._screen = pyte.HistoryScreen(self.columns, self.rows, history=2 * _SCROLLBACK)
        self._stream = pyte.ByteStream(self._screen)

    def feed(self, piece: bytes) -> None:
        self._stream.feed(piece)

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)

    @property
    def window(self) -> list[str]:
        """The lines that stand in the window."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def lines(self) -> list[str]:
        """All lines, those that scrolled out of the window first."""
        scrolled = ["".join(row[x].data for x in sorted(row)).rstrip() for row in self._screen.history.top]
        return [*scrolled, *self.window]

    @property
    def cursor(self) -> tuple[int, int]:
        """The row and the column of the cursor, counted from one."""
        return self._screen.cursor.y + 1, self._screen.cursor.x + 1

    @property
    def cursor_hidden(self) -> bool:
        return bool(self._screen.cursor.hidden)


@dataclass(slots=True)
class PseudoTerminal:
    process: CommandProcess
    master: int
    screen: DrawnScreen
    raw: str = ""

    @property
    def text(self) -> str:
        """All that was written, without the sequences that move the cursor."""
        return _SEQUENCES.sub("", self.raw).replace("\r", "")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Changes the size of the window; the program is told by a signal."""
        self.screen.resize(columns, rows)
        _set_size(self.master, columns, rows)

    async def wait_for_window(self, pattern: str) -> None:
        """Waits until the window as it is drawn matches."""
        try:
            async with asyncio.timeout(TIMEOUT):
                while not re.search(pattern, "\n".join(self.screen.window)):
                    assert self.process.returncode is None, f"it ended without {pattern!r}:\n{self.text}"
                    await asyncio.sleep(0.02)
        except TimeoutError:
            window = "\n".join(self.screen.window)
            raise AssertionError(f"{pattern!r} was not drawn:\n{window}") from None

    async def wait_for_text(self, pattern: str, after: int = 0) -> int:
        """Waits until the text matches behind a position; where the match ends."""
        try:
            async with asyncio.timeout(TIMEOUT):
                while not (match := re.compile(pattern).search(self.text, after)):
                    assert self.process.returncode is None or self.master < 0, (
                        f"it ended without {pattern!r}:\n{self.text}"
                    )
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{pattern!r} was not written:\n{self.text[after:]}") from None
        return match.end()

    async def wait_for_exit(self) -> int:
        async with asyncio.timeout(TIMEOUT):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def start_in_terminal(
    *command: str, env: Mapping[str, str] | None = None, columns: int = 100, rows: int = 40
) -> AsyncIterator[PseudoTerminal]:
    """One of our commands with a terminal of its own."""
    master, slave = pty.openpty()
    _set_size(slave, columns, rows)
    name, *arguments = command
    process = await fork_command(
        CAIPE,
        [str(BIN / name), *arguments],
        env={"TERM": "xterm-256color", **process_environment(env)},
        stdin=slave,
        output=slave,
        terminal=True,
    )
    os.close(slave)
    terminal = PseudoTerminal(process, master, DrawnScreen(columns, rows))
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            piece = os.read(master, 65536)
        except OSError:
            piece = b""
        if not piece:
            loop.remove_reader(master)
        terminal.raw += piece.decode(errors="replace")
        terminal.screen.feed(piece)
        for _ in range(piece.count(b"\x1b[6n")):
            row, column = terminal.screen.cursor
            os.write(master, f"\x1b[{row};{column}R".encode())  # a terminal answers where its cursor is

    loop.add_reader(master, read)
    try:
        yield terminal
    finally:
        loop.remove_reader(master)
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()
        os.close(master)


def _set_size(descriptor: int, columns: int, rows: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
