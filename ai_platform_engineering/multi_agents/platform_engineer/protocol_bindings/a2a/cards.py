"""The cards of our servers: what a supervisor with its agents, or one agent, tells about itself."""

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


def supervisor_card(settings: ServerSettings, placed: PlacedAgents) -> AgentCard:
    """The supervisor's own skill, and one for each agent with where it runs and whether it can be reached now."""
    names = [agent.definition.name for agent in placed.agents]
    own = AgentSkill(
        id="ai_platform_engineer",
        name="Platform engineering",
        description="Plans platform-engineering requests, delegates them to domain agents and answers.",
        tags=names or ["platform-engineering"],
        examples=["Which version is Argo CD?"],
    )
    skills = [own]
    for agent in placed.agents:
        remote = isinstance(agent, RemoteAgent)
        tags = (
            [agent.definition.name, "remote", placed.registry.state(agent.definition.name).status]
            if remote
            else None
        )
        skills.append(_skill(agent.definition, tags or [agent.definition.name, "in-process"]))
    return _card(settings, settings.name, "A multi-agent supervisor for platform engineering.", skills)


def agent_card(settings: ServerSettings, definition: AgentDefinition, tools: Sequence[str]) -> AgentCard:
    description = " ".join(definition.description.split())
    return _card(
        settings,
        definition.title or definition.name,
        description,
        [_skill(definition, [definition.name])],
        tools,
    )


def _skill(definition: AgentDefinition, tags: Sequence[str]) -> AgentSkill:
    return AgentSkill(
        id=definition.name,
        name=definition.title or definition.name,
        description=" ".join(definition.description.split()),
        tags=list(tags),
        examples=list(definition.examples),
    )


def _card(
    settings: ServerSettings,
    name: str,
    description: str,
    skills: Sequence[AgentSkill],
    tools: Sequence[str] = (),
) -> AgentCard:
    card = AgentCard(
        name=name,
        description=description,
        version=version(_DISTRIBUTION),
        supported_interfaces=[
            AgentInterface(url=settings.url, protocol_binding="JSONRPC", protocol_version=number)
            for number in ("1.0", "0.3.0")
        ],
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=False, extensions=[events_extension(tools)]
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
