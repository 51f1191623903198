"""The check of tool servers after the start: each is started once, so that one that cannot is reported early.

One after the other, while nobody asks anything, and each is ended at once: an unused agent costs no process.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ai_platform_engineering.agents.agent_catalog import AgentEntry
from ai_platform_engineering.agents.check_records import CheckRecords
from ai_platform_engineering.core.settings import McpSettings
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent

log = logging.getLogger(__name__)

_BUSY_RECHECK_SECONDS = 0.5
_MAX_BUSY_SECONDS = 60.0  # a server that is never idle is checked, too


@dataclass(frozen=True, slots=True)
class CheckedAgent:
    """An in-process agent, and its entry in the catalogue."""

    entry: AgentEntry
    agent: LocalAgent


class ToolServerCheck:
    """Checks the tool servers of these agents in the background; those that fail are tried again later."""

    def __init__(self, agents: Sequence[CheckedAgent], settings: McpSettings, records: CheckRecords) -> None:
        self._agents = list(agents)
        self._settings = settings
        self._records = records
        self._failing: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self, is_busy: Callable[[], bool]) -> None:
        """`is_busy`: somebody waits for an answer now."""
        if self._settings.check_servers and self._agents and self._task is None:
            self._task = asyncio.create_task(self._run(is_busy), name="check of tool servers")

    async def aclose(self) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, is_busy: Callable[[], bool]) -> None:
        await asyncio.sleep(self._settings.check_delay)
        remaining = self._agents
        while remaining:
            for checked in remaining:
                await _wait_until_idle(is_busy)
                await self._check(checked)
            remaining = [checked for checked in remaining if checked.entry.name in self._failing]
            if remaining:
                await asyncio.sleep(self._settings.check_every)

    async def _check(self, checked: CheckedAgent) -> None:
        name = checked.entry.name
        try:
            await checked.agent.source.check()
        except Exception as error:  # noqa: BLE001 - whatever breaks one check, the others are made
            log.warning("agent %s: the check of its tool servers broke: %s", name, format_traceback(error))
            return
        problem = checked.agent.source.problem
        await asyncio.to_thread(self._records.write, checked.entry, problem)
        if problem and name not in self._failing:
            log.warning(
                "agent %s: its tools cannot be used: %s. To try it: caipe agents test %s", name, problem, name
            )
            self._failing.add(name)
        elif not problem and name in self._failing:
            log.info("agent %s: its tools can be used again", name)
            self._failing.discard(name)


async def _wait_until_idle(is_busy: Callable[[], bool]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_MAX_BUSY_SECONDS):
            while is_busy():  # noqa: ASYNC110 - there is no event for it, and nothing waits for this
                await asyncio.sleep(_BUSY_RECHECK_SECONDS)
