"""Things in a text that can become arguments: addresses, names, numbers, quotes. Linear work, however odd the text."""

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from urllib.parse import urlsplit

from ai_platform_engineering.models.offline.lexicon import FILE_ENDINGS, word_set

EntityKind = Literal[
    "url", "host", "ip", "cidr", "port", "ports", "prefix", "number", "email", "key", "slug", "date", "quoted"
]

# Kinds that are surely meant: a tool that leaves one unused is probably the wrong tool.
SALIENT: frozenset[EntityKind] = frozenset(
    {"url", "host", "ip", "cidr", "port", "ports", "email", "key", "slug", "quoted"}
)


@dataclass(frozen=True, slots=True)
class Entity:
    """A thing and where it stands. What comes from one word (`host:443`) has the same start."""

    kind: EntityKind
    value: str
    start: int
    end: int
    derived: bool = False  # the host of an address is there, but it was not named


@dataclass(frozen=True, slots=True)
class ArgumentAssignment:
    """`name=value`, as people write who know what they want."""

    name: str
    value: str
    start: int


_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»"}
_LONGEST_QUOTE = 2000
_LONGEST_TOKEN = 300
_TOKEN = re.compile(r"[^\s,;|]+")
_OPENING, _CLOSING = "([{<\"'“‘«`@", ".,;:?!)]}>\"'”’»`"
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,60}(?==)")
_ASSIGNED_QUOTE = re.compile(r"([A-Za-z_][A-Za-z0-9_-]{0,60})=$")
_SCHEME = re.compile(r"(?:https?|ftp|wss?|tcp|ssh|postgres(?:ql)?|redis|git)://\S", re.IGNORECASE)
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_TOP = re.compile(r"[A-Za-z]{2,24}|xn--[A-Za-z0-9-]{2,40}")
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]{2,45})\](?::(\d{1,5}))?")
_KEY = re.compile(r"[A-Z][A-Z0-9]{1,14}-\d{1,9}")
_SLUG = re.compile(r"[A-Za-z0-9_.-]{1,60}/[A-Za-z0-9_.-]{1,100}")
_NO_SLUGS = word_set(
    "and/or n/a tcp/udp udp/tcp tcp/ip ci/cd on/off read/write yes/no i/o http/https tls/ssl ssl/tls open/closed"
)
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?")
_PREFIX = re.compile(r"/\d{1,3}")
_RANGE = re.compile(r"\d{1,5}-\d{1,5}")
_MEASURE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(?:ms|s|m|h|d|w|%|x|k)", re.IGNORECASE)
_PORT_NUMBER = re.compile(r"(\d{1,5})/(?:tcp|udp)|(?:tcp|udp)/(\d{1,5})|:(\d{1,5})", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?)?")
_PORT_WORD = re.compile(r"\bports?(?: number| no\.?| is)?[ :#=]{0,3}$", re.IGNORECASE)
_LISTED = re.compile(r"(?:,|,? ?\b(?:and|or|&)\b)? ?", re.IGNORECASE)


def quotes(text: str) -> list[tuple[int, int]]:
    """Where quoted texts stand, quotation marks included; an apostrophe is not a quotation mark."""
    spans, at = list[tuple[int, int]](), 0
    while at < len(text):
        closing = _QUOTES.get(text[at])
        fence = text.startswith("```", at)
        if closing is None or (at and text[at - 1].isalnum()):
            at += 1
            continue
        opened = at + (3 if fence else 1)
        end = text.find("```" if fence else closing, opened, opened + _LONGEST_QUOTE)
        while closing in "'’" and end > 0 and end + 1 < len(text) and text[end + 1].isalnum():
            end = text.find(closing, end + 1, opened + _LONGEST_QUOTE)
        if end <= opened:
            at = opened
            continue
        spans.append((at, end + (3 if fence else 1)))
        at = spans[-1][1]
    return spans


def read(text: str) -> tuple[list[Entity], list[ArgumentAssignment]]:
    """Everything recognised in a text, in order."""
    found = list[Entity]()
    assigned = list[ArgumentAssignment]()
    quoted = quotes(text)
    for start, end in quoted:
        inner = text[start:end].strip("`\"'“”‘’«»")
        if named := _ASSIGNED_QUOTE.search(text[max(0, start - 62) : start]):
            assigned.append(ArgumentAssignment(named[1], inner, start))
        elif inner.strip():
            # A thing in quotation marks is that thing; other quotes are taken as they are.
            found += list(_things(inner, start)) or [Entity("quoted", inner.strip(), start, end)]
    for start, token in _tokens(text, quoted):
        if (name := _ASSIGNED.match(token)) and len(token) > name.end() + 1:
            assigned.append(ArgumentAssignment(name[0], token[name.end() + 1 :], start))
        else:
            found += _things(token, start)
    return _with_ports(text, sorted(found, key=lambda entity: entity.start)), assigned


def _tokens(text: str, quoted: Sequence[tuple[int, int]]) -> Iterator[tuple[int, str]]:
    spans = iter([*quoted, (len(text), len(text))])
    span = next(spans)
    for found in _TOKEN.finditer(text):
        while found.start() >= span[1] and span[1] < len(text):
            span = next(spans)
        if found.end() > span[0] and found.start() < span[1]:
            continue
        token, start = found[0], found.start()
        if len(token) <= _LONGEST_TOKEN:
            bare = token if _BRACKETED.match(token) else token.lstrip(_OPENING)
            start += len(token) - len(bare)
            yield start, bare.rstrip(_CLOSING) if not _BRACKETED.fullmatch(bare) else bare


