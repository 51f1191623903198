"""The registry of remote agents: which ones can be reached, checked at start and in the background.

An agent that cannot be reached is reported, not removed.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.utils.a2a_common.a2a_remote_agent_connect import A2ARemoteAgentConnectTool

log = logging.getLogger(__name__)

ReachabilityStatus = Literal["unknown", "reachable", "unreachable"]

_RECHECK_TIMEOUT = 0.3  # seconds that a question waits for the check of an agent that was unreachable


@dataclass(frozen=True, slots=True)
class Reachability:
    status: ReachabilityStatus = "unknown"
    problem: str | None = None


class AgentRegistry:
    """The reachability of each remote agent. Belongs to one event loop.

    Without `checks` it is known only from delegations; None leaves it to whoever starts the registry.
    """

    def __init__(
        self,
        agents: Mapping[str, A2ARemoteAgentConnectTool] | None = None,
        *,
        timeout: float = 3.0,
        interval: float = 30.0,
        checks: bool | None = None,
    ) -> None:
        self._agents = dict(agents or {})
        self._timeout = timeout
        self._interval = interval
        self._checks = checks
        self._reachability: dict[str, Reachability] = {}
        self._background_task: asyncio.Task[None] | None = None
        self._running_checks: dict[str, asyncio.Task[None]] = {}

    def add(self, name: str, agent: A2ARemoteAgentConnectTool) -> None:
        self._agents[name] = agent

    def reachability(self, name: str) -> Reachability:
        return self._reachability.get(name, Reachability())

    def problem(self, name: str) -> str | None:
        return self.reachability(name).problem

    def record_contact(self, name: str, problem: str | None) -> None:
        """Stores the result of a check or of a delegation; a change is logged."""
        is_changed = self.reachability(name).status != ("unreachable" if problem else "reachable")
        if problem:
            self._reachability[name] = Reachability("unreachable", problem)
            if is_changed:
                log.warning("agent %s is unreachable: %s", name, problem)
        else:
            self._reachability[name] = Reachability("reachable")
            if is_changed:
                log.info("agent %s is reachable", name)

    async def start(self, *, checks: bool) -> None:
        """Checks every agent once, for no longer than the timeout, then regularly in the background.

        `checks`: whether to, if that was not decided before.
        """
        if self._checks is None:
            self._checks = checks
        if not self._checks or not self._agents or self._background_task is not None:
            return
        await self._check(list(self._agents), self._timeout)
        self._background_task = asyncio.create_task(self._check_regularly(), name="agent registry")

    async def check_all(self) -> None:
        """Checks every agent once."""
        await self._check(list(self._agents), None)

    async def recheck_unreachable(self) -> None:
        """Checks the unreachable agents again, so that the next question can use one that is back."""
        unreachable = [name for name in self._agents if self.reachability(name).status == "unreachable"]
        if self._checks and unreachable:
            await self._check(unreachable, _RECHECK_TIMEOUT)

    def hand_over(self) -> None:
        """From now on a delegation that is cancelled leaves its remote task running, for the next start."""
        for agent in self._agents.values():
            agent.keep_tasks_running()

    async def aclose(self) -> None:
        tasks = list(self._running_checks.values())
        if self._background_task is not None:
            tasks.append(self._background_task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for agent in self._agents.values():
            await agent.aclose()

    async def _check_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self.check_all()

    async def _check(self, names: Collection[str], timeout: float | None) -> None:
        """Checks the agents; a running check is joined. After the timeout the checks go on."""
        for name in names:
            if name not in self._running_checks:
                task = asyncio.create_task(self._check_agent(name), name=f"agent check: {name}")
                self._running_checks[name] = task
                task.add_done_callback(lambda _, name=name: self._running_checks.pop(name, None))  # type: ignore[misc]
        checks = [self._running_checks[name] for name in names if name in self._running_checks]
        if checks:
            await asyncio.wait(checks, timeout=timeout)

    async def _check_agent(self, name: str) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await self._agents[name].card(self._timeout)
            except CaipeError as error:
                self.record_contact(name, str(error))
            except Exception as error:  # noqa: BLE001 - a failing check must not end the background task
                log.warning("agent %s: its check broke: %s", name, format_traceback(error))
                self.record_contact(name, f"its check broke ({type(error).__name__}).")
            else:
                self.record_contact(name, None)
