"""The source of documents in a folder or a file of this machine."""

import asyncio
import os
import re
import stat
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pathspec import GitIgnoreSpec

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.knowledge_bases.documents import RawDocument
from ai_platform_engineering.knowledge_bases.reading.charsets import detect_utf16
from ai_platform_engineering.knowledge_bases.reading.office_signatures import is_office_file
from ai_platform_engineering.knowledge_bases.sources.left_out_files import (
    explain_left_out_content,
    explain_left_out_name,
)
from ai_platform_engineering.knowledge_bases.sources.source_items import (
    ChangedItem,
    RemovedItem,
    SkippedItem,
    SourceItem,
    UnchangedItem,
)

MAX_FILE_BYTES = 20 * 1024 * 1024
_GENERATED_FOLDERS = frozenset({"node_modules", "__pycache__"})  # skipped even without a .gitignore
_BINARY_CHECK_BYTES = 8192


@dataclass(frozen=True, slots=True)
class _File:
    """A file to read if its mark, modification time and size, has changed."""

    path: Path  # with symbolic links resolved
    address: str
    mark: str
    changed: datetime
    is_named: bool = False  # the location is this file


@dataclass(frozen=True, slots=True)
class _UnreadablePath:
    """A folder or file that cannot be read: documents below it that are stored stay."""

    address: str
    reason: str


class FolderSource:
    """The files below a folder, or one file. Addresses are paths relative to the folder."""

    kind = "folder"
    revision = None
    next_cursor = ""

    def __init__(self, path: Path) -> None:
        self._root = path.expanduser().resolve()
        self.location = str(self._root)

    async def count(self) -> int | None:
        return await asyncio.to_thread(lambda: sum(isinstance(entry, _File) for entry in self._walk()))

    async def items(
        self, known_marks: Mapping[str, str], cursor: str = ""
    ) -> AsyncGenerator[SourceItem, None]:
        entries = await asyncio.to_thread(lambda: list(self._walk()))
        readable: set[str] = set()
        unreadable: list[str] = []
        for entry in entries:
            item: SourceItem | _UnreadablePath
            if isinstance(entry, _File):
                item = await asyncio.to_thread(_read_file, entry, known_marks)
            else:
                item = entry
            if isinstance(item, _UnreadablePath):
                unreadable.append(item.address)
                item = SkippedItem(item.address, item.reason)
            elif not isinstance(item, SkippedItem):
                readable.add(item.address)
            yield item
        for address in known_marks:
            if address not in readable and not _is_below(address, unreadable):
                yield RemovedItem(address)

    def _walk(self) -> Iterator[_File | SkippedItem | _UnreadablePath]:
        try:
            is_file = stat.S_ISREG(self._root.stat().st_mode)
            if not is_file:
                os.scandir(self._root).close()
        except OSError as error:
            raise SourceUnavailable(f"{self.location} cannot be read: {_describe_error(error)}.") from None
        if is_file:  # named by a person, so it is read whatever it is
            yield self._check_file(self._root, self._root.name, is_named=True)
        else:
            yield from self._walk_folder(self._root, "", ())

    def _walk_folder(
        self, folder: Path, prefix: str, ignore_files: "tuple[_IgnoreFile, ...]"
    ) -> Iterator[_File | SkippedItem | _UnreadablePath]:
        try:
            ignore_files = (*ignore_files, *_read_ignore_file(folder / ".gitignore", prefix))
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            yield _UnreadablePath(prefix.rstrip("/"), f"The folder cannot be read: {_describe_error(error)}.")
            return
        for entry in entries:
            address = prefix + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or _is_ignored(ignore_files, address, is_folder):
                continue
            if entry.name.startswith("."):
                yield SkippedItem(address, "It is hidden.")
            elif entry.name in _GENERATED_FOLDERS:
                yield SkippedItem(address, "Such folders are left out.")
            elif is_folder:
                yield from self._walk_folder(Path(entry.path), f"{address}/", ignore_files)
            else:
                yield self._check_file(Path(entry.path), address)

    def _check_file(
        self, path: Path, address: str, *, is_named: bool = False
    ) -> _File | SkippedItem | _UnreadablePath:
        try:
            address.encode()
            resolved = path.resolve(strict=True)
            status = resolved.stat()
        except UnicodeEncodeError:
            return SkippedItem(address.encode(errors="replace").decode(), "Its name is not text.")
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            return _UnreadablePath(address, f"It cannot be read: {_describe_error(error)}.")
        if resolved != self._root and not resolved.is_relative_to(self._root):
            return SkippedItem(address, "It is a link to a place outside of the folder.")
        if stat.S_ISDIR(status.st_mode):
            return SkippedItem(address, "It is a link to a folder.")
        if not stat.S_ISREG(status.st_mode):
            return SkippedItem(address, "It is not a file.")
        reason = explain_left_out_name(address)
        if reason and not is_named:
            return SkippedItem(address, reason)
        if status.st_size > MAX_FILE_BYTES:
            return SkippedItem(address, describe_size_limit())
        return _File(
            resolved,
            address,
            f"{status.st_mtime_ns}-{status.st_size}",
            datetime.fromtimestamp(status.st_mtime, UTC),
            is_named,
        )


