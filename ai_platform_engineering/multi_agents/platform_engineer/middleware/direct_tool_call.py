"""Direct tool calls: an agent calls one tool without its model and answers with the result.

A text that needs a language model is refused where none is configured: the embedded router would guess.
"""

from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from ai_platform_engineering.core.message_metadata import DirectCallNote
from ai_platform_engineering.core.workflow_actions import DirectToolCall
from ai_platform_engineering.graph.tool_messages import plain_result
from ai_platform_engineering.multi_agents.platform_engineer.delegation import AgentFailed
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import ModelCallHandler
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import current_turn, find_question

NO_MODEL = "This step needs a language model, and none is configured."


class DirectToolCallMiddleware(AgentMiddleware):
    """Wraps all others that wrap the model: for a direct tool call none of them, nor the model, is needed.

    `has_model`: the agent has a language model, not the embedded router.
    """

    def __init__(self, *, has_model: bool) -> None:
        super().__init__()
        self._has_model = has_model

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        messages = request.state["messages"]
        question = find_question(messages)
        if question is None:
            return await handler(request)
        note = DirectCallNote.of(question)
        if note is None:
            return await handler(request)
        if note.call is not None:
            return ModelResponse(result=[_next_message(question, note.call, current_turn(messages))])
        if not self._has_model:
            raise AgentFailed(NO_MODEL)
        return await handler(request)


def _next_message(
    question: HumanMessage, direct_call: DirectToolCall, turn: Sequence[AnyMessage]
) -> AIMessage:
    """First the tool call, then its result as the answer. Raises AgentFailed when the tool failed."""
    results = [message for message in turn if isinstance(message, ToolMessage)]
    if not results:
        arguments = dict(direct_call.arguments)
        call = {"name": direct_call.tool, "args": arguments, "id": f"{question.id}:call"}
        return AIMessage("", id=f"{question.id}:order", tool_calls=[call])
    text = plain_result(results[-1])
    if results[-1].status == "error":
        raise AgentFailed(text)
    return AIMessage(text or "(no output)", id=f"{question.id}:done")
