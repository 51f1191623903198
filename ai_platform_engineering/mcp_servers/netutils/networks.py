"""Calculations with addresses and networks (CIDR); needs no network."""

import ipaddress
from collections.abc import Iterator
from itertools import islice
from typing import Literal

from ai_platform_engineering.mcp_servers.netutils.hosts import (
    IPAddress,
    embedded_ipv4,
    parse_address,
    without_scope,
)
from ai_platform_engineering.mcp_servers.netutils.results import (
    CheckResult,
    NetError,
    ResultModel,
    pluralize,
    quote_input,
    to_json_number,
)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

Relation = Literal["equal", "a contains b", "b contains a", "disjoint"]

MAX_SUBNETS = 256

# The special ranges of IANA's registries that people meet, narrow ones first; the first match names the kind.
_KINDS: tuple[tuple[str, str], ...] = (
    ("unspecified", "0.0.0.0/32"),
    ("limited broadcast", "255.255.255.255/32"),
    ("this network", "0.0.0.0/8"),
    ("private", "10.0.0.0/8"),
    ("shared address space (carrier-grade NAT)", "100.64.0.0/10"),
    ("loopback", "127.0.0.0/8"),
    ("link-local", "169.254.0.0/16"),
    ("private", "172.16.0.0/12"),
    ("documentation", "192.0.2.0/24"),
    ("protocol assignments", "192.0.0.0/24"),
    ("private", "192.168.0.0/16"),
    ("benchmarking", "198.18.0.0/15"),
    ("documentation", "198.51.100.0/24"),
    ("documentation", "203.0.113.0/24"),
    ("multicast", "224.0.0.0/4"),
    ("reserved", "240.0.0.0/4"),
    ("unspecified", "::/128"),
    ("loopback", "::1/128"),
    ("IPv4-mapped", "::ffff:0:0/96"),
    ("NAT64", "64:ff9b::/96"),
    ("discard only", "100::/64"),
    ("Teredo", "2001::/32"),
    ("documentation", "2001:db8::/32"),
    ("6to4", "2002::/16"),
    ("documentation", "3fff::/20"),
    ("unique local (private)", "fc00::/7"),
    ("link-local", "fe80::/10"),
    ("multicast", "ff00::/8"),
)
_RANGES = tuple((kind, ipaddress.ip_network(text)) for kind, text in _KINDS)


class Subnet(ResultModel):
    network: str
    first: str
    last: str
    usable_hosts: int | str


class Split(ResultModel):
    prefix: int
    total: int | str
    shown: int
    subnets: tuple[Subnet, ...]


class Containment(ResultModel):
    what: str
    inside: bool

    @property
    def line(self) -> str:
        if self.inside:
            return f"{self.what} is inside."
        return f"{self.what} is not inside."


class CidrResult(CheckResult):
    network: str
    version: int
    prefix: int
    kind: str
    is_private: bool
    is_global: bool
    netmask: str
    wildcard: str
    addresses: int | str
    usable_hosts: int | str
    first: str
    last: str
    first_usable: str
    last_usable: str
    broadcast: str | None = None
    contains: Containment | None = None
    split: Split | None = None
    note: str | None = None

    @property
    def line(self) -> str:
        addresses = pluralize(int(self.addresses), "address")
        hosts = pluralize(int(self.usable_hosts), "usable host")
        text = f"{self.network} is an IPv{self.version} network ({self.kind}): {addresses}, {hosts}"
        text += f", {self.first_usable} to {self.last_usable}, netmask {self.netmask}"
        if self.broadcast:
            text += f", broadcast {self.broadcast}"
        sentences = [f"{text}."]
        if self.contains:
            sentences.append(self.contains.line)
        if self.split:
            subnets = pluralize(int(self.split.total), "subnet")
            sentences.append(f"It splits into {subnets} of /{self.split.prefix}; {self.split.shown} shown.")
        if self.note:
            sentences.append(self.note)
        return " ".join(sentences)


