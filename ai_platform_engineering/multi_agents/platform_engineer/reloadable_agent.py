"""Who answers, as it is configured now: replaced as a whole, while what runs finishes with what it began with."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ai_platform_engineering.graph.translator import GraphInfo
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import Graph
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgents

log = logging.getLogger(__name__)


class ServingAgent(Protocol):
    """What a run is driven with: the supervisor, or the one agent of a service."""

    async def graph(self) -> Graph:
        """The graph as it is now. Raises ConfigurationError."""
        ...

    @property
    def shape(self) -> GraphInfo: ...

    @property
    def recursion_limit(self) -> int: ...

    @property
    def offline(self) -> bool: ...

    async def wait_until_ready(self) -> None:
        """Waits for what a run that goes on may have used before."""
        ...

    def forget_run(self, run_id: str) -> None:
        """The run is over: what was counted for it is not needed any more."""
        ...

    async def cancel_remote_task(self, agent: str, task_id: str) -> None:
        """Stops what an agent elsewhere works on, as far as it can be reached."""
        ...


ServingAgentT = TypeVar("ServingAgentT", bound=ServingAgent, covariant=True)


@dataclass(slots=True)
class AgentDeployment(Generic[ServingAgentT]):
    """Who answers, and what is open for it."""

    agent: ServingAgentT
    placed: PlacedAgents = field(default_factory=PlacedAgents)
    active_turns: int = 0


class ReloadableAgent(Generic[ServingAgentT]):
    """The crew of new runs. One that was replaced is closed when its last run is over."""

    def __init__(self, crew: AgentDeployment[ServingAgentT]) -> None:
        self._crew = crew
        self._changing = asyncio.Lock()

    @property
    def deployment(self) -> AgentDeployment[ServingAgentT]:
        return self._crew

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[ServingAgentT]:
        """For one turn of a run."""
        crew = self._crew
        crew.active_turns += 1
        try:
            await crew.placed.registry.recheck()
            yield crew.agent
        finally:
            crew.active_turns -= 1
            if crew is not self._crew and crew.active_turns == 0:
                await crew.placed.aclose()

    async def start(self) -> None:
        await self._crew.placed.registry.start()

    async def replace(self, crew: AgentDeployment[ServingAgentT]) -> None:
        async with self._changing:
            await crew.placed.registry.start()
            old, self._crew = self._crew, crew
        if old.active_turns == 0:
            await old.placed.aclose()

    def hand_over(self) -> None:
        self._crew.placed.registry.hand_over()

    async def aclose(self) -> None:
        await self._crew.placed.aclose()
