"""Small supervisors for tests of the server: each answer has a value that only a tool of this run knows."""

import asyncio
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from tests.support.fakes.script import Call, Say, Script, Turn


@dataclass(frozen=True, slots=True)
class VersionScenario:
    """A tool with a random value, a script that reports it, and the answer that proves that the tool was
    asked.
    """

    value: str = field(default_factory=lambda: f"v{secrets.token_hex(6)}")

    @property
    def tool(self) -> BaseTool:
        async def version() -> str:
            """The version."""
            return json.dumps({"version": self.value})

        return StructuredTool.from_function(coroutine=version, name="version")

    @property
    def script(self) -> Script:
        return Script(
            Turn(Say("Let me look. "), Call("version")),
            Turn(Say("It is {{tool:version.version}}, I am sure.")),
        )

    @property
    def answer(self) -> str:
        return f"It is {self.value}, I am sure."


@dataclass(slots=True)
class BlockingScenario:
    """A tool that runs until it is let go; what happened to it can be waited for."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    value: str = field(default_factory=lambda: f"w{secrets.token_hex(6)}")

    @property
    def tool(self) -> BaseTool:
        async def wait() -> str:
            """Waits."""
            self.started.set()
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return json.dumps({"waited": self.value})

        return StructuredTool.from_function(coroutine=wait, name="wait")

    @property
    def script(self) -> Script:
        return Script(Turn(Say("Please wait. "), Call("wait")), Turn(Say("Waited for {{tool:wait.waited}}.")))

    @property
    def answer(self) -> str:
        return f"Waited for {self.value}."


FORM: dict[str, Any] = {
    "type": "form",
    "title": "Create GitHub Repo",
    "description": "A new repository.",
    "response": "I need a few details.",
    "fields": [
        {
            "field_name": "repo",
            "field_label": "Repository",
            "pattern": "[a-z0-9-]+",
            "min_length": 1,
            "max_length": 80,
        },
        {"field_name": "stars", "field_type": "integer", "required": False, "minimum": 0},
    ],
}
