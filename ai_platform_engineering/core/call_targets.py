"""Call targets: where a tool call goes over the network, and what it carries there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from ai_platform_engineering.core.host_patterns import canonical_host
from ai_platform_engineering.core.named_targets import canonical_url, collect_texts
from ai_platform_engineering.core.port_ranges import TooManyPorts, parse_ports

# What an argument of a tool is: a host, a URL, TCP ports, an HTTP method, or data that is sent along.
TargetKind = Literal["host", "url", "ports", "method", "data"]
TARGET_KINDS: frozenset[TargetKind] = frozenset(get_args(TargetKind))
# Of our network tools. Our servers refuse requests with it: a tool must not ask them in a person's place.
NETWORK_TOOL_USER_AGENT = "caipe-netutils"
TARGETS_META_KEY = "caipe/targets"  # in the `_meta` of an MCP tool: the kinds by argument

_READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_PLAIN_PATH = 128  # a longer path may carry as much as a query
_MAX_SHOWN = 120
_MAX_COUNTED_PORTS = 65535


@dataclass(frozen=True, slots=True)
class CallTargets:
    """The targets of one call. What cannot be read as a host stands as it was written: nobody named it."""

    hosts: tuple[str, ...] = ()
    data_urls: tuple[str, ...] = ()  # with a query, credentials or a long path
    data_arguments: tuple[str, ...] = ()  # other arguments that send data or change something
    ports: int = 1

    @classmethod
    def of(cls, kinds: Mapping[str, TargetKind], arguments: Mapping[str, Any]) -> "CallTargets":
        """The targets in a call's arguments; `kinds` says what each argument is."""
        hosts: dict[str, None] = {}
        data_urls: dict[str, None] = {}
        data_arguments: list[str] = []
        ports = 1
        for name, kind in kinds.items():
            value = arguments.get(name)
            if value in (None, "", [], {}):
                continue
            if kind == "ports":
                ports = _count_ports(value)
            elif kind == "data" or (kind == "method" and str(value).strip().upper() not in _READING_METHODS):
                data_arguments.append(name)
            elif kind == "host":
                hosts.update(dict.fromkeys(_read_host(text) for text in _read_texts(value)))
            elif kind == "url":
                for text in _read_texts(value):
                    hosts[_read_url_host(text)] = None
                    if _carries_data(text):
                        data_urls[canonical_url(text)] = None
        return cls(tuple(hosts), tuple(data_urls), tuple(data_arguments), ports)


def _read_texts(value: Any) -> list[str]:
    return list(collect_texts(value)) or [str(value)]


def _read_host(text: str) -> str:
    return canonical_host(text) or text.strip()[:_MAX_SHOWN]


def _read_url_host(url: str) -> str:
    """The host of a URL; one that programs read in two ways stands as it is."""
    text = url.strip()
    if "://" not in text:
        text = f"http://{text}"
    if any(character in text for character in "\\\t\r\n ") or not text.isprintable():
        return text[:_MAX_SHOWN]
    try:
        host = canonical_host(urlsplit(text).hostname or "")
    except ValueError:
        host = None
    return host or text[:_MAX_SHOWN]


def _carries_data(url: str) -> bool:
    try:
        parts = urlsplit(url.strip() if "://" in url else f"http://{url.strip()}")
    except ValueError:
        return True
    return bool(parts.query) or "@" in parts.netloc or len(parts.path) > _MAX_PLAIN_PATH


def _count_ports(value: Any) -> int:
    try:
        return len(parse_ports(value, limit=_MAX_COUNTED_PORTS))
    except TooManyPorts:
        return _MAX_COUNTED_PORTS
    except (ValueError, TypeError):
        return 1  # the tool refuses it
