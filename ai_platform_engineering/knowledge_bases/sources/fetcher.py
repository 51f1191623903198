"""The one way out to the web: addresses are checked where they are connected to, and size, time and type are limited."""

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urljoin

import httpcore
import httpx

from ai_platform_engineering.net.connections import (
    Connector,
    SystemConnector,
    UrlChecker,
    find_proxy,
    open_pool,
)
from ai_platform_engineering.net.url_policy import FetchFailed, FetchRefused, IPAddress, ParsedUrl

USER_AGENT = "caipe"
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MARKUP = ("json", "xml", "yaml", "x-yaml", "toml", "pdf", "markdown", "openapi", "rtf", "x-ndjson")
_UNNAMED = frozenset({"", "application/octet-stream", "binary/octet-stream"})  # the name decides
_SUFFIXES = (
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
)


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """`size` is counted after decompression, `seconds` over all redirects."""

    max_bytes: int = 10 * 1024 * 1024
    seconds: float = 30.0
    max_redirects: int = 5
    max_headers: int = 100


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """What an address gave. With status 304 there is no content: it is as it was."""

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
    """One page. Raises FetchRefused and FetchFailed."""
    return await Fetcher(limits, allow_private=allow_private, connector=connector).fetch(url)


class Fetcher:
    """Fetches under the same rules again and again. No cookies, no credentials, a connection per request."""

    def __init__(
        self,
        limits: FetchLimits | None = None,
        *,
        allow_private: bool = False,
        connector: Connector | None = None,
    ) -> None:
        self.limits = limits or FetchLimits()
        self._connector = connector or SystemConnector()
        self._gate = UrlChecker(allow_private=allow_private, connector=self._connector)
        self._tls: ssl.SSLContext | None = None

    async def fetch(
        self, url: str, *, etag: str = "", modified: str = "", max_bytes: int | None = None
    ) -> FetchResponse:
        """A page, or that it is as `etag` or `modified` remember it. Raises FetchRefused and FetchFailed."""
        conditions = {
            name: value for name, value in (("If-None-Match", etag), ("If-Modified-Since", modified)) if value
        }
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self._follow(url, conditions, max_bytes or self.limits.max_bytes)
        except TimeoutError:
            raise FetchFailed(f"The page did not arrive within {self.limits.seconds:g} seconds.") from None

    async def check_url(self, url: str) -> tuple[ParsedUrl, tuple[IPAddress, ...]]:
        """An address that may be reached, and where. Raises FetchRefused and FetchFailed."""
        return await self._gate.check(url)

    async def _follow(self, url: str, conditions: Mapping[str, str], size: int) -> FetchResponse:
        target, addresses = await self.check_url(url)
        for _ in range(self.limits.max_redirects + 1):
            answer = await self._get(target, addresses, conditions, size)
            if isinstance(answer, FetchResponse):
                return answer
            before = target
            try:
                target, addresses = await self.check_url(urljoin(before.url, answer))
            except (
                FetchRefused,
                FetchFailed,
                ValueError,
            ):  # without its words: they would name where it leads
                raise FetchRefused("The page redirects to an address that is not fetched.") from None
            if before.scheme == "https" and target.scheme == "http":
                raise FetchRefused("The page redirects from https to http, which is not followed.")
        raise FetchFailed(f"The page redirects more than {self.limits.max_redirects} times.")

    async def _get(
        self, target: ParsedUrl, addresses: tuple[IPAddress, ...], more: Mapping[str, str], size: int
    ) -> FetchResponse | str:
        """One request: what the server has, or where it sends us."""
        try:
            pool = await open_pool(target, addresses, self._connector, self._context, self.limits.seconds)
            async with pool, pool.stream("GET", _url(target), headers=_headers(target, more)) as response:
                return await self._read(target, response, conditional=bool(more), size=size)
        except httpcore.ProxyError:
            raise FetchFailed(f"The proxy does not connect to {target.host}.") from None
        except (httpcore.ConnectError, httpcore.ConnectTimeout, OSError) as error:
            raise FetchFailed(_unconnected(target, error)) from None
        except (
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.TimeoutException,
            httpcore.UnsupportedProtocol,
        ):
            raise FetchFailed(f"{target.host} broke off, or did not answer as a web server does.") from None

    async def _read(
        self, target: ParsedUrl, response: httpcore.Response, *, conditional: bool, size: int
    ) -> FetchResponse | str:
        if len(response.headers) > self.limits.max_headers:
            raise FetchRefused(f"The server sent more than {self.limits.max_headers} headers.")
        headers = _joined(response.headers)
        if response.status in _REDIRECTS:
            if location := headers.get("location"):
                return location
            raise FetchFailed("The page redirects without saying where to.", status=response.status)
        unchanged = conditional and response.status == HTTPStatus.NOT_MODIFIED
        if not unchanged and not 200 <= response.status < 300:
            raise _no_success(response.status, headers)
        kind = headers.get("content-type", "")
        if not unchanged and not _wanted(kind, target):
            raise FetchRefused(
                f"The page is {kind.partition(';')[0].strip()[:80]}, which holds no text that can be read."
            )
        content = b"" if unchanged else await _body(response, headers, size)
        marks = headers.get("etag", ""), headers.get("last-modified", ""), headers.get("x-robots-tag", "")
        return FetchResponse(target.url, response.status, kind, content, *marks)

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = httpx.create_ssl_context()  # with the CA of SSL_CERT_FILE, as everywhere
        return self._tls


