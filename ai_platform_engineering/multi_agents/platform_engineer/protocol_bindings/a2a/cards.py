"""The agent cards of our servers: of a supervisor with its agents, and of a single agent."""

from collections.abc import Sequence
from importlib.metadata import version

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

from ai_platform_engineering.a2a.cards import events_extension
from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.settings import ServerSettings
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgents
from ai_platform_engineering.multi_agents.platform_engineer.remote_agents import RemoteAgent

_DISTRIBUTION = "ai-platform-engineering"
# The preferred one first; protocol 0.3 over JSON-RPC alone.
_INTERFACES = (("JSONRPC", "1.0"), ("JSONRPC", "0.3.0"), ("HTTP+JSON", "1.0"))


def supervisor_card(settings: ServerSettings, placed: PlacedAgents, *, push: bool = False) -> AgentCard:
    """The card with the supervisor's own skill, and one per agent with its placement and reachability."""
    names = [agent.definition.name for agent in placed.agents]
    own_skill = AgentSkill(
        id="ai_platform_engineer",
        name="Platform engineering",
        description="Plans platform-engineering requests, delegates them to domain agents and answers.",
        tags=names or ["platform-engineering"],
        examples=["Which version is Argo CD?"],
    )
    skills = [own_skill]
    for agent in placed.agents:
        name = agent.definition.name
        if isinstance(agent, RemoteAgent):
            tags = [name, "remote", placed.registry.reachability(name).status]
        else:
            tags = [name, "in-process"]
        skills.append(_build_skill(agent.definition, tags))
    description = "A multi-agent supervisor for platform engineering."
    return _build_card(settings, settings.name, description, skills, push=push)


def agent_card(
    settings: ServerSettings, definition: AgentDefinition, tools: Sequence[str], *, push: bool = False
) -> AgentCard:
    description = " ".join(definition.description.split())
    return _build_card(
        settings,
        definition.title or definition.name,
        description,
        [_build_skill(definition, [definition.name])],
        tools,
        push=push,
    )


def _build_skill(definition: AgentDefinition, tags: Sequence[str]) -> AgentSkill:
    return AgentSkill(
        id=definition.name,
        name=definition.title or definition.name,
        description=" ".join(definition.description.split()),
        tags=list(tags),
        examples=list(definition.examples),
    )


def _build_card(
    settings: ServerSettings,
    name: str,
    description: str,
    skills: Sequence[AgentSkill],
    tools: Sequence[str] = (),
    *,
    push: bool,
) -> AgentCard:
    card = AgentCard(
        name=name,
        description=description,
        version=version(_DISTRIBUTION),
        supported_interfaces=[
            AgentInterface(url=settings.url, protocol_binding=binding, protocol_version=number)
            for binding, number in _INTERFACES
        ],
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=push,
            extensions=[events_extension(tools)],
            extended_agent_card=settings.needs_key or None,
        ),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=skills,
    )
    if settings.needs_key:
        card.security_schemes["bearer"].CopyFrom(
            SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer"))
        )
        card.security_requirements.append(SecurityRequirement(schemes={"bearer": StringList()}))
    return card
