"""Ports of loopback: free ones, and ones that refuse every connection."""

import atexit
import socket


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def closed_port() -> int:
    """A port at which nobody listens, now and until this process ends: it is bound, so that no other gets
    it."""
    holder = socket.socket()
    atexit.register(holder.close)
    holder.bind(("127.0.0.1", 0))
    return int(holder.getsockname()[1])
