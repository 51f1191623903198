"""Git repositories elsewhere: their addresses as people write them, and the check of where git would connect to."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.net.url_policy import FetchFailed, FetchRefused, IPAddress, ParsedUrl, parse_url

_SCP = re.compile(r"(?P<user>[\w.-]+)@(?P<host>[\w.-]+):(?P<path>[\w~./][\w~./+-]*)")
_REF = re.compile(r"[\w][\w./+-]*")
_PAGES_OF_GITHUB = frozenset(
    "about apps collections customer-stories features login marketplace orgs pricing search settings sponsors topics users".split()
)


@dataclass(frozen=True, slots=True)
class GitRemote:
    """A repository. `protocol` is the only one that git may speak; `page` is where people look at it."""

    url: str
    protocol: str
    host: str = ""
    page: str | None = None
    ref: str = "HEAD"
    folder: str = ""

    def link(self, commit: str, path: str) -> str | None:
        if self.page is None:
            return None
        return f"{self.page}{'/-' if 'gitlab' in self.host else ''}/blob/{commit}/{quote(path)}"


def parse_remote(location: str) -> GitRemote | None:
    """The repository that a location means, if it means one. Raises FetchRefused for an address that git must not be given."""
    text = location.strip().removeprefix("git+")
    if match := _SCP.fullmatch(text):
        return _over_ssh(match["user"], match["host"], "", match["path"])
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    if parts.scheme == "ssh":
        return _from_ssh_url(text)
    if parts.scheme == "file":
        if parts.netloc in ("", "localhost"):
            return GitRemote(unquote(parts.path), "file")
        return None
    if parts.scheme in ("http", "https"):
        return _over_http(text, certain=location.strip().startswith("git+"))
    return None


def _over_http(text: str, *, certain: bool) -> GitRemote | None:
    target = parse_url(text)
    path = unquote(target.path.partition("?")[0]).strip("/")
    repository, ref, below = _parts_of(target.host, path)
    if not (certain or path.endswith(".git") or repository):
        return None
    repository = (repository or path).removesuffix(".git")
    # The two hosts answer to this form without a redirect.
    url = f"{target.origin}/{quote(repository)}" + (
        ".git" if path.endswith(".git") or _is_forge(target.host) else ""
    )
    page = f"https://{target.authority}/{quote(repository)}" if _is_forge(target.host) else None
    return GitRemote(url, target.scheme, target.host, page, ref or "HEAD", below)


def _parts_of(host: str, path: str) -> tuple[str, str, str]:
    """Repository, branch and folder in the path of a page of GitHub or GitLab."""
    if host == "github.com":
        match = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:/(?:tree|blob)/([^/]+)(?:/(.+))?)?", path)
        if match and path.partition("/")[0] in _PAGES_OF_GITHUB:
            return "", "", ""
    elif host == "gitlab.com":
        match = re.fullmatch(
            r"([\w.][\w.-]*(?:/[\w.][\w.-]*)+?)(?:/-/(?:tree|blob)/([^/]+)(?:/(.+))?)?", path
        )
    else:
        match = None
    if not match:
        return "", "", ""
    ref = match[2] or ""
    if ref and not _REF.fullmatch(ref):
        raise FetchRefused("The branch in the address cannot be read.")
    return match[1], ref, match[3] or ""


def _from_ssh_url(text: str) -> GitRemote:
    match = re.fullmatch(r"ssh://(?:([\w.-]+)@)?([^/@:]+)(:\d+)?/(.+)", text)
    if not match:
        raise FetchRefused(
            "The address of the repository cannot be read. Write one like ssh://git@example.com/team/repository.git."
        )
    return _over_ssh(match[1] or "", match[2], match[3] or "", match[4])


def _over_ssh(user: str, host: str, port: str, path: str) -> GitRemote:
    name = parse_url(f"https://{host}{port}/").host
    page = f"https://{name}/{quote(path.strip('/').removesuffix('.git'))}" if _is_forge(name) else None
    return GitRemote(f"ssh://{user}{'@' if user else ''}{name}{port}/{path.lstrip('/')}", "ssh", name, page)


def _is_forge(host: str) -> bool:
    return any(part in ("github", "gitlab") for part in host.split("."))


async def check_remote(
    remote: GitRemote, checked: Callable[[str], Awaitable[tuple[ParsedUrl, tuple[IPAddress, ...]]]]
) -> dict[str, str]:
    """Checks where git would connect to, and for http gives the settings that pin it: git looks names up by itself."""
    if remote.protocol == "file":
        return {}
    over_http = remote.protocol != "ssh"
    try:
        target, addresses = await checked(remote.url if over_http else f"https://{remote.host}/")
    except (FetchRefused, FetchFailed) as error:
        raise SourceUnavailable(str(error)) from None
    if not over_http or target.address is not None or not addresses:
        return {}
    pinned = ",".join(f"[{address}]" if address.version == 6 else str(address) for address in addresses)
    return {"http.curloptResolve": f"{target.host}:{target.port}:{pinned}"}
