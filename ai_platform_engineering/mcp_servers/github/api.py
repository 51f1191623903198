"""A client for GitHub's REST API: URLs, pages, and redirects that stay on the host."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
from mcp.server.mcpserver.exceptions import ToolError

from ai_platform_engineering.mcp_servers.github.errors import NOT_GITHUB, GitHubError, build_error

DEFAULT_URL = "https://api.github.com"
API_VERSION = "2022-11-28"
ENTERPRISE_PATH = "/api/v3"
TIMEOUT = 20.0
MAX_REDIRECTS = 3

UNREACHABLE = "GitHub cannot be reached. Check GITHUB_API_URL and the way there."
OUTCOME_UNKNOWN = "It is not known whether it was done: look before you try again."

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GitHubPage:
    """One page of a list; `total` is set only where GitHub counts."""

    items: list[Json]
    more: bool
    total: int | None = None


def parse_api_url(url: str) -> str:
    """The API's base URL from GITHUB_API_URL.

    People write it with a slash at the end, or as the bare host of an Enterprise Server.
    """
    parts = urlsplit(url.strip())
    has_extras = parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in ("http", "https") or not parts.hostname or has_extras:
        raise ValueError(
            f"GITHUB_API_URL is not an address like {DEFAULT_URL} or https://HOST{ENTERPRISE_PATH}."
        )
    path = parts.path.rstrip("/")
    if parts.hostname in ("github.com", "www.github.com"):
        return DEFAULT_URL
    # Only https: a plain address without a path is a proxy or a stand-in on this machine, not an Enterprise
    # Server.
    if not path and parts.scheme == "https" and not parts.hostname.startswith("api."):
        path = ENTERPRISE_PATH
    return f"{parts.scheme}://{parts.netloc}{path}"


def web_url_of(api: str) -> str:
    """The URL of the web pages that belong to an API base URL."""
    scheme, _, rest = api.removesuffix(ENTERPRISE_PATH).partition("://")
    return f"{scheme}://{rest.removeprefix('api.')}"


def api_path(*parts: object) -> str:
    """An API path made of quoted names; a slash inside a name stays part of that name."""
    return "/".join(quote(str(part), safe="") for part in parts)


def quote_path(path: str) -> str:
    """A quoted file path or branch name; slashes separate its steps. Raises ToolError for `.` and `..`."""
    steps = [step for step in path.split("/") if step]
    if any(step in (".", "..") for step in steps):
        raise ToolError("A path or branch has no step `.` or `..`.")
    return quote("/".join(steps), safe="/")


class GitHubApi:
    """The REST API; errors say what to do and never hold the token."""

    def __init__(self, url: str, token: str) -> None:
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError("GITHUB_TOKEN holds characters that no token has.")
        self._url = parse_api_url(url)
        self.web_url = web_url_of(self._url)
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
        return _parse_object(await self._call("GET", path, params=params))

    async def get_any(self, path: str, /, **params: Any) -> Any:
        """GET for an endpoint that answers with an object or a list, such as the contents of a path."""
        return _parse_json(await self._call("GET", path, params=params))

    async def get_page(self, path: str, /, *, key: str | None = None, **params: Any) -> GitHubPage:
        """GET one page of a list; `key` names the list where an object wraps it."""
        response = await self._call("GET", path, params=params)
        body = _parse_json(response)
        items = body
        total = None
        if isinstance(body, dict):
            total = body.get("total_count")
            if key:
                items = body.get(key)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise ToolError(NOT_GITHUB)
        return GitHubPage(items, "next" in response.links, total)

    async def send(self, method: str, path: str, body: Mapping[str, Any]) -> Json:
        """Sends a change; values that are None are left out of the body."""
        values = {name: value for name, value in body.items() if value is not None}
        return _parse_object(await self._call(method, path, body=values))

    async def _call(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Json | None = None
    ) -> httpx.Response:
        query = {name: value for name, value in (params or {}).items() if value not in (None, "")}
        url = httpx.URL(f"{self._url}/{path}", params=query)
        for _ in range(MAX_REDIRECTS):
            response = await self._request(method, url, body)
            if response.is_success:
                return response
            if not response.has_redirect_location:
                raise build_error(response, path, self._token)
            url = _redirect_target(response)
        raise ToolError("GitHub redirects in a circle. Check GITHUB_API_URL.")

    async def _request(self, method: str, url: httpx.URL, body: Json | None) -> httpx.Response:
        try:
            return await self._client.request(method, url, json=body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.UnsupportedProtocol):
            raise ToolError(UNREACHABLE) from None
        except httpx.TimeoutException:
            raise ToolError(
                _describe_failure(f"GitHub did not answer within {TIMEOUT:g} s.", method)
            ) from None
        except httpx.HTTPError:
            raise ToolError(_describe_failure("The connection to GitHub broke.", method)) from None


def _describe_failure(text: str, method: str) -> str:
    if method == "GET":
        return f"{text} Try again."
    return f"{text} {OUTCOME_UNKNOWN}"


def _redirect_target(response: httpx.Response) -> httpx.URL:
    """The URL a redirect leads to: the token goes to no other host, and no change becomes a read."""
    requested = response.request.url
    target = response.url.join(response.headers["Location"])
    if (target.scheme, target.host, target.port) != (requested.scheme, requested.host, requested.port):
        raise ToolError(
            f"GitHub redirects to another address ({target.scheme}://{target.host}), which is not followed. "
            "Check GITHUB_API_URL."
        )
    if response.request.method != "GET" and response.status_code not in (307, 308):
        raise GitHubError(
            "It has moved. Look it up by its new name and change it there.", response.status_code
        )
    return target


def _parse_json(response: httpx.Response) -> Any:
    try:
        if response.content:
            return response.json()
        return {}
    except ValueError:
        raise ToolError(NOT_GITHUB) from None


def _parse_object(response: httpx.Response) -> Json:
    body = _parse_json(response)
    if not isinstance(body, dict):
        raise ToolError(NOT_GITHUB)
    return body
