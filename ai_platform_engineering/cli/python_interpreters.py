"""Python interpreters of other versions than ours, for tool servers that need one."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from ai_platform_engineering.core.errors import CaipeError

_TRY_SECONDS = 30


def find_python(version: str, environment: Mapping[str, str]) -> str:
    """The path of an interpreter of this version, such as 3.12, that runs. Raises CaipeError."""
    command = shutil.which(f"python{version}")
    if command is None:
        raise CaipeError(
            f"The server needs Python {version}, which is not installed."
            f" Install python{version} and try again."
        )
    for interpreter in (command, *_list_pyenv_interpreters(command, version)):
        if _runs(interpreter, environment):
            return interpreter
    raise CaipeError(
        f"The server needs Python {version}, and {command} does not run."
        f" Install python{version} and try again."
    )


def _list_pyenv_interpreters(command: str, version: str) -> Iterator[str]:
    """The interpreters behind a shim of pyenv, which itself runs only the versions that are switched on."""
    folder = Path(command).parent
    if folder.name == "shims":
        for path in sorted((folder.parent / "versions").glob(f"{version}.*/bin/python{version}")):
            yield str(path)


def _runs(interpreter: str, environment: Mapping[str, str]) -> bool:
    try:
        trial = subprocess.run(
            [interpreter, "-c", "import venv"],
            check=False,
            capture_output=True,
            env=dict(environment),
            timeout=_TRY_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return trial.returncode == 0