def looks_binary(name: str, content: bytes) -> bool:
    """Whether a file is neither text nor a document; one that cannot be read is for the reader to explain."""
    if content.startswith((b"%PDF-", b"\xff\xfe", b"\xfe\xff")) or is_office_file(name, content):
        return False
    return b"\0" in content[:_BINARY_CHECK_BYTES] and detect_utf16(content) is None


def describe_size_limit() -> str:
    return f"It is larger than {MAX_FILE_BYTES // 1024 // 1024} MB."


def _read_file(
    file: _File, known_marks: Mapping[str, str]
) -> ChangedItem | UnchangedItem | SkippedItem | _UnreadablePath:
    if known_marks.get(file.address) == file.mark:
        return UnchangedItem(file.address, file.mark)
    try:
        # Without O_NONBLOCK a pipe that has replaced the file since the walk would block for ever.
        with open(os.open(file.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        return _UnreadablePath(file.address, f"It cannot be read: {_describe_error(error)}.")
    if len(content) > MAX_FILE_BYTES:
        return SkippedItem(file.address, describe_size_limit())
    if looks_binary(file.address, content):
        return SkippedItem(file.address, "It is a binary file.")
    reason = explain_left_out_content(file.address, content)
    if reason and not file.is_named:
        return SkippedItem(file.address, reason)
    return ChangedItem(RawDocument(file.address, content, changed=file.changed), file.mark)


_MAX_IGNORE_BYTES = 100_000
_MAX_WILDCARDS = 2  # in one pattern, of those that have many ways to match
_STARS = re.compile(r"(?<!\\)\*+")


@dataclass(frozen=True, slots=True)
class _IgnoreFile:
    """The patterns of a .gitignore, and the address of its folder."""

    prefix: str
    spec: GitIgnoreSpec


def _read_ignore_file(path: Path, prefix: str) -> list[_IgnoreFile]:
    if not path.is_file():
        return []
    lines = path.read_bytes()[:_MAX_IGNORE_BYTES].decode("utf-8", "replace").splitlines()
    patterns = [_limit_wildcards(line) for line in lines]
    return [_IgnoreFile(prefix, GitIgnoreSpec.from_lines(line for line in patterns if _is_pattern(line)))]


def _limit_wildcards(line: str) -> str:
    """The pattern, made wider when it has so many wildcards that matching one long name would take for ever.

    An exception (`!`) is left out instead: it would bring in what should be ignored."""
    segments = line.split("/")
    deep = [number for number, segment in enumerate(segments) if segment == "**"]
    # The only star of a segment has one way to match; each further one has as many as the name is long.
    ambiguous_stars = sum(max(0, len(_STARS.findall(segment)) - 1) for segment in segments)
    if len(deep) + ambiguous_stars <= _MAX_WILDCARDS:
        return line
    if line.startswith("!"):
        return ""
    if len(deep) > 1:
        segments[deep[0] : deep[-1] + 1] = ["**"]
    return "/".join(map(_join_stars, segments))


def _join_stars(segment: str) -> str:
    first, *others = _STARS.split(segment)
    if len(others) > 1:
        return f"{first}*{others[-1]}"
    return segment


def _is_pattern(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:  # git passes over such a line as well
        return False
    return True


def _is_ignored(ignore_files: tuple[_IgnoreFile, ...], address: str, is_folder: bool) -> bool:
    """Whether a path is ignored, as the innermost .gitignore with a matching pattern says."""
    if is_folder:
        address += "/"
    for ignore_file in reversed(ignore_files):
        include = ignore_file.spec.check_file(address.removeprefix(ignore_file.prefix)).include
        if include is not None:
            return include
    return False


def _is_below(address: str, paths: Iterable[str]) -> bool:
    return any(address == path or address.startswith(f"{path}/") for path in paths)


def _describe_error(error: Exception) -> str:
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__).lower()
    return "its links lead in a circle"
