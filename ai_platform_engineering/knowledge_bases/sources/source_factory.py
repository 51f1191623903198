"""Creates the source of a location: a folder or file, a web site, a git repository, or what a connector
reads."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.knowledge_bases.sources.connectors.connector import (
    Connectors,
    find_connector,
    list_examples,
)
from ai_platform_engineering.knowledge_bases.sources.crawler import Crawl, CrawlLimits, ReadLinks
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher
from ai_platform_engineering.knowledge_bases.sources.folder_source import FolderSource
from ai_platform_engineering.knowledge_bases.sources.git_source import GitSource
from ai_platform_engineering.knowledge_bases.sources.source_items import DocumentSource, SourceItem
from ai_platform_engineering.net.git_process import GitLimits
from ai_platform_engineering.net.git_remotes import GitRemote, parse_remote
from ai_platform_engineering.net.url_policy import FetchRefused

SourceKind = Literal["folder", "web", "git"]


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What sources need: the HTTP fetcher, a folder for fetched repositories, variables and limits for git,
    whether files of this machine may be read, where pages are parsed for their links, and the connectors by
    their kinds."""

    fetcher: Fetcher
    cache: Path
    variables: Mapping[str, str]
    allow_local: bool = True
    git_limits: GitLimits = field(default_factory=GitLimits)
    read_links: ReadLinks | None = None
    git_fetcher: Fetcher | None = None  # that checks the hosts of repositories; without it the fetcher does
    connectors: Connectors = field(default_factory=dict)

    def git_source(self, remote: GitRemote, location: str) -> GitSource:
        return GitSource(
            remote, location, self.cache, self.variables, self.git_fetcher or self.fetcher, self.git_limits
        )


class WebSource:
    """The pages of a web site, crawled from a start page."""

    kind = "web"
    revision = None
    next_cursor = ""

    def __init__(
        self,
        start: str,
        fetcher: Fetcher,
        limits: CrawlLimits | None = None,
        read_links: ReadLinks | None = None,
    ) -> None:
        self.location = Crawl(start, fetcher, limits).start
        self._fetcher = fetcher
        self._limits = limits
        self._read_links = read_links

    async def count(self) -> int | None:
        return None

    def items(self, known_marks: Mapping[str, str], cursor: str = "") -> AsyncGenerator[SourceItem, None]:
        crawl = Crawl(self.location, self._fetcher, self._limits, read_links=self._read_links)
        return crawl.items(known_marks)


def create_source(
    location: str,
    context: SourceContext,
    *,
    kind: SourceKind | None = None,
    limits: CrawlLimits | None = None,
    options: Mapping[str, str] | None = None,
) -> DocumentSource:
    """The source of a location; `kind` decides where a location could mean two things, `options` are those of
    a connector. Raises CaipeError."""
    if kind is None:
        match = find_connector(location, context.connectors)
        if match is not None:
            connector, address = match
            return connector.create(address, options or {})
    path = resolve_local_path(location, kind, context.connectors)
    if path is not None:
        return _create_local_source(path, context, kind)
    remote = None
    if kind != "web":
        remote = parse_remote(location)
    if remote is None:
        return WebSource(location.strip(), context.fetcher, limits, context.read_links)
    return context.git_source(remote, location.strip())


def resolve_local_path(
    location: str, kind: SourceKind | None = None, connectors: Connectors | None = None
) -> Path | None:
    """The path on this machine that a location means, or None for a remote one. Raises CaipeError.

    Symbolic links are resolved: permission is checked on this path, and this path is read."""
    text = location.strip()
    if not text or text.startswith("-") or "\0" in text:
        raise SourceUnavailable(
            f"Give a folder, a file, a web address or a git repository{list_examples(connectors or {})}."
        )
    if kind == "web" or (kind is None and find_connector(text, connectors or {})):
        return None
    remote = None
    if kind != "folder" or text.startswith("file:"):
        remote = parse_remote(text)
    if remote is not None and remote.protocol != "file":
        return None
    if remote is None and kind is None and text.lower().startswith(("http:", "https:")):
        return None
    if remote is None and "://" in text:
        raise FetchRefused(
            f"Only http, https, ssh and file addresses can be read{list_examples(connectors or {})}."
        )
    path = text
    if remote is not None:
        path = remote.url
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):  # RuntimeError: no such user, or links in a circle
        raise SourceUnavailable("The path cannot be read.") from None


def _create_local_source(path: Path, context: SourceContext, kind: SourceKind | None) -> DocumentSource:
    if not context.allow_local:
        raise SourceUnavailable(
            "The server's folders and files cannot be read from here. Give a web address or a git repository."
        )
    try:
        path.lstat()
    except OSError:
        raise _create_missing_error(path, context.connectors) from None
    if kind == "git" or (kind is None and _is_repository(path)):
        return context.git_source(GitRemote(str(path), "file"), str(path))
    return FolderSource(path)


def _create_missing_error(path: Path, connectors: Connectors) -> SourceUnavailable:
    message = f"There is nothing that can be read at {path}."
    if ":" in path.name and connectors:
        message += f" What is no path begins with one of: {', '.join(f'{kind}:' for kind in connectors)}."
    return SourceUnavailable(message)


def _is_repository(path: Path) -> bool:
    """A working tree, or a bare repository."""
    return (path / ".git").exists() or (
        (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()
    )
