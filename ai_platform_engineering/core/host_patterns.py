"""Host names in one canonical form, and the list of hosts that an operator allows."""

import ipaddress
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_NUMERIC = re.compile(r"(0x[0-9a-f]+|[0-9]+)(\.(0x[0-9a-f]+|[0-9]+)){0,3}")
_MAX_NAME = 253
_PATTERN_HELP = (
    "is neither a host name (db.example.com), nor all names below one (*.example.com), nor an address or "
    "a network (10.0.0.0/8)"
)

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def canonical_host(text: str) -> str | None:
    """A host name in lower-case ASCII, or an IP address in its usual form; None for what is neither.

    An IPv4 address in any form that C libraries read (127.1, 0x7f000001, ::ffff:127.0.0.1) is one address.
    """
    bare = text.strip().rstrip(".").lower()
    address = parse_ip_address(bare)
    if address is not None:
        return str(address)
    if not bare.isascii():
        try:
            bare = bare.encode("idna").decode("ascii")
        except UnicodeError:
            return None
    if len(bare) > _MAX_NAME or not _NAME.fullmatch(bare):
        return None
    return bare


def parse_ip_address(text: str) -> _Address | None:
    """An IP address in any form that C libraries read, without its scope; None for a name."""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    with suppress(ValueError):
        address = ipaddress.ip_address(text)
        if isinstance(address, ipaddress.IPv4Address):
            return address
        return address.ipv4_mapped or ipaddress.IPv6Address(int(address))  # without its scope
    if not _NUMERIC.fullmatch(text):
        return None
    with suppress(OSError):
        return ipaddress.IPv4Address(socket.inet_aton(text))
    return None


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The hosts that an operator allows: names, all names below a name, and networks."""

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()
    networks: tuple[_Network, ...] = ()

    @classmethod
    def parse(cls, patterns: Iterable[str]) -> "AllowedHosts":
        """Raises ValueError for a pattern that is not understood."""
        names: set[str] = set()
        suffixes: list[str] = []
        networks: list[_Network] = []
        for pattern in patterns:
            network = _parse_network(pattern)
            name = canonical_host(pattern.removeprefix("*."))
            if network is not None:
                networks.append(network)
            elif name is None:
                raise ValueError(f"{pattern!r} {_PATTERN_HELP}")
            elif pattern.startswith("*."):
                suffixes.append(f".{name}")
            else:
                names.add(name)
        return cls(frozenset(names), tuple(suffixes), tuple(networks))

    def has_host(self, host: str) -> bool:
        """Whether a host in its canonical form is allowed by its name, or by its address if it is one."""
        if host in self.names or host.endswith(self.suffixes):
            return True
        address = parse_ip_address(host)
        return address is not None and self.has_address(address)

    def has_address(self, address: _Address) -> bool:
        return any(address in network for network in self.networks)


def _parse_network(text: str) -> _Network | None:
    with suppress(ValueError):
        return ipaddress.ip_network(text.strip("[]"), strict=False)
    return None


def is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
