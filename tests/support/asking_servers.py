"""Servers of `fakes/mcp_asking.py`: in both generations of the MCP library, on stdio and on HTTP."""

import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

from ai_platform_engineering.core.agent_definition import McpServer
from tests.conftest import ROOT, need
from tests.support.command_process import forked_python
from tests.support.fakes.mcp_servers import FAKES, network_guard_environment, until

Generation = Literal["before 2.0", "2.x"]
Transport = Literal["stdio", "http"]
GENERATIONS: tuple[Generation, ...] = ("before 2.0", "2.x")
TRANSPORTS: tuple[Transport, ...] = ("stdio", "http")
_OLD_PYTHON = ROOT / ".venv" / "mcp-1" / "bin" / "python"


def asking_command(generation: Generation, transport: Transport, marks: Path) -> list[str]:
    """The command of a server; it writes a file into the folder for each order."""
    program = [str(FAKES / "mcp_asking.py"), str(marks)]
    if generation == "before 2.0":
        need("mcp-1", _OLD_PYTHON.exists(), "make backends installs the MCP library before 2.0 there")
        return [str(_OLD_PYTHON), *program]
    if transport == "http":  # killed by the tests, and its port used again
        return [sys.executable, *program]
    return forked_python(*program)


@contextlib.asynccontextmanager
async def asking_server(
    generation: Generation, transport: Transport, folder: Path
) -> AsyncIterator[McpServer]:
    """The definition of a server; on HTTP it runs as a process meanwhile."""
    command, *args = asking_command(generation, transport, folder)
    if transport == "stdio":
        yield McpServer(command=command, args=tuple(args), env=network_guard_environment())
        return
    port_file = folder / "asking-port"
    process = subprocess.Popen(
        [command, *args, "--port-file", str(port_file)],
        env={"PATH": os.environ["PATH"], **network_guard_environment()},
        stderr=subprocess.DEVNULL,
    )
    try:
        await until(port_file.exists, "the start of the server")
        yield McpServer(url=f"http://127.0.0.1:{port_file.read_text()}/mcp")
    finally:
        process.kill()
        process.wait()


def list_orders(folder: Path) -> list[str]:
    """What was ordered, one entry for each time."""
    return sorted(path.read_text() for path in folder.glob("order-*"))


def list_calls(folder: Path) -> list[str]:
    """The items that the tool was called with."""
    return sorted(path.read_text() for path in folder.glob("called-*"))


def change_question(folder: Path) -> None:
    """From now on the first question of a booking is another one."""
    (folder / "changed").touch()


def open_door(folder: Path, door: str) -> None:
    """What a person does at the address of the vault's door."""
    (folder / f"opened-{door}").touch()
