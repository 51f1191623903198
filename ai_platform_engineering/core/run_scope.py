"""The scope of a run: the agents and tools that its sender allows, and instructions for it."""

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field

LONGEST_INSTRUCTIONS = 4000  # characters


class RunScope(BaseModel):
    """What a run may use: `None` allows all agents or tools, an empty list allows none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agents: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None  # of the agent that executes the run
    instructions: str | None = Field(None, max_length=LONGEST_INSTRUCTIONS)

    def filter_agents(self, names: Iterable[str]) -> list[str]:
        """The names of the agents that may be used."""
        if self.agents is None:
            return list(names)
        return [name for name in names if name in self.agents]
