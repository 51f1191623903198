"""The settings of tools that reach hosts."""

from pydantic import Field

from ai_platform_engineering.core.setting_types import Flag, HostPatterns, Names, Ports, SettingsGroup


class NetworkSettings(SettingsGroup):
    """Which hosts tools reach without asking a person, and how many of them in one run."""

    allowed_hosts: HostPatterns = Field((), alias="NETWORK_ALLOWED_HOSTS")
    # Not set: as long as one person alone uses a server on loopback.
    allow_private: Flag | None = Field(None, alias="NETWORK_ALLOW_PRIVATE_ADDRESSES")
    # Ports of the platform on this machine, besides those that it knows: they answer a port check alone.
    own_ports: Ports = Field((), alias="NETWORK_OWN_PORTS")
    dns_servers: Names = Field((), alias="NETWORK_DNS_SERVERS")  # not set: those of the system
    hosts_per_run: int = Field(20, alias="NETWORK_HOST_LIMIT", ge=1)
    ports_per_call: int = Field(100, alias="NETWORK_PORT_LIMIT", ge=1, le=1000)
    ports_per_run: int = Field(500, alias="NETWORK_PORTS_PER_RUN", ge=1)
