"""The live registry of remote agents: who can be reached, asked at start and in the background. It reports; it removes nobody."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.utils.a2a_common.a2a_remote_agent_connect import A2ARemoteAgentConnectTool

log = logging.getLogger(__name__)

Reach = Literal["unknown", "reachable", "unreachable"]

_PATIENCE = 0.3  # how long a question waits for another look at an agent that was gone


@dataclass(frozen=True, slots=True)
class Reachability:
    status: Reach = "unknown"
    problem: str | None = None


class AgentRegistry:
    """Belongs to one event loop. Without `checks` an agent's state is what the last delegation to it saw."""

    def __init__(
        self,
        agents: Mapping[str, A2ARemoteAgentConnectTool],
        *,
        timeout: float = 3.0,
        every: float = 30.0,
        checks: bool = True,
    ) -> None:
        self._agents = dict(agents)
        self._timeout = timeout
        self._every = every
        self._checks = checks
        self._states = {name: Reachability() for name in agents}
        self._watching: asyncio.Task[None] | None = None
        self._looking: dict[str, asyncio.Task[None]] = {}

    def state(self, name: str) -> Reachability:
        return self._states.get(name, Reachability())

    def problem(self, name: str) -> str | None:
        return self.state(name).problem

    def record_contact(self, name: str, problem: str | None) -> None:
        """What a delegation saw."""
        now = Reachability("unreachable", problem) if problem else Reachability("reachable")
        if now.status != self.state(name).status:
            log.log(
                logging.WARNING if problem else logging.INFO,
                "agent %s is %s%s",
                name,
                now.status,
                f": {problem}" if problem else "",
            )
        self._states[name] = now

    async def start(self) -> None:
        """The first look at every agent, waited for no longer than its timeout; then one after the other in the background."""
        if not self._checks or not self._agents or self._watching is not None:
            return
        await self._look(self._agents, self._timeout)
        self._watching = asyncio.create_task(self._watch(), name="agent registry")

    async def check(self) -> None:
        """Looks at every agent once."""
        await self._look(self._agents, None)

    async def recheck(self) -> None:
        """Another look at those that were gone, so that one that is back is used by the next question."""
        gone = [name for name in self._agents if self.state(name).status == "unreachable"]
        if self._checks and gone:
            await self._look(gone, _PATIENCE)

    def hand_over(self) -> None:
        """From now on a delegation that is broken off leaves its task to the next start."""
        for agent in self._agents.values():
            agent.keep_tasks_running()

    async def aclose(self) -> None:
        tasks = [*self._looking.values(), *([self._watching] if self._watching else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for agent in self._agents.values():
            await agent.aclose()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            await self.check()

    async def _look(self, names: "Mapping[str, object] | list[str]", patience: float | None) -> None:
        for name in names:
            if name not in self._looking:
                task = self._looking[name] = asyncio.create_task(self._ask(name), name=f"agent check: {name}")
                task.add_done_callback(lambda _, name=name: self._looking.pop(name, None))  # type: ignore[misc]
        waiting = [self._looking[name] for name in names if name in self._looking]
        if waiting:
            await asyncio.wait(waiting, timeout=patience)

    async def _ask(self, name: str) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await self._agents[name].card(self._timeout)
            except CaipeError as error:
                self.record_contact(name, str(error))
            except Exception as error:  # noqa: BLE001 - a check must not end the watch
                log.warning("agent %s: its check broke: %s", name, format_traceback(error))
                self.record_contact(name, f"its check broke ({type(error).__name__}).")
            else:
                self.record_contact(name, None)
