"""Definitions of the fake MCP servers, sessions for tests, and a look at the processes that are left."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool

import network_guard
from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from tests.conftest import ROOT, need
from tests.support.command_process import forked_python
from tests.support.fakes.mcp_http import FAKE_TASK

FAKES = Path(__file__).parent
LONG = 60.0  # for waiting: no test takes this long unless it fails


def raw_stdio_server(*options: str, marks: Path | None = None, **env: str) -> McpServer:
    """The hand-written server on stdio; without site packages it starts at once."""
    mark_options = ("--marks", str(marks)) if marks else ()
    return McpServer(
        command=sys.executable, args=("-S", str(FAKES / "mcp_raw.py"), *options, *mark_options), env=env
    )


def sdk_stdio_server(**env: str) -> McpServer:
    """The server made with the protocol's library, on stdio."""
    command, *args = forked_python(str(FAKES / "mcp_real.py"))
    return McpServer(command=command, args=tuple(args), env={**network_guard_environment(), **env})


def network_guard_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PYTHONPATH", network_guard.GUARD_FILE) if name in os.environ}


def child_test_environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """An environment of ours whose processes can be told from those of other tests."""
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), **more}


def list_processes(tmp_path: Path) -> dict[int, str]:
    """The living processes that were started with these surroundings, with their commands."""
    need("/proc", Path("/proc/self/environ").exists(), "processes are counted there")
    marker = f"HOME={tmp_path}".encode()
    commands: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if marker in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if "\nState:\tZ" not in (folder / "status").read_text():
                    commands[int(folder.name)] = command
    return commands


def list_server_pids(tmp_path: Path) -> list[int]:
    return [pid for pid, command in list_processes(tmp_path).items() if "mcp_r" in command]


async def until(done: Callable[[], Any], what: str = "it") -> Any:
    """Waits for something true, with a limit."""
    deadline = time.monotonic() + LONG
    while not (result := done()):
        assert time.monotonic() < deadline, f"{what} did not happen in {LONG} s"
        await asyncio.sleep(0.01)
    return result


@contextlib.asynccontextmanager
async def open_sessions(tmp_path: Path, **options: Any) -> AsyncIterator[McpSessionPool]:
    """Sessions that must leave nothing behind: no process, no task."""
    before = asyncio.all_tasks()
    environment = child_test_environment(tmp_path, **options.pop("environment", {}))
    sessions = McpSessionPool(
        **{"connect_timeout": LONG, "call_timeout": LONG, "environment": environment, **options}
    )
    try:
        yield sessions
    finally:
        await sessions.aclose()
    assert list_processes(tmp_path) == {}
    assert [task for task in asyncio.all_tasks() - before if task.get_name() != FAKE_TASK] == []


def by_name(tools: Sequence[BaseTool]) -> dict[str, BaseTool]:
    return {tool.name: tool for tool in tools}


@contextlib.contextmanager
def run_python_script(script: str, tmp_path: Path, *args: str) -> Iterator[None]:
    """A process of ours with this script, for tests in which we die."""
    environment = {
        **child_test_environment(tmp_path),
        **network_guard_environment(),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", script, *args],
        env=environment,
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
