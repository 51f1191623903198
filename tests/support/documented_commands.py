"""The commands of README.md and docs/: read from the Markdown, and run as they are written."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.conftest import ROOT
from tests.support.processes import TIMEOUT, CommandResult, process_environment

# Why a block is not run, as its info string says: "```sh skip=docker".
SKIP_REASONS = {
    "docker": "needs Docker",
    "vendor": "needs credentials of a real system",
    "studio": "installs and starts LangGraph Studio, which test_studio.py does",
    "example": "names a program of the reader's own",
    "demo": "needs the demo, which installs tool servers and runs until Ctrl-C; test_demo.py starts it",
}
NOT_RUN = {
    "make test": "runs the tests, this one among them",
    "make run": "installs, and is run by .ci/first-run in a fresh clone",
    "make demo": "installs tool servers and runs until Ctrl-C; test_demo.py starts the demo",
}
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

_BLOCK = re.compile(r"^ *```sh\b *([^\n]*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_ANY_BLOCK = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(caipe(?: [^`]+)?)`")
_SERVER = re.compile(r"^(?:[A-Z_]+=\S+ +)*(?:caipe serve|caipe agent \S+(?: --port (\d+))?)\b")
# Commands that leave this machine: to hosts that do not exist (RFC 2606), real systems, package indexes.
_ELSEWHERE = re.compile(
    r"https?://[^/ ]*\.example\b|\b(?:confluence|jira|github):\S|^(?:uv|pipx|pip|npm) |\bextras install\b"
)
_FOLDER = re.compile(r" \./([a-z-]+)")


@dataclass(frozen=True, slots=True)
class CommandBlock:
    """A block of shell commands on a page; `skip` is the reason in its info string."""

    page: str
    line: int
    skip: str
    commands: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def list_blocks() -> list[CommandBlock]:
    return [block for page in PAGES for block in _read_blocks(page)]


def _read_blocks(page: Path) -> Iterator[CommandBlock]:
    text = page.read_text("utf-8")
    for match in _BLOCK.finditer(text):
        joined_lines = match[2].replace("\\\n", " ")
        commands = [line.strip() for line in joined_lines.splitlines()]
        yield CommandBlock(
            page=str(page.relative_to(ROOT)),
            line=text[: match.start()].count("\n") + 1,
            skip=match[1].strip().removeprefix("skip="),
            commands=tuple(line for line in commands if line and not line.startswith("#")),
        )


def list_mentions() -> list[tuple[str, str]]:
    """The commands that pages mention within a sentence or a table: page and command."""
    mentions: dict[tuple[str, str], None] = {}
    for page in PAGES:
        for match in _INLINE.finditer(_ANY_BLOCK.sub("", page.read_text("utf-8"))):
            mentions[str(page.relative_to(ROOT)), match[1]] = None
    return list(mentions)


def is_run(command: str) -> bool:
    return command not in NOT_RUN and not _ELSEWHERE.search(command)


def list_folders() -> list[str]:
    """The folders that commands name as the reader's."""
    commands = "\n".join(command for block in list_blocks() for command in block.commands)
    return sorted(set(_FOLDER.findall(commands)))


@dataclass(frozen=True, slots=True)
class Workplace:
    """A folder in which commands run, with ports of its own in place of 8000 and 8001."""

    folder: Path
    path: str  # the value of PATH
    port: int
    second_port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def environment(self, **more: str) -> dict[str, str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        own = {
            "PATH": self.path,
            "HOME": str(home),
            "CAIPE_HOME": str(home / ".caipe"),
            "A2A_PORT": str(self.port),
            "CAIPE_URL": self.url,
            "ENABLE_RAG": "true",
        }
        return process_environment({**own, **more})

    def localise(self, command: str) -> str:
        return command.replace("8000", str(self.port)).replace("8001", str(self.second_port))

    async def run(self, command: str) -> CommandResult:
        """A command to its end, with nothing on stdin."""
        process = await self._start(command, self.environment())
        async with asyncio.timeout(TIMEOUT):
            out, err = await process.communicate()
        return CommandResult(process.returncode or 0, out.decode(), err.decode())

    @contextlib.asynccontextmanager
    async def serve(self, command: str) -> AsyncIterator[None]:
        """A command that serves, once its port answers."""
        match = _SERVER.match(command)
        assert match is not None
        port = self.second_port if match[1] else self.port
        process = await self._start(command, self.environment())
        try:
            await _wait_for_health(f"http://127.0.0.1:{port}/health", process)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            async with asyncio.timeout(TIMEOUT):
                await process.communicate()

    async def _start(self, command: str, env: Mapping[str, str]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            self.localise(command),
            cwd=self.folder,
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def run_all(self, commands: Sequence[str]) -> list[str]:
        """Runs the commands in order, those that serve until the end; what failed, with its output."""
        failures: list[str] = []
        async with contextlib.AsyncExitStack() as servers:
            for command in filter(is_run, commands):
                if _SERVER.match(command):
                    await servers.enter_async_context(self.serve(command))
                    continue
                result = await self.run(command)
                if result.code != 0:
                    failures.append(f"{command}: exit {result.code}\n{result.out}\n{result.err}")
        return failures


def serves(block: CommandBlock) -> bool:
    return any(map(_SERVER.match, block.commands))


async def _wait_for_health(url: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(TIMEOUT), httpx.AsyncClient() as http:
        while process.returncode is None:
            with contextlib.suppress(httpx.TransportError):
                if (await http.get(url)).status_code == 200:
                    return
            await asyncio.sleep(0.1)
    assert process.stderr is not None
    raise AssertionError((await process.stderr.read()).decode())
