"""The agents of a deployment as people look at them: placement, health, and what is known of their tools."""

import asyncio
from dataclasses import dataclass, replace
from typing import Literal

from langchain_core.tools import BaseTool

from ai_platform_engineering.agents.agent_catalog import AgentEntry, Placement
from ai_platform_engineering.core.agent_definition import AgentDefinition, variable_prefix
from ai_platform_engineering.core.policy import decide_permission
from ai_platform_engineering.core.tool_traits import ToolTraits, traits_of
from ai_platform_engineering.multi_agents.platform_engineer.agent_logins import LoginState, list_login_states
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgent, PlacedAgents

ShownPlacement = Placement | Literal["disabled"]
# `unavailable`: its tool servers could not be started. `not_installed`: their programs are not here.
AgentHealth = Literal["ready", "not_configured", "not_installed", "unreachable", "unavailable", "disabled"]

_MAX_DESCRIPTION_CHARS = 1000


@dataclass(frozen=True, slots=True)
class ToolState:
    """A tool of an agent. None: nobody says whether it only reads."""

    name: str
    description: str
    read_only: bool | None
    needs_approval: bool


@dataclass(frozen=True, slots=True)
class AgentState:
    """An agent, offered or not. `tools` is None where nothing is known of them before it is used."""

    name: str
    title: str
    description: str
    placement: ShownPlacement
    status: AgentHealth
    message: str = ""
    missing_variables: tuple[str, ...] = ()  # of `A|B` one is needed
    is_connected: bool = True  # to a system of yours: it has credentials, or is a service
    tools: tuple[ToolState, ...] | None = None
    logins: tuple[LoginState, ...] = ()  # at its tool servers that need a sign-in


async def list_agent_states(placed: PlacedAgents, *, read_only: bool, principal: str) -> list[AgentState]:
    """Every agent of the deployment as this person uses it; starts nothing and asks nobody."""
    agents = {agent.definition.name: agent for agent in placed.agents}
    local_agents = [agent for agent in agents.values() if isinstance(agent, LocalAgent)]
    await asyncio.gather(*(agent.source.read_cache() for agent in local_agents))
    states: list[AgentState] = []
    for entry in placed.catalog:
        state = _describe_entry(placed, entry, agents.get(entry.name), read_only=read_only)
        if entry.placement != "remote":
            logins = await list_login_states(placed.oauth, entry.definition, principal)
            state = replace(state, logins=logins)
        states.append(state)
    for name in placed.handed_in:
        states.append(_describe_handed_in(placed, agents[name], read_only=read_only))
    return states


def _describe_entry(
    placed: PlacedAgents, entry: AgentEntry, agent: PlacedAgent | None, *, read_only: bool
) -> AgentState:
    status, message = _find_health(placed, entry, agent)
    placement: ShownPlacement = entry.placement
    if entry.status == "disabled":
        placement = "disabled"
    return AgentState(
        name=entry.name,
        title=_title_of(entry.definition),
        description=_description_of(entry.definition),
        placement=placement,
        status=status,
        message=message,
        missing_variables=_find_missing_variables(entry),
        is_connected=entry.placement == "remote" or bool(entry.variables),
        tools=_describe_tools(agent, read_only=read_only),
    )


def _describe_handed_in(placed: PlacedAgents, agent: PlacedAgent, *, read_only: bool) -> AgentState:
    status, message = _find_health(placed, None, agent)
    return AgentState(
        name=agent.definition.name,
        title=_title_of(agent.definition),
        description=_description_of(agent.definition),
        placement="in-process" if isinstance(agent, LocalAgent) else "remote",
        status=status,
        message=message,
        tools=_describe_tools(agent, read_only=read_only),
    )


def _find_health(
    placed: PlacedAgents, entry: AgentEntry | None, agent: PlacedAgent | None
) -> tuple[AgentHealth, str]:
    if entry is not None and entry.status != "ready":
        return entry.status, entry.note
    if entry is not None:
        missing_programs = placed.find_missing_programs(entry)
        if missing_programs:
            return "not_installed", f"not on this machine: {', '.join(missing_programs)}"
    if isinstance(agent, LocalAgent):
        if agent.source.problem:
            return "unavailable", agent.source.problem
    elif agent is not None:
        problem = agent.problem()
        if problem:
            return "unreachable", problem
    return "ready", entry.note if entry is not None else ""


def _find_missing_variables(entry: AgentEntry) -> tuple[str, ...]:
    """What has to be set here; the variables of a service are set there."""
    if entry.placement == "remote":
        if entry.status == "not_configured":
            return (f"{variable_prefix(entry.name)}_AGENT_URL",)
        return ()
    return tuple(names for names, _ in entry.missing)


def _title_of(definition: AgentDefinition) -> str:
    return definition.title or definition.name


def _description_of(definition: AgentDefinition) -> str:
    return " ".join(definition.description.split())


def _describe_tools(agent: PlacedAgent | None, *, read_only: bool) -> tuple[ToolState, ...] | None:
    if not isinstance(agent, LocalAgent):
        return None  # a service does not tell them, and an agent that is not offered has none
    tools = agent.source.known_tools()
    if tools is None:
        return None
    return tuple(_describe_tool(tool, read_only=read_only) for tool in tools)


def _describe_tool(tool: BaseTool, *, read_only: bool) -> ToolState:
    traits = traits_of(tool)
    return ToolState(
        name=tool.name,
        description=tool.description[:_MAX_DESCRIPTION_CHARS],
        read_only=_is_read_only(traits),
        needs_approval=decide_permission(traits, read_only=read_only).permission == "ask",
    )


def _is_read_only(traits: ToolTraits) -> bool | None:
    if traits.effect == "read":
        return True
    if traits.defined_effect is not None or "readOnlyHint" in (traits.annotations or {}):
        return False
    return None
