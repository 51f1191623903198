"""Hosts: parsing what people write, resolving names to addresses, and connecting to one of them."""

import asyncio
import errno
import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TypeVar

from ai_platform_engineering.mcp_servers.netutils.network_policy import NetworkPolicy
from ai_platform_engineering.mcp_servers.netutils.results import NetError, printable, quote_input

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
T = TypeVar("T")

LOOKUP_LIMIT = 5.0
MAX_THREADS = 32
_NAME = re.compile(r"[A-Za-z0-9_*-]+(\.[A-Za-z0-9_*-]+)*")
_OLD_FORM = re.compile(r"(0x[0-9a-f]+|\d+)(\.(0x[0-9a-f]+|\d+)){0,3}")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
LOOPBACKS: tuple[IPAddress, ...] = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))


def parse_address(text: str) -> IPAddress | None:
    with suppress(ValueError):
        return ipaddress.ip_address(text.strip().removeprefix("[").removesuffix("]"))
    return None


def parse_host(text: str) -> str:
    """A host name in ASCII without its last dot, or an address in its usual form."""
    if (address := parse_address(text)) is not None:
        return str(address)
    bare = text.strip().removesuffix(".")
    if any(mark in bare for mark in "/@?#"):  # not repeated in the error: it may hold a password
        raise NetError(
            "That is not a host. Write a host name or an address alone, without scheme, user or path: "
            "example.com or 10.0.0.5."
        )
    if re.fullmatch(r"[^:]+:\d+", bare):
        raise NetError(
            f"{quote_input(text)} holds a port. Write the host alone and give the port in its own argument."
        )
    try:
        name = bare if bare.isascii() else bare.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if not _NAME.fullmatch(name) or len(name) > 253 or any(len(label) > 63 for label in name.split(".")):
        raise NetError(
            f"{quote_input(text)} is not a host name or an address. "
            "Write one like example.com, 10.0.0.5 or 2001:db8::1."
        )
    return name.lower()


def is_localhost(name: str) -> bool:
    """Names that mean this machine wherever they are asked (RFC 6761)."""
    return name == "localhost" or name.endswith(".localhost")


class HostResolver:
    """Resolves hosts with the system's resolver, and refuses what the policy does."""

    def __init__(self, policy: NetworkPolicy) -> None:
        self.policy = policy
        self._threads = asyncio.Semaphore(MAX_THREADS)

    async def resolve_allowed(
        self, host: str, timeout: float = LOOKUP_LIMIT, *, checked_ports: Collection[int] = ()
    ) -> tuple[IPAddress, ...]:
        """The addresses to connect to. Raises NetError for a host that the policy refuses.

        They are used as they are: a second look-up could give others, which were not checked.
        `checked_ports` are those of a port check.
        """
        name = parse_host(host)
        self.policy.check_name(name)
        addresses = await self.resolve(name, timeout)
        self.policy.check_addresses(name, addresses, checked_ports=checked_ports)
        return addresses

    async def resolve_for_request(self, host: str, port: int, timeout: float) -> tuple[IPAddress, ...]:
        """The addresses to send something to. Raises NetError, also for a port of the platform itself."""
        addresses = await self.resolve_allowed(host, timeout)
        self.policy.check_own_port(parse_host(host), addresses, port)
        return addresses

    async def resolve(self, name: str, timeout: float = LOOKUP_LIMIT) -> tuple[IPAddress, ...]:
        """All addresses of a host, in the order in which programs on this machine try them."""
        address = parse_address(name) or _parse_legacy_ipv4(name)
        if address is not None:
            return (address,)
        limit = min(timeout, LOOKUP_LIMIT)
        host = name
        if is_localhost(name):  # names below localhost are in no hosts file
            host = "localhost"
        try:
            entries = await self.run_in_thread(
                lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM), limit
            )
        except OSError as error:  # TimeoutError is one
            if is_localhost(name):
                return LOOPBACKS
            reason = _describe_lookup_failure(error)
            if isinstance(error, TimeoutError):
                reason = f"no answer within {limit:g} s; is there a network?"
            raise NetError(f"Cannot look up {name}: {reason}") from None
        return tuple(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in entries))

    async def reverse_lookup(self, address: IPAddress, timeout: float) -> str | None:
        """The system's name for an address (its hosts file first), if it has one in time."""
        try:
            name, _ = await self.run_in_thread(
                lambda: socket.getnameinfo((str(address), 0), socket.NI_NAMEREQD), timeout
            )
        except OSError:  # TimeoutError is one
            if address in LOOPBACKS:
                return "localhost"
            return None
        return name

    async def run_in_thread(self, work: Callable[[], T], timeout: float) -> T:
        """Runs a blocking look-up in a daemon thread: it cannot be cancelled, and must not delay the
        process's end.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(value: T | None, error: OSError | None) -> None:
            self._threads.release()
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(value)  # type: ignore[arg-type]  # there is a value whenever there is no error

        def run() -> None:
            value = None
            failure = None
            try:
                value = work()
            except OSError as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - a thread has nobody else to tell
                failure = OSError(type(error).__name__)
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(settle, value, failure)

        async with asyncio.timeout(timeout):
            await self._threads.acquire()
            try:
                threading.Thread(target=run, daemon=True, name="lookup").start()
            except RuntimeError:  # no more threads to be had
                self._threads.release()
                raise OSError(errno.EMFILE, "no thread") from None
            return await done


def _parse_legacy_ipv4(name: str) -> IPAddress | None:
    """The address in a number as C libraries read it (127.1, 0x7f000001): DNS has no such names."""
    if not _OLD_FORM.fullmatch(name):
        return None
    with suppress(OSError):
        return ipaddress.IPv4Address(socket.inet_aton(name))
    return None


def embedded_ipv4(address: IPAddress) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 one stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def without_scope(address: IPAddress) -> IPAddress:
    """The address without its scope, which is a name of this machine alone."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    return ipaddress.IPv6Address(int(address))


