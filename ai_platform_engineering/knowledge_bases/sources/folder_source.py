"""Documents from a folder or a file of this machine."""

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pathspec import GitIgnoreSpec

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.knowledge_bases.documents import RawDocument
from ai_platform_engineering.knowledge_bases.sources.source_items import (
    ChangedItem,
    RemovedItem,
    SkippedItem,
    SourceItem,
    UnchangedItem,
)

MAX_FILE_BYTES = 20 * 1024 * 1024
_NEVER = frozenset({"node_modules", "__pycache__"})  # what programs make, also where no .gitignore says so
_LOOKED_AT = 8192


@dataclass(frozen=True, slots=True)
class _File:
    path: Path  # where it is read from, links resolved
    address: str
    mark: str
    changed: datetime


@dataclass(frozen=True, slots=True)
class _Failed:
    """A place that could not be looked into: what is known below it stays."""

    address: str
    reason: str


class FolderSource:
    """A folder with all that is below it, or one file. Addresses are paths below the folder."""

    kind = "folder"
    revision = None

    def __init__(self, path: Path) -> None:
        self._root = path.expanduser().resolve()
        self.location = str(self._root)

    async def count(self) -> int | None:
        return await asyncio.to_thread(lambda: sum(isinstance(entry, _File) for entry in self._walk()))

    async def items(self, known: Mapping[str, str]) -> AsyncGenerator[SourceItem, None]:
        entries = await asyncio.to_thread(lambda: list(self._walk()))
        there: set[str] = set()
        failed: list[str] = []
        for entry in entries:
            item = await asyncio.to_thread(_read, entry, known) if isinstance(entry, _File) else entry
            if isinstance(item, _Failed):
                failed.append(item.address)
                item = SkippedItem(item.address, item.reason)
            elif not isinstance(item, SkippedItem):
                there.add(item.address)
            yield item
        for address in known:
            if address not in there and not any(
                address == place or address.startswith(f"{place}/") for place in failed
            ):
                yield RemovedItem(address)

    def _walk(self) -> Iterator[_File | SkippedItem | _Failed]:
        try:
            single = stat.S_ISREG(self._root.stat().st_mode)
            if not single:
                os.scandir(self._root).close()
        except OSError as error:
            raise SourceUnavailable(f"{self.location} cannot be read: {_reason(error)}.") from None
        if single:
            yield self._file(self._root, self._root.name)
        else:
            yield from self._below(self._root, "", ())

    def _below(
        self, folder: Path, prefix: str, ignored: "tuple[_Ignored, ...]"
    ) -> Iterator[_File | SkippedItem | _Failed]:
        try:
            ignored = (*ignored, *_ignored_by(folder / ".gitignore", prefix))
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            yield _Failed(prefix.rstrip("/"), f"The folder cannot be read: {_reason(error)}.")
            return
        for entry in entries:
            address = prefix + entry.name
            folder_like = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or _ignores(ignored, address, folder_like):
                continue
            if entry.name.startswith("."):
                yield SkippedItem(address, "It is hidden.")
            elif entry.name in _NEVER:
                yield SkippedItem(address, "Such folders are left out.")
            elif folder_like:
                yield from self._below(Path(entry.path), f"{address}/", ignored)
            else:
                yield self._file(Path(entry.path), address)

    def _file(self, path: Path, address: str) -> _File | SkippedItem | _Failed:
        try:
            address.encode()
            real = path.resolve(strict=True)
            status = real.stat()
        except UnicodeEncodeError:
            return SkippedItem(address.encode(errors="replace").decode(), "Its name is not text.")
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            return _Failed(address, f"It cannot be read: {_reason(error)}.")
        if real != self._root and not real.is_relative_to(self._root):
            return SkippedItem(address, "It is a link to a place outside of the folder.")
        if not stat.S_ISREG(status.st_mode):
            return SkippedItem(
                address, "It is a link to a folder." if stat.S_ISDIR(status.st_mode) else "It is not a file."
            )
        if status.st_size > MAX_FILE_BYTES:
            return SkippedItem(address, describe_size_limit())
        return _File(
            real,
            address,
            f"{status.st_mtime_ns}-{status.st_size}",
            datetime.fromtimestamp(status.st_mtime, UTC),
        )


def looks_binary(content: bytes) -> bool:
    """Whether bytes are neither text nor a document that can be read."""
    if content.startswith((b"%PDF-", b"\xff\xfe", b"\xfe\xff")):
        return False
    return b"\0" in content[:_LOOKED_AT]


def describe_size_limit() -> str:
    return f"It is larger than {MAX_FILE_BYTES // 1024 // 1024} MB."


def _read(file: _File, known: Mapping[str, str]) -> ChangedItem | UnchangedItem | SkippedItem | _Failed:
    if known.get(file.address) == file.mark:
        return UnchangedItem(file.address, file.mark)
    try:
        # A pipe put in the file's place since it was looked at would block for ever.
        with open(os.open(file.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        return _Failed(file.address, f"It cannot be read: {_reason(error)}.")
    if len(content) > MAX_FILE_BYTES:
        return SkippedItem(file.address, describe_size_limit())
    if looks_binary(content):
        return SkippedItem(file.address, "It is binary.")
    return ChangedItem(RawDocument(file.address, content, changed=file.changed), file.mark)


@dataclass(frozen=True, slots=True)
class _Ignored:
    prefix: str
    spec: GitIgnoreSpec


def _ignored_by(path: Path, prefix: str) -> list[_Ignored]:
    if not path.is_file():
        return []
    lines = path.read_bytes()[:1_000_000].decode("utf-8", "replace").splitlines()
    return [_Ignored(prefix, GitIgnoreSpec.from_lines(line for line in lines if _is_pattern(line)))]


def _is_pattern(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:  # git passes over such a line as well
        return False
    return True


def _ignores(specs: tuple[_Ignored, ...], address: str, folder: bool) -> bool:
    """What the innermost .gitignore that speaks of it says."""
    for ignored in reversed(specs):
        said = ignored.spec.check_file(address.removeprefix(ignored.prefix) + ("/" if folder else "")).include
        if said is not None:
            return said
    return False


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__).lower()
    return "its links lead in a circle"
