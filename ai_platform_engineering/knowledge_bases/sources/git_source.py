"""Documents from a git repository: the files of its newest commit."""

import hashlib
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.knowledge_bases.documents import Raw
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher
from ai_platform_engineering.knowledge_bases.sources.folder_source import MAX_FILE, looks_binary, too_large
from ai_platform_engineering.knowledge_bases.sources.source_items import Found, Gone, Item, Skipped, Unchanged
from ai_platform_engineering.net.git import Blobs, Entry, Git
from ai_platform_engineering.net.git_remotes import Remote, allowed

_LFS = b"version https://git-lfs.github.com/spec/"


class Repository:
    """The text files of a repository's newest commit. Addresses are paths; a file's mark is the id of its content."""

    kind = "git"

    def __init__(self, remote: Remote, location: str, cache: Path, variables: Mapping[str, str], fetcher: Fetcher) -> None:
        self.location, self._remote, self._fetcher = location, remote, fetcher
        self.revision: str | None = None
        name = hashlib.sha256(f"{remote.url} {remote.ref}".encode()).hexdigest()[:24]
        self._git = Git(cache / name, variables)

    async def count(self) -> int | None:
        """Known only once it was fetched."""
        if self.revision is None:
            return None
        return sum(entry.kind == "blob" for entry in await self._git.entries(self.revision, self._remote.below))

    async def items(self, known: Mapping[str, str]) -> AsyncGenerator[Item, None]:
        remote = self._remote
        settings = await allowed(remote, self._fetcher.checked)
        commit = await self._git.fetch(remote.url, remote.ref, protocol=remote.protocol, settings=settings)
        self.revision = commit
        entries = await self._git.entries(commit, remote.below)
        if remote.below and not entries:
            raise SourceUnavailable(f"The repository has no {remote.below}.")
        there: set[str] = set()
        told: set[str] = set()
        async with self._git.reader() as blobs:
            for entry in entries:
                item = _unwanted(entry) or await self._read(entry, commit, blobs, known)
                if not isinstance(item, Skipped):
                    there.add(item.address)
                elif item.address in told:
                    continue
                told.add(item.address)
                yield item
        for address in known:
            if address not in there:
                yield Gone(address)

    async def _read(self, entry: Entry, commit: str, blobs: Blobs, known: Mapping[str, str]) -> Found | Unchanged | Skipped:
        if known.get(entry.path) == entry.object_id:
            return Unchanged(entry.path, entry.object_id)
        content = await blobs.read(entry.object_id)
        if content.startswith(_LFS):
            return Skipped(entry.path, "It is kept in Git LFS, which is not fetched.")
        if looks_binary(content):
            return Skipped(entry.path, "It is binary.")
        return Found(Raw(entry.path, content, link=self._remote.link(commit, entry.path)), entry.object_id)


def _unwanted(entry: Entry) -> Skipped | None:
    parts = entry.path.split("/")
    for depth, part in enumerate(parts):
        if part.startswith("."):
            return Skipped("/".join(parts[: depth + 1]), "It is hidden.")
    if entry.kind != "blob":
        return Skipped(entry.path, f"It is a {entry.kind}.")
    return Skipped(entry.path, too_large()) if entry.size > MAX_FILE else None
