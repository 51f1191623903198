"""Creates the source of a location: a folder or file, a web site, or a git repository."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.knowledge_bases.sources.crawler import Crawl, CrawlLimits
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher
from ai_platform_engineering.knowledge_bases.sources.folder_source import FolderSource
from ai_platform_engineering.knowledge_bases.sources.git_source import GitSource
from ai_platform_engineering.knowledge_bases.sources.source_items import DocumentSource, SourceItem
from ai_platform_engineering.net.git_remotes import GitRemote, parse_remote
from ai_platform_engineering.net.url_policy import FetchRefused

SourceKind = Literal["folder", "web", "git"]


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What sources need: the HTTP fetcher, a folder for fetched repositories, environment variables for git,
    and whether files of this machine may be read."""

    fetcher: Fetcher
    cache: Path
    variables: Mapping[str, str]
    allow_local: bool = True


class WebSource:
    """The pages of a web site, crawled from a start page."""

    kind = "web"
    revision = None

    def __init__(self, start: str, fetcher: Fetcher, limits: CrawlLimits | None = None) -> None:
        self.location = Crawl(start, fetcher, limits).start
        self._fetcher = fetcher
        self._limits = limits

    async def count(self) -> int | None:
        return None

    def items(self, known_marks: Mapping[str, str]) -> AsyncGenerator[SourceItem, None]:
        return Crawl(self.location, self._fetcher, self._limits).items(known_marks)


def create_source(
    location: str,
    context: SourceContext,
    *,
    kind: SourceKind | None = None,
    limits: CrawlLimits | None = None,
) -> DocumentSource:
    """The source of a location; `kind` decides where a location could mean two things. Raises CaipeError."""
    path = resolve_local_path(location, kind)
    if path is not None:
        return _create_local_source(path, context, kind)
    remote = None
    if kind != "web":
        remote = parse_remote(location)
    if remote is None:
        return WebSource(location.strip(), context.fetcher, limits)
    return GitSource(remote, location.strip(), context.cache, context.variables, context.fetcher)


def resolve_local_path(location: str, kind: SourceKind | None = None) -> Path | None:
    """The path on this machine that a location means, or None for a remote one. Raises CaipeError.

    Symbolic links are resolved: permission is checked on this path, and this path is read."""
    text = location.strip()
    if not text or text.startswith("-") or "\0" in text:
        raise SourceUnavailable("Give a folder, a file, a web address or a git repository.")
    if kind == "web":
        return None
    remote = None
    if kind != "folder" or text.startswith("file:"):
        remote = parse_remote(text)
    if remote is not None and remote.protocol != "file":
        return None
    if remote is None and kind is None and text.lower().startswith(("http:", "https:")):
        return None
    if remote is None and "://" in text:
        raise FetchRefused("Only http, https, ssh and file addresses can be read.")
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
            "Folders and files of the server are not read from here. Give a web address or a git repository."
        )
    try:
        path.lstat()
    except OSError:
        raise SourceUnavailable(f"There is nothing that can be read at {path}.") from None
    if kind == "git" or (kind is None and _is_repository(path)):
        return GitSource(
            GitRemote(str(path), "file"), str(path), context.cache, context.variables, context.fetcher
        )
    return FolderSource(path)


def _is_repository(path: Path) -> bool:
    """A working tree, or a bare repository."""
    return (path / ".git").exists() or (
        (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()
    )
