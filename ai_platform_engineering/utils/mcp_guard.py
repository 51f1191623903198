"""Ends tool servers whose parent has died: a process of its own, so that it works however the parent died.

Run as a script, in isolation. Each line of its input is `+group` or `-group`: a process group to watch, or one that has ended. The
end of the input means that the parent is gone; the servers see the end of their own input at the same moment and get a moment to
leave by themselves. Only the standard library, and nothing of ours: it has to start fast and stay small.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable

_GRACE = 1.0  # seconds, before each harder step


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def watch(lines: Iterable[bytes]) -> set[int]:
    """Reads until the parent is gone; the groups that are left."""
    groups: set[int] = set()
    for line in lines:
        sign, number = line[:1], line[1:].strip()
        if number.isdigit():
            (groups.add if sign == b"+" else groups.discard)(int(number))
    return groups


def end(groups: set[int]) -> None:
    for signal_number in (None, signal.SIGTERM, signal.SIGKILL):
        for group in groups:
            if signal_number is not None:
                with contextlib.suppress(OSError):
                    os.killpg(group, signal_number)
        deadline = time.monotonic() + _GRACE
        while groups and time.monotonic() < deadline:
            time.sleep(0.02)
            groups = {group for group in groups if is_there(group)}


def main() -> None:
    # A Ctrl-C or a stop of the whole service also reaches us, before the parent is gone.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    os.chdir("/")
    end(watch(sys.stdin.buffer))


if __name__ == "__main__":
    main()
