"""Priorities: what is made for later does not compete with what somebody waits for."""

import contextlib
import os

READING = 5  # somebody may wait for a document to be brought in
EMBEDDING = 19  # minutes of work on all cores, and documents are found without it


def lower_priority(niceness: int) -> None:
    """Lowers the priority of this thread and of what it starts; elsewhere than on Linux, of the process."""
    with contextlib.suppress(OSError):
        os.nice(niceness)
