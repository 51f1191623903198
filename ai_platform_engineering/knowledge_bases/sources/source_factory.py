"""From what a person writes to where the documents are: a folder or file, a web site, a git repository."""

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
    """What sources need: the way out, a folder for fetched repositories, the variables for git, and whether this machine may be read."""

    fetcher: Fetcher
    cache: Path
    variables: Mapping[str, str]
    allow_local: bool = True


class WebSource:
    """A web site from a page on."""

    kind = "web"
    revision = None

    def __init__(self, start: str, fetcher: Fetcher, bounds: CrawlLimits | None = None) -> None:
        self.location = Crawl(start, fetcher, bounds).start
        self._fetcher, self._bounds = fetcher, bounds

    async def count(self) -> int | None:
        return None

    def items(self, known: Mapping[str, str]) -> AsyncGenerator[SourceItem, None]:
        return Crawl(self.location, self._fetcher, self._bounds).items(known)


def create_source(
    location: str,
    context: SourceContext,
    *,
    kind: SourceKind | None = None,
    bounds: CrawlLimits | None = None,
) -> DocumentSource:
    """Where the documents of a location come from; `kind` decides where it could mean two things. Raises CaipeError."""
    if (path := resolve_local_path(location, kind)) is not None:
        return _local(path, context, kind)
    remote = None if kind == "web" else parse_remote(location)
    if remote is None:
        return WebSource(location.strip(), context.fetcher, bounds)
    return GitSource(remote, location.strip(), context.cache, context.variables, context.fetcher)


def resolve_local_path(location: str, kind: SourceKind | None = None) -> Path | None:
    """The place on this machine that a location means, with links resolved: what may be read is decided on it, and it is what will be
    read. None for what is elsewhere. Raises CaipeError."""
    text = location.strip()
    if not text or text.startswith("-") or "\0" in text:
        raise SourceUnavailable("Give a folder, a file, a web address or a git repository.")
    if kind == "web":
        return None
    remote = parse_remote(text) if kind != "folder" or text.startswith("file:") else None
    if remote is not None and remote.protocol != "file":
        return None
    if remote is None and kind is None and text.lower().startswith(("http:", "https:")):
        return None
    if remote is None and "://" in text:
        raise FetchRefused("Only http, https, ssh and file addresses can be read.")
    try:
        return Path(text if remote is None else remote.url).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):  # RuntimeError: no such user, or links in a circle
        raise SourceUnavailable("The path cannot be read.") from None


def _local(path: Path, around: SourceContext, kind: SourceKind | None) -> DocumentSource:
    if not around.allow_local:
        raise SourceUnavailable(
            "Folders and files of the server are not read from here. Give a web address or a git repository."
        )
    try:
        path.lstat()
    except OSError:
        raise SourceUnavailable(f"There is nothing that can be read at {path}.") from None
    if kind == "git" or (kind is None and _is_repository(path)):
        return GitSource(
            GitRemote(str(path), "file"), str(path), around.cache, around.variables, around.fetcher
        )
    return FolderSource(path)


def _is_repository(path: Path) -> bool:
    """A working tree, or a bare repository."""
    return (path / ".git").exists() or (
        (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()
    )
