"""What a model is offered for one call: less than there is, or nothing any more."""

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, SystemMessage
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.errors import TooManySteps

ModelCallHandler = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


def filter_tools(request: ModelRequest[Any], is_offered: Callable[[str], bool]) -> ModelRequest[Any]:
    """The request with the tools of such names; what a provider brings itself stays."""
    return request.override(
        tools=[one for one in request.tools if not isinstance(one, BaseTool) or is_offered(one.name)]
    )


def remove_tool(request: ModelRequest[Any], name: str) -> ModelRequest[Any]:
    """The request without one tool."""
    return filter_tools(request, lambda other: other != name)


async def answer_without_tools(
    request: ModelRequest[Any], handler: ModelCallHandler, why: str
) -> ModelResponse[Any]:
    """One more turn, without tools, in which the model may answer. Raises TooManySteps."""
    prompt = (request.system_message.text if request.system_message else "") + f"\n\n{why}"
    response = await handler(request.override(tools=[], system_message=SystemMessage(prompt)))
    if response.structured_response is None and any(
        isinstance(one, AIMessage) and one.tool_calls for one in response.result
    ):
        raise TooManySteps()  # it goes on calling what it was not offered
    return response
