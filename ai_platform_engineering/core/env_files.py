"""`.env` files: which ones are read, and which a person has trusted.

A `.env` names programs to run and servers that get keys, so one that merely lies in the current folder, as in
a cloned repository, is not read before somebody has said so.
"""

import hashlib
import io
import json
import logging
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dotenv import dotenv_values

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.private_files import write_private_file
from ai_platform_engineering.core.terminals import command_name

logger = logging.getLogger(__name__)

HOME_VARIABLE = "CAIPE_HOME"
ENV_FILE_VARIABLE = "CAIPE_ENV_FILE"

_ENV_FILE = ".env"
_TRUST_FILE = "trusted-files.json"
_MAX_FILE_BYTES = 1024 * 1024
_MAX_NAMED_FILES = 2000
_MAX_NAMED_BYTES = 32 * 1024 * 1024
_CHECKOUT = Path(__file__).resolve().parents[2]

_warned_paths: set[Path] = set()  # one warning for each file in a process, however often it is looked at


def find_home(process_variables: Mapping[str, str]) -> Path:
    """The folder of this program: CAIPE_HOME, or `.caipe` in the home of its user."""
    home = process_variables.get(HOME_VARIABLE, "").strip()
    if home:
        return Path(home)
    return Path.home() / ".caipe"


@dataclass(frozen=True, slots=True)
class EnvFiles:
    """The `.env` files that were read, in their order, and their variables, the later over the earlier."""

    paths: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    def add(self, path: Path, variables: Mapping[str, str] | None) -> "EnvFiles":
        """With a further file; None for one that is not there, or does not count."""
        if variables is None:
            return self
        return EnvFiles((*self.paths, path), {**self.variables, **variables})


def read_env_files(process_variables: Mapping[str, str]) -> EnvFiles:
    """All files that count. Raises ConfigurationError.

    First the one in CAIPE_HOME; then the one that is named (`--env-file`, CAIPE_ENV_FILE), or, without a
    name, the one in the current folder, if that is this program's own checkout or the file was trusted.
    """
    home = find_home(process_variables)
    files = EnvFiles().add(home / _ENV_FILE, _read_file(home / _ENV_FILE))
    named_file = process_variables.get(ENV_FILE_VARIABLE, "").strip()
    if named_file:
        return files.add(Path(named_file), read_named_file(Path(named_file)))
    folder = _current_folder()
    if folder is not None and folder != home.resolve():
        files = files.add(folder / _ENV_FILE, _read_folder_file(folder, TrustedFiles(home)))
    return files


def read_named_file(path: Path) -> dict[str, str]:
    """The variables of a file that a person has named. Raises ConfigurationError."""
    variables = _read_file(path, regular=False)
    if variables is None:
        raise ConfigurationError(f"{printable(path)} was named as the file of settings, and is not there.")
    return variables


@dataclass(frozen=True, slots=True)
class TrustedFiles:
    """The files that a person has trusted, each by its digest, stored in CAIPE_HOME."""

    home: Path

    def trust(self, file: Path) -> list[str]:
        """Stores the digest of the file as it is now; returns the names of its variables.

        Raises ConfigurationError.
        """
        path = _absolute(file)
        content = _read_bytes(path)
        if content is None:
            raise ConfigurationError(f"There is no file {printable(path)}.")
        variables = _parse(content, path)
        self._write({**self._read(), str(path): _digest(content, variables, path.parent)})
        return list(variables)

    def forget(self, file: Path) -> bool:
        """Removes the file from the trusted ones; whether it was among them."""
        digests = self._read()
        if digests.pop(str(_absolute(file)), None) is None:
            return False
        self._write(digests)
        return True

    def find_digest(self, path: Path) -> str | None:
        return self._read().get(str(path))

    def _read(self) -> dict[str, str]:
        path = self.home / _TRUST_FILE
        try:
            digests = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, RecursionError):
            digests = None
        if not isinstance(digests, dict):
            raise ConfigurationError(f"{path} is damaged. Remove it, and trust your files again.")
        return {str(name): str(digest) for name, digest in digests.items()}

    def _write(self, digests: Mapping[str, str]) -> None:
        write_private_file(self.home / _TRUST_FILE, json.dumps(digests, indent=1).encode())


def default_trust_target() -> Path:
    """The file that `caipe trust` means without a name."""
    return Path(_ENV_FILE)


