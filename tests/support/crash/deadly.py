"""A supervisor as a process of its own, with a tool that ends the process at once, as a crash does."""

import os
import sys

from langchain_core.tools import BaseTool, tool

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import (
    create_app,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.startup import start_server
from ai_platform_engineering.runtime.server.app import App
from ai_platform_engineering.runtime.storage import STORAGE_NAME, Storage
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Say, Script, Turn

EXIT_CODE = 86
DEADLY_QUESTION = "Die."


def deadly_tool() -> BaseTool:
    @tool
    async def die() -> str:
        """Ends the process."""
        os._exit(EXIT_CODE)

    die.metadata = {"effect": "read"}  # otherwise it would not be called again after a crash
    return die


def deadly_model() -> ScriptedChatModel:
    """Calls the tool for one question, and answers every other."""

    def answer(request: Request) -> Turn:
        if request.last_user == DEADLY_QUESTION and not request.tool_results:
            return Turn(Call("die"))
        return Turn(Say("You said {{user}}"))

    return ScriptedChatModel(script=Script(answer))


def build(settings: Settings, variables: object) -> App:
    storage = Storage.from_settings(settings.storage, settings.agent.home, STORAGE_NAME)
    return create_app(settings, tools=[deadly_tool()], model=deadly_model(), storage=storage)


if __name__ == "__main__":
    start_server({"A2A_PORT": sys.argv[1]}, build)
