"""Sub-agents as definitions: dicts of the names that deepagents uses, and the sub-agents made from them."""

from collections.abc import Sequence
from typing import Any, TypedDict

from langchain_core.runnables import Runnable, RunnableConfig

from ai_platform_engineering.core.agent_definition import check_agent_name
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import delegate_to_graph
from ai_platform_engineering.multi_agents.platform_engineer.delegation import (
    Delegation,
    DelegationResult,
    SubAgent,
)


class SubAgentDef(TypedDict):
    """A sub-agent as it is offered. A `runnable` that is not ours takes and returns messages."""

    name: str
    description: str
    runnable: Runnable[Any, Any]


class SubAgentRunnable(Runnable[Any, Any]):
    """A sub-agent of ours as a runnable: its own graph, with the sub-agent that a supervisor delegates to."""

    def __init__(self, subagent: SubAgent) -> None:
        self.subagent = subagent

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return await self.subagent.runnable.ainvoke(input, config, **kwargs)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        raise NotImplementedError("a sub-agent is asked asynchronously: use ainvoke")

    def define(self) -> SubAgentDef:
        """The sub-agent as it is now."""
        return {"name": self.subagent.name, "description": self.subagent.description, "runnable": self}


class DefinedSubAgent:
    """A sub-agent made from a definition, which says what a model is told of it."""

    def __init__(self, definition: SubAgentDef, recursion_limit: int) -> None:
        """Raises ConfigurationError for a name that no agent may have."""
        try:
            self.name = check_agent_name(definition["name"])
        except ValueError as error:
            raise ConfigurationError(f"A sub-agent cannot be offered: {error}.") from None
        self.description = definition["description"]
        self.runnable = definition["runnable"]
        self._recursion_limit = recursion_limit

    @property
    def tools(self) -> tuple[str, ...]:
        return self._subagent.tools if self._subagent else ()

    @property
    def problem(self) -> str | None:
        return self._subagent.problem if self._subagent else None

    async def run_delegation(self, delegation: Delegation, config: RunnableConfig) -> DelegationResult:
        if self._subagent is not None:
            return await self._subagent.run_delegation(delegation, config)
        return await delegate_to_graph(self.runnable, delegation, self._recursion_limit)

    @property
    def _subagent(self) -> SubAgent | None:
        """The sub-agent of ours; None when somebody else made the definition."""
        if isinstance(self.runnable, SubAgentRunnable):
            return self.runnable.subagent
        return None


def build_subagents(definitions: Sequence[SubAgentDef], recursion_limit: int) -> list[SubAgent]:
    return [DefinedSubAgent(definition, recursion_limit) for definition in definitions]
