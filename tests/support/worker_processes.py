"""The workers of a process, as the system lists them."""

import os
import signal
from pathlib import Path

from ai_platform_engineering.knowledge_bases.workers.worker_kinds import WorkerKind
from tests.support.knowledge import wait_until

PACKAGE = "ai_platform_engineering.knowledge_bases.workers"


def list_workers(kind: WorkerKind, parent: int | None = None) -> list[int]:
    """The workers of a kind that this process, or another one, has started and that still run."""
    wanted = [PACKAGE, kind, str(parent or os.getpid())]
    pids: list[int] = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has just ended
            continue
        if command[-4:-1] == wanted:
            pids.append(int(folder.name))
    return pids


async def wait_for_worker(kind: WorkerKind, parent: int | None = None, *, other_than: int = 0) -> int:
    """Waits for the only worker of a kind."""
    await wait_until(lambda: len(set(list_workers(kind, parent)) - {other_than}) == 1)
    (pid,) = set(list_workers(kind, parent)) - {other_than}
    return pid


async def wait_for_no_worker(kind: WorkerKind, parent: int | None = None) -> None:
    await wait_until(lambda: not list_workers(kind, parent))


def pause(pid: int) -> None:
    """It takes calls, and does nothing."""
    os.kill(pid, signal.SIGSTOP)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
