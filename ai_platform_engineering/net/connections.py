"""Connections to checked URLs: DNS look-up, TCP, and the proxy of the environment."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from urllib.parse import unquote, urlsplit

import httpcore

from ai_platform_engineering.net.address_policy import IPAddress
from ai_platform_engineering.net.proxies import HTTP_SCHEMES, find_proxy_url
from ai_platform_engineering.net.url_policy import (
    DEFAULT_PORTS,
    FetchFailed,
    FetchRefused,
    ParsedUrl,
    PrivateAccess,
    check_addresses,
    check_name,
    parse_url,
)


class Connector(Protocol):
    """DNS and TCP for everything that is fetched; tests replace it."""

    async def addresses(self, name: str) -> tuple[IPAddress, ...]:
        """All IP addresses of a host name. Raises OSError."""

    async def connect(self, address: IPAddress, port: int) -> httpcore.AsyncNetworkStream:
        """Raises OSError, or an error of httpcore."""


class SystemConnector:
    """The DNS resolver of this machine, and plain TCP."""

    async def addresses(self, name: str) -> tuple[IPAddress, ...]:
        entries = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in entries))

    async def connect(self, address: IPAddress, port: int) -> httpcore.AsyncNetworkStream:
        return await httpcore.AnyIOBackend().connect_tcp(str(address), port)


class UrlChecker:
    """Checks which URLs may be fetched (against SSRF). It does not connect.

    With a proxy of the environment the proxy looks the name up again. So the name is looked up and checked
    here first, and what cannot be looked up here is refused, unless its name is listed or private networks
    are allowed: then there is little left to protect."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        private: PrivateAccess | None = None,
        connector: Connector | None = None,
    ) -> None:
        """`private`: which private networks may be reached; `allow_private` is short for all."""
        self._private = private or PrivateAccess(allow_private)
        self._connector = connector or SystemConnector()

    async def check(self, url: str) -> tuple[ParsedUrl, tuple[IPAddress, ...]]:
        """A URL that may be fetched, and its host's IP addresses; none if only the proxy can look them up.

        Raises FetchRefused and FetchFailed."""
        target = parse_url(url)
        check_name(target, self._private)
        if target.address is not None:
            addresses: tuple[IPAddress, ...] = (target.address,)
        else:
            addresses = await self._look_up(target)
        check_addresses(target, addresses, self._private)
        return target, addresses

    async def _look_up(self, target: ParsedUrl) -> tuple[IPAddress, ...]:
        try:
            addresses = await self._connector.addresses(target.host)
            if addresses:
                return addresses
        except (OSError, UnicodeError, ValueError):
            pass
        if find_proxy(target) is None:
            raise FetchFailed(f"{target.host} cannot be looked up: no such name, or no network.")
        if self._private.allows_name(target.host):
            return ()
        raise FetchRefused(
            f"{target.host} cannot be looked up here, only by the proxy, "
            "so it cannot be checked and is not fetched."
        )


class _PinnedBackend(httpcore.AsyncNetworkBackend):
    """Connects to fixed IP addresses, whatever the host: a second look-up could differ (DNS rebinding)."""

    def __init__(self, connector: Connector, addresses: Sequence[IPAddress], seconds: float) -> None:
        self._connector = connector
        self._addresses = addresses
        self._seconds = seconds

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        for address in self._addresses:
            try:
                # An address that does not answer leaves time for the next.
                async with asyncio.timeout(self._seconds / len(self._addresses)):
                    return await self._connector.connect(address, port)
            except (OSError, httpcore.ConnectError, httpcore.ConnectTimeout):  # TimeoutError is an OSError
                continue
        raise httpcore.ConnectError("no address took the connection")


def find_proxy(target: ParsedUrl, tls: Callable[[], ssl.SSLContext] | None = None) -> httpcore.Proxy | None:
    """The proxy of the environment for this URL; none for loopback hosts and those that it exempts."""
    proxy_url = find_proxy_url(target.scheme, target.host, target.port)
    if proxy_url is None:
        return None
    parts = urlsplit(proxy_url)
    if parts.scheme not in HTTP_SCHEMES or not parts.hostname:
        raise FetchRefused("The proxy that is configured for this address is not an http or https proxy.")
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    auth = None
    if parts.username:
        auth = (unquote(parts.username), unquote(parts.password or ""))
    ssl_context = None
    if tls and parts.scheme == "https":
        ssl_context = tls()
    url = httpcore.URL(scheme=parts.scheme.encode(), host=parts.hostname.encode(), port=port, target=b"/")
    return httpcore.Proxy(url, auth=auth, ssl_context=ssl_context)


async def open_pool(
    target: ParsedUrl,
    addresses: Sequence[IPAddress],
    connector: Connector,
    tls: Callable[[], ssl.SSLContext],
    seconds: float,
) -> httpcore.AsyncConnectionPool:
    """A connection pool for the checked IP addresses, or for the proxy, which the operator trusts.

    TLS still verifies the host name."""
    proxy = find_proxy(target, tls)
    if proxy is not None:
        addresses = await _look_up_host(proxy.url.host.decode(), connector)
    backend = _PinnedBackend(connector, addresses, seconds)
    context = tls() if target.scheme == "https" else None  # reading the certificates is slow
    return httpcore.AsyncConnectionPool(context, proxy=proxy, max_connections=1, network_backend=backend)


async def _look_up_host(host: str, connector: Connector) -> tuple[IPAddress, ...]:
    try:
        return (ipaddress.ip_address(host),)
    except ValueError:
        return await connector.addresses(host)
