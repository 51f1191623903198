"""Files and folders that only their owner can read."""

import contextlib
import logging
import os
import stat
import tempfile
from pathlib import Path

logger = logging.getLogger(__name__)

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def create_private_folder(folder: Path) -> None:
    """Creates the folder and those above it that are missing, each for its owner alone. Raises OSError."""
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def open_private_file(path: Path) -> int:
    """Opens a file for reading and writing, and creates it; nobody else may read it. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    mode = os.fstat(descriptor).st_mode
    if mode & _OTHERS:  # of an earlier version, or copied
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, stat.S_IMODE(mode) & ~_OTHERS)
    return descriptor


def write_private_file(path: Path, content: bytes) -> None:
    """Replaces the file as a whole: a reader sees the old content or the new one. Raises OSError."""
    create_private_folder(path.parent)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # made with 0600
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def make_home_private(home: Path) -> None:
    """Takes what others may do from an existing folder of this program; a new one is created without.

    A folder that belongs to somebody else, such as a mounted volume, is left as it is, with a warning.
    """
    try:
        mode = stat.S_IMODE(home.stat().st_mode)
    except OSError:
        return
    if not mode & _OTHERS:
        return
    try:
        home.chmod(mode & ~_OTHERS)
    except OSError:
        logger.warning(
            "%s, where conversations are kept, can be read by others and belongs to another user."
            " Take their permissions away, or set CAIPE_HOME to a folder of your own.",
            home,
        )
