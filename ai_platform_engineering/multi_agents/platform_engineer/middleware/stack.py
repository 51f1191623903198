"""The ordered middlewares of the supervisor and of sub-agents; the first one is the outermost.

The order is behaviour: a middleware sees each model call and each tool call before those below it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from langchain.agents.middleware import AgentMiddleware

from ai_platform_engineering.core.events import SUPERVISOR
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.skills import SkillRegistry
from ai_platform_engineering.multi_agents.platform_engineer.delegation import SubAgent
from ai_platform_engineering.multi_agents.platform_engineer.middleware.allowed_tools import (
    AllowedToolsMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.approvals import (
    AllowanceStore,
    ApprovalMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.call_limits import CallLimitMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.context_window import (
    ContextWindowMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.direct_tool_call import (
    DirectToolCallMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.empty_answer import (
    EmptyAnswerMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.facts import FactsMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.journal import (
    JournalMiddleware,
    JournalStore,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.knowledge_caps import (
    KnowledgeCapMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.loop_guard import LoopGuardMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_retry import ModelRetryMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.planning import PlanningMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.run_scope import RunScopeMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.skills import SkillsMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.task_tool import DelegationMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_call_repair import (
    ToolCallRepairMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_results import (
    ToolResultMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.user_input import UserInputMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.workflows import WorkflowMiddleware
from ai_platform_engineering.runtime.facts import Facts
from ai_platform_engineering.workflows.workflow_catalog import WorkflowCatalog

Middlewares = list[AgentMiddleware[Any, Any, Any]]


class ToolCallStore(JournalStore, AllowanceStore, Protocol):
    """Where the journal and the allowances are stored: the run log."""


@dataclass(frozen=True, slots=True)
class SupervisorParts:
    """What the supervisor's middlewares work with; parts that are None are not configured."""

    agents: Sequence[SubAgent] = ()
    workflows: WorkflowCatalog = field(default_factory=WorkflowCatalog)
    skills: SkillRegistry | None = None
    facts: Facts | None = None
    store: ToolCallStore | None = None
    offline: bool = False


def build_supervisor_stack(settings: Settings, parts: SupervisorParts) -> Middlewares:
    stack: Middlewares = []
    # Outermost: while a workflow runs, nothing below decides what comes next.
    stack.append(WorkflowMiddleware(parts.workflows, offline=parts.offline))
    # Around approvals and journal: a skill's refusal comes before anybody is asked.
    if parts.skills is not None:
        stack.append(SkillsMiddleware(parts.skills, offline=parts.offline))
    # Around approvals and journal: nobody is asked about a tool that is out of the question's scope.
    stack.append(AllowedToolsMiddleware())
    # Inside skills and scope: it removes used-up tools from those that they still offer.
    stack.append(KnowledgeCapMiddleware())
    # Before delegation: models read the tools in the order of the stack, and a plan comes first.
    stack.append(PlanningMiddleware())
    # Next to planning: it adds the `task` tool, and the end of a delegation ends a step of the plan.
    if parts.agents:
        stack.append(_build_delegation(settings, parts.agents, planned=True))
    # Inside skills: in the prompt the question's own agents and instructions follow the skills.
    stack.append(RunScopeMiddleware(parts.agents))
    # Last in the prompt. Not offline: the embedded router reads no prompt, and takes every tool for work.
    if parts.facts is not None and not parts.offline:
        stack.append(FactsMiddleware(parts.facts))
    stack += _build_common_stack(settings, SUPERVISOR, parts.store, has_model=not parts.offline, denied={})
    return stack


def build_agent_stack(
    settings: Settings,
    agent: str,
    subagents: Sequence[SubAgent] = (),
    store: ToolCallStore | None = None,
    *,
    has_model: bool,
    denied: Mapping[str, str],
) -> Middlewares:
    """The middlewares of a sub-agent, and of the agent of a service.

    `has_model`: the agent has a language model, not the embedded router. `denied`: tools that are not
    offered, with the reason.
    """
    stack: Middlewares = []
    # Outermost: a direct tool call needs no model, and nothing that wraps one.
    stack.append(DirectToolCallMiddleware(has_model=has_model))
    # Around approvals and journal: nobody is asked about a tool that is out of the delegation's scope.
    stack.append(AllowedToolsMiddleware())
    # Outside the common ones, as in the supervisor: it adds the `task` tool for the agent's own sub-agents.
    if subagents:
        stack.append(_build_delegation(settings, subagents, planned=False))
    stack += _build_common_stack(settings, agent, store, has_model=has_model, denied=denied)
    return stack


def _build_delegation(
    settings: Settings, agents: Sequence[SubAgent], *, planned: bool
) -> DelegationMiddleware:
    return DelegationMiddleware(agents, seconds=settings.limits.delegation_seconds, planned=planned)


def _build_common_stack(
    settings: Settings,
    agent: str,
    store: ToolCallStore | None,
    *,
    has_model: bool,
    denied: Mapping[str, str],
) -> Middlewares:
    """The middlewares of every agent; LangChain does not pass them on to sub-agents."""
    stack: Middlewares = []
    # First of the common ones: offline its tool is removed before the others see the request.
    stack.append(UserInputMiddleware(offered=has_model))
    # Around everything that may call the model again: each attempt gets the repaired history.
    stack.append(ToolCallRepairMiddleware())
    # Outside the loop guard: when both apply, the notice about the budget comes first.
    stack.append(CallLimitMiddleware(settings.limits))
    # Around the empty-answer check, as the forced last answer must have text, too; and around all that
    # changes tool results, as it compares results as the model sees them.
    stack.append(LoopGuardMiddleware(offers_wait=has_model))
    # Around context window and retries: it judges the message that finally came.
    stack.append(EmptyAnswerMiddleware())
    # Around retries: an overflow is not retried as it is, but with fewer tokens.
    stack.append(ContextWindowMiddleware(settings.model.context_tokens))
    # Innermost around the model: each single call may fail.
    stack.append(ModelRetryMiddleware(settings.model))
    # Around approvals and journal: their errors become results for the model, too.
    stack.append(ToolResultMiddleware(settings.limits.tool_output_chars))
    # Around the journal: a call is journalled only when it is approved.
    read_only = settings.people.read_only
    stack.append(ApprovalMiddleware(agent, store, read_only=read_only, denied=denied))
    # Innermost around tools: an entry is written only when the tool is really called.
    if store is not None:
        stack.append(JournalMiddleware(store))
    return stack
