"""Ends tool servers whose parent has died: a process of its own, so that it works however the parent died.

Run as a script, in isolation. The lines on its input say what to watch: `?mark` before a server is started,
`+group mark` when its process group is known (`!mark` when there was none), `-group` when it has ended. The
end of the input means that the parent is gone; the servers see the end of their own input at the same moment
and get a moment to leave by themselves. A server whose group was not named in time is found by the mark in
its environment. The folder that is its argument, which holds the servers' working folders, is removed at the
end. Only the standard library, and nothing of ours: it has to start fast and stay small.
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
    """Reads until the parent is gone: the groups that are left, and the marks of servers being started."""
    groups: set[int] = set()
    starting: set[str] = set()
    for line in lines:
        sign = line[:1]
        first, *more = line[1:].split() or [""]
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
    """Waits for the groups to end by themselves, then sends SIGTERM, then SIGKILL."""
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            signal_groups(groups, number)
        deadline = time.monotonic() + _GRACE
        while (groups or starting) and time.monotonic() < deadline:
            time.sleep(0.02)
            started = find_marked_groups(starting) if starting else {}
            starting = starting - started.keys()
            groups = set(filter(group_exists, groups.union(started.values())))


def signal_groups(groups: set[int], number: int) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, number)


def find_marked_groups(marks: set[str]) -> dict[str, int]:
    """The groups of processes with these marks, where the system tells."""
    marks_by_variable = {f"{MARK_VARIABLE}={mark}".encode(): mark for mark in marks}
    groups: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
                for variable in marks_by_variable.keys() & set(file.read().split(b"\0")):
                    groups[marks_by_variable[variable]] = os.getpgid(int(pid))
    return groups


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
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    terminate_groups(*read_groups(sys.stdin))
    import shutil  # late: the start must be fast

    for folder in sys.argv[1:]:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
