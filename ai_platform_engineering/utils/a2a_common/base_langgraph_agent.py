"""An agent graph from a definition: its model, tools, prompt and middleware."""

from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph

from ai_platform_engineering.core.agent_definition import AgentDefinition


def default_prompt(definition: AgentDefinition) -> str:
    """The prompt of an agent whose definition has none."""
    return f"You are the {definition.title or definition.name} agent. {definition.description}"


def build_agent(
    definition: AgentDefinition,
    model: BaseChatModel,
    tools: Sequence[BaseTool],
    middleware: Sequence[AgentMiddleware[Any, Any, Any]],
    *,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    return create_agent(
        model,
        tools=list(tools),
        system_prompt=definition.prompt or default_prompt(definition),
        middleware=list(middleware),
        checkpointer=checkpointer,
        name=definition.name,
    )