def _things(token: str, start: int) -> Iterator[Entity]:
    """What one word is: at most one thing, and the parts that it is made of."""
    end = start + len(token)
    if not token or len(token) > _LONGEST_TOKEN:
        return
    if _SCHEME.match(token):
        yield Entity("url", token, start, end)
        yield from _of_address(token, start, end)
    elif bracketed := _BRACKETED.fullmatch(token):
        yield from _host_and_port(bracketed[1], bracketed[2] or "", start, end)
    elif _DATE.fullmatch(token) and _is_date(token):
        yield Entity("date", token, start, end)
    elif numbered := _PORT_NUMBER.fullmatch(token):
        yield Entity("port", next(part for part in numbered.groups() if part), start, end)
    elif _PREFIX.fullmatch(token):
        yield Entity("prefix", token[1:], start, end)
    elif _RANGE.fullmatch(token):
        yield Entity("ports", token, start, end)
    elif _NUMBER.fullmatch(token):
        yield Entity("number", token, start, end)
    elif measure := _MEASURE.fullmatch(token):
        yield Entity("number", measure[1], start, end)
    elif is_ip(token):
        yield Entity("ip", token, start, end)
    elif "/" in token:
        yield from _with_slash(token, start, end)
    elif "@" in token:
        name, _, domain = token.rpartition("@")
        if name and is_host(domain):
            yield Entity("email", token, start, end)
    elif _KEY.fullmatch(token):
        yield Entity("key", token, start, end)
    else:
        host, _, port = token.rpartition(":") if ":" in token else (token, "", "")
        if not port or (port.isascii() and port.isdigit() and len(port) <= 5):
            yield from _host_and_port(host, port, start, end)


def _with_slash(token: str, start: int, end: int) -> Iterator[Entity]:
    first = token.partition("/")[0]
    if _is_network(token):
        yield Entity("cidr", token, start, end)
    elif is_host(first.partition(":")[0]) and ("." in first or ":" in first or first == "localhost"):
        yield Entity("url", token, start, end)
        yield from _of_address(f"//{token}", start, end)
    elif _SLUG.fullmatch(token) and token.lower() not in _NO_SLUGS:
        yield Entity("slug", token, start, end)


def _host_and_port(host: str, port: str, start: int, end: int) -> Iterator[Entity]:
    if is_ip(host):
        yield Entity("ip", host, start, end)
    elif is_host(host):
        yield Entity("host", host, start, end)
    elif port and _LABEL.fullmatch(host) and not host.isdigit():
        yield Entity("host", host, start, end)  # a short name is a host when a port follows
    else:
        return
    if port:
        yield Entity("port", port, start, end)


def _of_address(url: str, start: int, end: int) -> Iterator[Entity]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return
    if host:
        yield Entity("ip" if is_ip(host) else "host", host, start, end, derived=True)
    if port or parts.scheme in ("https", "http"):
        yield Entity("port", str(port or (443 if parts.scheme == "https" else 80)), start, end, derived=True)


def _with_ports(text: str, found: list[Entity]) -> list[Entity]:
    """Numbers after the word "port", and the numbers listed with them, are ports."""
    done, last = list[Entity](), -1  # where the last port of the list ended
    for entity in found:
        if entity.kind == "number" and entity.value.isdigit() and len(entity.value) <= 6:
            if _PORT_WORD.search(text[max(0, entity.start - 20) : entity.start]) or (
                last >= 0 and _is_listed(text, last, entity)
            ):
                entity, last = Entity("port", entity.value, entity.start, entity.end), entity.end
        elif (
            entity.kind == "ports"
            and not _PORT_WORD.search(text[max(0, entity.start - 20) : entity.start])
            and last < 0
        ):
            continue  # some other range
        elif entity.kind in ("port", "ports") and not entity.derived:
            last = entity.end
        done.append(entity)
    return done


def _is_listed(text: str, last: int, entity: Entity) -> bool:
    """The number goes on with a list of ports: "80, 443", "80 on a.example and 22 on b.example"."""
    return bool(
        _LISTED.fullmatch(text[last : entity.start][:12]) and entity.start - last <= 12
    ) or text.startswith(" on ", entity.end)


def is_ip(text: str) -> bool:
    return len(text) <= 45 and _parses(ipaddress.ip_address, text)


def is_host(text: str) -> bool:
    """A name with dots that ends like a domain, or `localhost`."""
    name = text[:-1] if text.endswith(".") else text
    if name.lower() == "localhost":
        return True
    labels = name.split(".")
    if len(name) > 253 or len(labels) < 2 or labels[-1].lower() in FILE_ENDINGS:
        return False
    return bool(_TOP.fullmatch(labels[-1])) and all(_LABEL.fullmatch(label) for label in labels)


def is_label(text: str) -> bool:
    return bool(_LABEL.fullmatch(text))


def _is_network(text: str) -> bool:
    return (
        len(text) <= 50
        and text.partition("/")[2] != ""
        and _parses(lambda one: ipaddress.ip_network(one, strict=False), text)
    )


def _is_date(text: str) -> bool:
    return _parses(datetime.fromisoformat, text)


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True
