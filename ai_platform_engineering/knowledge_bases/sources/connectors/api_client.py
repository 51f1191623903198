"""The HTTP client of connectors: reads one API, within limits, and waits where the API asks for it.

It only reads. Its credentials go to the address that the operator has set, and nowhere else."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urljoin

import httpcore

from ai_platform_engineering.core.errors import ConfigurationError, SourceUnavailable
from ai_platform_engineering.core.json_limits import JsonLimits, JsonTooLarge
from ai_platform_engineering.core.redaction import Redactor
from ai_platform_engineering.core.tls_context import trusted_tls_context
from ai_platform_engineering.knowledge_bases.sources.connectors.api_errors import (
    ApiError,
    describe_status,
    extract_detail,
    is_limited_query,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.retries import (
    RetryLimits,
    compute_delay,
    is_rate_limited,
    may_retry,
)
from ai_platform_engineering.knowledge_bases.sources.fetcher import describe_connect_error
from ai_platform_engineering.knowledge_bases.sources.response_bodies import join_headers, read_body
from ai_platform_engineering.knowledge_bases.sources.user_agent import USER_AGENT
from ai_platform_engineering.net.connections import Connector, SystemConnector, UrlChecker, open_pool
from ai_platform_engineering.net.url_policy import FetchFailed, FetchRefused, ParsedUrl, parse_url

Sleep = Callable[[float], Awaitable[None]]
Query = Mapping[str, str | int]

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 3
_MAX_HEADERS = 100
_ERROR_BYTES = 64 * 1024
_SMALL_BYTES = 64 * 1024  # of JSON that is parsed at once
_JSON_LIMITS = JsonLimits(values=500_000)


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """`max_bytes` of a response, decompressed; `seconds` for one attempt; `max_pages` of one listing."""

    max_bytes: int = 10 * 1024 * 1024
    seconds: float = 30.0
    max_pages: int = 5_000
    retries: RetryLimits = field(default_factory=RetryLimits)


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """An API as the operator has configured it. `headers` may hold credentials, so they are never shown.

    `address_variable` and `credential_variables` are named in errors."""

    service: str  # as people say it: Confluence
    base_url: str
    address_variable: str
    credential_variables: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)  # removed from what the API says

    def parse(self) -> ParsedUrl:
        """Raises ConfigurationError."""
        try:
            return parse_url(self.base_url)
        except FetchRefused as error:
            raise ConfigurationError(f"{self.address_variable} is invalid. {error}") from None


@dataclass(frozen=True, slots=True)
class ApiResponse:
    content: bytes
    headers: Mapping[str, str]  # names in lower case


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """How connectors reach APIs: limits, the check of addresses, and what tests replace."""

    limits: ApiLimits = field(default_factory=ApiLimits)
    # An address that the operator has set may be private; cloud metadata services stay refused.
    url_checker: UrlChecker = field(default_factory=lambda: UrlChecker(allow_private=True))
    network: Connector = field(default_factory=SystemConnector)
    sleep: Sleep = asyncio.sleep
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def open(self, endpoint: ApiEndpoint) -> "ApiClient":
        """Raises ConfigurationError for an address that cannot be one."""
        return ApiClient(endpoint, self)


class ApiClient:
    """Requests to one API over one connection, one after another; an async context manager.

    All methods raise ApiError for an answer without success, and SourceUnavailable."""

    def __init__(self, endpoint: ApiEndpoint, access: ApiAccess) -> None:
        self.endpoint = endpoint
        self.server_time: datetime | None = None  # as the last response says
        self._access = access
        self._limits = access.limits
        self._base = endpoint.parse()
        self._redactor = Redactor.from_secrets(endpoint.secrets)
        self._pool: httpcore.AsyncConnectionPool | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            await self._pool.aclose()

    async def get(
        self,
        path: str,
        query: Query | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        max_bytes: int | None = None,
    ) -> ApiResponse:
        """The response at a path below the base URL; `headers` are added to those of the endpoint."""
        url = self._build_url(path, query)
        return await self._request("GET", url, headers or {}, None, max_bytes or self._limits.max_bytes)

    async def get_json(self, path: str, query: Query | None = None) -> Any:
        return await self._parse_json(await self.get(path, query))

    async def pages(
        self,
        path: str,
        query: Query,
        find_next: Callable[[Any, Mapping[str, str]], tuple[str, Query] | None],
    ) -> AsyncIterator[Any]:
        """The pages of a listing as JSON. `find_next` finds path and query of the next one in a page and its
        headers; None ends it."""
        for _ in range(self._limits.max_pages):
            response = await self.get(path, query)
            page = await self._parse_json(response)
            yield page
            following = find_next(page, response.headers)
            if following is None:
                return
            if following == (path, query):
                raise SourceUnavailable(f"{self.endpoint.service} keeps returning the same page.")
            path, query = following
        raise SourceUnavailable(
            f"{self.endpoint.service} has too much to list: the limit is {self._limits.max_pages} pages."
        )

    async def query_graphql(self, path: str, document: str, variables: Mapping[str, Any]) -> Any:
        """The answer to a GraphQL query, errors included. It is sent with POST and changes nothing: a
        document that is no query is refused."""
        if not document.lstrip().startswith(("query", "{")):
            raise ValueError("only queries are sent")
        body = json.dumps({"query": document, "variables": dict(variables)}).encode()
        headers = {"Content-Type": "application/json"}
        url = self._build_url(path, None)
        response = await self._request("POST", url, headers, body, self._limits.max_bytes)
        return await self._parse_json(response)

    def describe_rate_limit(self, seconds: float) -> str:
        """What a person reads when waiting for the API would take too long."""
        until = datetime.fromtimestamp(self._access.clock().timestamp() + seconds, UTC)
        return (
            f"{self.endpoint.service} allows no more requests until {until:%Y-%m-%d %H:%M} UTC. "
            "What was read until now is kept; refresh the datasource after that."
        )

    # --- one request

    def _build_url(self, path: str, query: Query | None) -> ParsedUrl:
        text = f"{self._base.url.rstrip('/')}{path}"
        if query:
            separator = "&" if "?" in path else "?"
            text += f"{separator}{urlencode(query)}"
        try:
            return parse_url(text)
        except FetchRefused as error:
            raise SourceUnavailable(f"{self.endpoint.service} cannot be asked: {error}") from None

    async def _request(
        self, method: str, url: ParsedUrl, headers: Mapping[str, str], body: bytes | None, max_bytes: int
    ) -> ApiResponse:
        """Makes the request until it succeeds, or fails in a way that does not pass."""
        retries = self._limits.retries
        waited = 0.0
        for attempt in range(retries.attempts):
            is_last = attempt == retries.attempts - 1
            try:
                status, response = await self._send(method, url, headers, body, max_bytes)
                if method == "POST" and is_limited_query(response.content):
                    status = HTTPStatus.TOO_MANY_REQUESTS
            except FetchFailed as error:
                if is_last:
                    raise self._create_unreachable_error(error) from None
                status, response = 0, ApiResponse(b"", {})
            if 200 <= status < 300:
                return response
            if status and not may_retry(status, response.headers):
                raise self._create_error(status, response)
            delay = compute_delay(response.headers, attempt, self._access.clock())
            if is_last or waited + delay > retries.wait_seconds:
                raise self._create_retry_error(status, response, delay)
            waited += delay
            await self._access.sleep(delay)
        raise AssertionError("the last attempt returns or raises")

    async def _send(
        self, method: str, url: ParsedUrl, headers: Mapping[str, str], body: bytes | None, max_bytes: int
    ) -> tuple[int, ApiResponse]:
        """One attempt, with redirects on the same host. Raises FetchFailed for what may pass."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                for _ in range(_MAX_REDIRECTS + 1):
                    status, response = await self._exchange(method, url, headers, body, max_bytes)
                    if status not in _REDIRECTS:
                        return status, response
                    url = self._resolve_redirect(url, response.headers.get("location", ""))
        except TimeoutError:
            raise FetchFailed(f"There was no answer within {self._limits.seconds:g} seconds.") from None
        raise SourceUnavailable(f"{self.endpoint.service} redirects in a loop.")

    async def _exchange(
        self, method: str, url: ParsedUrl, headers: Mapping[str, str], body: bytes | None, max_bytes: int
    ) -> tuple[int, ApiResponse]:
        request_url = httpcore.URL(
            scheme=url.scheme.encode(), host=url.host.encode(), port=url.port, target=url.path.encode()
        )
        try:
            pool = await self._open_pool()
            async with pool.stream(
                method, request_url, headers=self._build_headers(url, headers, body), content=body
            ) as response:
                response_headers = join_headers(response.headers[:_MAX_HEADERS])
                self._note_time(response_headers)
                is_success = 200 <= response.status < 300
                limit = max_bytes if is_success else _ERROR_BYTES
                content = await self._read(response, response_headers, limit, is_needed=is_success)
                return response.status, ApiResponse(content, response_headers)
        except httpcore.ProxyError:
            raise FetchFailed(f"The proxy does not connect to {url.host}.") from None
        except (httpcore.ConnectError, httpcore.ConnectTimeout, OSError) as error:
            raise FetchFailed(describe_connect_error(url, error)) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException):
            raise FetchFailed(f"{url.host} broke off, or did not answer as a web server does.") from None

    async def _read(
        self, response: httpcore.Response, headers: Mapping[str, str], max_bytes: int, *, is_needed: bool
    ) -> bytes:
        try:
            return await read_body(response, headers, max_bytes)
        except FetchRefused:
            if not is_needed:
                return b""
            raise SourceUnavailable(
                f"{self.endpoint.service} sent more than {max_bytes / 1024 / 1024:g} MB at once."
            ) from None

    async def _open_pool(self) -> httpcore.AsyncConnectionPool:
        """The connection pool, for addresses that were checked once and are used from then on."""
        if self._pool is None:
            try:
                target, addresses = await self._access.url_checker.check(self._base.url)
            except FetchRefused as error:
                raise SourceUnavailable(f"{self.endpoint.address_variable} cannot be used. {error}") from None
            self._pool = await open_pool(
                target, addresses, self._access.network, trusted_tls_context, self._limits.seconds
            )
        return self._pool

    def _build_headers(
        self, url: ParsedUrl, headers: Mapping[str, str], body: bytes | None
    ) -> list[tuple[bytes, bytes]]:
        all_headers = {
            "Host": url.authority,
            "User-Agent": USER_AGENT,
            "Accept": "application/json",
            "Accept-Encoding": "gzip, deflate",
            **self.endpoint.headers,
            **headers,
        }
        if body is not None:
            all_headers["Content-Length"] = str(len(body))
        return [(name.encode(), value.encode("latin-1", "replace")) for name, value in all_headers.items()]

    def _resolve_redirect(self, url: ParsedUrl, location: str) -> ParsedUrl:
        """Where a redirect leads; credentials are for one host, so another is not followed."""
        try:
            target = parse_url(urljoin(url.url, location))
        except (FetchRefused, ValueError):
            target = None
        if target is None or target.origin != self._base.origin:
            raise SourceUnavailable(
                f"{self.endpoint.service} redirects to another host, which is not followed. "
                f"Check {self.endpoint.address_variable}."
            )
        return target

    def _note_time(self, headers: Mapping[str, str]) -> None:
        try:
            moment = parsedate_to_datetime(headers.get("date", ""))
        except ValueError:
            return
        self.server_time = moment.replace(tzinfo=moment.tzinfo or UTC)

    async def _parse_json(self, response: ApiResponse) -> Any:
        if len(response.content) <= _SMALL_BYTES:
            return self._decode_json(response.content)
        return await asyncio.to_thread(self._decode_json, response.content)

    def _decode_json(self, content: bytes) -> Any:
        try:
            _JSON_LIMITS.check(content)
            return json.loads(content)
        except (ValueError, RecursionError, JsonTooLarge):
            raise SourceUnavailable(
                f"{self.endpoint.address_variable} does not point to the API of "
                f"{self.endpoint.service}, or its response is too large."
            ) from None

    def _create_error(self, status: int, response: ApiResponse) -> ApiError:
        endpoint = self.endpoint
        detail = extract_detail(response.content, self._redactor)
        message = describe_status(
            status, endpoint.service, endpoint.credential_variables, endpoint.address_variable, detail
        )
        return ApiError(message, status, detail)

    def _create_retry_error(self, status: int, response: ApiResponse, delay: float) -> SourceUnavailable:
        if is_rate_limited(status, response.headers):
            return ApiError(self.describe_rate_limit(delay), status)
        if not status:
            return self._create_unreachable_error(FetchFailed("It did not answer."))
        return self._create_error(status, response)

    def _create_unreachable_error(self, error: FetchFailed) -> SourceUnavailable:
        return SourceUnavailable(
            f"{self.endpoint.service} cannot be reached. {error} Check {self.endpoint.address_variable}."
        )
