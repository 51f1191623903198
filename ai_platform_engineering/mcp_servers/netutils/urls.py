"""HTTP URLs: parsed, and written without secrets."""

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
        host_and_port = format_host_port(self.host, self.port)
        if self.port == _PORTS[self.scheme]:
            return host_and_port.removesuffix(f":{self.port}")
        return host_and_port

    @property
    def target(self) -> str:
        """The path and query of the request line."""
        if self.query:
            return f"{self.path}?{self.query}"
        return self.path

    @property
    def full_url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    @property
    def redacted(self) -> str:
        """The URL for people and models: values in the query that look like secrets are hidden."""
        pairs = [_redact(name, value) for name, value in parse_qsl(self.query, keep_blank_values=True)]
        query = ""
        if pairs:
            query = f"?{urlencode(pairs, safe='*')}"
        return printable(f"{self.scheme}://{self.authority}{self.path}{query}", 300)


def _redact(name: str, value: str) -> tuple[str, str]:
    if not value and len(name) > 32:  # a bare token
        return "***", ""
    if value and _SECRET.search(name):
        return name, "***"
    return name, value


def parse_url(text: str) -> Url:
    """A URL, with `http` where it has no scheme.

    Raises NetError, which never repeats it: it may hold a password.
    """
    url = text.strip()
    if "://" not in url:
        url = f"http://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port
        host = parts.hostname
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
