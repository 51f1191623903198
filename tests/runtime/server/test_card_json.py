"""The agent card as JSON against the one of the SDK's own server."""

import pytest
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityScheme,
)

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgents
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.cards import supervisor_card
from ai_platform_engineering.runtime.server.card_json import card_to_json


def _card(*versions: str, extended: bool = False) -> AgentCard:
    return AgentCard(
        name="zoo",
        description="Feeds the animals.",
        version="1",
        provider=AgentProvider(organization="Zoo", url="http://zoo.example"),
        capabilities=AgentCapabilities(streaming=True, extended_agent_card=extended),
        supported_interfaces=[
            AgentInterface(url="http://zoo.example/", protocol_binding="JSONRPC", protocol_version=version)
            for version in versions
        ],
        security_schemes={
            "bearer": SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer"))
        },
        skills=[AgentSkill(id="feed", name="Feed", description="Feeds one animal.", tags=["food"])],
        default_input_modes=["text"],
        default_output_modes=["text"],
    )


@pytest.mark.parametrize(
    "card",
    [
        _card("1.0", "0.3"),
        _card("0.3", extended=True),
        _card("1.0"),
        supervisor_card(Settings.from_variables({}).server, PlacedAgents()),
        supervisor_card(Settings.from_variables({"A2A_AUTH_SHARED_KEY": "k" * 40}).server, PlacedAgents()),
    ],
    ids=["both protocols", "0.3", "1.0", "the supervisor", "the supervisor with a key"],
)
def test_the_card_is_the_one_that_the_sdk_would_send(card: AgentCard) -> None:
    assert card_to_json(card) == agent_card_to_dict(card)
