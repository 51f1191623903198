"""Finds suspicious links in a skill's texts: raw addresses, plain http, and sites where anybody leaves
files."""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ai_platform_engineering.core.skills import Severity
from ai_platform_engineering.net.url_policy import FetchRefused, parse_url

_URL = re.compile(r"\b(?P<scheme>https?|ftp|wss?)://(?P<rest>[^\s<>\"'`()\\{}|]{1,2000})", re.IGNORECASE)
_COMMAND_WITH_IP = re.compile(
    r"\b(?:curl|wget)\b[^\n|;&]{0,200}?[ \t](?P<host>\d{1,3}(?:\.\d{1,3}){3})(?=[:/ \t\n]|$)"
)
_INTERNAL = re.compile(
    r"(?:^|\.)(?:localhost|local|internal|svc|lan|test|example|invalid|example\.(?:com|net|org))(?:\.cluster\.local)?$"
)
_NAMESPACES = ("www.w3.org", "schemas.", "json-schema.org", "purl.org", "xmlns.com")  # names, not links
_FILE_DROPS = re.compile(
    r"(?:^|\.)(?:pastebin\.com|paste\.ee|pastes\.io|hastebin\.com|dpaste\.\w+|rentry\.co|ghostbin\.com|0x0\.st|ix\.io|sprunge\.us|termbin\.com"
    r"|transfer\.sh|file\.io|bashupload\.com|anonfiles\.com|gofile\.io|raw\.githubusercontent\.com|gist\.githubusercontent\.com"
    r"|webhook\.site|requestbin\.\w+|pipedream\.net|ngrok\.io|ngrok-free\.app|oast\.\w+|bit\.ly|tinyurl\.com|t\.co|is\.gd|goo\.gl)$"
)


@dataclass(frozen=True, slots=True)
class SuspiciousLink:
    position: int
    code: str
    severity: Severity
    message: str  # with the host alone: the rest of an address may be a secret


def find_suspicious_links(text: str) -> Iterator[SuspiciousLink]:
    if "://" in text:
        for match in _URL.finditer(text):
            if link := _check_link(match.start(), match["scheme"].lower(), match["rest"]):
                yield link
    if "curl" in text or "wget" in text:
        for match in _COMMAND_WITH_IP.finditer(text):
            if not match["host"].startswith("127."):
                yield _raw_address_link(match.start(), match["host"])


def _check_link(position: int, scheme: str, rest: str) -> SuspiciousLink | None:
    """`rest` is what follows `://`."""
    authority = _read_authority(rest)
    try:
        target = parse_url(f"http://{authority}/")
    except FetchRefused:  # a placeholder, or nothing that any program connects to
        return None
    if target.address is not None:
        if target.address.is_loopback and _is_plainly_written(target.address, authority.lower()):
            return None  # this machine, as after a port-forward: nothing leaves
        return _raw_address_link(position, authority)
    host = target.host
    if _FILE_DROPS.search(host):
        message = f"The link leads to {host[:60]}, where anybody can leave a file. Say why, or take it in."
        return SuspiciousLink(position, "file-drop-link", "warn", message)
    if scheme == "http" and _is_public_site(host):
        message = f"The link to {host[:60]} is not encrypted. Write https."
        return SuspiciousLink(position, "plain-http-link", "warn", message)
    return None


def _read_authority(rest: str) -> str:
    """The host and port, without credentials and the punctuation of the sentence around the link."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    if "[" in rest:  # an IPv6 address ends with a bracket
        return authority.rstrip(".,;:!*_")
    return authority.rstrip(".,;:!*_]")


def _is_plainly_written(address: ipaddress.IPv4Address | ipaddress.IPv6Address, authority: str) -> bool:
    """Whether the address has its usual spelling: not 0x7f.1 or the like."""
    if not re.fullmatch(r"\[?[\d.a-f:]+\]?(?::\d+)?", authority):
        return False
    return str(address) in authority


def _is_public_site(host: str) -> bool:
    if "." not in host or _INTERNAL.search(host):
        return False
    return not host.startswith(_NAMESPACES)


def _raw_address_link(position: int, host: str) -> SuspiciousLink:
    message = f"The link leads to a raw address ({host[:40]}). Name the host."
    return SuspiciousLink(position, "raw-address-link", "block", message)
