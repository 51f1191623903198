"""Entities of a text that can become arguments: addresses, names, numbers, quotes.

The work is linear in the length of the text, however odd the text is.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from urllib.parse import urlsplit

from ai_platform_engineering.models.offline.lexicon import FILE_ENDINGS, word_set

EntityKind = Literal[
    "url",
    "host",
    "ip",
    "cidr",
    "port",
    "ports",
    "prefix",
    "number",
    "email",
    "key",
    "slug",
    "date",
    "quoted",
]

# Kinds that are surely meant: a tool that leaves one unused is probably the wrong tool.
SALIENT_KINDS: frozenset[EntityKind] = frozenset(
    {"url", "host", "ip", "cidr", "port", "ports", "email", "key", "slug", "quoted"}
)


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity and its place in the text. All entities of one word (`host:443`) have the same start."""

    kind: EntityKind
    value: str
    start: int
    end: int
    derived: bool = False  # part of another entity, such as the host of a URL


@dataclass(frozen=True, slots=True)
class ArgumentAssignment:
    """`name=value`: a value for an argument that the user names."""

    name: str
    value: str
    start: int


_CLOSING_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»"}
_MAX_QUOTE_LENGTH = 2000
_MAX_TOKEN_LENGTH = 300
_TOKEN = re.compile(r"[^\s,;|]+")
_LEADING_PUNCTUATION = "([{<\"'“‘«`@"
_TRAILING_PUNCTUATION = ".,;:?!)]}>\"'”’»`"
_ASSIGNED_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,60}(?==)")
_NAME_BEFORE_QUOTE = re.compile(r"([A-Za-z_][A-Za-z0-9_-]{0,60})=$")
_SCHEME = re.compile(r"(?:https?|ftp|wss?|tcp|ssh|postgres(?:ql)?|redis|git)://\S", re.IGNORECASE)
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_TOP_LEVEL_DOMAIN = re.compile(r"[A-Za-z]{2,24}|xn--[A-Za-z0-9-]{2,40}")
_BRACKETED_IP = re.compile(r"\[([0-9A-Fa-f:.]{2,45})\](?::(\d{1,5}))?")
_KEY = re.compile(r"[A-Z][A-Z0-9]{1,14}-\d{1,9}")
_SLUG = re.compile(r"[A-Za-z0-9_.-]{1,60}/[A-Za-z0-9_.-]{1,100}")
_NOT_SLUGS = word_set(
    "and/or n/a tcp/udp udp/tcp tcp/ip ci/cd on/off read/write yes/no i/o http/https tls/ssl ssl/tls "
    "open/closed"
)
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?")
_PREFIX = re.compile(r"/\d{1,3}")
_RANGE = re.compile(r"\d{1,5}-\d{1,5}")
_MEASURE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(?:ms|s|m|h|d|w|%|x|k)", re.IGNORECASE)
_PORT_NUMBER = re.compile(r"(\d{1,5})/(?:tcp|udp)|(?:tcp|udp)/(\d{1,5})|:(\d{1,5})", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?)?")
_PORT_WORD = re.compile(r"\bports?(?: number| no\.?| is)?[ :#=]{0,3}$", re.IGNORECASE)
_LIST_SEPARATOR = re.compile(r"(?:,|,? ?\b(?:and|or|&)\b)? ?", re.IGNORECASE)


def find_quotes(text: str) -> list[tuple[int, int]]:
    """Spans of the quoted texts with their quotation marks; an apostrophe is not a quotation mark."""
    spans = list[tuple[int, int]]()
    position = 0
    while position < len(text):
        closing = _CLOSING_QUOTES.get(text[position])
        is_inside_word = position > 0 and text[position - 1].isalnum()
        if closing is None or is_inside_word:
            position += 1
            continue
        mark_length = 1
        if text.startswith("```", position):
            closing = "```"
            mark_length = 3
        content_start = position + mark_length
        end = _find_closing_quote(text, closing, content_start)
        if end <= content_start:
            position = content_start
            continue
        spans.append((position, end + mark_length))
        position = end + mark_length
    return spans


def _find_closing_quote(text: str, closing: str, content_start: int) -> int:
    limit = content_start + _MAX_QUOTE_LENGTH
    end = text.find(closing, content_start, limit)
    while closing in "'’" and end > 0 and end + 1 < len(text) and text[end + 1].isalnum():
        end = text.find(closing, end + 1, limit)  # that one was an apostrophe
    return end


def read_entities(text: str) -> tuple[list[Entity], list[ArgumentAssignment]]:
    """All entities and assignments of a text, in order."""
    entities = list[Entity]()
    assignments = list[ArgumentAssignment]()
    quote_spans = find_quotes(text)
    for start, end in quote_spans:
        content = text[start:end].strip("`\"'“”‘’«»")
        assigned_name = _NAME_BEFORE_QUOTE.search(text[max(0, start - 62) : start])
        if assigned_name:
            assignments.append(ArgumentAssignment(assigned_name[1], content, start))
        elif content.strip():
            # An entity in quotation marks is that entity; other quotes are taken as they are.
            inner_entities = list(_read_token(content, start))
            entities += inner_entities or [Entity("quoted", content.strip(), start, end)]
    for start, token in _iterate_tokens(text, quote_spans):
        name = _ASSIGNED_NAME.match(token)
        if name and len(token) > name.end() + 1:
            assignments.append(ArgumentAssignment(name[0], token[name.end() + 1 :], start))
        else:
            entities += _read_token(token, start)
    entities.sort(key=lambda entity: entity.start)
    return _recognize_ports(text, entities), assignments


