"""How a checked address is reached: look-up, connection, and the proxy of the environment."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore

from ai_platform_engineering.core.settings import is_loopback
from ai_platform_engineering.net.url_policy import (
    FetchFailed,
    FetchRefused,
    IPAddress,
    ParsedUrl,
    check_addresses,
    check_name,
    parse_url,
)


class Connector(Protocol):
    """The way to the network; whatever is fetched goes through it."""

    async def addresses(self, name: str) -> tuple[IPAddress, ...]:
        """All addresses of a name. Raises OSError."""

    async def connect(self, address: IPAddress, port: int) -> httpcore.AsyncNetworkStream:
        """Raises OSError, or an error of httpcore."""


class SystemConnector:
    """Names as this machine knows them, and plain TCP."""

    async def addresses(self, name: str) -> tuple[IPAddress, ...]:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found))

    async def connect(self, address: IPAddress, port: int) -> httpcore.AsyncNetworkStream:
        return await httpcore.AnyIOBackend().connect_tcp(str(address), port)


class UrlChecker:
    """Says where may be connected to. Nothing is connected to here.

    With a proxy of the environment the proxy looks the name up again. So the name is looked up and checked here first, and what
    cannot be looked up here is refused, unless private networks are allowed: then there is little left to protect."""

    def __init__(self, *, allow_private: bool = False, connector: Connector | None = None) -> None:
        self._allow_private, self._connector = allow_private, connector or SystemConnector()

    async def check(self, url: str) -> tuple[ParsedUrl, tuple[IPAddress, ...]]:
        """An address that may be reached, and where; no addresses: only the proxy knows them. Raises FetchRefused and FetchFailed."""
        target = parse_url(url)
        check_name(target, allow_private=self._allow_private)
        found = (target.address,) if target.address is not None else await self._look_up(target)
        check_addresses(target, found, allow_private=self._allow_private)
        return target, found

    async def _look_up(self, target: ParsedUrl) -> tuple[IPAddress, ...]:
        try:
            if found := await self._connector.addresses(target.host):
                return found
        except (OSError, UnicodeError, ValueError):
            pass
        if find_proxy(target) is None:
            raise FetchFailed(f"{target.host} cannot be looked up: no such name, or no network.")
        if self._allow_private:
            return ()
        raise FetchRefused(
            f"{target.host} cannot be looked up here, only by the proxy, so it cannot be checked and is not fetched."
        )


class _Dialler(httpcore.AsyncNetworkBackend):
    """Connects to given addresses, whatever name is asked for: a second look-up could give others."""

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
                async with asyncio.timeout(
                    self._seconds / len(self._addresses)
                ):  # a silent one leaves time for the next
                    return await self._connector.connect(address, port)
            except (OSError, httpcore.ConnectError, httpcore.ConnectTimeout):  # TimeoutError is an OSError
                continue
        raise httpcore.ConnectError("no address took the connection")


def find_proxy(target: ParsedUrl, tls: Callable[[], ssl.SSLContext] | None = None) -> httpcore.Proxy | None:
    """The proxy of the environment for this address; one is for the way out, not for this machine."""
    if is_loopback(target.host) or proxy_bypass(f"{target.host}:{target.port}"):
        return None
    known = getproxies()
    given = known.get(target.scheme) or known.get("all")
    if not given:
        return None
    parts = urlsplit(given if "://" in given else f"http://{given}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FetchRefused("The proxy that is configured for this address is not an http or https proxy.")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    url = httpcore.URL(scheme=parts.scheme.encode(), host=parts.hostname.encode(), port=port, target=b"/")
    return httpcore.Proxy(url, auth=auth, ssl_context=tls() if tls and parts.scheme == "https" else None)


async def open_pool(
    target: ParsedUrl,
    addresses: Sequence[IPAddress],
    connector: Connector,
    tls: Callable[[], ssl.SSLContext],
    seconds: float,
) -> httpcore.AsyncConnectionPool:
    """A pool that connects to the checked addresses, or to the proxy, whose address is the operator's word. TLS still asks for the name."""
    proxy = find_proxy(target, tls)
    if proxy is not None:
        addresses = await _found(proxy.url.host.decode(), connector)
    backend = _Dialler(connector, addresses, seconds)
    context = tls() if target.scheme == "https" else None  # reading the certificates takes its time
    return httpcore.AsyncConnectionPool(context, proxy=proxy, max_connections=1, network_backend=backend)


async def _found(host: str, connector: Connector) -> tuple[IPAddress, ...]:
    try:
        return (ipaddress.ip_address(host),)
    except ValueError:
        return await connector.addresses(host)
