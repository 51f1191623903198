"""Earlier questions of `caipe chat`: a private file with a limit."""

import contextlib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

MAX_QUESTIONS = 1000
MAX_FILE_BYTES = 1_000_000


def open_history(path: Path | None) -> History:
    """The history in the file; without one it lasts as long as the session."""
    if path is None:
        return InMemoryHistory()
    with contextlib.suppress(OSError):
        _shorten_file(path)
    return _LimitedHistory(str(path))


class _LimitedHistory(FileHistory):
    """Offers the newest questions. A file that cannot be written is no reason not to answer one."""

    def load_history_strings(self) -> Iterable[str]:
        return islice(super().load_history_strings(), MAX_QUESTIONS)

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(string)


def _shorten_file(path: Path) -> None:
    """Keeps the newer half of a file that has grown too long, from the beginning of a question on."""
    if path.stat().st_size <= MAX_FILE_BYTES:
        return
    newer_half = path.read_bytes()[-MAX_FILE_BYTES // 2 :]
    start = newer_half.find(b"\n# ")  # the time before each question
    path.write_bytes(newer_half[start + 1 :] if start >= 0 else b"")
