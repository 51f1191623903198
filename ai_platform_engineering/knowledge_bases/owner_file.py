"""Which process owns the knowledge base: a server says where it is, so that commands on this machine go through it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KNOWLEDGE_FOLDER = "knowledge"  # of the knowledge base, in the home of this program


@dataclass(frozen=True, slots=True)
class OwnerProcess:
    """Where the process that may change the knowledge base is reached, and the key that proves that this is the same user's machine."""

    url: str
    local_key: str = field(repr=False)

    def write(self, home: Path) -> None:
        path = owner_file_path(home)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        beside.unlink(missing_ok=True)
        beside.touch(mode=0o600, exist_ok=False)
        beside.write_text(json.dumps({"url": self.url, "local_key": self.local_key}), encoding="utf-8")
        beside.replace(path)

    @classmethod
    def read(cls, home: Path) -> "OwnerProcess | None":
        """The one that announced itself last; it may be gone."""
        try:
            said: Any = json.loads(owner_file_path(home).read_text(encoding="utf-8"))
            return cls(str(said["url"]), str(said["local_key"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def owner_file_path(home: Path) -> Path:
    return home / KNOWLEDGE_FOLDER / "owner.json"
