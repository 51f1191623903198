"""Does an address answer over HTTP, how fast, and where does it lead: one request per hop over plain streams, each step timed."""

import asyncio
import functools
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Literal
from urllib.parse import urljoin

import h11

from ai_platform_engineering.mcp_servers.netutils.hosts import HostResolver, connect_to_first, describe_failure
from ai_platform_engineering.mcp_servers.netutils.results import (
    CheckResult,
    NetError,
    ResultModel,
    to_milliseconds,
    pluralize,
    printable,
)
from ai_platform_engineering.mcp_servers.netutils.tls import describe_handshake_error
from ai_platform_engineering.mcp_servers.netutils.urls import Url, parse_url

Method = Literal["GET", "HEAD"]

MAX_REDIRECTS = 5
MAX_BODY = 1024 * 1024
MAX_HEADERS = 64 * 1024
PREVIEW = 300
# Worth knowing and never a secret: no cookies, no authentication.
_SHOWN_HEADERS = (
    "content-type",
    "content-length",
    "server",
    "cache-control",
    "retry-after",
    "strict-transport-security",
    "via",
)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TEXT = ("text/", "application/json", "application/xml", "application/problem+json")


class Timing(ResultModel):
    """How long each step of the last hop took, and the whole."""

    dns: float | None = None
    connect: float | None = None
    tls: float | None = None
    first_byte: float | None = None
    total: float


class Redirect(ResultModel):
    url: str
    status: int
    took_ms: float


class HttpResult(CheckResult):
    url: str
    method: str
    timing_ms: Timing
    redirects: tuple[Redirect, ...] = ()
    status: int | None = None
    reason: str | None = None
    ok: bool = False
    address: str | None = None
    http_version: str | None = None
    tls_version: str | None = None
    headers: dict[str, str] | None = None
    size_bytes: int | None = None
    size_is_partial: bool | None = None
    preview: str | None = None
    failed_at: str | None = None
    note: str | None = None

    @property
    def line(self) -> str:
        text = f"{self.method} {self.url} answered {self.status} {self.reason or ''}".rstrip()
        text += f" in {self.timing_ms.total:g} ms"
        if self.redirects:
            text += f" after {pluralize(len(self.redirects), 'redirect')} from {self.redirects[0].url}"
        if self.note:
            return f"{text}. {self.note}"
        return f"{text}."


@dataclass
class _Hop:
    """One request as it proceeds: what it is doing now and how long each step took."""

    url: Url
    started: float = field(default_factory=time.perf_counter)
    step: str = "dns"
    steps: dict[str, float] = field(default_factory=dict)
    address: str | None = None
    tls_version: str | None = None
    status: int | None = None

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        self.step, started = step, time.perf_counter()
        yield
        self.steps[step] = to_milliseconds(time.perf_counter() - started)


@dataclass(frozen=True)
class _HttpResponse:
    head: h11.Response
    size: int
    partial: bool
    start: bytes

    def header(self, name: str) -> str | None:
        for key, value in self.head.headers:
            if key == name.encode():
                return value.decode("latin-1")
        return None


class _BodyReader:
    """Counts a body up to the limit and keeps its start."""

    def __init__(self) -> None:
        self.size = 0
        self.start = b""
        self.partial = False

    async def read(self, connection: h11.Connection, reader: asyncio.StreamReader) -> None:
        while self.size < MAX_BODY:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Data):
                self.size += len(event.data)
                self.start = (self.start + bytes(event.data))[: PREVIEW * 4]
            else:
                return
        self.partial = True


