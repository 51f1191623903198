"""The address of an agent that runs as a service: `<NAME>_AGENT_URL`, else its host and port, else the
definition's `url`."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from ai_platform_engineering.agents.variables import read_variable

_DEFAULT_PORT = "8000"


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A URL, or what is wrong with it; `problem` names variables and never shows a value.

    `is_given`: there is an address, good or bad.
    """

    url: str | None = None
    problem: str = ""
    is_given: bool = True


def find_service_address(prefix: str, url: str | None, variables: Mapping[str, str]) -> ServiceAddress:
    """`url` is the definition's; variables go before it."""
    url_variable = f"{prefix}_AGENT_URL"
    host_variable = f"{prefix}_AGENT_HOST"
    port_variable = f"{prefix}_AGENT_PORT"
    if variable_url := read_variable(url_variable, variables):
        return _check_url(variable_url, url_variable)
    host = read_variable(host_variable, variables)
    port = read_variable(port_variable, variables)
    if host or port:
        authority = f"{_bracket_ipv6(host or 'localhost')}:{port or _DEFAULT_PORT}"
        return _check_url(f"http://{authority}", f"{host_variable} and {port_variable}")
    if url:
        return _check_url(url, "`url`")
    problem = f"set {url_variable}, or {host_variable} and {port_variable}"
    return ServiceAddress(problem=problem, is_given=False)


def _check_url(url: str, source: str) -> ServiceAddress:
    """`source` says where the URL is from, for the problem."""
    invalid = ServiceAddress(problem=f"{source} gives no http or https address")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return invalid
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return invalid
    if parts.username or parts.password or "@" in parts.netloc:
        return ServiceAddress(problem=f"{source} holds credentials; give them as <NAME>_AGENT_TOKEN")
    return ServiceAddress(url.rstrip("/") + "/")


def _bracket_ipv6(host: str) -> str:
    if ":" in host and not host.startswith("["):
        return f"[{host}]"
    return host