def _iterate_tokens(text: str, quote_spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, str]]:
    """The words outside of quotes with their starts, without punctuation around them."""
    spans = iter([*quote_spans, (len(text), len(text))])
    span = next(spans)
    for match in _TOKEN.finditer(text):
        while match.start() >= span[1] and span[1] < len(text):
            span = next(spans)
        if match.end() > span[0] and match.start() < span[1]:
            continue
        token = match[0]
        if len(token) > _MAX_TOKEN_LENGTH:
            continue
        bare = token
        if not _BRACKETED_IP.match(token):
            bare = token.lstrip(_LEADING_PUNCTUATION)
        start = match.start() + len(token) - len(bare)
        if not _BRACKETED_IP.fullmatch(bare):
            bare = bare.rstrip(_TRAILING_PUNCTUATION)
        yield start, bare


def _read_token(token: str, start: int) -> Iterator[Entity]:
    """The entity that one word is, at most one, and the entities that are parts of it."""
    end = start + len(token)
    if not token or len(token) > _MAX_TOKEN_LENGTH:
        return
    if _SCHEME.match(token):
        yield Entity("url", token, start, end)
        yield from _read_url_parts(token, start, end)
    elif bracketed := _BRACKETED_IP.fullmatch(token):
        yield from _read_host_and_port(bracketed[1], bracketed[2] or "", start, end)
    elif _DATE.fullmatch(token) and _is_date(token):
        yield Entity("date", token, start, end)
    elif port_number := _PORT_NUMBER.fullmatch(token):
        yield Entity("port", next(filter(None, port_number.groups())), start, end)
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
        yield from _read_token_with_slash(token, start, end)
    elif "@" in token:
        name, _, domain = token.rpartition("@")
        if name and is_host(domain):
            yield Entity("email", token, start, end)
    elif _KEY.fullmatch(token):
        yield Entity("key", token, start, end)
    else:
        host = token
        port = ""
        if ":" in token:
            host, _, port = token.rpartition(":")
        if not port or (port.isascii() and port.isdigit() and len(port) <= 5):
            yield from _read_host_and_port(host, port, start, end)


def _read_token_with_slash(token: str, start: int, end: int) -> Iterator[Entity]:
    first = token.partition("/")[0]
    if _is_network(token):
        yield Entity("cidr", token, start, end)
    elif is_host(first.partition(":")[0]) and ("." in first or ":" in first or first == "localhost"):
        yield Entity("url", token, start, end)
        yield from _read_url_parts(f"//{token}", start, end)
    elif _SLUG.fullmatch(token) and token.lower() not in _NOT_SLUGS:
        yield Entity("slug", token, start, end)


def _read_host_and_port(host: str, port: str, start: int, end: int) -> Iterator[Entity]:
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


def _read_url_parts(url: str, start: int, end: int) -> Iterator[Entity]:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        return
    if host:
        kind: EntityKind = "ip" if is_ip(host) else "host"
        yield Entity(kind, host, start, end, derived=True)
    if not port:
        port = {"https": 443, "http": 80}.get(parts.scheme)
    if port:
        yield Entity("port", str(port), start, end, derived=True)


def _recognize_ports(text: str, entities: list[Entity]) -> list[Entity]:
    """Turns numbers after the word "port", and the numbers listed with them, into ports.

    A range that is not after the word "port" is some other range and left out.
    """
    result = list[Entity]()
    last_port_end = -1
    for entity in entities:
        if entity.kind == "number" and entity.value.isdigit() and len(entity.value) <= 6:
            continues_list = last_port_end >= 0 and _continues_port_list(text, last_port_end, entity)
            if _follows_port_word(text, entity) or continues_list:
                last_port_end = entity.end
                result.append(Entity("port", entity.value, entity.start, entity.end))
                continue
        elif entity.kind == "ports" and last_port_end < 0 and not _follows_port_word(text, entity):
            continue
        elif entity.kind in ("port", "ports") and not entity.derived:
            last_port_end = entity.end
        result.append(entity)
    return result


def _follows_port_word(text: str, entity: Entity) -> bool:
    return bool(_PORT_WORD.search(text[max(0, entity.start - 20) : entity.start]))


def _continues_port_list(text: str, last_port_end: int, entity: Entity) -> bool:
    """The number goes on with a list of ports: "80, 443", "80 on a.example and 22 on b.example"."""
    if text.startswith(" on ", entity.end):
        return True
    between = text[last_port_end : entity.start]
    return entity.start - last_port_end <= 12 and bool(_LIST_SEPARATOR.fullmatch(between))


def is_ip(text: str) -> bool:
    return len(text) <= 45 and _parses(ipaddress.ip_address, text)


def is_host(text: str) -> bool:
    """Whether it is a name with dots that ends like a domain, or `localhost`."""
    name = text.removesuffix(".")
    if name.lower() == "localhost":
        return True
    labels = name.split(".")
    if len(name) > 253 or len(labels) < 2 or labels[-1].lower() in FILE_ENDINGS:
        return False
    return bool(_TOP_LEVEL_DOMAIN.fullmatch(labels[-1])) and all(map(is_label, labels))


def is_label(text: str) -> bool:
    """Whether it can be one label of a host name."""
    return bool(_LABEL.fullmatch(text))


def _is_network(text: str) -> bool:
    if len(text) > 50 or text.partition("/")[2] == "":
        return False
    return _parses(lambda network: ipaddress.ip_network(network, strict=False), text)


def _is_date(text: str) -> bool:
    return _parses(datetime.fromisoformat, text)


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True
