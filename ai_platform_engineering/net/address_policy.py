"""Address policy: the one list of IP addresses and names that nothing of ours connects to (against SSRF)."""

import ipaddress
from typing import Literal

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# `metadata` and `link-local` are refused whatever is configured, and so is `special`: no service is there.
AddressKind = Literal["public", "private", "special", "link-local", "metadata"]

# Cloud metadata services hand out credentials to whoever runs on the machine.
_METADATA_NAMES = frozenset(
    "metadata metadata.google.internal metadata.goog metadata.azure.internal metadata.tencentyun.com "
    "instance-data instance-data.ec2.internal".split()
)
_METADATA_ADDRESSES = frozenset(
    map(
        ipaddress.ip_address,
        "169.254.169.254 169.254.170.2 169.254.170.23 100.100.100.200 192.0.0.192 168.63.129.16 "
        "fd00:ec2::254 fd00:ec2::23 fd20:ce::254".split(),
    )
)
_LINK_LOCAL_4 = ipaddress.IPv4Network("169.254.0.0/16")
_LINK_LOCAL_6 = ipaddress.IPv6Network("fe80::/10")
# Networks that people run themselves, loopback included.
_PRIVATE_4 = tuple(
    map(
        ipaddress.IPv4Network,
        "10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 172.16.0.0/12 192.168.0.0/16 198.18.0.0/15".split(),
    )
)
_PRIVATE_6 = tuple(map(ipaddress.IPv6Network, "::1/128 fc00::/7".split()))
# Networks of IANA's special-purpose registries that hold no service of the open internet.
_SPECIAL_4 = tuple(
    map(
        ipaddress.IPv4Network,
        "0.0.0.0/8 192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.175.48.0/24 "
        "198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4".split(),
    )
)
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")
# Within it: protocol assignments with Teredo, documentation, 6to4. The addresses that Teredo and 6to4 embed
# need no look: the whole networks are refused.
_SPECIAL_6 = tuple(map(ipaddress.IPv6Network, "2001::/23 2001:db8::/32 2002::/16 3fff::/20".split()))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_metadata_name(name: str) -> bool:
    """Whether a host name means a cloud metadata service."""
    return name.lower().rstrip(".") in _METADATA_NAMES


def classify_address(address: IPAddress) -> AddressKind:
    """The kind of an IP address; a mapped or NAT64 one is what the IPv4 address in it is."""
    plain = unwrap_ipv4(address)
    if plain in _METADATA_ADDRESSES:
        return "metadata"
    if isinstance(plain, ipaddress.IPv4Address):
        return _classify_ipv4(plain)
    return _classify_ipv6(plain)


def is_allowed_address(address: IPAddress, *, allow_private: bool) -> bool:
    """Whether an IP address is on the open internet, or in a private network if those are allowed."""
    kind = classify_address(address)
    return kind == "public" or (allow_private and kind == "private")


def unwrap_ipv4(address: IPAddress) -> IPAddress:
    """The IPv4 address in a mapped or NAT64 one; else the address without its scope."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or ipaddress.IPv6Address(int(address))


def _classify_ipv4(address: ipaddress.IPv4Address) -> AddressKind:
    if address in _LINK_LOCAL_4:
        return "link-local"
    if any(address in network for network in _PRIVATE_4):
        return "private"
    if any(address in network for network in _SPECIAL_4):
        return "special"
    return "public"


def _classify_ipv6(address: ipaddress.IPv6Address) -> AddressKind:
    if address in _LINK_LOCAL_6:
        return "link-local"
    if any(address in network for network in _PRIVATE_6):
        return "private"
    if address not in _GLOBAL_6 or any(address in network for network in _SPECIAL_6):
        return "special"
    return "public"
