"""Gives up rights, then becomes the program of a tool server.

Run as a script, in isolation: `server_launcher.py [--keep-capabilities] PROGRAM ARGUMENTS...`. A process of
its own does this, because code between fork and exec is not safe in a program with threads. Only the standard
library, and nothing of ours: it has to start fast.

Without capabilities even root cannot read the memory and the environment of a process that is not dumpable.
"""

import contextlib
import ctypes
import os
import resource
import sys

KEEP_CAPABILITIES = "--keep-capabilities"
"""For the sandbox, which needs them to be set up and drops them itself."""
_MAX_OPEN_FILES = 4096
_CANNOT_START = 127  # as a shell says it
_LAST_CAPABILITY = 63
# From <linux/prctl.h>.
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4


def limit_resources() -> None:
    """No core dumps, which would hold the server's credentials, and a bounded number of open files."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard_limit == resource.RLIM_INFINITY or hard_limit > _MAX_OPEN_FILES:
            resource.setrlimit(resource.RLIMIT_NOFILE, (_MAX_OPEN_FILES, _MAX_OPEN_FILES))


def drop_capabilities() -> None:
    """The next program gets no capability, not even as root, and cannot get one through a setuid program."""
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        library.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
        for capability in range(_LAST_CAPABILITY + 1):
            library.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def main(arguments: list[str]) -> None:
    limit_resources()
    os.umask(0o077)
    if arguments[0] == KEEP_CAPABILITIES:
        arguments = arguments[1:]
    else:
        drop_capabilities()
    try:
        os.execv(arguments[0], arguments)
    except OSError as error:
        sys.stderr.write(f"{arguments[0]} cannot be started: {error.strerror}\n")
        sys.exit(_CANNOT_START)


if __name__ == "__main__":
    main(sys.argv[1:])
