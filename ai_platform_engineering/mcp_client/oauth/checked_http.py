"""HTTP requests to authorization servers: to checked addresses, without redirects, within size and time."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpcore

from ai_platform_engineering.core.host_patterns import AllowedHosts
from ai_platform_engineering.core.json_limits import JsonLimits, JsonTooLarge
from ai_platform_engineering.core.oauth_settings import OAuthSettings
from ai_platform_engineering.core.tls_context import trusted_tls_context
from ai_platform_engineering.mcp_client.oauth.oauth_errors import AuthorizationServerUnreachable, SignInFailed
from ai_platform_engineering.net.address_policy import IPAddress
from ai_platform_engineering.net.connections import Connector, SystemConnector, UrlChecker, open_pool
from ai_platform_engineering.net.url_policy import (
    FetchFailed,
    FetchRefused,
    ParsedUrl,
    PrivateAccess,
    parse_url,
)

_SETTING = "MCP_OAUTH_PRIVATE_HOSTS"
_MAX_BODY_BYTES = 256 * 1024
_LIMITS = JsonLimits(5_000)
_FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
_JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@dataclass(frozen=True, slots=True, repr=False)
class HttpAnswer:
    """The response to a request; `body` is its JSON, or None where it is none."""

    status: int
    headers: Mapping[str, str]
    body: Any = None

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300


class CheckedHttp:
    """Sends the requests of OAuth. Names are looked up and checked for each, and the connection goes to the
    addresses that were checked."""

    def __init__(self, settings: OAuthSettings, connector: Connector | None = None) -> None:
        self._seconds = settings.timeout
        self._private_hosts = settings.private_hosts
        self._connector = connector or SystemConnector()

    async def get(self, url: str, *, server_url: str) -> HttpAnswer:
        return await self._request("GET", url, {"Accept": "application/json"}, b"", server_url)

    async def post_form(
        self,
        url: str,
        form: Mapping[str, str],
        *,
        server_url: str,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        body = urlencode(form).encode()
        return await self._request("POST", url, {**_FORM, **(headers or {})}, body, server_url)

    async def post_json(
        self, url: str, value: Any, *, server_url: str, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        body = json.dumps(value).encode()
        return await self._request("POST", url, {**_JSON, **(headers or {})}, body, server_url)

    async def check_url(self, url: str, *, server_url: str) -> ParsedUrl:
        """Whether the address may be used for a sign-in at this server. Raises SignInFailed."""
        target, _ = await self._check(url, server_url)
        return target

    async def _check(self, url: str, server_url: str) -> tuple[ParsedUrl, tuple[IPAddress, ...]]:
        """The server's own host was chosen by the operator; others are public, or listed."""
        try:
            server = parse_url(server_url)
            hosts = AllowedHosts.parse((*self._private_hosts, server.host))
            private = PrivateAccess(hosts=hosts, setting=_SETTING)
            target, addresses = await UrlChecker(private=private, connector=self._connector).check(url)
        except FetchRefused as error:
            raise SignInFailed(f"{error} It is part of the sign-in at {server_url}.") from None
        except FetchFailed as error:
            raise AuthorizationServerUnreachable(str(error)) from None
        is_own_plain_host = server.scheme == "http" and target.host == server.host
        is_listed = AllowedHosts.parse(self._private_hosts).has_host(target.host)
        if target.scheme == "http" and not (is_own_plain_host or is_listed):
            raise SignInFailed(
                f"{target.origin} is used for signing in and does not begin with https://. An operator can "
                f"allow http for hosts in private networks ({_SETTING})."
            )
        return target, addresses

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, server_url: str
    ) -> HttpAnswer:
        try:
            async with asyncio.timeout(self._seconds):
                target, addresses = await self._check(url, server_url)
                return await self._send(method, target, addresses, headers, body)
        except TimeoutError:
            raise AuthorizationServerUnreachable(
                f"{_origin_of(url)} did not answer within {self._seconds:g} seconds."
            ) from None
        except (OSError, httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError) as error:
            raise _unreachable_error(url, error) from None
        except (httpcore.TimeoutException, httpcore.UnsupportedProtocol) as error:
            raise _unreachable_error(url, error) from None

    async def _send(
        self,
        method: str,
        target: ParsedUrl,
        addresses: tuple[IPAddress, ...],
        headers: Mapping[str, str],
        body: bytes,
    ) -> HttpAnswer:
        if target.scheme == "https":
            await asyncio.to_thread(trusted_tls_context)  # the first time it reads files
        pool = await open_pool(target, addresses, self._connector, trusted_tls_context, self._seconds)
        request_url = httpcore.URL(
            scheme=target.scheme.encode(),
            host=target.host.encode(),
            port=target.port,
            target=target.path.encode(),
        )
        all_headers = {"Host": target.authority, "Accept-Encoding": "identity", **headers}
        if method == "POST":
            all_headers["Content-Length"] = str(len(body))
        encoded_headers = [(name.encode(), value.encode("latin-1")) for name, value in all_headers.items()]
        async with pool, pool.stream(method, request_url, headers=encoded_headers, content=body) as response:
            answer_headers = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
            }
            content = await _read_body(response, answer_headers)
        return HttpAnswer(response.status, answer_headers, content)


async def _read_body(response: httpcore.Response, headers: Mapping[str, str]) -> Any:
    """The JSON of the body; None for anything else, which nobody reads here."""
    if not headers.get("content-type", "").lower().partition(";")[0].strip().endswith("json"):
        return None
    body = bytearray()
    async for chunk in response.aiter_stream():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise SignInFailed(f"The answer is larger than {_MAX_BODY_BYTES} bytes and is not read.")
    try:
        _LIMITS.check(bytes(body))
        return json.loads(body)
    except (ValueError, RecursionError, JsonTooLarge):
        return None


def _unreachable_error(url: str, error: Exception) -> AuthorizationServerUnreachable:
    return AuthorizationServerUnreachable(
        f"{_origin_of(url)} cannot be reached ({type(error).__name__}). Try again later."
    )


def _origin_of(url: str) -> str:
    try:
        return parse_url(url).origin
    except FetchRefused:
        return "The address"
