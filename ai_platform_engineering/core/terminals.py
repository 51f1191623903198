"""Whether a process runs in somebody's terminal, and how this program is called there."""

import os
import shlex
import shutil
import sys
from pathlib import Path

_COMMAND = "caipe"


def is_in_terminal() -> bool:
    """Whether a standard stream is a terminal: the process is to end when that is closed."""
    return any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def command_name() -> str:
    """How a person calls this program here: `caipe` where that is on the PATH, else the script's path."""
    script = Path(sys.argv[0])
    if script.name != _COMMAND:  # another of our commands, or an embedder
        script = Path(sys.executable).with_name(_COMMAND)
    if not script.is_file() or _is_on_path(script):
        return _COMMAND
    return shlex.quote(_shorten(script))


def _is_on_path(script: Path) -> bool:
    program = shutil.which(_COMMAND)
    return program is not None and os.path.samefile(program, script)


def _shorten(script: Path) -> str:
    """The path from the current folder, where the script is below it."""
    try:
        return str(script.absolute().relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(script.absolute())
