"""HTTP for the clients of model providers: a transport whose responses are read as they arrive.

The clients make the requests and judge the answers. Only the bytes go another way, through aiohttp, which
parses them in compiled code and hands out everything that has arrived at once.
"""

import asyncio
import io
import ssl
from collections.abc import AsyncIterator, Mapping

import aiohttp
import httpx2
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from ai_platform_engineering.core.errors import ModelAnswerTooLarge
from ai_platform_engineering.core.model_streams import ModelStreamSettings
from ai_platform_engineering.models.model_sessions import ModelSessions, share_sessions
from ai_platform_engineering.net.proxies import find_proxy_url

_BODY = "caipe.body"  # the extension of a response with the body that can be read as it arrives
_LARGE_BYTES = 2**20
_DECODED = frozenset({b"gzip", b"deflate", b"br", b"zstd"})  # by aiohttp
_ASKED_ENCODINGS = "gzip, deflate"  # aiohttp decodes them without further packages
_DEFAULT_PORTS = {"http": 80, "https": 443}
_AIOHTTP_ERRORS = (aiohttp.ClientError, HttpProcessingError, OSError)  # TimeoutError is an OSError


def create_http_client(settings: ModelStreamSettings, proxy: str | None = None) -> httpx2.AsyncClient:
    """A client for model servers; those of one event loop share their connections.

    `proxy` replaces the proxies of the environment.
    """
    transport = ModelTransport(share_sessions(settings.max_connections), settings.max_response_bytes, proxy)
    headers = {"Accept-Encoding": _ASKED_ENCODINGS}
    return httpx2.AsyncClient(transport=transport, headers=headers, follow_redirects=True)


def body_of(response: httpx2.Response) -> "ModelBody":
    """The body of a response that came through ModelTransport."""
    body = response.extensions[_BODY]
    assert isinstance(body, ModelBody)
    return body


class ModelTransport(httpx2.AsyncBaseTransport):
    """Sends requests with aiohttp. Raises errors of httpx2, which the providers' clients know."""

    def __init__(self, sessions: ModelSessions, max_response_bytes: int, proxy: str | None) -> None:
        self._sessions = sessions
        self._max_response_bytes = max_response_bytes
        self._proxy = proxy

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        connections = await self._sessions.connect()
        timeouts = request.extensions.get("timeout", {})
        tls: ssl.SSLContext | bool = True
        if request.url.scheme == "https":
            tls = await connections.load_tls()
        try:
            # aiohttp sets no limit to the time in which a server takes the request.
            async with asyncio.timeout(_add_up(timeouts, "pool", "connect", "write", "read")):
                response = await connections.session.request(
                    request.method,
                    URL(str(request.url), encoded=True),
                    headers=CIMultiDict(request.headers.multi_items()),
                    data=_to_payload(await request.aread()),
                    allow_redirects=False,
                    proxy=self._find_proxy(request.url),
                    ssl=tls,
                    timeout=_to_aiohttp(timeouts),
                )
        except _AIOHTTP_ERRORS as error:
            raise _to_httpx(error, request) from None
        body = ModelBody(response, request, self._max_response_bytes)
        extensions = {"http_version": b"HTTP/1.1", _BODY: body}
        return httpx2.Response(
            response.status, headers=_read_headers(response), stream=body, extensions=extensions
        )

    def _find_proxy(self, url: httpx2.URL) -> str | None:
        if self._proxy:
            return self._proxy
        return find_proxy_url(url.scheme, url.host, url.port or _DEFAULT_PORTS.get(url.scheme, 0))


