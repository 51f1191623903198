"""Repair of orphaned tool calls: the model gets a history in which every call is followed by its result.

A cancel, a crash or a recursion error leaves calls without results, and providers reject such a history.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage

from ai_platform_engineering.core.events import clean_json
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import ModelCallHandler

INTERRUPTED = "Interrupted before a result arrived."
INVALID = "The arguments were not valid JSON. Call again with valid arguments."


def _extract_tool_call_ids(message: AIMessage) -> list[str]:
    """The ids of all calls of a message, in `tool_calls`, `additional_kwargs` and content blocks."""
    candidates: list[Any] = [call.get("id") for call in (*message.tool_calls, *message.invalid_tool_calls)]
    for call in message.additional_kwargs.get("tool_calls") or ():
        if isinstance(call, Mapping):
            candidates.append(call.get("id"))
    if isinstance(message.content, list):
        for block in message.content:
            if isinstance(block, Mapping):
                candidates.append(read_block_id(block))
    unique_ids = dict.fromkeys(call_id for call_id in candidates if isinstance(call_id, str) and call_id)
    return list(unique_ids)


def read_block_id(block: Mapping[str, Any]) -> Any:
    """The call id of a content block; None for other blocks and for calls that the provider runs itself."""
    match block.get("type"):
        case "tool_use" | "tool_call":
            return block.get("id")
        case "server_tool_call":
            return None
        case "function_call":
            return block.get("call_id")
        case _:
            bedrock_call = block.get("toolUse") or block.get("tool_use")
    if not isinstance(bedrock_call, Mapping):
        return None
    return bedrock_call.get("toolUseId") or bedrock_call.get("id")


def repair_tool_calls(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Puts each result behind its call, and drops results without a call and calls without an id."""
    results = _group_results(messages)
    repaired: list[AnyMessage] = []
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            continue
        if not isinstance(message, AIMessage):
            repaired.append(message)
            continue
        answerable = _drop_calls_without_id(message)
        repaired.append(answerable)
        repaired.extend(_results_in_order(answerable, results.get(index, {})))
    return repaired


def _group_results(messages: Sequence[AnyMessage]) -> dict[int, dict[str, ToolMessage]]:
    """The results by the index of the message with their call, then by call id.

    Providers reuse ids: a result belongs to the last call before it with its id, and the first result counts.
    """
    last_call: dict[str, int] = {}
    results: dict[int, dict[str, ToolMessage]] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AIMessage):
            last_call |= dict.fromkeys(_extract_tool_call_ids(message), index)
        elif isinstance(message, ToolMessage) and message.tool_call_id in last_call:
            results_of_message = results.setdefault(last_call[message.tool_call_id], {})
            results_of_message.setdefault(message.tool_call_id, message)
    return results


def _results_in_order(message: AIMessage, results: Mapping[str, ToolMessage]) -> Iterator[ToolMessage]:
    """One result per call; for a missing one an error that says why."""
    names = {call["id"]: call["name"] for call in message.tool_calls}
    invalid_ids = {call["id"] for call in message.invalid_tool_calls}
    for call_id in _extract_tool_call_ids(message):
        if call_id in results:
            yield results[call_id]
            continue
        yield ToolMessage(
            INVALID if call_id in invalid_ids else INTERRUPTED,
            tool_call_id=call_id,
            name=names.get(call_id),
            status="error",
            id=f"repaired-{call_id}",
        )


def _drop_calls_without_id(message: AIMessage) -> AIMessage:
    """The message without calls that no result can ever refer to."""
    if all(call.get("id") for call in (*message.tool_calls, *message.invalid_tool_calls)):
        return message
    update = {
        "tool_calls": [call for call in message.tool_calls if call.get("id")],
        "invalid_tool_calls": [call for call in message.invalid_tool_calls if call.get("id")],
    }
    return message.model_copy(update=update)


def make_encodable(message: AnyMessage) -> AnyMessage:
    """The message without lone surrogates, which tools or models may write and no request can carry."""
    update: dict[str, Any] = {"content": clean_json(message.content)}
    if isinstance(message, AIMessage):
        update["tool_calls"] = clean_json(message.tool_calls)
    changes = {name: value for name, value in update.items() if value != getattr(message, name)}
    if not changes:
        return message
    return message.model_copy(update=changes)


class ToolCallRepairMiddleware(AgentMiddleware):
    """Repairs the history for the model only; the stored messages stay as they are."""

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        messages = [make_encodable(message) for message in repair_tool_calls(request.messages)]
        response = await handler(request.override(messages=messages))
        return replace(response, result=_with_unique_ids(response.result, request.state["messages"]))


def _with_unique_ids(new_messages: Sequence[BaseMessage], stored: Sequence[AnyMessage]) -> list[BaseMessage]:
    """The messages with new ids where a provider reused one: the graph would replace the stored message."""
    stored_ids = {message.id for message in stored}
    unique: list[BaseMessage] = []
    for message in new_messages:
        if message.id and message.id in stored_ids:
            message = message.model_copy(update={"id": str(uuid.uuid4())})
        unique.append(message)
    return unique