class AddressResult(CheckResult):
    address: str
    version: int
    kind: str
    is_private: bool
    is_global: bool
    integer: int | str
    hexadecimal: str
    reverse_pointer: str
    exploded: str | None = None
    scope: str | None = None
    embedded_ipv4: str | None = None

    @property
    def line(self) -> str:
        text = f"{self.address} is an IPv{self.version} address ({self.kind}); "
        text += f"its reverse pointer is {self.reverse_pointer}."
        if self.embedded_ipv4:
            return f"{text} It stands for {self.embedded_ipv4}."
        return text


class OverlapResult(CheckResult):
    a: str
    b: str
    overlap: bool
    relation: Relation
    common: str | None = None
    common_addresses: int | str | None = None
    together: str | None = None

    @property
    def line(self) -> str:
        if self.relation == "equal":
            return f"{self.a} and {self.b} are the same network."
        if self.overlap:
            outer, inner = self.a, self.b
            if self.relation == "b contains a":
                outer, inner = self.b, self.a
            addresses = pluralize(int(self.common_addresses or 0), "address")
            return f"{outer} contains {inner}: they overlap in {self.common} ({addresses})."
        text = f"{self.a} and {self.b} do not overlap."
        if self.together:
            return f"{text} They are neighbours and together make {self.together}."
        return text


def cidr_info(cidr: str, contains: str | None = None, split_prefix: int | None = None) -> CidrResult:
    network = parse_network(cidr)
    first_usable, last_usable = usable_range(network)
    broadcast = None
    if network.version == 4 and network.prefixlen < 31:
        broadcast = str(network.broadcast_address)
    containment = None
    if contains:
        containment = _check_containment(network, contains)
    split = None
    if split_prefix is not None:
        split = _split(network, split_prefix)
    return CidrResult(
        network=str(network),
        version=network.version,
        prefix=network.prefixlen,
        kind=_classify(network),
        is_private=network.is_private,
        is_global=network.is_global,
        netmask=str(network.netmask),
        wildcard=str(network.hostmask),
        addresses=to_json_number(network.num_addresses),
        usable_hosts=to_json_number(usable_hosts(network)),
        first=str(network.network_address),
        last=str(network.broadcast_address),
        first_usable=str(first_usable),
        last_usable=str(last_usable),
        broadcast=broadcast,
        contains=containment,
        split=split,
        note=_note_host_bits(cidr, network),
    )


def ip_info(address: str) -> AddressResult:
    parsed = parse_address(address)
    if parsed is None:
        hint = ""
        if "/" in address:
            hint = "; use cidr_info for a network"
        raise NetError(
            f"{quote_input(address)} is not an IP address. Write one like 10.0.0.5 or 2001:db8::1{hint}."
        )
    plain = without_scope(parsed)
    exploded = None
    scope = None
    if isinstance(parsed, ipaddress.IPv6Address):
        exploded = plain.exploded
        scope = parsed.scope_id
    ipv4 = embedded_ipv4(parsed)
    return AddressResult(
        address=str(parsed),
        version=parsed.version,
        kind=_classify(ipaddress.ip_network(plain)),
        is_private=parsed.is_private,
        is_global=parsed.is_global,
        integer=to_json_number(int(parsed)),
        hexadecimal=f"0x{int(parsed):0{parsed.max_prefixlen // 4}x}",
        reverse_pointer=plain.reverse_pointer,
        exploded=exploded,
        scope=scope,
        embedded_ipv4=str(ipv4) if ipv4 else None,
    )


def subnet_overlap(a: str, b: str) -> OverlapResult:
    network_a = parse_network(a)
    network_b = parse_network(b)
    relation = _find_relation(network_a, network_b)
    if relation == "disjoint":
        together = _join_halves(network_a, network_b)
        return OverlapResult(
            a=str(network_a), b=str(network_b), overlap=False, relation=relation, together=together
        )
    smaller = max(network_a, network_b, key=lambda network: network.prefixlen)
    return OverlapResult(
        a=str(network_a),
        b=str(network_b),
        overlap=True,
        relation=relation,
        common=str(smaller),
        common_addresses=to_json_number(smaller.num_addresses),
    )


