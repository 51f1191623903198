"""Delegations: the work for a sub-agent, its result, and the interface of sub-agents."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from langchain_core.messages import AnyMessage
from langchain_core.runnables import Runnable, RunnableConfig

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.message_metadata import read_scope
from ai_platform_engineering.core.run_budget import RunUsage
from ai_platform_engineering.core.run_context import RunContext, answer_seconds
from ai_platform_engineering.core.run_scope import RunScope
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import find_question

ID_NAMESPACE = uuid.UUID("6a2f3a0e-3f5c-4f0e-9d0b-6a7c1f0f4b11")

AgentMemory = Mapping[str, Any]


class AgentTimeout(CaipeError):
    code = "agent_timeout"
    retryable = True

    def __init__(self, seconds: float) -> None:
        super().__init__(f"It did not finish within {seconds:g} seconds.")


class AgentFailed(CaipeError):
    """The agent reported its own failure; the text is the agent's."""

    code = "agent_failed"


@dataclass(slots=True)
class DelegationProgress:
    """What is kept of a delegation that fails from here on: an in-process agent's memory, and its usage."""

    memory: AgentMemory | None = None
    usage: RunUsage = field(default_factory=RunUsage)


@dataclass(frozen=True, slots=True)
class Delegation:
    """A piece of work for an agent. `key` identifies the delegation within its run, also after a restart.

    The fields are stored in checkpoints: renaming one breaks runs that wait.
    """

    text: str
    run_id: str
    epoch: int
    key: str
    call_id: str
    context_id: str
    seconds: float
    deadline: float
    # The data of a DirectCallNote.
    call: Mapping[str, Any] | None = None
    # The only tools that the agent may use for this delegation; None for all.
    tools: tuple[str, ...] | None = None
    # The data of the UntrustedContent that the delegating model had read; None for none.
    untrusted: Mapping[str, Any] | None = None
    # The data of the RunBudget that the agent may use; None for that of its own settings.
    budget: Mapping[str, Any] | None = None
    memory: AgentMemory = field(default_factory=dict)
    progress: DelegationProgress = field(default_factory=DelegationProgress, compare=False)

    def to_state(self) -> dict[str, Any]:
        """The delegation for a graph's state, without the memory: the graph stores what it needs of that."""
        names = [name for name in self.__dataclass_fields__ if name not in ("memory", "progress")]
        return {name: getattr(self, name) for name in names}

    def remaining_seconds(self) -> float:
        """The seconds until the deadline, which is passed on to remote agents."""
        return max(0.0, round(self.deadline - time.time(), 3))

    def time_limits(self) -> RunContext:
        """The deadline of the delegation, and when its agent uses no tools any more."""
        tools_until = self.deadline - answer_seconds(self.seconds)
        return RunContext(deadline=self.deadline, tools_until=tools_until)

    @property
    def message_id(self) -> str:
        return str(uuid.uuid5(ID_NAMESPACE, f"{self.run_id}\n{self.key}"))


@dataclass(frozen=True, slots=True)
class DelegationResult:
    """The agent's answer, and the memory that its next delegation in this conversation gets."""

    text: str
    memory: AgentMemory = field(default_factory=dict)


class SubAgent(Protocol):
    """An agent behind the `task` tool, in-process or remote."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str:
        """The text about the agent for the supervisor's model; computed without any request."""
        ...

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of its tools, as far as they are known without any request."""
        ...

    @property
    def problem(self) -> str | None:
        """Why it cannot do its work now; None when it can."""
        ...

    @property
    def runnable(self) -> Runnable[Any, Any]:
        """The agent as a graph of its own."""
        ...

    async def run_delegation(self, delegation: Delegation, config: RunnableConfig) -> DelegationResult:
        """Does the work and returns the result. Raises on failure, as CaipeError where the text is ours."""
        ...


def find_scope(messages: Sequence[AnyMessage]) -> RunScope:
    """The scope of the current question. It is part of the question's message, so the checkpoint holds it."""
    question = find_question(messages)
    if question is None:
        return RunScope()
    return read_scope(question)
