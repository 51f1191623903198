"""Changes to one model request: fewer tools, more system prompt, or a last call without tools."""

from collections.abc import Callable, Sequence
from typing import Any

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.signals import ModelRetried
from ai_platform_engineering.graph.visible_text import visible_text
from ai_platform_engineering.multi_agents.platform_engineer.findings import describe_findings
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import ModelCallHandler
from ai_platform_engineering.multi_agents.platform_engineer.run_usage import may_call_model
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import current_turn

_CALLS_DROPPED = (
    "Your last message called tools again. It was dropped, nothing was called. Write your answer as text now."
)
_RETRIED = "tool calls in the last turn"

# Providers that refuse a history with tool calls when no tool is declared, by the type of LangChain's model,
# with the choice that forbids a call; None where there is no such choice.
_DECLARING_PROVIDERS: dict[str, dict[str, str] | None] = {
    "anthropic-chat": {"type": "none"},
    "amazon_bedrock_converse_chat": None,
    "amazon_bedrock_chat": None,
}


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


def withdraw_tools(request: ModelRequest[Any]) -> ModelRequest[Any]:
    """The request without tools; where a provider demands a list of them, they stay and may not be called."""
    has_calls = any(isinstance(message, AIMessage) and message.tool_calls for message in request.messages)
    provider = getattr(request.model, "_llm_type", "")
    # A structured answer is a tool itself, and is declared in any case.
    if not has_calls or provider not in _DECLARING_PROVIDERS or request.response_format is not None:
        return request.override(tools=[])
    return request.override(tool_choice=_DECLARING_PROVIDERS[provider])


async def answer_without_tools(
    request: ModelRequest[Any],
    handler: ModelCallHandler,
    *,
    instruction: str,
    reason: str,
) -> ModelResponse[Any]:
    """A last model call, without tools; a model that still calls some is asked once more.

    When it will not answer, the answer is what was found so far. `instruction` is for the model, `reason`
    says to people why no tools are used any more.
    """
    if not may_call_model():
        return answer_with_findings(request, reason)
    last_request = add_to_system_prompt(withdraw_tools(request), [instruction])
    response = await handler(last_request)
    if _calls_tools(response) and may_call_model():
        request.runtime.stream_writer(ModelRetried(_RETRIED))
        response = await handler(add_to_system_prompt(last_request, [_CALLS_DROPPED]))
    turn = current_turn(request.state["messages"])
    if not _calls_tools(response) and (_has_text(response.result) or _has_text(turn)):
        return response
    if response.structured_response is not None:
        return response
    return answer_with_findings(request, reason)


def answer_with_findings(request: ModelRequest[Any], reason: str) -> ModelResponse[Any]:
    """What was found so far, as the answer of a model that gives none."""
    request.runtime.stream_writer(ModelRetried(_RETRIED))
    turn = current_turn(request.state["messages"])
    return ModelResponse(result=[AIMessage(describe_findings(turn, reason))])


def _has_text(messages: Sequence[BaseMessage]) -> bool:
    """Whether a message of the model has text; an earlier one serves as the answer."""
    return any(isinstance(message, AIMessage) and visible_text(message.text) for message in messages)


def _calls_tools(response: ModelResponse[Any]) -> bool:
    if response.structured_response is not None:
        return False
    for message in response.result:
        if isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls):
            return True
    return False