def _describe_lookup_failure(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        if error.errno == socket.EAI_NONAME:
            return "no such name, neither in DNS nor in the hosts file"
        if error.errno == socket.EAI_AGAIN:
            return "no name server answered; is there a network?"
    return describe_failure(error)


_REASONS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ETIMEDOUT: "no answer",
    errno.ENETUNREACH: "network unreachable; this machine has no route to it",
    errno.ENETDOWN: "network down",
    errno.EHOSTUNREACH: "host unreachable",
    errno.EADDRNOTAVAIL: "no address of that kind on this machine",
    errno.EAFNOSUPPORT: "this machine does not speak that version of IP",
    errno.EMFILE: "too many connections at once",
}


def describe_failure(error: OSError) -> str:
    """Why a connection failed, in words."""
    if isinstance(error, PermissionError):
        return "not permitted on this machine"
    if isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return "the other side closed the connection"
    reason = _REASONS.get(error.errno or 0)
    return reason or printable((error.strerror or type(error).__name__).lower(), 120)


def format_host_port(host: str, port: int) -> str:
    if ":" in host:
        return f"[{host}]:{port}"
    return f"{host}:{port}"


async def connect(address: IPAddress, port: int) -> socket.socket:
    """A connected socket; an OSError says why there is none."""
    sock = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
        if (
            sock.getsockname() == sock.getpeername()
        ):  # nobody listens, and the port it got by chance is the one it asked for
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connected to itself")
    except BaseException:
        sock.close()
        raise
    return sock


async def connect_to_first(
    addresses: Sequence[IPAddress], port: int, timeout: float
) -> tuple[socket.socket, IPAddress]:
    """A connection to the first address that accepts it; a silent one gets half of the time that is left."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout
    failure: OSError | None = None
    for index, address in enumerate(addresses):
        seconds = end - loop.time()
        is_last = index == len(addresses) - 1
        if not is_last:
            seconds /= 2
        try:
            async with asyncio.timeout(seconds):
                return await connect(address, port), address
        except OSError as error:  # TimeoutError is one
            failure = error
    raise failure or OSError(errno.EHOSTUNREACH, "no address")
