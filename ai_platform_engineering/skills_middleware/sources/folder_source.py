"""Skills in a folder on disk: `<id>/SKILL.md` with its files, and the flat form `<id>--SKILL.md`."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
    MAX_SOURCE_BYTES,
    SOURCE_TOO_LARGE,
    RawSkill,
    omit_files,
)

_FLAT_SUFFIX = f"--{SKILL_MD}"
_LINKED_FOLDER = "The skill is a link to a folder. Put the folder itself here."
_LINK_OUTSIDE = "The file is a link to a place outside of the folder of skills. Put the file itself here."
_UNREADABLE = "The file cannot be read. Check that it is there and may be read."
_NOT_A_FILE = "This is not a file. Remove it."


@dataclass(frozen=True, slots=True)
class _SkillFile:
    path: str  # below the skill's folder
    disk_path: str
    status: os.stat_result | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Listing:
    """The files of a skill and the folders they are in."""

    files: list[_SkillFile] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)


class SkillFolder:
    """The skills of SKILLS_DIR. The times and sizes of its files tell whether a skill changed."""

    origin_id = ""

    def __init__(
        self,
        folder: Path,
        *,
        origin: Origin = "folder",
        watched: bool = True,
        max_bytes: int = MAX_SOURCE_BYTES,
    ) -> None:
        self._folder = folder
        self.origin = origin
        self.watched = watched
        self._max_bytes = max_bytes

    def read_skills(self, known: Mapping[str, RawSkill]) -> dict[str, RawSkill]:
        root, entries = self._scan_folder()
        skills: dict[str, RawSkill] = {}
        size = 0
        for entry in entries:
            if is_hidden(entry.name):
                continue
            previous = known.get(entry.name)
            was_omitted = previous is not None and previous.problems == (SOURCE_TOO_LARGE,)
            raw = _read_entry(entry, root, None if was_omitted else previous)
            if raw is None:
                continue
            size += raw.size
            if size <= self._max_bytes:
                skills[raw.location] = raw
            elif was_omitted and previous is not None:
                skills[raw.location] = previous
            else:
                skills[raw.location] = omit_files(raw)
        return skills

    def _scan_folder(self) -> tuple[Path, list[os.DirEntry[str]]]:
        try:
            root = self._folder.expanduser().resolve(strict=True)
            return root, _list_folder(root)
        except OSError as error:
            raise self._unavailable(error.strerror or "") from None
        except RuntimeError:
            raise self._unavailable("its links lead in a circle") from None

    def _unavailable(self, reason: str) -> SourceUnavailable:
        return SourceUnavailable(
            f"The folder {self._folder} cannot be read: {reason.lower()}. Check SKILLS_DIR."
        )


def read_skill_folder(folder: Path) -> RawSkill:
    """The files of one skill, read with the same limits. Blocks."""
    listing = _Listing()
    _walk(str(folder), "", folder.resolve(), listing)
    return _read_contents(RawSkill(folder.name, folder.name, ""), listing.files)


def _list_folder(folder: Path | str) -> list[os.DirEntry[str]]:
    return sorted(os.scandir(folder), key=lambda entry: entry.name)


def _read_entry(entry: os.DirEntry[str], root: Path, known: RawSkill | None) -> RawSkill | None:
    """The skill of a file or folder in the source; None when it is none."""
    if known is not None and _fingerprint(known.watched_paths) == known.fingerprint:
        return known
    listing = _Listing()
    name = entry.name
    if name.endswith(_FLAT_SUFFIX):
        name = name.removesuffix(_FLAT_SUFFIX)
        listing.files.append(_inspect_file(entry, SKILL_MD, root))
    elif entry.is_dir(follow_symlinks=False):
        _walk(entry.path, "", root, listing)
    elif entry.is_symlink() and entry.is_dir():
        listing.files.append(_SkillFile(SKILL_MD, entry.path, None, _LINKED_FOLDER))
    else:
        return None
    watched_paths = (*listing.folders, *(file.disk_path for file in listing.files))
    # The fingerprint first: what changes while the contents are read is seen by the next call.
    raw = RawSkill(entry.name, name, _fingerprint(watched_paths), watched_paths=watched_paths)
    return _read_contents(raw, listing.files)


def _walk(folder: str, prefix: str, root: Path, listing: _Listing) -> None:
    """Lists a folder, at most one file more than allowed, and one level more: enough to say that there are
    too many."""
    listing.folders.append(folder)
    try:
        entries = _list_folder(folder)
    except OSError as error:
        problem = f"The folder cannot be read: {(error.strerror or '').lower()}."
        listing.files.append(_SkillFile(prefix or SKILL_MD, folder, None, problem))
        return
    for entry in entries:
        path = prefix + entry.name
        if len(listing.files) > MAX_FILES:
            return
        if is_hidden(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False) and path.count("/") < MAX_DEPTH:
            _walk(entry.path, f"{path}/", root, listing)
        else:
            listing.files.append(_inspect_file(entry, path, root))


def _inspect_file(entry: os.DirEntry[str], path: str, root: Path) -> _SkillFile:
    try:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            # Inside of the folder a link is fine: that is how Kubernetes mounts a ConfigMap.
            target = Path(entry.path).resolve(strict=True)
            if not target.is_relative_to(root):
                return _SkillFile(path, entry.path, None, _LINK_OUTSIDE)
            status = target.stat()
    except (OSError, RuntimeError):
        return _SkillFile(path, entry.path, None, _UNREADABLE)
    if not stat.S_ISREG(status.st_mode):
        return _SkillFile(path, entry.path, status, _NOT_A_FILE)
    return _SkillFile(path, entry.path, status)


def _fingerprint(paths: tuple[str, ...]) -> str:
    """Changes when a file changes, and when one is added or removed, which changes its folder. Made of
    `stat` alone, since it is called often."""
    values: list[int] = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            values.append(0)
        else:
            values += (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return str(hash(tuple(values)))


def _read_contents(raw: RawSkill, files: list[_SkillFile]) -> RawSkill:
    problems = [SkillProblem(to_printable(file.path), "", file.problem) for file in files if file.problem]
    problems += find_size_problems({file.path: file.status.st_size for file in files if file.status})
    if problems:
        return replace(raw, problems=tuple(problems))
    contents: dict[str, bytes] = {}
    for file in files:
        try:
            contents[file.path] = _read_file(file.disk_path)
        except OSError as error:
            reason = (error.strerror or "").lower()
            message = f"The file cannot be read: {reason}. Check who may read it."
            problems.append(SkillProblem(to_printable(file.path), "", message))
    if problems:
        contents = {}
    return replace(raw, files=contents, problems=tuple(problems))


def _read_file(path: str) -> bytes:
    # A pipe put in the file's place since it was inspected would block for ever.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:
        return file.read(MAX_FILE_BYTES + 1)