class _HttpCheck:
    """One call: follows redirects until an answer, and knows how far it came when it fails."""

    def __init__(self, reach: HostResolver, method: Method, url: Url, timeout: float) -> None:
        self._hosts = reach
        self._method = method
        self._timeout = timeout
        self._end = asyncio.get_running_loop().time() + timeout
        self._note = "The credentials in the address were not sent." if url.had_credentials else None
        self._started = time.perf_counter()
        self._redirects: list[Redirect] = []
        self._hop = _Hop(url)

    async def run(self, *, follow: bool) -> HttpResult:
        try:
            return await self._follow_redirects(follow=follow)
        except TimeoutError:
            raise self._build_failure(f"no answer within {self._timeout:g} s ({_STEP_NAMES[self._hop.step]})") from None
        except NetError as error:
            raise self._build_failure(str(error)) from None
        except ssl.SSLError as error:
            raise self._build_failure(
                f"{describe_handshake_error(error).rstrip('.')}; tls_certificate shows more"
            ) from None
        except OSError as error:
            raise self._build_failure(describe_failure(error)) from None
        except h11.RemoteProtocolError as error:
            raise self._build_failure(
                f"the server broke the rules of HTTP ({printable(str(error), 120)})"
            ) from None

    async def _follow_redirects(self, *, follow: bool) -> HttpResult:
        while True:
            answer = await self._send_request()
            target = answer.header("location") if answer.head.status_code in _REDIRECTS else None
            if not follow or not target:
                return self._build_success(answer)
            if len(self._redirects) == MAX_REDIRECTS:
                raise NetError(f"more than {MAX_REDIRECTS} redirects")
            took = to_milliseconds(time.perf_counter() - self._hop.started)
            self._redirects.append(
                Redirect(url=self._hop.url.redacted, status=answer.head.status_code, took_ms=took)
            )
            self._hop = _Hop(_parse_location(self._hop.url, target))

    async def _send_request(self) -> _HttpResponse:
        async with self._open_connection() as (reader, writer):
            connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEADERS)
            writer.write(connection.send(_build_request(self._method, self._hop.url)) or b"")
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            async with asyncio.timeout_at(self._end):
                with self._hop.measure("first_byte"):
                    head = await _read_head(connection, reader)
            self._hop.step, self._hop.status = "body", head.status_code
            return await self._read_body(connection, reader, head)

    async def _read_body(
        self, connection: h11.Connection, reader: asyncio.StreamReader, head: h11.Response
    ) -> _HttpResponse:
        """The head is the answer: a body that is long, or never ends, is cut off."""
        body = _BodyReader()
        try:
            async with asyncio.timeout_at(self._end):
                await body.read(connection, reader)
        except TimeoutError:
            body.partial = True
        return _HttpResponse(head=head, size=body.size, partial=body.partial, start=body.start)

    @asynccontextmanager
    async def _open_connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        hop, url = self._hop, self._hop.url
        async with asyncio.timeout_at(self._end):
            with hop.measure("dns"):
                addresses = await self._hosts.resolve_allowed(url.host, self._timeout)
            with hop.measure("connect"):
                left = self._end - asyncio.get_running_loop().time()
                sock, address = await connect_to_first(addresses, url.port, left)
            hop.address = str(address)
            try:
                if url.scheme == "https":
                    with hop.measure("tls"):
                        reader, writer = await asyncio.open_connection(
                            sock=sock, ssl=_tls_context(), server_hostname=url.host
                        )
                    hop.tls_version = writer.get_extra_info("ssl_object").version()
                else:
                    reader, writer = await asyncio.open_connection(sock=sock)
            except BaseException:
                sock.close()
                raise
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    def _build_success(self, answer: _HttpResponse) -> HttpResult:
        status = answer.head.status_code
        return self._build_result(
            reason=printable(answer.head.reason.decode("latin-1"), 80) or _status_phrase(status),
            ok=200 <= status < 400,
            http_version=answer.head.http_version.decode("ascii"),
            headers={
                name: printable(value, 200) for name in _SHOWN_HEADERS if (value := answer.header(name)) is not None
            },
            size_bytes=answer.size if self._method == "GET" else None,
            size_is_partial=answer.partial or None,
            preview=_preview_body(answer),
        )

    def _build_failure(self, reason: str) -> NetError:
        hop = self._hop
        after = f" (after {pluralize(len(self._redirects), 'redirect')})" if self._redirects else ""
        return NetError(
            f"{self._method} {hop.url.redacted} failed{after}: {reason.rstrip('.')}.",
            self._build_result(failed_at=hop.step),
        )

    def _build_result(self, **more: object) -> HttpResult:
        hop = self._hop
        known = {
            "url": hop.url.redacted,
            "method": self._method,
            "timing_ms": Timing(**hop.steps, total=to_milliseconds(time.perf_counter() - self._started)),
            "redirects": tuple(self._redirects),
            "address": hop.address,
            "tls_version": hop.tls_version,
            "status": hop.status,
            "note": self._note,
        }
        return HttpResult.model_validate(known | more)


_STEP_NAMES = {
    "dns": "looking the host up",
    "connect": "connecting",
    "tls": "agreeing on TLS",
    "first_byte": "waiting for the first byte",
    "body": "reading the body",
}


async def http_check(
    reach: HostResolver, url: str, method: Method, timeout: float, *, follow_redirects: bool
) -> HttpResult:
    return await _HttpCheck(reach, method, parse_url(url), timeout).run(follow=follow_redirects)


@functools.cache
def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _build_request(method: Method, url: Url) -> h11.Request:
    headers = [
        ("host", url.authority),
        ("user-agent", "caipe-netutils"),
        ("accept", "*/*"),
        ("accept-encoding", "identity"),
        ("connection", "close"),
    ]
    return h11.Request(method=method, target=url.target, headers=headers)


async def _read_head(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Response:
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Response):
            return event
        if event is h11.NEED_DATA:
            data = await reader.read(65536)
            if not data:
                raise NetError("the server closed the connection without an answer")
            connection.receive_data(data)


def _parse_location(url: Url, location: str) -> Url:
    try:
        return parse_url(urljoin(url.full_url, location))
    except (NetError, ValueError):
        raise NetError("it redirects to something that is not an http or https address") from None


def _preview_body(answer: _HttpResponse) -> str | None:
    kind = (answer.header("content-type") or "").lower()
    if not answer.start or not kind.startswith(_TEXT):
        return None
    return printable(answer.start.decode("utf-8", "replace"), PREVIEW)


def _status_phrase(status: int) -> str | None:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return None
