"""The file in CAIPE_HOME that says where the server of this home answers, so that commands find it."""

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ai_platform_engineering.core.private_files import write_private_file

_FILE = Path("supervisor", "server.json")
_MAX_FILE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The server that uses a home: its URL and its process. It may have ended without a word."""

    url: str
    pid: int
    embedded: bool = False  # it ends with a command, and the next command may serve in its place

    def write(self, home: Path) -> None:
        """Replaces the file as a whole; only this user can read it. Raises OSError."""
        write_private_file(home / _FILE, json.dumps(asdict(self)).encode())

    def remove(self, home: Path) -> None:
        """Removes the file, unless it is another server's by now."""
        if ServerAddress.read(home) == self:
            with contextlib.suppress(OSError):
                (home / _FILE).unlink()

    @classmethod
    def read(cls, home: Path) -> "ServerAddress | None":
        """The server that wrote the file last."""
        path = home / _FILE
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                return None
            values: Any = json.loads(path.read_text(encoding="utf-8"))
            return cls(str(values["url"]), int(values["pid"]), bool(values["embedded"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):  # it belongs to somebody else
            return True
        return True
