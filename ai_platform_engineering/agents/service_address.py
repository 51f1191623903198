"""Where an agent that runs as a service is reached: `<NAME>_AGENT_URL`, else its host and port, else the definition's `url`."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from ai_platform_engineering.agents.variables import value_of

_PORT = "8000"


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """An address, or what is wrong with it; `problem` names variables and never shows a value."""

    url: str | None = None
    problem: str = ""


def address_of(prefix: str, url: str | None, variables: Mapping[str, str]) -> ServiceAddress:
    named, host, port = (f"{prefix}_AGENT_{part}" for part in ("URL", "HOST", "PORT"))
    if given := value_of(named, variables):
        return _checked(given, named)
    if (at := value_of(host, variables)) or value_of(port, variables):
        number = value_of(port, variables) or _PORT
        return _checked(f"http://{_bracketed(at or 'localhost')}:{number}", f"{host} and {port}")
    if url:
        return _checked(url, "`url`")
    return ServiceAddress(problem=f"set {named}, or {host} and {port}")


def _checked(url: str, source: str) -> ServiceAddress:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return ServiceAddress(problem=f"{source} gives no http or https address")
    if not good:
        return ServiceAddress(problem=f"{source} gives no http or https address")
    if parts.username or parts.password or "@" in parts.netloc:
        return ServiceAddress(problem=f"{source} holds credentials; give them as <NAME>_AGENT_TOKEN")
    return ServiceAddress(url.rstrip("/") + "/")


def _bracketed(host: str) -> str:
    if ":" in host and not host.startswith("["):
        return f"[{host}]"
    return host
