"""Protects this process: other programs of the same user do not look into it, and it does not outlive its
parent."""

import contextlib
import os
import signal
import sys

# From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def forbid_inspection() -> bool:
    """Makes this process not dumpable: no other program without CAP_SYS_PTRACE reads its memory or `/proc`.

    True where the system does it; elsewhere nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return False
    # Imported here: short commands on other systems need none of it.
    import ctypes
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold every key
    try:
        return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def end_with_parent(parent: int) -> None:
    """Has this process killed when `parent`, the process that started it, ends; elsewhere than on Linux only
    one that has ended already counts."""
    if sys.platform.startswith("linux"):
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before it could be watched
        os._exit(1)
