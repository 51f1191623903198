"""The file in which a server says that it owns the knowledge base, so that commands on this machine go
through it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ai_platform_engineering.core.private_files import write_private_file

KNOWLEDGE_FOLDER = "knowledge"  # below the home folder of this program


@dataclass(frozen=True, slots=True)
class OwnerProcess:
    """The process that may change the knowledge base: its URL, and a key that proves a request is of the same
    user."""

    url: str
    local_key: str = field(repr=False)

    def write(self, home: Path) -> None:
        """Replaces the owner file as a whole; only this user can read it."""
        content = json.dumps({"url": self.url, "local_key": self.local_key})
        write_private_file(owner_file_path(home), content.encode())

    @classmethod
    def read(cls, home: Path) -> "OwnerProcess | None":
        """The owner that wrote the file last; it may not run any more."""
        try:
            values: Any = json.loads(owner_file_path(home).read_text(encoding="utf-8"))
            return cls(str(values["url"]), str(values["local_key"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def owner_file_path(home: Path) -> Path:
    return home / KNOWLEDGE_FOLDER / "owner.json"
