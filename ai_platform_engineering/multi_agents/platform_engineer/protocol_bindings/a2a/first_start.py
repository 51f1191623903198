"""What a first start lacks: a model, agents with credentials, documents; and how each is brought in."""

from collections.abc import Mapping, Sequence
from typing import Any

from ai_platform_engineering.core.environment import find_missing_variables
from ai_platform_engineering.core.model_providers import PROVIDERS, ModelProvider
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.terminals import command_name
from ai_platform_engineering.multi_agents.platform_engineer.agent_states import AgentState

_KNOWLEDGE_OFF = {"status": "off", "message": "ENABLE_RAG is false.", "has_documents": False}


def describe_first_start(
    settings: Settings,
    model: Mapping[str, Any],
    agents: Sequence[AgentState],
    knowledge: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The body of `/v1/setup`. `model` and `knowledge` are components of `/ready`."""
    counts = {"ready": 0, "not_configured": 0}
    for state in agents:
        counts[state.status] = counts.get(state.status, 0) + 1
    steps = [_describe_model_step(settings, model), _describe_agent_step(settings, agents)]
    if knowledge is not None:
        steps.append(_describe_knowledge_step(knowledge))
    return {
        "model": {
            "status": model["status"],
            "name": model.get("name"),
            "message": model.get("message", ""),
            "providers": _list_providers(),
        },
        "agents": counts,
        "knowledge": {"message": "", **(knowledge or _KNOWLEDGE_OFF)},
        "steps": steps,
    }


def _list_providers() -> list[dict[str, Any]]:
    """Each provider once, by the first of its names."""
    names: dict[ModelProvider, str] = {}
    for name, provider in PROVIDERS.items():
        names.setdefault(provider, name)
    providers: list[dict[str, Any]] = []
    for provider, name in names.items():
        providers.append(
            {
                "name": name,
                "variables": list(provider.variables),
                "missing": find_missing_variables(provider),
                "extra": provider.extra,
            }
        )
    return providers


def _describe_model_step(settings: Settings, model: Mapping[str, Any]) -> dict[str, Any]:
    how = (
        "Set LLM_MODEL to provider:name, for example LLM_MODEL=openai:gpt-5-mini, and the key of the "
        f"provider, in {settings.agent.home / '.env'} or in the environment. Then start the server again."
    )
    if model["status"] == "unavailable":
        how = str(model.get("message") or how)
    return {
        "id": "model",
        "done": model["status"] == "ok",
        "title": "Choose a language model",
        "how": how,
    }


def _describe_agent_step(settings: Settings, agents: Sequence[AgentState]) -> dict[str, Any]:
    how = (
        f"Set what an agent needs, for example GITHUB_TOKEN, in {settings.agent.home / '.env'}. "
        f"`{command_name()} agents` says what each of them lacks."
    )
    is_done = any(state.status == "ready" and state.is_connected for state in agents)
    return {"id": "agents", "done": is_done, "title": "Connect an agent to one of your systems", "how": how}


def _describe_knowledge_step(knowledge: Mapping[str, Any]) -> dict[str, Any]:
    how = (
        "Add a folder, a web site, a git repository or files to the knowledge base; in a terminal: "
        f"`{command_name()} kb add <location>`."
    )
    return {
        "id": "knowledge",
        "done": knowledge["has_documents"],
        "title": "Give it something to read",
        "how": how,
    }
