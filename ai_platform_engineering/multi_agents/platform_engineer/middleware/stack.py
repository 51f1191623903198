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
from ai_platform_engineering.multi_agents.platform_engineer.middleware.approved_call import (
    ApprovedCallMiddleware,
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
from ai_platform_engineering.multi_agents.platform_engineer.middleware.plan_progress import (
    PlanProgressMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.planning import PlanningMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.result_images import (
    ResultImagesMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.run_scope import RunScopeMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.skills import SkillsMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.stored_results import (
    StoredResultsMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.target_rule import TargetRule
from ai_platform_engineering.multi_agents.platform_engineer.middleware.task_tool import DelegationMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_call_budget import (
    ToolCallBudgetMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_call_repair import (
    ToolCallRepairMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_notice import (
    ToolNoticeMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_results import (
    ToolResultMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_search import (
    ToolSearchMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.untrusted_content import (
    UntrustedContentMiddleware,
    UntrustedContentPolicy,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.user_input import UserInputMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.workflows import WorkflowMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.person_input import PersonInputStore
from ai_platform_engineering.multi_agents.platform_engineer.run_clock import FollowerStore
from ai_platform_engineering.multi_agents.platform_engineer.tool_catalog import ToolCatalog
from ai_platform_engineering.multi_agents.platform_engineer.untrusted_messages import ThirdPartyDefinitions
from ai_platform_engineering.runtime.facts import Facts
from ai_platform_engineering.runtime.log.result_store import ResultStore
from ai_platform_engineering.workflows.workflow_catalog import WorkflowCatalog

Middlewares = list[AgentMiddleware[Any, Any, Any]]


class ToolCallStore(JournalStore, AllowanceStore, PersonInputStore, FollowerStore, Protocol):
    """Where the journal, allowances, what people wrote, who follows and long results are stored: the run
    log."""

    @property
    def results(self) -> ResultStore: ...


@dataclass(frozen=True, slots=True)
class SupervisorParts:
    """What the supervisor's middlewares work with; parts that are None are not configured."""

    agents: Sequence[SubAgent] = ()
    workflows: WorkflowCatalog = field(default_factory=WorkflowCatalog)
    unavailable_agents: Mapping[str, str] = field(default_factory=dict)  # names, and why they are not offered
    skills: SkillRegistry | None = None
    facts: Facts | None = None
    store: ToolCallStore | None = None
    target_rule: TargetRule | None = None
    offline: bool = False
    reads_prompt: bool = True  # the embedded router reads nothing but tools


def build_supervisor_stack(settings: Settings, parts: SupervisorParts) -> Middlewares:
    stack: Middlewares = []
    definitions = ThirdPartyDefinitions(skills=None if parts.offline else parts.skills)
    # Outermost: the plan follows the message that finally came, also a workflow's, and the result of each
    # delegation, also of one that was refused.
    stack.append(PlanProgressMiddleware())
    # Around the others: while a workflow runs, nothing below decides what comes next.
    stack.append(
        WorkflowMiddleware(
            parts.workflows, offline=parts.offline, unavailable_agents=parts.unavailable_agents
        )
    )
    # Around approvals and journal: a skill's refusal comes before anybody is asked.
    if parts.skills is not None:
        stack.append(SkillsMiddleware(parts.skills, offline=parts.offline))
    # Around approvals and journal: nobody is asked about a tool that is out of the question's scope.
    stack.append(AllowedToolsMiddleware())
    # Inside skills and scope: it removes used-up tools from those that they still offer.
    stack.append(KnowledgeCapMiddleware())
    # Before delegation: models read the tools in the order of the stack, and a plan comes first.
    stack.append(PlanningMiddleware())
    # Next to planning: it adds the `task` tool.
    if parts.agents:
        delegation = _build_delegation(settings, parts.agents, definitions, in_prompt=parts.reads_prompt)
        stack.append(delegation)
    # Inside skills: in the prompt the question's own agents and instructions follow the skills.
    stack.append(RunScopeMiddleware(parts.agents, in_prompt=parts.reads_prompt))
    # Last in the prompt. Not offline: the embedded router reads no prompt, and takes every tool for work.
    if parts.facts is not None and not parts.offline:
        stack.append(FactsMiddleware(parts.facts))
    stack += _build_common_stack(
        settings,
        SUPERVISOR,
        parts.store,
        definitions,
        has_model=not parts.offline,
        denied={},
        facts=None if parts.offline else parts.facts,
        target_rule=parts.target_rule,
    )
    return stack


def build_agent_stack(
    settings: Settings,
    agent: str,
    subagents: Sequence[SubAgent] = (),
    store: ToolCallStore | None = None,
    *,
    has_model: bool,
    denied: Mapping[str, str],
    servers: tuple[str, ...] = (),
    target_rule: TargetRule | None = None,
    notice: str | None = None,
    catalog: ToolCatalog | None = None,
) -> Middlewares:
    """The middlewares of a sub-agent, and of the agent of a service.

    `has_model`: the agent has a language model, not the embedded router. `denied`: tools that are not
    offered, with the reason. `servers`: those that its tools belong to. `target_rule`: that of the whole
    process, which counts over all its agents. `notice`: what people should know about the tools. `catalog`:
    the tools among which the agent searches when they are too many.
    """
    stack: Middlewares = []
    definitions = ThirdPartyDefinitions(servers if has_model else ())
    # Before everything: also a run that calls one tool directly tells it.
    if notice:
        stack.append(ToolNoticeMiddleware(notice))
    # Outermost: a direct tool call needs no model, and nothing that wraps one.
    stack.append(DirectToolCallMiddleware(has_model=has_model))
    # Around approvals and journal: nobody is asked about a tool that is out of the delegation's scope.
    stack.append(AllowedToolsMiddleware())
    # Outside the common ones, as in the supervisor: it adds the `task` tool for the agent's own sub-agents.
    if subagents:
        stack.append(_build_delegation(settings, subagents, definitions))
    stack += _build_common_stack(
        settings,
        agent,
        store,
        definitions,
        has_model=has_model,
        denied=denied,
        target_rule=target_rule,
        catalog=catalog,
    )
    return stack


def _build_delegation(
    settings: Settings,
    agents: Sequence[SubAgent],
    definitions: ThirdPartyDefinitions,
    *,
    in_prompt: bool = False,
) -> DelegationMiddleware:
    """`in_prompt`: the system prompt describes the agents; the embedded router reads the tool alone."""
    return DelegationMiddleware(
        agents,
        limits=settings.limits,
        redactor=settings.redactor,
        definitions=definitions,
        in_prompt=in_prompt,
    )


def _build_common_stack(
    settings: Settings,
    agent: str,
    store: ToolCallStore | None,
    definitions: ThirdPartyDefinitions,
    *,
    has_model: bool,
    denied: Mapping[str, str],
    facts: Facts | None = None,
    target_rule: TargetRule | None = None,
    catalog: ToolCatalog | None = None,
) -> Middlewares:
    """The middlewares of every agent; LangChain does not pass them on to sub-agents."""
    stack: Middlewares = []
    # First of the common ones: offline its tool is removed before the others see the request.
    stack.append(UserInputMiddleware(offered=has_model))
    # Around everything that may call the model again: each attempt gets the repaired history.
    stack.append(ToolCallRepairMiddleware())
    # Outside the loop guard: when both apply, the notice about the budget comes first.
    stack.append(CallLimitMiddleware(settings.limits, store))
    # Around the empty-answer check, as the forced last answer must have text, too; and around all that
    # changes tool results, as it compares results as the model sees them.
    stack.append(LoopGuardMiddleware(offers_wait=has_model))
    # Around context window and retries: it judges the message that finally came.
    stack.append(EmptyAnswerMiddleware())
    # Around retries: an overflow is not retried as it is, but with fewer tokens.
    stack.append(ContextWindowMiddleware(settings.model.context_tokens))
    # Inside the context window, which cuts results: their markers stay whole. Around the errors of tools,
    # whose texts are results, too.
    stack.append(UntrustedContentMiddleware(agent))
    # Around each single model call, which may fail.
    stack.append(ModelRetryMiddleware(settings.model, settings.redactor))
    # Innermost around the model: nothing else works on calls that are over the budget.
    stack.append(ToolCallBudgetMiddleware(settings.limits))
    # Around approvals and journal: their errors become results for the model, too.
    stack.append(ToolResultMiddleware(settings.limits.tool_output_chars, settings.redactor))
    # Around the journal: a call is journalled only when it is approved.
    people = settings.people
    policy = UntrustedContentPolicy(definitions, enabled=people.ask_on_untrusted, facts=facts)
    approvals = ApprovalMiddleware(
        agent,
        store,
        read_only=people.read_only,
        denied=denied,
        untrusted=policy,
        target_rule=target_rule or TargetRule(settings, store),
    )
    stack.append(approvals)
    # Inside approvals: a tool that is denied is refused as such, not as one that does not exist. Inside all
    # that restricts the tools: it chooses among those that are left.
    if has_model and catalog is not None:
        stack.append(ToolSearchMiddleware(catalog, settings.limits.tool_schema_chars))
    # Inside approvals: an entry is written only when the tool is really called.
    if store is not None:
        stack.append(JournalMiddleware(store, settings.redactor))
    # Inside the journal: it records the short message of a long result.
    results = store.results if store is not None and has_model else None
    stack.append(StoredResultsMiddleware(results, settings.limits))
    # Inside stored results: what they cut is the text. Inside retries, whose fallback models may read no
    # images.
    stack.append(ResultImagesMiddleware(results, settings))
    # Innermost around tools: whatever changes a call, none runs but the one that a person approved.
    stack.append(ApprovedCallMiddleware())
    return stack
