"""Private working folders of tool servers: one for each start, removed at its end."""

import shutil
import tempfile
from pathlib import Path


class WorkingFolders:
    """The working folders of all servers of a process, below one temporary folder."""

    def __init__(self, parent: str | None = None) -> None:
        self._parent = parent
        self._root: Path | None = None

    @property
    def root(self) -> Path:
        """The folder above them all; made when it is first needed."""
        if self._root is None:
            parent = self._parent if self._parent and Path(self._parent).is_dir() else None
            self._root = Path(tempfile.mkdtemp(prefix="caipe-mcp-", dir=parent)).resolve()
        return self._root

    def create(self) -> Path:
        """A new folder that only this user can read."""
        return Path(tempfile.mkdtemp(dir=self.root))

    def remove(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def remove_all(self) -> None:
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None
