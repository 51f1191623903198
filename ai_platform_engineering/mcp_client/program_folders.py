"""The folders that a program needs to run: its virtual environment, its packages, its interpreter."""

import os
from collections.abc import Iterator
from pathlib import Path

_SCRIPT_SUFFIXES = frozenset((".cjs", ".jar", ".js", ".mjs", ".php", ".py", ".rb", ".sh", ".ts"))
_LIBRARY_FOLDERS = ("lib", "lib64", "libexec")  # beside `bin`
_MAX_SHEBANG_BYTES = 512


def find_program_folders(program: Path) -> set[Path]:
    """The folders of a program, of what it is a link to, and of the interpreter that a script names."""
    folders: set[Path] = set()
    for file in _follow_links(program):
        folders.update(_find_own_folders(file))
    interpreter = _read_interpreter(program)
    if interpreter is not None and interpreter != program:
        for file in _follow_links(interpreter):
            folders.update(_find_own_folders(file))
    return folders


def is_script(file: Path) -> bool:
    """Whether a file is a program's source: it may load others from its folder."""
    return file.suffix in _SCRIPT_SUFFIXES


def _follow_links(file: Path) -> Iterator[Path]:
    """The file, each link on the way, and the file at the end."""
    yield file
    for _ in range(8):
        if not file.is_symlink():
            break
        file = Path(os.path.normpath(file.parent / file.readlink()))
        yield file
    yield file.resolve()


def _find_own_folders(file: Path) -> Iterator[Path]:
    environment = _find_virtual_environment(file)
    if environment is not None:
        yield environment
        yield from _find_base_folders(environment)
        return
    package_folder = _find_node_project(file)
    if package_folder is not None:
        yield package_folder
        return
    yield from _find_installation(file.parent)


def _find_installation(folder: Path) -> Iterator[Path]:
    """A folder of programs, with the libraries beside it."""
    yield folder
    if folder.name == "bin":
        for name in _LIBRARY_FOLDERS:
            if (folder.parent / name).is_dir():
                yield folder.parent / name


def _find_virtual_environment(file: Path) -> Path | None:
    for folder in file.parents:
        if (folder / "pyvenv.cfg").is_file():
            return folder
    return None


def _find_base_folders(environment: Path) -> Iterator[Path]:
    """The installation of Python that a virtual environment was made from."""
    try:
        lines = (environment / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip() == "home" and value.strip():
            yield from _find_installation(Path(value.strip()))
            yield from _find_installation(Path(value.strip()).resolve())


def _find_node_project(file: Path) -> Path | None:
    """The outermost `node_modules` above the file: packages lie beside each other in it."""
    folders = [folder for folder in file.parents if folder.name == "node_modules"]
    if not folders:
        return None
    return folders[-1]


def _read_interpreter(program: Path) -> Path | None:
    """The interpreter in the first line of a script."""
    try:
        with program.open("rb") as file:
            first_line = file.readline(_MAX_SHEBANG_BYTES)
    except OSError:
        return None
    if not first_line.startswith(b"#!"):
        return None
    words = first_line[2:].decode(errors="replace").split()
    if not words or not words[0].startswith("/"):
        return None
    return Path(words[0])