def printable(text: object) -> str:
    """A text without characters that steer a terminal: names of folders come from strangers too."""
    return "".join(character if character.isprintable() else "?" for character in str(text))


def _read_folder_file(folder: Path, trusted_files: TrustedFiles) -> dict[str, str] | None:
    """The variables of the file in the current folder; None when it is not there or not trusted."""
    path = folder / _ENV_FILE
    if not path.is_file():
        return None
    own_checkout = is_own_checkout(folder)
    trusted_digest = trusted_files.find_digest(path)
    if trusted_digest is None and not own_checkout:
        _warn_untrusted(path, trusted_files.home)
        return None
    content = _read_bytes(path)
    if content is None:
        return None
    variables = _parse(content, path)
    if not own_checkout and _digest(content, variables, folder) != trusted_digest:
        # Not only a warning: what was trusted may have switched a protection on.
        raise ConfigurationError(
            f"{printable(path)}, or a file that it names, has changed since it was trusted. Look at it, then"
            f" run `{command_name()} trust` again in its folder, or with --forget to go on without it."
        )
    return variables


def _warn_untrusted(path: Path, home: Path) -> None:
    if path in _warned_paths:
        return
    _warned_paths.add(path)
    logger.warning(
        "%s is not read: it can name programs to run and servers that get your keys, and nobody has trusted"
        " it yet. Look at it, then run `%s trust` in its folder; or keep your settings in %s.",
        printable(path),
        command_name(),
        printable(home / _ENV_FILE),
    )


def is_own_checkout(folder: Path) -> bool:
    """Whether this program itself runs from the folder; in an installed package there is no such folder."""
    return folder == _CHECKOUT and (_CHECKOUT / "pyproject.toml").is_file()


def _current_folder() -> Path | None:
    try:
        return Path.cwd().resolve()
    except OSError:  # it was removed
        return None


def _absolute(file: Path) -> Path:
    """The path under which a file is trusted: its folder resolved, its own name as it is found there."""
    return file.parent.resolve() / file.name


def _read_file(path: Path, *, regular: bool = True) -> dict[str, str] | None:
    content = _read_bytes(path, regular=regular)
    if content is None:
        return None
    return _parse(content, path)


def _read_bytes(path: Path, *, regular: bool = True) -> bytes | None:
    """The content of a file; None when it is not there. A named one may also be a pipe."""
    try:
        # Not blocking: a pipe that nobody writes to would stop the command for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (os.O_NONBLOCK if regular else 0))
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode) or (regular and not stat.S_ISREG(mode)):
                return None
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(_MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigurationError(f"{printable(path)} cannot be read ({error.strerror}).") from None
    if len(content) > _MAX_FILE_BYTES:
        raise ConfigurationError(f"{printable(path)} is longer than {_MAX_FILE_BYTES} bytes.")
    return content


def _parse(content: bytes, path: Path) -> dict[str, str]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{printable(path)} cannot be read (UnicodeDecodeError). It must be a text file in UTF-8."
        ) from None
    # From the text, so that what is used is what was checked.
    variables = dotenv_values(stream=io.StringIO(text))
    return {name: value for name, value in variables.items() if value is not None}


def _digest(content: bytes, variables: Mapping[str, str], folder: Path) -> str:
    """A digest of the file and of the files that its values name in its folder: they are trusted with it."""
    digest = hashlib.sha256(content)
    total_bytes = 0
    for number, file in enumerate(_find_named_files(variables, folder)):
        size = file.stat().st_size
        total_bytes += size
        if number >= _MAX_NAMED_FILES or total_bytes > _MAX_NAMED_BYTES:
            raise ConfigurationError(
                f"{printable(folder / _ENV_FILE)} names more than {_MAX_NAMED_FILES} files or"
                f" {_MAX_NAMED_BYTES} bytes, too much to be trusted. Name a smaller folder in it."
            )
        digest.update(f"\0{file}\0{size}\0".encode("utf-8", "surrogateescape"))
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _find_named_files(variables: Mapping[str, str], folder: Path) -> Iterator[Path]:
    parts = {part.strip() for value in variables.values() for part in value.split(os.pathsep)}
    for part in sorted(parts - {""}):
        path = folder / part
        try:
            if Path(part).is_absolute() and not path.resolve().is_relative_to(folder):
                continue
            if path.is_file():
                yield path
            elif path.is_dir():
                yield from sorted(file for file in path.rglob("*") if file.is_file())
        except (OSError, ValueError):  # no path at all: too long, or with a zero byte
            continue
