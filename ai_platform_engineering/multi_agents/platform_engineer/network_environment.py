"""The environment of our network tools: what their process is told about the server that starts it."""

from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from ai_platform_engineering.core.agent_definition import AgentDefinition, McpServer
from ai_platform_engineering.core.settings import Settings

_NETUTILS_MODULE = "ai_platform_engineering.mcp_servers.netutils"
_DEFAULT_PORTS = {"http": 80, "https": 443}


def set_network_environment(
    definition: AgentDefinition, settings: Settings, service_urls: Iterable[str]
) -> AgentDefinition:
    """The definition with the settings in the environment of our network tools, if it has them.

    `service_urls` are the agents that run as services: like the server's own port, theirs answer a port check
    and nothing else.
    """
    environment = _build_environment(settings, service_urls)
    servers: dict[str, McpServer] = {}
    for name, server in definition.mcp_servers.items():
        if _NETUTILS_MODULE in server.args:
            server = server.model_copy(update={"env": {**server.env, **environment}})
        servers[name] = server
    return definition.model_copy(update={"mcp_servers": servers})


def _build_environment(settings: Settings, service_urls: Iterable[str]) -> dict[str, str]:
    network = settings.network
    own_ports = sorted(set(_find_own_ports(settings, service_urls)))
    return {
        "NETWORK_ALLOWED_HOSTS": ",".join(network.allowed_hosts),
        "NETWORK_ALLOW_PRIVATE_ADDRESSES": str(settings.allows_private_addresses).lower(),
        "NETWORK_OWN_PORTS": ",".join(map(str, own_ports)),
        "NETWORK_DNS_SERVERS": ",".join(network.dns_servers),
        "NETWORK_PORT_LIMIT": str(network.ports_per_call),
    }


def _find_own_ports(settings: Settings, service_urls: Iterable[str]) -> Iterator[int]:
    """The ports of the server, its agents, the knowledge base and the Slack bot."""
    yield from settings.network.own_ports
    for port in (settings.server.port, settings.slack.port):
        if port:
            yield port
    for url in (settings.knowledge.server_url, settings.server.external_url, *service_urls):
        url_port = _read_port(url or "")
        if url_port:
            yield url_port


def _read_port(url: str) -> int | None:
    try:
        parts = urlsplit(url)
        return parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