class ModelBody(httpx2.AsyncByteStream):
    """The body of a response, decompressed."""

    def __init__(self, response: aiohttp.ClientResponse, request: httpx2.Request, max_bytes: int) -> None:
        self._response = response
        self._request = request
        self._max_bytes = max_bytes
        self._received_bytes = 0
        self._failure: httpx2.RequestError | None = None
        self._closed = _find_closed_future(response)
        if self._closed is not None:
            self._closed.remove_done_callback(_retrieve_error)  # of an earlier response
            self._closed.add_done_callback(_retrieve_error)
            self._closed.add_done_callback(self._fail_if_unfinished)

    async def read(self) -> bytes:
        """Everything that has arrived, or else the next bytes to arrive; nothing at the end.

        Raises an error of httpx2, or ModelAnswerTooLarge.
        """
        if self._failure is not None:
            raise self._failure
        try:
            arrived = await self._read_any()
        except _AIOHTTP_ERRORS as error:
            self._failure = _to_httpx(error, self._request)
            arrived = self._take_unread()
            if not arrived:
                raise self._failure from None
        self._received_bytes += len(arrived)
        if self._received_bytes > self._max_bytes:
            raise ModelAnswerTooLarge("LLM_MAX_RESPONSE_BYTES", self._max_bytes)
        return arrived

    async def _read_any(self) -> bytes:
        try:
            return await self._response.content.readany()
        except RuntimeError:
            if self._closed is None or not self._closed.done():
                raise
            # aiohttp's error for a connection that closed a moment ago, before anybody waited.
            raise aiohttp.ClientPayloadError("the connection was closed in the middle of the body") from None

    def _take_unread(self) -> bytes:
        """What arrived before the connection broke: aiohttp would raise the error instead."""
        content = self._response.content
        content._exception = None
        return content.read_nowait()

    def _fail_if_unfinished(self, _: asyncio.Future[None]) -> None:
        """Ends the waiting of a reader. aiohttp leaves it waiting for ever when the framing of a body is
        wrong."""
        content = self._response.content
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the framing of the body is wrong"))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while arrived := await self.read():
            yield arrived

    async def aclose(self) -> None:
        """Closes the connection, unless the body was read to its end: then it is kept for other requests."""
        if self._closed is not None:
            self._closed.remove_done_callback(self._fail_if_unfinished)
            self._closed = None
        self._response.close()


def _to_payload(content: bytes) -> bytes | io.BytesIO:
    """The body of a request. A file is sent in parts, between which other tasks run."""
    if len(content) < _LARGE_BYTES:
        return content
    return io.BytesIO(content)


def _find_closed_future(response: aiohttp.ClientResponse) -> asyncio.Future[None] | None:
    """Done when the connection of a response is closed; none if the whole response has arrived."""
    connection = response.connection
    if connection is None or connection.protocol is None:
        return None
    return connection.protocol.closed


def _retrieve_error(closed: asyncio.Future[None]) -> None:
    """asyncio logs an error that nobody retrieves, and readers get this one another way."""
    closed.exception()


def _to_aiohttp(timeouts: Mapping[str, float | None]) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=None,
        connect=_add_up(timeouts, "pool", "connect"),
        sock_connect=timeouts.get("connect"),
        sock_read=timeouts.get("read"),
    )


def _add_up(timeouts: Mapping[str, float | None], *names: str) -> float | None:
    """The sum of these timeouts; none if one of them has no limit."""
    total = 0.0
    for name in names:
        seconds = timeouts.get(name)
        if seconds is None:
            return None
        total += seconds
    return total


def _read_headers(response: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    """The headers without those that the decompressed body has made wrong."""
    headers = [(name.lower(), value) for name, value in response.raw_headers]
    encoding = dict(headers).get(b"content-encoding", b"").strip().lower()
    if encoding not in _DECODED:
        return headers
    return [(name, value) for name, value in headers if name not in (b"content-encoding", b"content-length")]


def _to_httpx(error: Exception, request: httpx2.Request) -> httpx2.RequestError:
    """The error that the providers' own transport would raise.

    It says nothing of the address of a proxy, which may hold a password.
    """
    match error:
        case aiohttp.ConnectionTimeoutError():
            return httpx2.ConnectTimeout("no connection in time", request=request)
        case aiohttp.ServerTimeoutError():
            return httpx2.ReadTimeout("nothing received in time", request=request)
        case TimeoutError():
            return httpx2.WriteTimeout("the request was not taken in time", request=request)
        case aiohttp.ClientHttpProxyError():
            return httpx2.ProxyError(f"the proxy answered {error.status}", request=request)
        case aiohttp.ClientProxyConnectionError():
            return httpx2.ProxyError("no connection to the proxy", request=request)
        case aiohttp.ClientConnectorError() | aiohttp.ClientSSLError() | aiohttp.InvalidURL():
            return httpx2.ConnectError(str(error), request=request)
        case aiohttp.ClientOSError():
            return httpx2.ReadError(str(error), request=request)
        case aiohttp.ClientPayloadError(__cause__=ContentEncodingError()):
            return httpx2.DecodingError(str(error), request=request)
        case _:
            return httpx2.RemoteProtocolError(str(error), request=request)
