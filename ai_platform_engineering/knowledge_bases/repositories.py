"""Documents from a git repository: addresses of repositories as people write them, and the files of their newest commit."""

import hashlib
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from ai_platform_engineering.knowledge_bases.addresses import FetchRefused, parse
from ai_platform_engineering.knowledge_bases.documents import Raw
from ai_platform_engineering.knowledge_bases.fetching import Fetcher, FetchFailed
from ai_platform_engineering.knowledge_bases.folders import MAX_FILE, looks_binary, too_large
from ai_platform_engineering.knowledge_bases.git import Blobs, Entry, Git
from ai_platform_engineering.knowledge_bases.items import Found, Gone, Item, Skipped, SourceUnavailable, Unchanged

_SCP = re.compile(r"(?P<user>[\w.-]+)@(?P<host>[\w.-]+):(?P<path>[\w~./][\w~./+-]*)")
_REF = re.compile(r"[\w][\w./+-]*")
_PAGES_OF_GITHUB = frozenset(
    "about apps collections customer-stories features login marketplace orgs pricing search settings sponsors topics users".split()
)
_LFS = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True)
class Remote:
    """A repository. `protocol` is the only one that git may speak; `page` is where people look at it."""

    url: str
    protocol: str
    host: str = ""
    page: str | None = None
    ref: str = "HEAD"
    below: str = ""

    def link(self, commit: str, path: str) -> str | None:
        if self.page is None:
            return None
        return f"{self.page}{'/-' if 'gitlab' in self.host else ''}/blob/{commit}/{quote(path)}"


def remote_of(location: str) -> Remote | None:
    """The repository that a location means, if it means one. Raises FetchRefused for an address that git must not be given."""
    text = location.strip().removeprefix("git+")
    if match := _SCP.fullmatch(text):
        return _over_ssh(match["user"], match["host"], "", match["path"])
    parts = urlsplit(text)
    if parts.scheme == "ssh":
        return _from_ssh_url(text)
    if parts.scheme == "file":
        return Remote(unquote(parts.path), "file") if parts.netloc in ("", "localhost") else None
    if parts.scheme in ("http", "https"):
        return _over_http(text, certain=location.strip().startswith("git+"))
    return None


def _over_http(text: str, *, certain: bool) -> Remote | None:
    target = parse(text)
    path = unquote(target.path.partition("?")[0]).strip("/")
    repository, ref, below = _parts_of(target.host, path)
    if not (certain or path.endswith(".git") or repository):
        return None
    repository = (repository or path).removesuffix(".git")
    # The two hosts answer to this form without a redirect.
    url = f"{target.origin}/{quote(repository)}" + (".git" if path.endswith(".git") or _is_forge(target.host) else "")
    page = f"https://{target.authority}/{quote(repository)}" if _is_forge(target.host) else None
    return Remote(url, target.scheme, target.host, page, ref or "HEAD", below)


def _parts_of(host: str, path: str) -> tuple[str, str, str]:
    """Repository, branch and folder in the path of a page of GitHub or GitLab."""
    if host == "github.com":
        match = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:/(?:tree|blob)/([^/]+)(?:/(.+))?)?", path)
        if match and path.partition("/")[0] in _PAGES_OF_GITHUB:
            return "", "", ""
    elif host == "gitlab.com":
        match = re.fullmatch(r"([\w.][\w.-]*(?:/[\w.][\w.-]*)+?)(?:/-/(?:tree|blob)/([^/]+)(?:/(.+))?)?", path)
    else:
        match = None
    if not match:
        return "", "", ""
    ref = match[2] or ""
    if ref and not _REF.fullmatch(ref):
        raise FetchRefused("The branch in the address cannot be read.")
    return match[1], ref, match[3] or ""


def _from_ssh_url(text: str) -> Remote:
    match = re.fullmatch(r"ssh://(?:([\w.-]+)@)?([^/@:]+)(:\d+)?/(.+)", text)
    if not match:
        raise FetchRefused("The address of the repository cannot be read. Write one like ssh://git@example.com/team/repository.git.")
    return _over_ssh(match[1] or "", match[2], match[3] or "", match[4])


def _over_ssh(user: str, host: str, port: str, path: str) -> Remote:
    name = parse(f"https://{host}{port}/").host
    page = f"https://{name}/{quote(path.strip('/').removesuffix('.git'))}" if _is_forge(name) else None
    return Remote(f"ssh://{user}{'@' if user else ''}{name}{port}/{path.lstrip('/')}", "ssh", name, page)


def _is_forge(host: str) -> bool:
    return any(part in ("github", "gitlab") for part in host.split("."))


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
        settings = await self._allowed()
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

    async def _allowed(self) -> dict[str, str]:
        """Checks where git would connect to, and for http pins it: git looks names up by itself."""
        if self._remote.protocol == "file":
            return {}
        over_http = self._remote.protocol != "ssh"
        try:
            target, addresses = await self._fetcher.checked(self._remote.url if over_http else f"https://{self._remote.host}/")
        except (FetchRefused, FetchFailed) as error:
            raise SourceUnavailable(str(error)) from None
        if not over_http or target.address is not None or not addresses:
            return {}
        pinned = ",".join(f"[{address}]" if address.version == 6 else str(address) for address in addresses)
        return {"http.curloptResolve": f"{target.host}:{target.port}:{pinned}"}

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
