"""Who answers, as it is configured now: replaced as a whole, while what runs finishes with what it began with."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ai_platform_engineering.graph.translator import Shape
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import Graph
from ai_platform_engineering.multi_agents.platform_engineer.placement import Placed

log = logging.getLogger(__name__)


class Driven(Protocol):
    """What a run is driven with: the supervisor, or the one agent of a service."""

    async def graph(self) -> Graph:
        """The graph as it is now. Raises ConfigurationError."""
        ...

    @property
    def shape(self) -> Shape: ...

    @property
    def recursion_limit(self) -> int: ...

    @property
    def offline(self) -> bool: ...

    async def reopened(self) -> None:
        """Waits for what a run that goes on may have used before."""
        ...

    def ended(self, run_id: str) -> None:
        """The run is over: what was counted for it is not needed any more."""
        ...

    async def stop(self, agent: str, task_id: str) -> None:
        """Stops what an agent elsewhere works on, as far as it can be reached."""
        ...


DrivenT = TypeVar("DrivenT", bound=Driven, covariant=True)


@dataclass(slots=True)
class Crew(Generic[DrivenT]):
    """Who answers, and what is open for it."""

    driven: DrivenT
    placed: Placed = field(default_factory=Placed)
    users: int = 0


class Current(Generic[DrivenT]):
    """The crew of new runs. One that was replaced is closed when its last run is over."""

    def __init__(self, crew: Crew[DrivenT]) -> None:
        self._crew = crew
        self._changing = asyncio.Lock()

    @property
    def crew(self) -> Crew[DrivenT]:
        return self._crew

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[DrivenT]:
        """For one turn of a run."""
        crew = self._crew
        crew.users += 1
        try:
            await crew.placed.registry.recheck()
            yield crew.driven
        finally:
            crew.users -= 1
            if crew is not self._crew and crew.users == 0:
                await crew.placed.aclose()

    async def start(self) -> None:
        await self._crew.placed.registry.start()

    async def replace(self, crew: Crew[DrivenT]) -> None:
        async with self._changing:
            await crew.placed.registry.start()
            old, self._crew = self._crew, crew
        if old.users == 0:
            await old.placed.aclose()

    def hand_over(self) -> None:
        self._crew.placed.registry.hand_over()

    async def aclose(self) -> None:
        await self._crew.placed.aclose()
