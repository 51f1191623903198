"""Remote git repositories: parsed from addresses that people write, with a check of the host."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.net.address_policy import IPAddress
from ai_platform_engineering.net.url_policy import FetchFailed, FetchRefused, ParsedUrl, parse_url

_SCP_ADDRESS = re.compile(r"(?P<user>[\w.-]+)@(?P<host>[\w.-]+):(?P<path>[\w~./][\w~./+-]*)")
_REF = re.compile(r"[\w][\w./+-]*")
_GITHUB_PAGES = frozenset(  # first path segments on github.com that are no owner of repositories
    "about apps collections customer-stories features login marketplace orgs pricing search settings "
    "sponsors topics users".split()
)


@dataclass(frozen=True, slots=True)
class GitRemote:
    """A remote repository.

    `protocol` is the only one that git may use; `page` is the repository's web page."""

    url: str
    protocol: str
    host: str = ""
    page: str | None = None
    ref: str = "HEAD"
    folder: str = ""

    def link(self, commit: str, path: str) -> str | None:
        """The web page of a file, if the repository has pages."""
        if self.page is None:
            return None
        separator = "/-" if "gitlab" in self.host else ""
        return f"{self.page}{separator}/blob/{commit}/{quote(path)}"


def parse_remote(location: str) -> GitRemote | None:
    """The repository at a location; None if it is no repository's.

    Raises FetchRefused for an unsafe address."""
    text = location.strip().removeprefix("git+")
    if match := _SCP_ADDRESS.fullmatch(text):
        return _ssh_remote(match["user"], match["host"], "", match["path"])
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    if parts.scheme == "ssh":
        return _parse_ssh_url(text)
    if parts.scheme == "file":
        if parts.netloc in ("", "localhost"):
            return GitRemote(unquote(parts.path), "file")
        return None
    if parts.scheme in ("http", "https"):
        return _parse_http_url(text, is_git=location.strip().startswith("git+"))
    return None


def _parse_http_url(text: str, *, is_git: bool) -> GitRemote | None:
    """`is_git`: the address says itself that it is a repository's."""
    target = parse_url(text)
    path = unquote(target.path.partition("?")[0]).strip("/")
    repository, ref, folder = _parse_forge_path(target.host, path)
    if not (is_git or path.endswith(".git") or repository):
        return None
    repository = (repository or path).removesuffix(".git")
    url = f"{target.origin}/{quote(repository)}"
    page = None
    if _is_forge(target.host):
        page = f"https://{target.authority}/{quote(repository)}"
    if path.endswith(".git") or _is_forge(target.host):  # GitHub and GitLab redirect without the suffix
        url += ".git"
    return GitRemote(url, target.scheme, target.host, page, ref or "HEAD", folder)


def _parse_forge_path(host: str, path: str) -> tuple[str, str, str]:
    """Repository, branch and folder in the path of a page of GitHub or GitLab."""
    if host == "github.com":
        match = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:/(?:tree|blob)/([^/]+)(?:/(.+))?)?", path)
        if match and path.partition("/")[0] in _GITHUB_PAGES:
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


def _parse_ssh_url(text: str) -> GitRemote:
    match = re.fullmatch(r"ssh://(?:([\w.-]+)@)?([^/@:]+)(:\d+)?/(.+)", text)
    if not match:
        raise FetchRefused(
            "The address of the repository cannot be read. "
            "Write one like ssh://git@example.com/team/repository.git."
        )
    return _ssh_remote(match[1] or "", match[2], match[3] or "", match[4])


def _ssh_remote(user: str, host: str, port: str, path: str) -> GitRemote:
    host_name = parse_url(f"https://{host}{port}/").host
    page = None
    if _is_forge(host_name):
        page = f"https://{host_name}/{quote(path.strip('/').removesuffix('.git'))}"
    login = f"{user}@" if user else ""
    return GitRemote(f"ssh://{login}{host_name}{port}/{path.lstrip('/')}", "ssh", host_name, page)


def _is_forge(host: str) -> bool:
    """Whether the host has web pages in the form of GitHub or GitLab."""
    return any(part in ("github", "gitlab") for part in host.split("."))


async def check_remote(
    remote: GitRemote, check_url: Callable[[str], Awaitable[tuple[ParsedUrl, tuple[IPAddress, ...]]]]
) -> dict[str, str]:
    """Checks the host that git connects to. Returns the git settings that pin its IP addresses for HTTP.

    Without them git would look the name up again, and could get other addresses."""
    if remote.protocol == "file":
        return {}
    is_ssh = remote.protocol == "ssh"
    checked_url = remote.url
    if is_ssh:
        checked_url = f"https://{remote.host}/"  # the check knows http and https only
    try:
        target, addresses = await check_url(checked_url)
    except (FetchRefused, FetchFailed) as error:
        raise SourceUnavailable(str(error)) from None
    if is_ssh or target.address is not None or not addresses:
        return {}
    pinned = ",".join(_format_address(address) for address in addresses)
    return {"http.curloptResolve": f"{target.host}:{target.port}:{pinned}"}


def _format_address(address: IPAddress) -> str:
    if address.version == 6:
        return f"[{address}]"
    return str(address)
