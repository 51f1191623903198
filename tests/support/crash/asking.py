"""The supervisor as `caipe serve` starts it, with one more tool: one that asks a person, which no shipped
agent has yet."""

import json
import sys
from collections.abc import Mapping

from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import interrupt

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.placement import place_agents
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import (
    create_app,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.startup import start_server
from ai_platform_engineering.runtime.server.app import App
from ai_platform_engineering.runtime.storage import STORAGE_NAME, Storage

FORM = {
    "type": "form",
    "title": "Name",
    "response": "I need a name.",
    "fields": [{"field_name": "repo", "field_label": "Name"}],
}


def form_tool() -> BaseTool:
    async def ask_form() -> str:
        """Asks for a name."""
        return json.dumps(interrupt(FORM))

    metadata = {"effect": "read"}  # otherwise it would not be called again after a crash before it has asked
    return StructuredTool.from_function(coroutine=ask_form, name="ask_form", metadata=metadata)


def build(settings: Settings, variables: Mapping[str, str]) -> App:
    storage = Storage.from_settings(settings.storage, settings.agent.home, STORAGE_NAME)
    return create_app(
        settings, tools=[form_tool()], placed=place_agents(settings, variables), storage=storage
    )


def main() -> None:
    start_server({"A2A_PORT": sys.argv[1]}, build)


if __name__ == "__main__":
    main()
