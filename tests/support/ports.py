"""Ports of loopback: free ones, and ones that refuse every connection."""

import atexit
import contextlib
import secrets
import socket

# Below the ports that the kernel chooses by itself: another test's connection could get one of those before
# the caller listens.
_RANGE = range(12_000, 32_000)


def free_port() -> int:
    """A port that nobody uses now."""
    while True:
        port = secrets.choice(_RANGE)  # not `random`: property tests seed it alike in all workers
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def closed_port() -> int:
    """A port at which nobody listens, now and until this process ends: it is bound, so that no other gets
    it."""
    holder = socket.socket()
    atexit.register(holder.close)
    holder.bind(("127.0.0.1", 0))
    return int(holder.getsockname()[1])
