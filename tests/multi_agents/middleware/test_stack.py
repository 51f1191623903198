"""The order of the middlewares, which is behaviour: each one sees a call before those that follow it."""

from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.skills import Skill
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import (
    AgentGraphFactory,
    ChatModels,
    LocalSubAgent,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.allowed_tools import (
    AllowedToolsMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.approvals import ApprovalMiddleware
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
from ai_platform_engineering.multi_agents.platform_engineer.middleware.journal import JournalMiddleware
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
from ai_platform_engineering.multi_agents.platform_engineer.middleware.stack import (
    SupervisorParts,
    build_agent_stack,
    build_supervisor_stack,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.stored_results import (
    StoredResultsMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.task_tool import DelegationMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_call_budget import (
    ToolCallBudgetMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_call_repair import (
    ToolCallRepairMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_results import (
    ToolResultMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_search import (
    ToolSearchMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.untrusted_content import (
    UntrustedContentMiddleware,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.user_input import UserInputMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.workflows import WorkflowMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.prompts import PromptConfig
from ai_platform_engineering.multi_agents.platform_engineer.tool_catalog import ToolCatalog
from ai_platform_engineering.runtime.facts import Facts
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.runtime.storage import Storage
from tests.support.harness import agent

SETTINGS = Settings.from_variables({})
COMMON = [
    UserInputMiddleware,
    ToolCallRepairMiddleware,
    CallLimitMiddleware,
    LoopGuardMiddleware,
    EmptyAnswerMiddleware,
    ContextWindowMiddleware,
    UntrustedContentMiddleware,
    ModelRetryMiddleware,
    ToolCallBudgetMiddleware,
    ToolResultMiddleware,
    ApprovalMiddleware,
]


class NoSkills:
    """A registry without skills."""

    async def list_usable(self) -> Sequence[Skill]:
        return ()

    async def get(self, name: str, version: str | None = None) -> Skill | None:
        return None

    async def read(self, name: str, version: str, path: str) -> str:
        raise AssertionError("there are no files")


def subagent() -> LocalSubAgent:
    return AgentGraphFactory(SETTINGS, ChatModels(SETTINGS), PromptConfig()).build_subagent(
        agent("sums", None)
    )


def classes(stack: Sequence[AgentMiddleware[Any, Any, Any]]) -> list[type]:
    return [type(middleware) for middleware in stack]


def test_the_supervisor_with_everything() -> None:
    parts = SupervisorParts(
        agents=[subagent()],
        skills=NoSkills(),
        facts=Facts(lambda: Storage.in_memory().store),
        store=MemoryLog(),
    )
    assert classes(build_supervisor_stack(SETTINGS, parts)) == [
        PlanProgressMiddleware,
        WorkflowMiddleware,
        SkillsMiddleware,
        AllowedToolsMiddleware,
        KnowledgeCapMiddleware,
        PlanningMiddleware,
        DelegationMiddleware,
        RunScopeMiddleware,
        FactsMiddleware,
        *COMMON,
        JournalMiddleware,
        StoredResultsMiddleware,
        ResultImagesMiddleware,
        ApprovedCallMiddleware,
    ]


def test_the_supervisor_with_nothing() -> None:
    assert classes(build_supervisor_stack(SETTINGS, SupervisorParts())) == [
        PlanProgressMiddleware,
        WorkflowMiddleware,
        AllowedToolsMiddleware,
        KnowledgeCapMiddleware,
        PlanningMiddleware,
        RunScopeMiddleware,
        *COMMON,
        StoredResultsMiddleware,
        ResultImagesMiddleware,
        ApprovedCallMiddleware,
    ]


def test_facts_are_not_for_the_embedded_router() -> None:
    parts = SupervisorParts(facts=Facts(lambda: Storage.in_memory().store), offline=True)
    assert FactsMiddleware not in classes(build_supervisor_stack(SETTINGS, parts))


def test_an_agent_with_agents_of_its_own() -> None:
    stack = build_agent_stack(
        SETTINGS, "outer", [subagent()], MemoryLog(), has_model=True, denied={}, catalog=ToolCatalog()
    )
    assert classes(stack) == [
        DirectToolCallMiddleware,
        AllowedToolsMiddleware,
        DelegationMiddleware,
        *COMMON,
        ToolSearchMiddleware,
        JournalMiddleware,
        StoredResultsMiddleware,
        ResultImagesMiddleware,
        ApprovedCallMiddleware,
    ]


def test_an_agent_alone() -> None:
    stack = build_agent_stack(SETTINGS, "sums", has_model=False, denied={})
    assert classes(stack) == [
        DirectToolCallMiddleware,
        AllowedToolsMiddleware,
        *COMMON,
        StoredResultsMiddleware,
        ResultImagesMiddleware,
        ApprovedCallMiddleware,
    ]
