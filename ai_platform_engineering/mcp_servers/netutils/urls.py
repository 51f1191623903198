"""Addresses of the web: taken apart, and written without what must not be shown."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from ai_platform_engineering.mcp_servers.netutils.hosts import format_host_port, parse_host
from ai_platform_engineering.mcp_servers.netutils.results import NetError, printable

_PORTS = {"http": 80, "https": 443}
_HELP = "Write an http or https address, like https://example.com/health."
_SECRET = re.compile(
    r"auth|code|credential|key|pass|pwd|secret|session|sig|state|ticket|token", re.IGNORECASE
)
_SAFE_CHARACTERS = "/%:@!$&'()*+,;=~-._?"


@dataclass(frozen=True)
class Url:
    scheme: str
    host: str
    port: int
    path: str
    query: str
    had_credentials: bool

    @property
    def authority(self) -> str:
        written = format_host_port(self.host, self.port)
        if self.port == _PORTS[self.scheme]:
            return written.removesuffix(f":{self.port}")
        return written

    @property
    def target(self) -> str:
        """What stands in the request."""
        if self.query:
            return f"{self.path}?{self.query}"
        return self.path

    @property
    def full_url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    @property
    def redacted(self) -> str:
        """For people and models: what looks like a secret in the query is hidden."""
        pairs = [_redact(name, value) for name, value in parse_qsl(self.query, keep_blank_values=True)]
        query = f"?{urlencode(pairs, safe='*')}" if pairs else ""
        return printable(f"{self.scheme}://{self.authority}{self.path}{query}", 300)


def _redact(name: str, value: str) -> tuple[str, str]:
    if not value and len(name) > 32:  # a bare token
        return "***", ""
    return name, "***" if value and _SECRET.search(name) else value


def parse_url(text: str) -> Url:
    """An address, `http` where no scheme is given; errors never repeat it, since it may hold a password."""
    given = text.strip()
    if "://" not in given:
        given = f"http://{given}"
    try:
        parts = urlsplit(given)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise NetError(f"That is not a web address. {_HELP}") from None
    scheme = parts.scheme.lower()
    if scheme not in _PORTS:
        raise NetError(f"The scheme {printable(scheme, 20)!r} cannot be checked. {_HELP}")
    if not host or port == 0:
        raise NetError(f"That address has no host or a wrong port. {_HELP}")
    return Url(
        scheme=scheme,
        host=parse_host(host),
        port=port or _PORTS[scheme],
        path=quote(parts.path, safe=_SAFE_CHARACTERS.removesuffix("?")) or "/",
        query=quote(parts.query, safe=_SAFE_CHARACTERS),
        had_credentials="@" in parts.netloc,
    )
