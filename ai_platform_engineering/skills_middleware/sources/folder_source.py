"""Skills in a folder of this machine: `<id>/SKILL.md` with its files, and the flat form `<id>--SKILL.md`."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.core.skills import Origin
from ai_platform_engineering.skills_middleware.file_rules import (
    MAX_DEPTH,
    MAX_FILE_BYTES,
    MAX_FILES,
    SKILL_MD,
    SkillProblem,
    find_size_problems,
    is_hidden,
    to_printable,
)
from ai_platform_engineering.skills_middleware.sources.skill_source import (
    LEFT_OUT,
    MAX_SOURCE_BYTES,
    RawSkill,
    omit_files,
)

_FLAT = f"--{SKILL_MD}"


@dataclass(frozen=True, slots=True)
class _File:
    path: str  # below the skill's folder
    real: str
    status: os.stat_result | None
    problem: str = ""


class FolderSource:
    """The skills of SKILLS_DIR. Whether one changed is told by the times and sizes of its files."""

    origin_id = ""

    def __init__(
        self, folder: Path, *, origin: Origin = "folder", watched: bool = True, most: int = MAX_SOURCE_BYTES
    ) -> None:
        self._folder = folder
        self.origin = origin
        self.watched = watched
        self._most = most

    def read_skills(self, known: Mapping[str, RawSkill]) -> dict[str, RawSkill]:
        try:
            root = self._folder.expanduser().resolve(strict=True)
            entries = sorted(os.scandir(root), key=lambda entry: entry.name)
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            said = (error.strerror or "") if isinstance(error, OSError) else "its links lead in a circle"
            raise SourceUnavailable(
                f"The folder {self._folder} cannot be read: {said.lower()}. Check SKILLS_DIR."
            ) from None
        found: dict[str, RawSkill] = {}
        size = 0
        for entry in entries:
            before = known.get(entry.name)
            left_out = before is not None and before.problems == (LEFT_OUT,)
            one = _held(entry, root, None if left_out else before) if not is_hidden(entry.name) else None
            if one is not None:
                size += one.size
                again = before if left_out and before is not None else omit_files(one)
                found[one.location] = one if size <= self._most else again
        return found


def read_skill_folder(folder: Path) -> RawSkill:
    """The files of one skill, read with the same limits. Blocks."""
    files: list[_File] = []
    _walk(str(folder), "", folder.resolve(), files, [])
    return _read(RawSkill(folder.name, folder.name, ""), files)


def _held(entry: os.DirEntry[str], root: Path, known: RawSkill | None) -> RawSkill | None:
    if known is not None and _mark(known.watched_paths) == known.fingerprint:
        return known
    files: list[_File] = []
    folders: list[str] = []
    name = entry.name
    if name.endswith(_FLAT):
        name = name.removesuffix(_FLAT)
        files.append(_looked(entry, SKILL_MD, root))
    elif entry.is_dir(follow_symlinks=False):
        _walk(entry.path, "", root, files, folders)
    elif entry.is_symlink() and entry.is_dir():
        files.append(
            _File(SKILL_MD, entry.path, None, "The skill is a link to a folder. Put the folder itself here.")
        )
    else:
        return None
    watched = (*folders, *(file.real for file in files))
    return _read(
        RawSkill(entry.name, name, _mark(watched), watched_paths=watched), files
    )  # the mark first: what changes meanwhile is seen later


def _walk(folder: str, prefix: str, root: Path, files: list[_File], folders: list[str]) -> None:
    """At most one file more than allowed, and one level more: enough to say that there are too many."""
    folders.append(folder)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        files.append(
            _File(
                prefix or SKILL_MD,
                folder,
                None,
                f"The folder cannot be read: {(error.strerror or '').lower()}.",
            )
        )
        return
    for entry in entries:
        path = prefix + entry.name
        if len(files) > MAX_FILES:
            return
        if is_hidden(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False) and path.count("/") < MAX_DEPTH:
            _walk(entry.path, f"{path}/", root, files, folders)
        else:
            files.append(_looked(entry, path, root))


def _looked(entry: os.DirEntry[str], path: str, root: Path) -> _File:
    try:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            # Inside of the folder a link is fine: that is how Kubernetes mounts a ConfigMap.
            target = Path(entry.path).resolve(strict=True)
            if not target.is_relative_to(root):
                said = (
                    "The file is a link to a place outside of the folder of skills. Put the file itself here."
                )
                return _File(path, entry.path, None, said)
            status = target.stat()
    except (OSError, RuntimeError):
        return _File(
            path, entry.path, None, "The file cannot be read. Check that it is there and may be read."
        )
    if not stat.S_ISREG(status.st_mode):
        return _File(path, entry.path, status, "This is not a file. Remove it.")
    return _File(path, entry.path, status)


def _mark(watched: tuple[str, ...]) -> str:
    """Tells whether a file changed, or one came or went: that changes the folder. The cheapest way there is, for it is gone often."""
    seen: list[int] = []
    for path in watched:
        try:
            status = os.stat(path)
        except OSError:
            seen.append(0)
        else:
            seen += (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return str(hash(tuple(seen)))


def _read(held: RawSkill, files: list[_File]) -> RawSkill:
    problems = [SkillProblem(to_printable(file.path), "", file.problem) for file in files if file.problem]
    problems += find_size_problems({file.path: file.status.st_size for file in files if file.status})
    if problems:
        return replace(held, problems=tuple(problems))
    contents: dict[str, bytes] = {}
    for file in files:
        try:
            # A pipe put in the file's place since it was looked at would block for ever.
            with open(os.open(file.real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as opened:
                contents[file.path] = opened.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            problems.append(
                SkillProblem(
                    to_printable(file.path),
                    "",
                    f"The file cannot be read: {(error.strerror or '').lower()}. Check who may read it.",
                )
            )
    return replace(held, files={} if problems else contents, problems=tuple(problems))
