"""Ends tool servers whose parent has died: a process of its own, so that it works however the parent died.

Run as a script, in isolation. It is told by lines what to watch: `?mark` before a server is started, `+group mark` when its process
group is known (`!mark` when there was none), `-group` when it has ended. The end of the input means that the parent is gone; the
servers see the end of their own input at the same moment and get a moment to leave by themselves. A server whose group was not told
in time is found by the mark in its environment. Only the standard library, and nothing of ours: it has to start fast and stay small.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable

MARK_VARIABLE = "CAIPE_MCP_START"
_GRACE = 1.0  # seconds, before each harder step


def read_groups(lines: Iterable[str]) -> tuple[set[int], set[str]]:
    """Reads until the parent is gone; the groups that are left, and the marks of servers that were being started."""
    groups: set[int] = set()
    starting: set[str] = set()
    for line in lines:
        sign, (first, *more) = line[:1], line[1:].split() or [""]
        if sign == "?":
            starting.add(first)
        elif sign == "!":
            starting.discard(first)
        elif sign == "+":
            groups.add(int(first))
            starting.difference_update(more)
        elif sign == "-":
            groups.discard(int(first))
    return groups, starting


def terminate_groups(groups: set[int], starting: set[str]) -> None:
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        for group in groups if number else ():
            with contextlib.suppress(OSError):
                os.killpg(group, number)
        deadline = time.monotonic() + _GRACE
        while (groups or starting) and time.monotonic() < deadline:
            time.sleep(0.02)
            found = find_marked_groups(starting) if starting else {}
            starting = starting - found.keys()
            groups = {group for group in groups.union(found.values()) if group_exists(group)}


def find_marked_groups(marks: set[str]) -> dict[str, int]:
    """The groups of processes with these marks, where the system tells."""
    wanted = {f"{MARK_VARIABLE}={mark}".encode(): mark for mark in marks}
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
                for variable in wanted.keys() & set(file.read().split(b"\0")):
                    found[wanted[variable]] = os.getpgid(int(pid))
    return found


def group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def main() -> None:
    # A Ctrl-C or a stop of the whole service also reaches us, before the parent is gone.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    os.chdir("/")
    terminate_groups(*read_groups(sys.stdin))


if __name__ == "__main__":
    main()