def _url(target: ParsedUrl) -> httpcore.URL:
    return httpcore.URL(
        scheme=target.scheme.encode(),
        host=target.host.encode(),
        port=target.port,
        target=target.path.encode(),
    )


def _headers(target: ParsedUrl, more: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    accept = "text/html, text/markdown, text/plain, application/json, application/yaml, application/xml, application/pdf, */*;q=0.1"
    given = {
        "Host": target.authority,
        "User-Agent": USER_AGENT,
        "Accept": accept,
        "Accept-Encoding": "gzip, deflate",
        **more,
    }
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in given.items()]


def _joined(given: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by name; one that was sent twice has both values."""
    headers: dict[str, str] = {}
    for name, value in given:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _wanted(content_type: str, target: ParsedUrl) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    if kind in _UNNAMED:
        return not kind or target.path.partition("?")[0].lower().endswith(_SUFFIXES)
    family, _, name = kind.partition("/")
    return family == "text" or (
        family == "application" and any(part in _MARKUP for part in (name, *name.rsplit("+", 1)[1:]))
    )


async def _body(response: httpcore.Response, headers: Mapping[str, str], size: int) -> bytes:
    if (announced := headers.get("content-length", "")).isdecimal() and int(announced) > size:
        raise _too_large(size)
    pieces, length = [], 0
    async for piece in _unpacked(response.aiter_stream(), headers.get("content-encoding", "").lower(), size):
        length += len(piece)
        if length > size:
            raise _too_large(size)
        pieces.append(piece)
    return b"".join(pieces)


async def _unpacked(stream: AsyncIterator[bytes], encoding: str, size: int) -> AsyncIterator[bytes]:
    if encoding in ("", "identity"):
        async for piece in stream:
            yield piece
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise FetchFailed("The server packed the page in a way that was not asked for.")
    packed = _Packed(encoding)
    try:
        async for piece in stream:
            for part in packed.feed(piece, size):
                yield part
    except zlib.error:
        raise FetchFailed("The page arrived damaged.") from None
    if not packed.complete:
        raise FetchFailed("The page broke off before its end.")


class _Packed:
    """Decompresses in steps of a bounded size: a few kilobytes can stand for gigabytes."""

    def __init__(self, encoding: str) -> None:
        self._gzip = encoding != "deflate"
        self._inner = zlib.decompressobj(zlib.MAX_WBITS | 16) if self._gzip else None
        self._began = False

    @property
    def complete(self) -> bool:
        return not self._began or (self._inner is not None and self._inner.eof)

    def feed(self, data: bytes, step: int) -> Iterator[bytes]:
        while data:
            if self._inner is None or (self._gzip and self._inner.eof):
                # Servers send "deflate" with and without the header of zlib; gzip may come in several members.
                raw = not self._gzip and data[0] & 0x0F != 8
                self._inner = zlib.decompressobj(
                    zlib.MAX_WBITS | 16 if self._gzip else -zlib.MAX_WBITS if raw else zlib.MAX_WBITS
                )
            self._began = True
            yield self._inner.decompress(data, step + 1)
            data = self._inner.unconsumed_tail or (self._inner.unused_data if self._gzip else b"")


def _too_large(size: int) -> FetchRefused:
    return FetchRefused(f"The page is larger than {size / 1024 / 1024:g} MB.")


def _no_success(status: int, headers: Mapping[str, str]) -> FetchFailed:
    known = {entry.value: entry.phrase for entry in HTTPStatus}
    phrase = f" ({known[status]})" if status in known else ""
    wait = headers.get("retry-after", "")
    return FetchFailed(
        f"The server answered {status}{phrase}.",
        status=status,
        retry_after=float(wait) if wait.isdecimal() else None,
    )


def _unconnected(target: ParsedUrl, error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return f"{target.host} has no certificate that is trusted here, or speaks no TLS that is."
        cause = cause.__cause__ or cause.__context__
    where = target.host if find_proxy(target) is None else f"{target.host}, or the proxy on the way,"
    return f"{where} does not take connections."
