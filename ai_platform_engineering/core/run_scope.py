"""What one question may use and must heed: the agents that a sender restricts its run to, and instructions for it."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

SCOPE_KEY = "scope"  # in what a message carries beside its text

LONGEST_INSTRUCTIONS = 4000  # characters


class RunScope(BaseModel):
    """No agents means all of them; an empty list means none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agents: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None  # of the agent that works on it
    instructions: str | None = Field(None, max_length=LONGEST_INSTRUCTIONS)

    @classmethod
    def from_metadata(cls, carried: Mapping[str, Any]) -> "RunScope":
        """The scope that a message carries, or one without bounds."""
        return cls.model_validate(carried.get(SCOPE_KEY) or {})

    def filter_agents(self, names: Iterable[str]) -> list[str]:
        """The agents that may be used, of those there are."""
        return [name for name in names if self.agents is None or name in self.agents]
