"""An HTTP check: status, redirects and the time of each step; one request per hop over plain streams."""

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

from ai_platform_engineering.core.call_targets import NETWORK_TOOL_USER_AGENT
from ai_platform_engineering.mcp_servers.netutils.hosts import (
    HostResolver,
    connect_to_first,
    describe_failure,
)
from ai_platform_engineering.mcp_servers.netutils.results import (
    CheckResult,
    NetError,
    ResultModel,
    pluralize,
    printable,
    to_milliseconds,
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
_OTHER_HOST = "It redirects to {url}, which is another host and was not followed; check it by itself."
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TEXT = ("text/", "application/json", "application/xml", "application/problem+json")


class Timing(ResultModel):
    """Milliseconds of each step of the last hop, and of the whole check."""

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
    """One request as it proceeds: its current step, and how long each step took."""

    url: Url
    started: float = field(default_factory=time.perf_counter)
    step: str = "dns"
    steps: dict[str, float] = field(default_factory=dict)
    address: str | None = None
    tls_version: str | None = None
    status: int | None = None

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        self.step = step
        started = time.perf_counter()
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
    """One check: follows redirects to the last response, and reports the step at which it failed."""

    def __init__(self, hosts: HostResolver, method: Method, url: Url, timeout: float) -> None:
        self._hosts = hosts
        self._method = method
        self._timeout = timeout
        self._end = asyncio.get_running_loop().time() + timeout
        self._note: str | None = None
        if url.had_credentials:
            self._note = "The credentials in the address were not sent."
        self._started = time.perf_counter()
        self._redirects: list[Redirect] = []
        self._hop = _Hop(url)
        self._first_host = url.host

    async def run(self, *, follow: bool) -> HttpResult:
        try:
            return await self._follow_redirects(follow=follow)
        except TimeoutError:
            step_name = _STEP_NAMES[self._hop.step]
            raise self._build_failure(f"no answer within {self._timeout:g} s ({step_name})") from None
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
            response = await self._send_request()
            location = response.header("location")
            is_redirect = response.head.status_code in _REDIRECTS
            if not follow or not is_redirect or not location:
                return self._build_success(response)
            if len(self._redirects) == MAX_REDIRECTS:
                raise NetError(f"more than {MAX_REDIRECTS} redirects")
            target = _parse_location(self._hop.url, location)
            self._hosts.policy.check_literal(target.host)
            if not self._may_follow(target.host):
                self._note = _OTHER_HOST.format(url=target.redacted)
                return self._build_success(response)
            took = to_milliseconds(time.perf_counter() - self._hop.started)
            self._redirects.append(
                Redirect(url=self._hop.url.redacted, status=response.head.status_code, took_ms=took)
            )
            self._hop = _Hop(target)

    def _may_follow(self, host: str) -> bool:
        """Whether a redirect stays with the host that was asked for, or goes to one that is allowed.

        Nobody named any other host: the page chose it.
        """
        return host.removeprefix("www.") == self._first_host.removeprefix(
            "www."
        ) or self._hosts.policy.allowed.has_host(host)

    async def _send_request(self) -> _HttpResponse:
        async with self._open_connection() as (reader, writer):
            connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEADERS)
            writer.write(connection.send(_build_request(self._method, self._hop.url)) or b"")
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            async with asyncio.timeout_at(self._end):
                with self._hop.measure("first_byte"):
                    head = await _read_head(connection, reader)
            self._hop.step = "body"
            self._hop.status = head.status_code
            return await self._read_body(connection, reader, head)

    async def _read_body(
        self, connection: h11.Connection, reader: asyncio.StreamReader, head: h11.Response
    ) -> _HttpResponse:
        """Reads the body up to the limit or the deadline: the status is known, and some bodies never end."""
        body = _BodyReader()
        try:
            async with asyncio.timeout_at(self._end):
                await body.read(connection, reader)
        except TimeoutError:
            body.partial = True
        return _HttpResponse(head=head, size=body.size, partial=body.partial, start=body.start)

    @asynccontextmanager
    async def _open_connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        hop = self._hop
        url = hop.url
        async with asyncio.timeout_at(self._end):
            with hop.measure("dns"):
                addresses = await self._hosts.resolve_for_request(url.host, url.port, self._timeout)
            with hop.measure("connect"):
                seconds_left = self._end - asyncio.get_running_loop().time()
                sock, address = await connect_to_first(addresses, url.port, seconds_left)
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

    def _build_success(self, response: _HttpResponse) -> HttpResult:
        head = response.head
        size = None
        if self._method == "GET":
            size = response.size
        return self._build_result().model_copy(
            update={
                "reason": printable(head.reason.decode("latin-1"), 80) or _status_phrase(head.status_code),
                "ok": 200 <= head.status_code < 400,
                "http_version": head.http_version.decode("ascii"),
                "headers": _select_headers(response),
                "size_bytes": size,
                "size_is_partial": response.partial or None,
                "preview": _preview_body(response),
            }
        )

    def _build_failure(self, reason: str) -> NetError:
        hop = self._hop
        after = ""
        if self._redirects:
            after = f" (after {pluralize(len(self._redirects), 'redirect')})"
        message = f"{self._method} {hop.url.redacted} failed{after}: {reason.rstrip('.')}."
        return NetError(message, self._build_result().model_copy(update={"failed_at": hop.step}))

    def _build_result(self) -> HttpResult:
        """What is known so far, whether the check succeeded or not."""
        hop = self._hop
        total = to_milliseconds(time.perf_counter() - self._started)
        return HttpResult(
            url=hop.url.redacted,
            method=self._method,
            timing_ms=Timing(**hop.steps, total=total),
            redirects=tuple(self._redirects),
            address=hop.address,
            tls_version=hop.tls_version,
            status=hop.status,
            note=self._note,
        )


def _select_headers(response: _HttpResponse) -> dict[str, str]:
    headers = {}
    for name in _SHOWN_HEADERS:
        value = response.header(name)
        if value is not None:
            headers[name] = printable(value, 200)
    return headers


_STEP_NAMES = {
    "dns": "looking the host up",
    "connect": "connecting",
    "tls": "agreeing on TLS",
    "first_byte": "waiting for the first byte",
    "body": "reading the body",
}


async def http_check(
    hosts: HostResolver, url: str, method: Method, timeout: float, *, follow_redirects: bool
) -> HttpResult:
    return await _HttpCheck(hosts, method, parse_url(url), timeout).run(follow=follow_redirects)


@functools.cache
def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _build_request(method: Method, url: Url) -> h11.Request:
    headers = [
        ("host", url.authority),
        ("user-agent", NETWORK_TOOL_USER_AGENT),
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


def _preview_body(response: _HttpResponse) -> str | None:
    content_type = (response.header("content-type") or "").lower()
    if not response.start or not content_type.startswith(_TEXT):
        return None
    return printable(response.start.decode("utf-8", "replace"), PREVIEW)


def _status_phrase(status: int) -> str | None:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return None
