"""An order for one tool is carried out without the agent's model: the tool is called, under the agent's policy, and its result said.

An order in words that only a language model understands is refused where there is none: the embedded router would guess.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from ai_platform_engineering.graph.tool_messages import plain_result
from ai_platform_engineering.multi_agents.platform_engineer.delegation import AgentFailed
from ai_platform_engineering.multi_agents.platform_engineer.middleware.call_limits import current_turn

DIRECT_CALL = "call"  # in what a message carries beside its text: the tool and its arguments, or that the text is for a language model
NEEDS_MODEL = {"words": True}
NO_MODEL = "This step needs a language model, and none is configured."

Handler = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


class DirectToolCallMiddleware(AgentMiddleware):
    """Outermost of those that wrap the model, which is not asked for what it is not needed for. `thinks`: it is a language model."""

    def __init__(self, *, thinks: bool) -> None:
        super().__init__()
        self._thinks = thinks

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Handler) -> ModelResponse[Any]:
        messages = request.state["messages"]
        asked = next((message for message in reversed(messages) if isinstance(message, HumanMessage)), None)
        order = asked.additional_kwargs.get(DIRECT_CALL) if asked is not None else None
        if asked is None or not isinstance(order, Mapping):
            return await handler(request)
        if not order.get("tool"):
            if not self._thinks:
                raise AgentFailed(NO_MODEL)
            return await handler(request)
        results = [message for message in current_turn(messages) if isinstance(message, ToolMessage)]
        if not results:
            call = {
                "name": str(order.get("tool")),
                "args": dict(order.get("arguments") or {}),
                "id": f"{asked.id}:call",
            }
            return ModelResponse(result=[AIMessage("", id=f"{asked.id}:order", tool_calls=[call])])
        if results[-1].status == "error":
            raise AgentFailed(plain_result(results[-1]))
        return ModelResponse(
            result=[AIMessage(plain_result(results[-1]) or "(no output)", id=f"{asked.id}:done")]
        )
