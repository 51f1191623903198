"""Where a skill's text leads to: raw addresses, plain http, and places where anybody leaves files."""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ai_platform_engineering.core.skills import Severity
from ai_platform_engineering.net.url_policy import FetchRefused, parse_url

_URL = re.compile(r"\b(?P<scheme>https?|ftp|wss?)://(?P<rest>[^\s<>\"'`()\\{}|]{1,2000})", re.IGNORECASE)
_BARE = re.compile(r"\b(?:curl|wget)\b[^\n|;&]{0,200}?[ \t](?P<host>\d{1,3}(?:\.\d{1,3}){3})(?=[:/ \t\n]|$)")
_INSIDE = re.compile(
    r"(?:^|\.)(?:localhost|local|internal|svc|lan|test|example|invalid|example\.(?:com|net|org))(?:\.cluster\.local)?$"
)
_NAMESPACES = ("www.w3.org", "schemas.", "json-schema.org", "purl.org", "xmlns.com")  # names, not links
_DROPS = re.compile(
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
    for match in _URL.finditer(text) if "://" in text else ():
        if link := _judged(match.start(), match["scheme"].lower(), match["rest"]):
            yield link
    for match in _BARE.finditer(text) if "curl" in text or "wget" in text else ():
        if not match["host"].startswith("127."):
            yield _raw(match.start(), match["host"])


def _judged(at: int, scheme: str, rest: str) -> SuspiciousLink | None:
    authority = (
        re.split(r"[/?#]", rest, maxsplit=1)[0]
        .rpartition("@")[2]
        .rstrip(".,;:!*_]" if "[" not in rest else ".,;:!*_")
    )
    try:
        target = parse_url(f"http://{authority}/")
    except FetchRefused:  # a placeholder, or nothing that any program connects to
        return None
    host = target.host
    if target.address is not None:
        plain = (
            re.fullmatch(r"\[?[\d.a-f:]+\]?(?::\d+)?", authority.lower())
            and str(target.address) in authority.lower()
        )
        if plain and _is_own(target.address):
            return None
        return _raw(at, authority)
    if _DROPS.search(host):
        return SuspiciousLink(
            at,
            "file-drop-link",
            "warn",
            f"The link leads to {host[:60]}, where anybody can leave a file. Say why, or take it in.",
        )
    if scheme == "http" and "." in host and not _INSIDE.search(host) and not host.startswith(_NAMESPACES):
        return SuspiciousLink(
            at, "plain-http-link", "warn", f"The link to {host[:60]} is not encrypted. Write https."
        )
    return None


def _is_own(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """This machine in its usual spelling, as after a port-forward: nothing leaves."""
    return address.is_loopback


def _raw(at: int, host: str) -> SuspiciousLink:
    return SuspiciousLink(
        at, "raw-address-link", "block", f"The link leads to a raw address ({host[:40]}). Name the host."
    )
