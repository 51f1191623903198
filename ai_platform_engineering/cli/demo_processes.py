"""The processes of the demo: the stand-ins and the supervisor, which end with the command."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.server_address import ServerAddress
from ai_platform_engineering.demo.launcher import LaunchedDemo

_LAUNCHER = "ai_platform_engineering.demo"
_SUPERVISOR = "ai_platform_engineering.cli.demo_supervisor"
_MAX_LINE_BYTES = 4 * 1024 * 1024
_START_SECONDS = 120.0  # a busy machine takes long to import everything
_END_SECONDS = 20.0
_POLL_SECONDS = 0.1


@contextlib.asynccontextmanager
async def run_stand_ins(
    seed: int, folder: Path, environment: Mapping[str, str]
) -> AsyncIterator[LaunchedDemo]:
    """Runs the stand-ins while the context is open. Raises CaipeError."""
    process = await _start(
        _LAUNCHER, "--seed", str(seed), "--folder", str(folder), environment=environment, folder=folder
    )
    try:
        yield await _read_launched_demo(process)
    finally:
        await end_process(process)


async def _read_launched_demo(process: asyncio.subprocess.Process) -> LaunchedDemo:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_SECONDS):
            line = await process.stdout.readline()
        return LaunchedDemo.model_validate_json(line)
    except (TimeoutError, ValueError, ValidationError):
        raise CaipeError("The stand-ins could not be started; the lines above say why.") from None


async def start_supervisor(folder: Path, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    return await _start(_SUPERVISOR, environment=environment, folder=folder)


async def wait_until_serving(process: asyncio.subprocess.Process, home: Path) -> str | None:
    """The address of the supervisor when it serves; None when its process ends before."""
    deadline = asyncio.get_running_loop().time() + _START_SECONDS
    while process.returncode is None:
        address = ServerAddress.read(home)
        if address is not None and address.pid == process.pid:
            return address.url
        if asyncio.get_running_loop().time() > deadline:
            raise CaipeError("The supervisor does not answer. LOG_LEVEL=DEBUG shows what it waits for.")
        await asyncio.sleep(_POLL_SECONDS)
    return None


async def end_process(process: asyncio.subprocess.Process) -> None:
    """Ends a process, by force when it takes too long."""
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _start(
    module: str, *arguments: str, environment: Mapping[str, str], folder: Path
) -> asyncio.subprocess.Process:
    """A module of ours in a process of its own.

    It notices the end of this process by its stdin. In a process group of its own it gets no Ctrl-C: the
    supervisor would take a second one, ours, for "at once".
    """
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        module,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE if module == _LAUNCHER else None,
        env=dict(environment),
        cwd=folder,
        process_group=0,
        limit=_MAX_LINE_BYTES,
    )
