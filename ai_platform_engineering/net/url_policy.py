"""URL policy: one strict parser of URLs, and a check of every IP address of their hosts (against SSRF)."""

import ipaddress
import re
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

import idna

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.host_patterns import AllowedHosts
from ai_platform_engineering.net.address_policy import (
    IPAddress,
    classify_address,
    is_allowed_address,
    is_metadata_name,
    unwrap_ipv4,
)

MAX_URL = 4096
DEFAULT_PORTS = {"http": 80, "https": 443}
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[0-9]{1,5}")
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\x9f\ud800-\udfff\\]")
_SAFE_IN_PATH = "/%:@!$&'()*+,;=~-._"


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


@dataclass(frozen=True, slots=True)
class PrivateAccess:
    """Which private networks may be reached: none, those of listed hosts, or all.

    A listed name may have any private address, a listed network whatever name leads there. Cloud metadata,
    link-local and reserved addresses stay refused. `setting`: the variable with the list, for errors."""

    allow_all: bool = False
    hosts: AllowedHosts = field(default_factory=AllowedHosts)
    setting: str = ""

    def allows_name(self, host: str) -> bool:
        return self.allow_all or self.hosts.has_host(host)

    def allows(self, host: str, address: IPAddress) -> bool:
        """Whether a private address of this host may be reached."""
        return self.allows_name(host) or self.hosts.has_address(unwrap_ipv4(address))


def check_name(target: ParsedUrl, private: PrivateAccess) -> None:
    """Refuses host names that are private without a look-up. Raises FetchRefused."""
    if is_metadata_name(target.host):
        raise _refused_network_error(target)
    is_local = target.host == "localhost" or target.host.endswith(".localhost")
    # A network may be listed that it is in: its addresses are checked, too.
    if is_local and not (private.allows_name(target.host) or private.hosts.networks):
        raise _private_network_error(target, private)


def check_addresses(target: ParsedUrl, addresses: tuple[IPAddress, ...], private: PrivateAccess) -> None:
    """Refuses a host if any of its addresses is not allowed, even if others are."""
    for address in addresses:
        if is_allowed_address(address, allow_private=private.allows(target.host, address)):
            continue
        if classify_address(address) == "private":
            raise _private_network_error(target, private)
        raise _refused_network_error(target)


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


def _private_network_error(target: ParsedUrl, private: PrivateAccess) -> FetchRefused:
    hint = "An operator can allow private networks."
    if private.setting:
        hint = f"An operator can list this host, or its network, in {private.setting}."
    return FetchRefused(f"{_refuse_network(target)} {hint}")


def _refused_network_error(target: ParsedUrl) -> FetchRefused:
    return FetchRefused(_refuse_network(target))


def _refuse_network(target: ParsedUrl) -> str:
    subject = "The address" if target.address is not None else target.host
    return f"{subject} belongs to a private, local or reserved network, which is not fetched."
