"""Sends one notification to its receiver: to checked addresses only, without redirects, within a time."""

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import httpcore

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.host_patterns import AllowedHosts
from ai_platform_engineering.core.push_settings import PushSettings
from ai_platform_engineering.core.tls_context import trusted_tls_context
from ai_platform_engineering.net.address_policy import IPAddress, is_allowed_address
from ai_platform_engineering.net.connections import Connector, SystemConnector, UrlChecker, open_pool
from ai_platform_engineering.net.url_policy import FetchFailed, FetchRefused, ParsedUrl, PrivateAccess

_PRIVATE_HOSTS = "A2A_PUSH_PRIVATE_HOSTS"
_PLAIN_HTTP = (
    "The address of a receiver on the internet begins with https://. "
    f"An operator can allow http for hosts in private networks ({_PRIVATE_HOSTS})."
)


class NotificationFailed(CaipeError):
    """The receiver did not take the notification; the text names neither its address nor a secret."""

    code = "notification_failed"
    retryable = True


class _OwnThreads(SystemConnector):
    """Looks names up in threads of its own: a DNS server that hangs delays nothing but notifications."""

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="look-up of receivers")

    async def addresses(self, name: str) -> tuple[IPAddress, ...]:
        loop = asyncio.get_running_loop()
        entries = await loop.run_in_executor(self._executor, _look_up, name)
        return tuple(dict.fromkeys(ipaddress.ip_address(entry) for entry in entries))


def _look_up(name: str) -> list[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]


class ReceiverClient:
    """Posts notifications. Names are looked up and checked for each request, and the connection goes to the
    addresses that were checked."""

    def __init__(self, settings: PushSettings, connector: Connector | None = None) -> None:
        self._seconds = settings.timeout
        self._connector = connector or _OwnThreads(settings.connections)
        self._private = PrivateAccess(
            hosts=AllowedHosts.parse(settings.private_hosts), setting=_PRIVATE_HOSTS
        )
        self._url_checker = UrlChecker(private=self._private, connector=self._connector)

    async def check_url(self, url: str) -> ParsedUrl:
        """The address of a receiver. Raises FetchRefused, and FetchFailed when it cannot be looked up."""
        try:
            async with asyncio.timeout(self._seconds):
                target, _ = await self._check(url)
        except TimeoutError:
            raise FetchFailed("The name of the receiver was not looked up in time.") from None
        return target

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """Raises FetchRefused when nothing may be sent there, and FetchFailed or NotificationFailed."""
        try:
            async with asyncio.timeout(self._seconds):
                status = await self._post(url, headers, body)
        except TimeoutError:
            raise NotificationFailed(
                f"the receiver did not answer within {self._seconds:g} seconds"
            ) from None
        except (OSError, httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError) as error:
            raise NotificationFailed(f"the connection failed ({type(error).__name__})") from None
        except (httpcore.TimeoutException, httpcore.UnsupportedProtocol) as error:
            raise NotificationFailed(f"the connection failed ({type(error).__name__})") from None
        if not 200 <= status < 300:
            raise NotificationFailed(f"the receiver answered with status {status}")

    async def _check(self, url: str) -> tuple[ParsedUrl, tuple[IPAddress, ...]]:
        target, addresses = await self._url_checker.check(url)
        if target.scheme == "http" and not self._private.allows_name(target.host):
            is_public = any(is_allowed_address(address, allow_private=False) for address in addresses)
            if is_public or not addresses:
                raise FetchRefused(_PLAIN_HTTP)
        return target, addresses

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        target, addresses = await self._check(url)
        if target.scheme == "https":
            await asyncio.to_thread(trusted_tls_context)  # the first time it reads files
        pool = await open_pool(target, addresses, self._connector, trusted_tls_context, self._seconds)
        request_url = httpcore.URL(
            scheme=target.scheme.encode(),
            host=target.host.encode(),
            port=target.port,
            target=target.path.encode(),
        )
        all_headers = {"Host": target.authority, "Content-Length": str(len(body)), **headers}
        encoded_headers = [(name.encode(), value.encode("latin-1")) for name, value in all_headers.items()]
        # The status is enough: nothing of the receiver's answer is read.
        async with pool, pool.stream("POST", request_url, headers=encoded_headers, content=body) as response:
            return response.status
