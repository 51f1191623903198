"""GitHub's REST API: addresses, one client, pages, and redirects that stay on the host."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
from mcp.server.fastmcp.exceptions import ToolError

from ai_platform_engineering.mcp_servers.github.errors import NOT_GITHUB, GitHubError, refusal

DEFAULT_URL = "https://api.github.com"
API_VERSION = "2022-11-28"
ENTERPRISE = "/api/v3"
TIMEOUT = 20.0
MOST_REDIRECTS = 3

UNREACHABLE = "GitHub cannot be reached. Check GITHUB_API_URL and the way there."
UNKNOWN = "It is not known whether it was done: look before you try again."

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GitHubPage:
    """One page of a list; `total` only where GitHub counts."""

    items: list[Json]
    more: bool
    total: int | None = None


def api_address(url: str) -> str:
    """The API's address from what people give: with a slash at the end, or only the host of an Enterprise Server."""
    parts = urlsplit(url.strip())
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise ValueError(f"GITHUB_API_URL is not an address like {DEFAULT_URL} or https://HOST{ENTERPRISE}.")
    path = parts.path.rstrip("/")
    if parts.hostname in ("github.com", "www.github.com"):
        return DEFAULT_URL
    # Only https: a plain address without a path is a proxy or a stand-in on this machine, not an Enterprise Server.
    if not path and parts.scheme == "https" and not parts.hostname.startswith("api."):
        path = ENTERPRISE
    return f"{parts.scheme}://{parts.netloc}{path}"


def web_address(api: str) -> str:
    """Where people look at what the API at this address tells."""
    scheme, _, rest = api.removesuffix(ENTERPRISE).partition("://")
    return f"{scheme}://{rest.removeprefix('api.')}"


def at(*parts: object) -> str:
    """A path of the API from names; a slash inside a name stays within it."""
    return "/".join(quote(str(part), safe="") for part in parts)


def inside(path: str) -> str:
    """A file's path or a branch, whose slashes separate; no step leads out of it."""
    steps = [step for step in path.split("/") if step]
    if any(step in (".", "..") for step in steps):
        raise ToolError("A path or branch has no step `.` or `..`.")
    return quote("/".join(steps), safe="/")


class GitHubApi:
    """The REST API; errors say what to do and never hold the token."""

    def __init__(self, url: str, token: str) -> None:
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError("GITHUB_TOKEN holds characters that no token has.")
        self._url = api_address(url)
        self.web = web_address(self._url)
        self._token = token
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": API_VERSION,
            "User-Agent": "ai-platform-engineering",
        }
        self._client = httpx.AsyncClient(timeout=TIMEOUT, headers=headers)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def get(self, path: str, /, **params: Any) -> Json:
        return _object(await self._call("GET", path, params=params))

    async def any(self, path: str, /, **params: Any) -> Any:
        """What may be an object or a list: the contents of a path."""
        return _json(await self._call("GET", path, params=params))

    async def page(self, path: str, /, *, key: str | None = None, **params: Any) -> GitHubPage:
        """A page of a list; `key` names the list where an object holds it."""
        answer = await self._call("GET", path, params=params)
        found = _json(answer)
        items = found.get(key) if key and isinstance(found, dict) else found
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise ToolError(NOT_GITHUB)
        return GitHubPage(
            items, "next" in answer.links, found.get("total_count") if isinstance(found, dict) else None
        )

    async def send(self, method: str, path: str, body: Mapping[str, Any]) -> Json:
        """Changes something; arguments that were not given are left out."""
        return _object(
            await self._call(
                method, path, body={name: value for name, value in body.items() if value is not None}
            )
        )

    async def _call(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Json | None = None
    ) -> httpx.Response:
        given = {name: value for name, value in (params or {}).items() if value not in (None, "")}
        url = httpx.URL(f"{self._url}/{path}", params=given)
        for _ in range(MOST_REDIRECTS):
            answer = await self._request(method, url, body)
            if answer.is_success:
                return answer
            if not answer.has_redirect_location:
                raise refusal(answer, path, self._token)
            url = _next(answer)
        raise ToolError("GitHub redirects in a circle. Check GITHUB_API_URL.")

    async def _request(self, method: str, url: httpx.URL, body: Json | None) -> httpx.Response:
        try:
            return await self._client.request(method, url, json=body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.UnsupportedProtocol):
            raise ToolError(UNREACHABLE) from None
        except httpx.TimeoutException:
            raise ToolError(_broken(f"GitHub did not answer within {TIMEOUT:g} s.", method)) from None
        except httpx.HTTPError:
            raise ToolError(_broken("The connection to GitHub broke.", method)) from None


def _broken(text: str, method: str) -> str:
    if method == "GET":
        return f"{text} Try again."
    return f"{text} {UNKNOWN}"


def _next(answer: httpx.Response) -> httpx.URL:
    """Where a redirect leads: the token goes to no other host, and no change is turned into a read."""
    asked, target = answer.request.url, answer.url.join(answer.headers["Location"])
    if (target.scheme, target.host, target.port) != (asked.scheme, asked.host, asked.port):
        raise ToolError(
            f"GitHub redirects to another address ({target.scheme}://{target.host}), which is not followed. Check GITHUB_API_URL."
        )
    if answer.request.method != "GET" and answer.status_code not in (307, 308):
        raise GitHubError("It has moved. Look it up by its new name and change it there.", answer.status_code)
    return target


def _json(answer: httpx.Response) -> Any:
    try:
        if answer.content:
            return answer.json()
        return {}
    except ValueError:
        raise ToolError(NOT_GITHUB) from None


def _object(answer: httpx.Response) -> Json:
    found = _json(answer)
    if not isinstance(found, dict):
        raise ToolError(NOT_GITHUB)
    return found
