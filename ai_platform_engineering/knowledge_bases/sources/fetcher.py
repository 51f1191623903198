"""The one way out to the web: addresses are checked where they are connected to, and size, time and type are
limited."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urljoin

import httpcore

from ai_platform_engineering.core.tls_context import trusted_tls_context
from ai_platform_engineering.knowledge_bases.sources.response_bodies import join_headers, read_body
from ai_platform_engineering.knowledge_bases.sources.user_agent import USER_AGENT
from ai_platform_engineering.net.address_policy import IPAddress
from ai_platform_engineering.net.connections import (
    Connector,
    SystemConnector,
    UrlChecker,
    find_proxy,
    open_pool,
)
from ai_platform_engineering.net.url_policy import FetchFailed, FetchRefused, ParsedUrl, PrivateAccess

_ACCEPT = (
    "text/html, text/markdown, text/plain, application/json, application/yaml, application/xml, "
    "application/pdf, */*;q=0.1"
)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TEXT_SUBTYPES = ("json", "xml", "yaml", "x-yaml", "toml", "pdf", "markdown", "openapi", "rtf", "x-ndjson")
_UNSPECIFIC_TYPES = frozenset(
    {"", "application/octet-stream", "binary/octet-stream"}
)  # the file name decides
_TEXT_SUFFIXES = (
    ".md",
    ".markdown",
    ".txt",
    ".rst",
    ".html",
    ".htm",
    ".json",
    ".yaml",
    ".yml",
    ".xml",
    ".toml",
    ".csv",
    ".tsv",
    ".pdf",
    ".docx",
    ".pptx",
    ".xlsx",
    ".odt",
    ".rtf",
    ".ipynb",
    ".adoc",
    ".asciidoc",
    ".org",
    ".eml",
)
_OFFICE_TYPES = frozenset(
    {
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "application/vnd.oasis.opendocument.text",
        "message/rfc822",
    }
)


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """`max_bytes` is counted after decompression, `seconds` over all redirects."""

    max_bytes: int = 10 * 1024 * 1024
    seconds: float = 30.0
    max_redirects: int = 5
    max_headers: int = 100


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """A response with text that can be read. With status 304 there is no content: the page has not
    changed."""

    url: str  # after redirects
    status: int
    media_type: str  # as the server says, with its charset
    content: bytes
    etag: str = ""
    modified: str = ""  # Last-Modified, as the server writes it
    robots: str = ""  # X-Robots-Tag


async def fetch(
    url: str,
    limits: FetchLimits | None = None,
    *,
    allow_private: bool = False,
    connector: Connector | None = None,
) -> FetchResponse:
    """Fetches one page. Raises FetchRefused and FetchFailed."""
    return await Fetcher(limits, allow_private=allow_private, connector=connector).fetch(url)


class Fetcher:
    """Fetches pages under the same limits. No cookies, no credentials, a connection per request."""

    def __init__(
        self,
        limits: FetchLimits | None = None,
        *,
        allow_private: bool = False,
        private: PrivateAccess | None = None,
        connector: Connector | None = None,
    ) -> None:
        """`private`: which private networks may be reached; `allow_private` is short for all."""
        self.limits = limits or FetchLimits()
        self._connector = connector or SystemConnector()
        self._url_checker = UrlChecker(
            allow_private=allow_private, private=private, connector=self._connector
        )

    async def fetch(
        self, url: str, *, etag: str = "", modified: str = "", max_bytes: int | None = None
    ) -> FetchResponse:
        """Fetches a page; one that `etag` or `modified` show as unchanged has status 304. Raises FetchRefused
        and FetchFailed."""
        conditions: dict[str, str] = {}
        if etag:
            conditions["If-None-Match"] = etag
        if modified:
            conditions["If-Modified-Since"] = modified
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self._follow(url, conditions, max_bytes or self.limits.max_bytes)
        except TimeoutError:
            raise FetchFailed(f"The page did not arrive within {self.limits.seconds:g} seconds.") from None

    async def check_url(self, url: str) -> tuple[ParsedUrl, tuple[IPAddress, ...]]:
        """The URL and its IP addresses, if it may be fetched. Raises FetchRefused and FetchFailed."""
        return await self._url_checker.check(url)

    async def _follow(self, url: str, conditions: Mapping[str, str], max_bytes: int) -> FetchResponse:
        target, addresses = await self.check_url(url)
        for _ in range(self.limits.max_redirects + 1):
            result = await self._get(target, addresses, conditions, max_bytes)
            if isinstance(result, FetchResponse):
                return result
            previous = target
            try:
                target, addresses = await self.check_url(urljoin(previous.url, result))
            except (FetchRefused, FetchFailed, ValueError):
                # Without the error's message: it would name where the redirect leads.
                raise FetchRefused("The page redirects to an address that is not allowed.") from None
            if previous.scheme == "https" and target.scheme == "http":
                raise FetchRefused("The page redirects from https to http, which is not followed.")
        raise FetchFailed(f"The page redirects more than {self.limits.max_redirects} times.")

    async def _get(
        self,
        target: ParsedUrl,
        addresses: tuple[IPAddress, ...],
        conditions: Mapping[str, str],
        max_bytes: int,
    ) -> FetchResponse | str:
        """One request: the response, or the location of a redirect."""
        try:
            pool = await open_pool(
                target, addresses, self._connector, trusted_tls_context, self.limits.seconds
            )
            async with (
                pool,
                pool.stream(
                    "GET", _build_url(target), headers=_build_headers(target, conditions)
                ) as response,
            ):
                return await self._read_response(
                    target, response, conditional=bool(conditions), max_bytes=max_bytes
                )
        except httpcore.ProxyError:
            raise FetchFailed(f"The proxy does not connect to {target.host}.") from None
        except (httpcore.ConnectError, httpcore.ConnectTimeout, OSError) as error:
            raise FetchFailed(describe_connect_error(target, error)) from None
        except (
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.TimeoutException,
            httpcore.UnsupportedProtocol,
        ):
            raise FetchFailed(f"{target.host} broke off, or did not answer as a web server does.") from None

    async def _read_response(
        self, target: ParsedUrl, response: httpcore.Response, *, conditional: bool, max_bytes: int
    ) -> FetchResponse | str:
        if len(response.headers) > self.limits.max_headers:
            raise FetchRefused(f"The server sent more than {self.limits.max_headers} headers.")
        headers = join_headers(response.headers)
        if response.status in _REDIRECTS:
            if location := headers.get("location"):
                return location
            raise FetchFailed("The page redirects without saying where to.", status=response.status)
        content_type = headers.get("content-type", "")
        content = b""
        if not conditional or response.status != HTTPStatus.NOT_MODIFIED:
            _check_response(response.status, headers, target)
            content = await read_body(response, headers, max_bytes)
        return FetchResponse(
            url=target.url,
            status=response.status,
            media_type=content_type,
            content=content,
            etag=headers.get("etag", ""),
            modified=headers.get("last-modified", ""),
            robots=headers.get("x-robots-tag", ""),
        )


def _build_url(target: ParsedUrl) -> httpcore.URL:
    return httpcore.URL(
        scheme=target.scheme.encode(),
        host=target.host.encode(),
        port=target.port,
        target=target.path.encode(),
    )


def _build_headers(target: ParsedUrl, conditions: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    headers = {
        "Host": target.authority,
        "User-Agent": USER_AGENT,
        "Accept": _ACCEPT,
        "Accept-Encoding": "gzip, deflate",
        **conditions,
    }
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]


def _check_response(status: int, headers: Mapping[str, str], target: ParsedUrl) -> None:
    """Raises FetchFailed for a status without success, and FetchRefused for what holds no text."""
    if not 200 <= status < 300:
        raise _create_status_error(status, headers)
    media_type = headers.get("content-type", "").partition(";")[0].strip()
    if not _is_text_type(media_type.lower(), target):
        raise FetchRefused(f"The page is {media_type[:80]}, which cannot be read as text.")


def _is_text_type(media_type: str, target: ParsedUrl) -> bool:
    if not media_type:
        return True
    if media_type in _UNSPECIFIC_TYPES:
        return target.path.partition("?")[0].lower().endswith(_TEXT_SUFFIXES)
    main_type, _, subtype = media_type.partition("/")
    if main_type == "text" or media_type in _OFFICE_TYPES:
        return True
    suffix = subtype.rpartition("+")[2]
    return main_type == "application" and (subtype in _TEXT_SUBTYPES or suffix in _TEXT_SUBTYPES)


def _create_status_error(status: int, headers: Mapping[str, str]) -> FetchFailed:
    phrases = {entry.value: entry.phrase for entry in HTTPStatus}
    phrase = ""
    if status in phrases:
        phrase = f" ({phrases[status]})"
    seconds = headers.get("retry-after", "")
    retry_after: float | None = None
    if seconds.isdecimal():
        retry_after = float(seconds)
    return FetchFailed(f"The server answered {status}{phrase}.", status=status, retry_after=retry_after)


def describe_connect_error(target: ParsedUrl, error: BaseException) -> str:
    """Why there is no connection, for a person: a certificate, a proxy, or nobody there."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return f"{target.host} has no certificate that is trusted here, or speaks no TLS that is."
        cause = cause.__cause__ or cause.__context__
    where = target.host
    if find_proxy(target) is not None:
        where = f"{target.host}, or the proxy on the way,"
    return f"{where} does not take connections."
