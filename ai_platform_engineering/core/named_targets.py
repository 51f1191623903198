"""Named targets: the hosts and web addresses that people named themselves in a conversation."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ai_platform_engineering.core.host_patterns import canonical_host

MAX_TEXT = 32 * 1024  # characters of one text that are read; hosts behind them count as not named
_MAX_NAMES = 2000
_MAX_SENT = 500  # names that travel with a delegation
_URL = re.compile(r"[a-z][a-z0-9+.-]{0,20}://[^\s<>\"'`|]{1,4096}", re.IGNORECASE)
_NETWORK = re.compile(r"[0-9a-f:.]{2,45}/\d{1,3}(?![\w.])", re.IGNORECASE)
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w.-]{1,253}")
_WORD = re.compile(r"[\w.:%-]+")
_TRAILING = ".,;:!?)]}"

_HOSTS_KEY = "hosts"
_URLS_KEY = "urls"


@dataclass(frozen=True, slots=True)
class NamedTargets:
    """Hosts in their canonical form, and whole URLs as they were written."""

    hosts: frozenset[str] = frozenset()
    urls: frozenset[str] = frozenset()

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> "NamedTargets":
        """The targets in texts that people wrote.

        A host is named by itself or as the host of a URL. A network, an e-mail address and a host above or
        below the one that was named count as nothing.
        """
        hosts: dict[str, None] = {}
        urls: dict[str, None] = {}
        for text in texts:
            rest = text[:MAX_TEXT]
            for match in _URL.finditer(rest):
                url = match[0].rstrip(_TRAILING)
                urls[canonical_url(url)] = None
                hosts.update(_read_url_host(url))
            rest = _EMAIL.sub(" ", _NETWORK.sub(" ", _URL.sub(" ", rest)))
            for word in _WORD.findall(rest):
                hosts.update(dict.fromkeys(_read_word(word)))
            if len(hosts) > _MAX_NAMES:
                break
        return cls(frozenset(hosts), frozenset(urls))

    @classmethod
    def from_data(cls, data: Any) -> "NamedTargets":
        """The targets that came with a delegation; what is not understood names nothing."""
        if not isinstance(data, Mapping):
            return cls()
        return cls(_read_names(data.get(_HOSTS_KEY)), _read_names(data.get(_URLS_KEY)))

    def to_data(self, text: str) -> dict[str, Any]:
        """The targets for a delegation with this text.

        A single word may be a host or just a word: it goes along only if the text has it, too.
        """
        words_in_text = NamedTargets.from_texts([text]).hosts
        hosts = [host for host in sorted(self.hosts) if _is_clearly_host(host) or host in words_in_text]
        return {_HOSTS_KEY: hosts[:_MAX_SENT], _URLS_KEY: sorted(self.urls)[:_MAX_SENT]}

    def __or__(self, other: "NamedTargets") -> "NamedTargets":
        return NamedTargets(self.hosts | other.hosts, self.urls | other.urls)


def canonical_url(url: str) -> str:
    """A URL without its fragment, and with its scheme and host in lower case."""
    try:
        parts = urlsplit(url.strip())
        return parts._replace(scheme=parts.scheme.lower(), netloc=parts.netloc.lower(), fragment="").geturl()
    except ValueError:
        return url.strip()


def collect_texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value, without the keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from collect_texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from collect_texts(item)


def _read_names(value: Any) -> frozenset[str]:
    if not isinstance(value, list | tuple):
        return frozenset()
    return frozenset(name for name in value[:_MAX_SENT] if isinstance(name, str))


def _read_url_host(url: str) -> dict[str, None]:
    try:
        host = canonical_host(urlsplit(url).hostname or "")
    except ValueError:
        return {}
    return {host: None} if host else {}


def _read_word(word: str) -> Iterator[str]:
    """The hosts that a word may mean: an IPv6 address, or a name or IPv4 address with or without a port."""
    stripped = word.strip(".,")
    if stripped.count(":") > 1:
        address = canonical_host(stripped.rstrip(":"))
        if address is not None and ":" in address:
            yield address
            return
    for part in stripped.split(":"):
        if part.isdigit():  # a number is a port or an amount, never an address written as one number
            continue
        host = canonical_host(part)
        if host is not None:
            yield host


def _is_clearly_host(host: str) -> bool:
    return "." in host or ":" in host or host == "localhost"
