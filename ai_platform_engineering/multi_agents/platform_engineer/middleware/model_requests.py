"""Changes to one model request: fewer tools, more system prompt, or a last call without tools."""

from collections.abc import Callable, Sequence
from typing import Any

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, SystemMessage
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.errors import TooManySteps
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import ModelCallHandler


def filter_tools(request: ModelRequest[Any], is_offered: Callable[[str], bool]) -> ModelRequest[Any]:
    """The request with the tools whose names pass. A provider's own tools, which are dicts, always stay."""
    tools = [tool for tool in request.tools if not isinstance(tool, BaseTool) or is_offered(tool.name)]
    if len(tools) == len(request.tools):
        return request
    return request.override(tools=tools)


def remove_tool(request: ModelRequest[Any], name: str) -> ModelRequest[Any]:
    """The request without one tool."""
    return filter_tools(request, lambda other: other != name)


def read_system_prompt(request: ModelRequest[Any]) -> str:
    if request.system_message is None:
        return ""
    return request.system_message.text


def add_to_system_prompt(request: ModelRequest[Any], sections: Sequence[str]) -> ModelRequest[Any]:
    """The request with sections after its system prompt, separated by empty lines; empty ones are skipped."""
    if not any(sections):
        return request
    parts = filter(None, [read_system_prompt(request), *sections])
    return request.override(system_message=SystemMessage("\n\n".join(parts)))


async def answer_without_tools(
    request: ModelRequest[Any], handler: ModelCallHandler, reason: str
) -> ModelResponse[Any]:
    """One more model call, without tools, in which the model may answer. Raises TooManySteps."""
    prompt = f"{read_system_prompt(request)}\n\n{reason}"
    response = await handler(request.override(tools=[], system_message=SystemMessage(prompt)))
    if response.structured_response is not None:
        return response
    for message in response.result:
        if isinstance(message, AIMessage) and message.tool_calls:
            raise TooManySteps()  # the model goes on calling tools that it was not offered
    return response
