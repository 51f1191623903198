"""Settings of placement: which agents run as services elsewhere, and how they are reached."""

from collections.abc import Collection

from pydantic import Field

from ai_platform_engineering.core.setting_types import Flag, Names, SettingsGroup

_ALL = "all"  # in the list
# Stands for all agents within the program. Whoever writes it into the list names an agent that is not there.
EVERY_AGENT = "__all__"


class PlacementSettings(SettingsGroup):
    """Which agents run as services elsewhere, and how they are reached.

    Their addresses are in `<NAME>_AGENT_URL`.
    """

    agents: Names | None = Field(None, alias="DISTRIBUTED_AGENTS")
    everywhere: Flag = Field(False, alias="DISTRIBUTED_MODE")
    skip_check: Flag | None = Field(None, alias="SKIP_AGENT_CONNECTIVITY_CHECK")
    check_timeout: float = Field(3.0, alias="AGENT_CHECK_TIMEOUT_SECONDS", gt=0)
    check_every: float = Field(30.0, alias="AGENT_CHECK_SECONDS", gt=0)
    connect_timeout: float = Field(5.0, alias="AGENT_CONNECT_TIMEOUT_SECONDS", gt=0)
    idle_timeout: float = Field(60.0, alias="AGENT_IDLE_TIMEOUT_SECONDS", gt=0)
    third_party_lost_timeout: float = Field(12.0, alias="THIRD_PARTY_LOST_SECONDS", gt=0)
    # Of one answer of a remote agent, or one event of its stream.
    max_message_bytes: int = Field(16 * 1024 * 1024, alias="AGENT_MAX_MESSAGE_BYTES", ge=1024)
    max_message_values: int = Field(20_000, alias="AGENT_MAX_MESSAGE_VALUES", ge=100)
    max_third_party_values: int = Field(3_000, alias="THIRD_PARTY_MAX_MESSAGE_VALUES", ge=100)
    fallback: Flag = Field(False, alias="PLACEMENT_FALLBACK")

    @property
    def names(self) -> frozenset[str]:
        """The names in the list of distributed agents, those that no agent has included."""
        return frozenset(name.lower() for name in self.agents or ()) - {_ALL}

    @property
    def distributed(self) -> frozenset[str]:
        """The names of the distributed agents; `EVERY_AGENT` stands for all of them."""
        is_everywhere = self.everywhere
        if self.agents is not None:
            is_everywhere = any(name.lower() == _ALL for name in self.agents)
        if is_everywhere:
            return frozenset({EVERY_AGENT})
        return self.names - {EVERY_AGENT}


def is_distributed(name: str, distributed: Collection[str]) -> bool:
    if name == EVERY_AGENT:
        return False  # no agent has this name
    return name in distributed or EVERY_AGENT in distributed
