"""Network policy: the addresses and ports that the tools connect to."""

import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.host_patterns import AllowedHosts, canonical_host, parse_ip_address
from ai_platform_engineering.core.network_settings import NetworkSettings
from ai_platform_engineering.mcp_servers.netutils.results import NetError
from ai_platform_engineering.net.address_policy import (
    IPAddress,
    classify_address,
    is_metadata_name,
    unwrap_ipv4,
)

DnsServer = tuple[str, int]  # address and port

_DNS_PORT = 53
_METADATA = "{host} is a cloud metadata service, which hands out credentials. It is always refused."
_LINK_LOCAL = "{host} has a link-local address, which is always refused: cloud metadata services are there."
_SPECIAL = "{host} has a reserved address, which no host has. It is refused."
_PRIVATE = (
    "{host} is this machine or in a private network, which is closed here. "
    "An operator can open it with NETWORK_ALLOWED_HOSTS or NETWORK_ALLOW_PRIVATE_ADDRESSES."
)
_OWN_PORT = (
    "Port {port} of {host} belongs to this platform itself. "
    "check_port says whether it is open, and nothing else is asked of it."
)
_ALWAYS_REFUSED = {"metadata": _METADATA, "link-local": _LINK_LOCAL, "special": _SPECIAL}


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """What the tools may reach; by default nothing private.

    Who may name a host is not decided here: that is known only where the conversation is.
    """

    allowed: AllowedHosts = field(default_factory=AllowedHosts)
    allow_private: bool = False
    own_ports: frozenset[int] = frozenset()  # of the platform on this machine
    ports_per_call: int = 100
    dns_servers: tuple[DnsServer, ...] = ()  # empty: those of the system

    @classmethod
    def from_settings(cls, settings: NetworkSettings) -> "NetworkPolicy":
        """Whoever starts the server says whether private addresses are open: not set means closed.

        Raises ConfigurationError.
        """
        return cls(
            allowed=AllowedHosts.parse(settings.allowed_hosts),
            allow_private=settings.allow_private is True,
            own_ports=frozenset(settings.own_ports),
            ports_per_call=settings.ports_per_call,
            dns_servers=tuple(map(_parse_dns_server, settings.dns_servers)),
        )

    def check_name(self, host: str) -> None:
        """Refuses what needs no look-up. Raises NetError."""
        if is_metadata_name(host):
            raise NetError(_METADATA.format(host=host))

    def check_literal(self, host: str) -> None:
        """Refuses a host that is a refused name or address, without a look-up. Raises NetError."""
        self.check_name(host)
        address = parse_ip_address(host)
        if address is not None:
            self.check_addresses(host, [address])

    def check_addresses(
        self, host: str, addresses: Sequence[IPAddress], *, checked_ports: Collection[int] = ()
    ) -> None:
        """Refuses a host if any of its addresses is refused, even if others are not. Raises NetError.

        `checked_ports` are those of a port check, which may ask for the platform's own ports on loopback.
        """
        asks_own_ports = bool(checked_ports) and self.own_ports.issuperset(checked_ports)
        for address in addresses:
            kind = classify_address(address)
            if kind in _ALWAYS_REFUSED:
                raise NetError(_ALWAYS_REFUSED[kind].format(host=host))
            if kind == "public" or self._is_open(host, address):
                continue
            if asks_own_ports and unwrap_ipv4(address).is_loopback:
                continue
            raise NetError(_PRIVATE.format(host=host))

    def check_own_port(self, host: str, addresses: Sequence[IPAddress], port: int) -> None:
        """Refuses a request to a port of the platform on this machine. Raises NetError."""
        if port in self.own_ports and any(map(_is_this_machine, addresses)):
            raise NetError(_OWN_PORT.format(host=host, port=port))

    def _is_open(self, host: str, address: IPAddress) -> bool:
        """Whether a private address is open."""
        is_allowed_name = self.allowed.has_host(canonical_host(host) or "")
        return self.allow_private or is_allowed_name or self.allowed.has_address(unwrap_ipv4(address))


def _is_this_machine(address: IPAddress) -> bool:
    plain = unwrap_ipv4(address)
    if plain.is_loopback:
        return True
    family = socket.AF_INET if plain.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(plain), 0))  # works for the addresses of this machine alone
    except OSError:
        return False
    return True


def _parse_dns_server(text: str) -> DnsServer:
    """Address and port of a DNS server: `10.0.0.2`, `10.0.0.2:5353`, `[2001:db8::1]:53`."""
    host, separator, port = text.rpartition(":")
    if not separator or canonical_host(text) is not None:
        host = text
        port = str(_DNS_PORT)
    address = canonical_host(host)
    if address is None or (not address.replace(".", "").isdigit() and ":" not in address):
        raise ConfigurationError(f"NETWORK_DNS_SERVERS: {text!r} is not an IP address like 10.0.0.2.")
    if not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ConfigurationError(f"NETWORK_DNS_SERVERS: the port of {text!r} is not from 1 to 65535.")
    return address, int(port)
