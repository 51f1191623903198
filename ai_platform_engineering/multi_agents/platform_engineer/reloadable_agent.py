"""The agent that serves requests; replaced as a whole when settings are reloaded.

A running turn finishes with the agent that it began with.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ai_platform_engineering.graph.translator import GraphInfo
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import Graph
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgents


class ServingAgent(Protocol):
    """An agent whose graph runs are executed with: the supervisor, or the one agent of a service."""

    async def graph(self, principal: str | None = None) -> Graph:
        """The current graph. Raises ConfigurationError.

        `principal`: who needs it, with whose login tools may be listed.
        """
        ...

    def preload(self) -> None:
        """Begins to load the model, so that the first question waits less."""
        ...

    @property
    def graph_info(self) -> GraphInfo: ...

    @property
    def recursion_limit(self) -> int: ...

    @property
    def offline(self) -> bool: ...

    @property
    def offline_notice(self) -> str:
        """What people are told when it is offline."""

    @property
    def read_only(self) -> bool: ...

    @property
    def distributed_mode(self) -> bool:
        """Whether it uses remote agents: they are checked then."""
        ...

    async def list_starting_servers(self) -> tuple[str, ...]:
        """The tool servers that building the graph has to start first."""
        ...

    async def wait_until_ready(self) -> None:
        """Waits for what a resumed run may have used before, such as the knowledge base."""
        ...

    def forget_run(self, run_id: str) -> None:
        """Drops what is counted for a run that has ended."""
        ...

    async def cancel_remote_task(self, agent: str, task_id: str) -> None:
        """Cancels the task of a remote agent, as far as the agent can be reached."""
        ...


ServingAgentT = TypeVar("ServingAgentT", bound=ServingAgent, covariant=True)


@dataclass(slots=True)
class AgentDeployment(Generic[ServingAgentT]):
    """A serving agent with the placed agents that it uses, and the number of its running turns."""

    agent: ServingAgentT
    placed: PlacedAgents = field(default_factory=PlacedAgents)
    active_turns: int = 0

    async def start(self) -> None:
        """Starts the checks of remote agents and of tool servers."""
        await self.placed.registry.start(checks=self.agent.distributed_mode)
        self.placed.start_server_check(is_busy=lambda: self.active_turns > 0)


class ReloadableAgent(Generic[ServingAgentT]):
    """Holds the deployment for new turns. A replaced one is closed when its last turn is over."""

    def __init__(self, deployment: AgentDeployment[ServingAgentT]) -> None:
        self._deployment = deployment
        self._replace_lock = asyncio.Lock()

    @property
    def deployment(self) -> AgentDeployment[ServingAgentT]:
        return self._deployment

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[ServingAgentT]:
        """The current agent, for one turn of a run; it stays open as long."""
        deployment = self._deployment
        deployment.active_turns += 1
        try:
            await deployment.placed.registry.recheck_unreachable()
            yield deployment.agent
        finally:
            deployment.active_turns -= 1
            if deployment is not self._deployment and deployment.active_turns == 0:
                await deployment.placed.aclose()

    async def start(self) -> None:
        await self._deployment.start()

    async def replace(self, deployment: AgentDeployment[ServingAgentT]) -> None:
        async with self._replace_lock:
            await deployment.start()
            replaced = self._deployment
            self._deployment = deployment
        if replaced.active_turns == 0:
            await replaced.placed.aclose()

    def hand_over(self) -> None:
        """Leaves the tasks of remote agents running, for the next start."""
        self._deployment.placed.registry.hand_over()

    async def aclose(self) -> None:
        await self._deployment.placed.aclose()