def _find_relation(network_a: Network, network_b: Network) -> Relation:
    if network_a == network_b:
        return "equal"
    if _is_within(network_b, network_a):
        return "a contains b"
    if _is_within(network_a, network_b):
        return "b contains a"
    return "disjoint"


def parse_network(text: str) -> Network:
    """A network; bits of a host are cleared, a bare address is a network of one."""
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise NetError(
            f"{quote_input(text)} is not a network. "
            "Write an address and a prefix length, like 10.0.0.0/22 or 2001:db8::/48 "
            "(a netmask works too: 10.0.0.0/255.255.252.0)."
        ) from None


def usable_hosts(network: Network) -> int:
    """The number of addresses for hosts.

    IPv4 loses the network and broadcast addresses, IPv6 the subnet-router anycast; the two smallest sizes
    lose none (RFC 3021, 6164).
    """
    if network.num_addresses <= 2:
        return network.num_addresses
    if network.version == 4:
        return network.num_addresses - 2
    return network.num_addresses - 1


def usable_range(network: Network) -> tuple[IPAddress, IPAddress]:
    first = network.network_address
    last = network.broadcast_address
    if network.num_addresses <= 2:
        return first, last
    if network.version == 4:
        return first + 1, last - 1
    return first + 1, last


def _check_containment(network: Network, address_or_network: str) -> Containment:
    inner = parse_network(address_or_network)
    name = str(inner)
    if inner.num_addresses == 1 and "/" not in address_or_network:
        name = str(inner.network_address)
    return Containment(what=name, inside=_is_within(inner, network))


def _is_within(inner: Network, outer: Network) -> bool:
    if isinstance(inner, ipaddress.IPv4Network) and isinstance(outer, ipaddress.IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(inner, ipaddress.IPv6Network) and isinstance(outer, ipaddress.IPv6Network):
        return inner.subnet_of(outer)
    return False


def _split(network: Network, prefix: int) -> Split:
    if not network.prefixlen <= prefix <= network.max_prefixlen:
        raise NetError(
            f"{network} cannot be split into /{prefix}. "
            f"split_prefix must be from {network.prefixlen} (its own) to {network.max_prefixlen}."
        )
    parts: Iterator[Network] = network.subnets(new_prefix=prefix)
    subnets = tuple(_view_subnet(part) for part in islice(parts, MAX_SUBNETS))
    return Split(
        prefix=prefix,
        total=to_json_number(2 ** (prefix - network.prefixlen)),
        shown=len(subnets),
        subnets=subnets,
    )


def _view_subnet(network: Network) -> Subnet:
    return Subnet(
        network=str(network),
        first=str(network[0]),
        last=str(network[-1]),
        usable_hosts=to_json_number(usable_hosts(network)),
    )


def _join_halves(network_a: Network, network_b: Network) -> str | None:
    """The network of which the two are the halves, if there is one."""
    if network_a.version != network_b.version or network_a.prefixlen != network_b.prefixlen:
        return None
    if network_a.prefixlen == 0:
        return None
    supernet = network_a.supernet()
    if _is_within(network_b, supernet):
        return str(supernet)
    return None


def _note_host_bits(text: str, network: Network) -> str | None:
    address = parse_address(text.split("/")[0])
    if address is None or address == network.network_address:
        return None
    return f"The given address {address} is inside; the network starts at {network.network_address}."


def _classify(network: Network) -> str:
    for kind, special in _RANGES:
        if _is_within(network, special):
            return kind
    if any(_is_within(special, network) for _, special in _RANGES):
        return "mixed: holds special ranges"
    if network.is_reserved:
        return "reserved"
    return "global"
