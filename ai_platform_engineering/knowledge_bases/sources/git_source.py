"""The source of documents in a git repository: the files of its newest commit."""

import hashlib
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.knowledge_bases.documents import RawDocument
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher
from ai_platform_engineering.knowledge_bases.sources.folder_source import (
    MAX_FILE_BYTES,
    describe_size_limit,
    looks_binary,
)
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
from ai_platform_engineering.net.git import GitBlobReader, GitRepository, GitTreeEntry
from ai_platform_engineering.net.git_process import GitLimits
from ai_platform_engineering.net.git_remotes import GitRemote, check_remote

_LFS = b"version https://git-lfs.github.com/spec/"


class GitSource:
    """The text files of a repository's newest commit. Addresses are paths; a file's mark is the id of its
    blob."""

    kind = "git"
    next_cursor = ""

    def __init__(
        self,
        remote: GitRemote,
        location: str,
        cache: Path,
        variables: Mapping[str, str],
        fetcher: Fetcher,
        limits: GitLimits | None = None,
        *,
        secret_settings: Mapping[str, str] | None = None,
    ) -> None:
        self.location = location
        self._remote = remote
        self._fetcher = fetcher
        self.revision: str | None = None
        name = hashlib.sha256(f"{remote.url} {remote.ref}".encode()).hexdigest()[:24]
        self._git = GitRepository(cache / name, variables, limits=limits, secret_settings=secret_settings)

    async def count(self) -> int | None:
        """Known only once it was fetched."""
        if self.revision is None:
            return None
        return sum(
            entry.kind == "blob" for entry in await self._git.entries(self.revision, self._remote.folder)
        )

    async def items(
        self, known_marks: Mapping[str, str], cursor: str = ""
    ) -> AsyncGenerator[SourceItem, None]:
        remote = self._remote
        settings = await check_remote(remote, self._fetcher.check_url)
        commit = await self._git.fetch(remote.url, remote.ref, protocol=remote.protocol, settings=settings)
        self.revision = commit
        entries = await self._git.entries(commit, remote.folder)
        if remote.folder and not entries:
            raise SourceUnavailable(f"The repository has no {remote.folder}.")
        readable: set[str] = set()
        listed: set[str] = set()
        async with self._git.reader() as blobs:
            for entry in entries:
                is_named = entry.path == remote.folder
                item = _skip_entry(entry, is_named=is_named) or await self._read_blob(
                    entry, commit, blobs, known_marks
                )
                if not isinstance(item, SkippedItem):
                    readable.add(item.address)
                elif item.address in listed:
                    continue
                listed.add(item.address)
                yield item
        for address in known_marks:
            if address not in readable:
                yield RemovedItem(address)

    async def _read_blob(
        self, entry: GitTreeEntry, commit: str, blobs: GitBlobReader, known_marks: Mapping[str, str]
    ) -> ChangedItem | UnchangedItem | SkippedItem:
        if known_marks.get(entry.path) == entry.object_id:
            return UnchangedItem(entry.path, entry.object_id)
        content = await blobs.read(entry.object_id)
        if content.startswith(_LFS):
            return SkippedItem(entry.path, "It is kept in Git LFS, which is not fetched.")
        if looks_binary(entry.path, content):
            return SkippedItem(entry.path, "It is a binary file.")
        reason = explain_left_out_content(entry.path, content)
        if reason and entry.path != self._remote.folder:
            return SkippedItem(entry.path, reason)
        return ChangedItem(
            RawDocument(entry.path, content, link=self._remote.link(commit, entry.path)), entry.object_id
        )


def _skip_entry(entry: GitTreeEntry, *, is_named: bool) -> SkippedItem | None:
    parts = entry.path.split("/")
    for depth, part in enumerate(parts):
        if part.startswith("."):
            return SkippedItem("/".join(parts[: depth + 1]), "It is hidden.")
    if entry.kind != "blob":
        return SkippedItem(entry.path, f"It is a {entry.kind}.")
    reason = explain_left_out_name(entry.path)
    if reason and not is_named:
        return SkippedItem(entry.path, reason)
    if entry.size > MAX_FILE_BYTES:
        return SkippedItem(entry.path, describe_size_limit())
    return None
