"""URL policy: one strict parser of URLs, and a check of every IP address of their hosts (against SSRF)."""

import ipaddress
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

import idna

from ai_platform_engineering.core.errors import CaipeError

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_URL = 4096
DEFAULT_PORTS = {"http": 80, "https": 443}
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[0-9]{1,5}")
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\x9f\ud800-\udfff\\]")
_SAFE_IN_PATH = "/%:@!$&'()*+,;=~-._"

# Networks of IANA's special-purpose registries that hold no page of the open web.
_SPECIAL_4 = tuple(
    map(
        ipaddress.IPv4Network,
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 "
        "192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 "
        "198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4".split(),
    )
)
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")
# Within it: protocol assignments with Teredo, documentation, 6to4.
_SPECIAL_6 = tuple(map(ipaddress.IPv6Network, "2001::/23 2001:db8::/32 2002::/16 3fff::/20".split()))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Networks that `allow_private` opens: those that people run themselves.
_PRIVATE_4 = tuple(
    map(
        ipaddress.IPv4Network,
        "10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.168.0.0/16 "
        "198.18.0.0/15".split(),
    )
)
_PRIVATE_6 = tuple(map(ipaddress.IPv6Network, "::1/128 fc00::/7 fe80::/10".split()))

# Cloud metadata services hand out credentials; no setting allows to fetch them.
_METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)
_METADATA_ADDRESSES = frozenset(
    map(
        ipaddress.ip_address,
        "169.254.169.254 169.254.170.2 169.254.170.23 100.100.100.200 192.0.0.192 168.63.129.16 "
        "fd00:ec2::254 fd00:ec2::23 fd20:ce::254".split(),
    )
)


class FetchRefused(CaipeError):
    """The URL may not be fetched, or its content cannot be used.

    The text is for a model or a person and names no private IP address."""

    code = "fetch_refused"


class FetchFailed(CaipeError):
    """Fetching the URL failed; the text is for a model or a person.

    `status` is that of the server's answer, if any."""

    code = "fetch_failed"
    retryable = True

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class ParsedUrl:
    """An http or https URL, parsed once.

    `host` is an ASCII name in lower case without its last dot, or an IP address in canonical form."""

    scheme: str
    host: str
    port: int
    path: str  # with the query, percent-encoded
    address: IPAddress | None  # if the host is an IP address

    @property
    def authority(self) -> str:
        host = self.host
        if ":" in host:
            host = f"[{host}]"
        if self.port == DEFAULT_PORTS[self.scheme]:
            return host
        return f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def url(self) -> str:
        return self.origin + self.path


def parse_url(url: str) -> ParsedUrl:
    """Parses a URL without its fragment. A form that programs read in two ways is refused."""
    text = url.strip()
    if len(text) > MAX_URL:
        raise FetchRefused(f"The address is longer than {MAX_URL} characters.")
    if _UNSAFE.search(text):
        raise FetchRefused(
            "The address holds spaces, control characters or backslashes. Write them percent-encoded."
        )
    try:
        parts = urlsplit(text)
    except ValueError:
        raise FetchRefused("This is not a web address. Write one like https://example.com/page.") from None
    scheme = parts.scheme.lower()
    if scheme not in DEFAULT_PORTS:
        raise FetchRefused(
            "Only http and https addresses can be fetched, for example https://example.com/page."
        )
    if "@" in parts.netloc:
        raise FetchRefused("The address holds a user name or password. Write it without.")
    host, port = _split_port(parts.netloc)
    name, address = _parse_host(host)
    path = quote(parts.path or "/", safe=_SAFE_IN_PATH)
    if parts.query:
        path += f"?{quote(parts.query, safe=_SAFE_IN_PATH + '?')}"
    return ParsedUrl(scheme, name, _parse_port(port, scheme), path, address)


def check_name(target: ParsedUrl, *, allow_private: bool) -> None:
    """Refuses host names that are private without a look-up. Raises FetchRefused."""
    if target.host in _METADATA_NAMES:
        raise _private_network_error(target)
    if not allow_private and (target.host == "localhost" or target.host.endswith(".localhost")):
        raise _private_network_error(target)


def check_addresses(target: ParsedUrl, addresses: tuple[IPAddress, ...], *, allow_private: bool) -> None:
    """Refuses a host if any of its addresses is not allowed, even if others are."""
    if not all(is_allowed_address(address, allow_private=allow_private) for address in addresses):
        raise _private_network_error(target)


def is_allowed_address(address: IPAddress, *, allow_private: bool) -> bool:
    """Whether an IP address is on the open web, or in a private network if those are allowed."""
    address = _unwrap_ipv4(address)
    if address in _METADATA_ADDRESSES:
        return False
    if _is_public(address):
        return True
    if not allow_private:
        return False
    private_networks = _PRIVATE_4 if address.version == 4 else _PRIVATE_6
    return any(address in network for network in private_networks)


def _is_public(address: IPAddress) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _SPECIAL_4)
    return address in _GLOBAL_6 and not any(address in network for network in _SPECIAL_6)


def _unwrap_ipv4(address: IPAddress) -> IPAddress:
    """The IPv4 address in a mapped or NAT64 one; else the address without its scope."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or ipaddress.IPv6Address(int(address))


def _split_port(netloc: str) -> tuple[str, str]:
    if netloc.startswith("["):
        host, bracket, rest = netloc.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _no_host_error()
        return host + bracket, rest[1:]
    host, _, port = netloc.partition(":")
    return host, port


def _parse_port(text: str, scheme: str) -> int:
    if not text:
        return DEFAULT_PORTS[scheme]
    if _PORT.fullmatch(text) and 0 < int(text) < 65536:
        return int(text)
    raise FetchRefused("The port in the address is not a number from 1 to 65535.")


def _parse_host(text: str) -> tuple[str, IPAddress | None]:
    if text.startswith("["):
        return _parse_ipv6(text[1:-1])
    if not text.isascii():
        text = _encode_idna(text)
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _parse_ipv4(name)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _no_host_error()
    return name, None


def _encode_idna(name: str) -> str:
    try:
        return idna.encode(name, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise _no_host_error() from None


def _parse_ipv4(name: str) -> tuple[str, IPAddress]:
    """An IPv4 address in any form that C libraries and browsers read: 127.1, 0x7f000001, 017700000001."""
    if all(_NUMBER.fullmatch(part) for part in name.split(".")):
        with suppress(OSError):
            address = ipaddress.IPv4Address(socket.inet_aton(name))
            return str(address), address
    raise _no_host_error()


def _parse_ipv6(text: str) -> tuple[str, IPAddress]:
    if "%" in text:
        raise FetchRefused("The address names a network interface of this machine. Write it without.")
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise _no_host_error() from None
    return str(address), address


def _no_host_error() -> FetchRefused:
    return FetchRefused(
        "The address names no host that can be read. Write one like https://example.com/page."
    )


def _private_network_error(target: ParsedUrl) -> FetchRefused:
    subject = "The address" if target.address is not None else target.host
    return FetchRefused(
        f"{subject} belongs to a private, local or reserved network, which is not fetched. "
        "An operator can allow private networks."
    )
