"""A supervisor with an agent that asks people: for an approval, and with forms."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import interrupt

from tests.support.dialects import V10
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import Client, ReceivedStream, agent

DELEGATING = Script(
    Turn(Call("task", {"description": "Go on.", "subagent_type": "github"})), Turn(Say("So: {{tool:github}}"))
)


@dataclass(slots=True)
class Repos:
    """A tool that runs only when a person lets it, and the calls that were made."""

    made: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tool(self) -> BaseTool:
        async def create_repo(name: str, private: bool = False, stars: int = 0) -> str:
            """Creates a repository."""
            self.made.append({"name": name, "private": private, "stars": stars})
            return f"{name} is there."

        return StructuredTool.from_function(
            coroutine=create_repo, name="create_repo", metadata={"listed": "ask"}
        )


def github(repos: Repos, *calls: dict[str, Any]) -> Any:
    """An agent that wants these calls at once."""
    tool_calls = [Call("create_repo", arguments, id=f"c{number}") for number, arguments in enumerate(calls)]
    return agent("github", Script(Turn(*tool_calls), Turn(Say("{{tool:create_repo}}"))), repos.tool)


def form_tool(name: str, fields: Sequence[dict[str, Any]], **more: Any) -> BaseTool:
    """A tool that asks with a form and returns what it is told."""
    form = {
        "type": "form",
        "title": f"About {name}",
        "response": "Please fill in.",
        "fields": list(fields),
        **more,
    }

    async def ask() -> str:
        """Asks."""
        return json.dumps(interrupt(form))

    return StructuredTool.from_function(coroutine=ask, name=name)


async def ask_until_paused(client: Client, text: str = "Go.", **more: Any) -> ReceivedStream:
    """Asks until something waits for a person."""
    stream = ReceivedStream([frame async for frame in client.open(V10.stream, V10.message(text, **more))])
    assert stream.last.state == "input-required", stream.last.status_text
    return stream


async def send_answers(client: Client, stream: ReceivedStream, answers: dict[str, Any]) -> ReceivedStream:
    message = V10.message(V10.data({"resume": answers}), taskId=stream.task_id)
    return ReceivedStream([frame async for frame in client.open(V10.stream, message)])


def request_ids(stream: ReceivedStream) -> list[str]:
    return [frame.artifact["parts"][0]["data"]["request_id"] for frame in stream.named("UserInputMetaData")]
