"""Orphaned tool calls: a history in which every call is followed by its result, whatever was cut off before.

They are left behind by a cancel, a crash or a recursion error, and providers reject a history that has one.
"""

import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage

from ai_platform_engineering.core.events import clean_json

INTERRUPTED = "Interrupted before a result arrived."
INVALID = "The arguments were not valid JSON. Call again with valid arguments."


def _extract_tool_call_ids(message: AIMessage) -> list[str]:
    """The ids of all calls of a message, wherever the provider put them: `tool_calls`, `additional_kwargs`, content blocks."""
    found: list[Any] = [call.get("id") for call in (*message.tool_calls, *message.invalid_tool_calls)]
    found += [
        call.get("id")
        for call in message.additional_kwargs.get("tool_calls") or ()
        if isinstance(call, Mapping)
    ]
    if isinstance(message.content, list):
        found += [_block_id(block) for block in message.content if isinstance(block, Mapping)]
    return list(dict.fromkeys(call_id for call_id in found if isinstance(call_id, str) and call_id))


def _block_id(block: Mapping[str, Any]) -> Any:
    if block.get("type") in ("tool_use", "tool_call", "server_tool_call"):
        if block.get("type") != "server_tool_call":
            return block.get("id")
        return None
    if block.get("type") == "function_call":
        return block.get("call_id")
    used = block.get("toolUse") or block.get("tool_use")
    if isinstance(used, Mapping):
        return used.get("toolUseId") or used.get("id")
    return None


def repair_tool_calls(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Every call gets its result right behind it; results without a call and calls without an id are dropped."""
    results = _results_by_message(messages)
    fixed: list[AnyMessage] = []
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            continue
        if not isinstance(message, AIMessage):
            fixed.append(message)
            continue
        named = _with_named_calls(message)
        fixed.append(named)
        fixed += _results(named, results.get(index, {}))
    return fixed


def _results_by_message(messages: Sequence[AnyMessage]) -> dict[int, dict[str, ToolMessage]]:
    """Providers use ids again: a result belongs to the last call before it that has its id, and the first one counts."""
    asked: dict[str, int] = {}
    found: dict[int, dict[str, ToolMessage]] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AIMessage):
            asked |= dict.fromkeys(_extract_tool_call_ids(message), index)
        elif isinstance(message, ToolMessage) and message.tool_call_id in asked:
            found.setdefault(asked[message.tool_call_id], {}).setdefault(message.tool_call_id, message)
    return found


def _results(message: AIMessage, results: Mapping[str, ToolMessage]) -> Iterable[ToolMessage]:
    names = {call["id"]: call["name"] for call in message.tool_calls}
    invalid = {call["id"] for call in message.invalid_tool_calls}
    for call_id in _extract_tool_call_ids(message):
        text = INVALID if call_id in invalid else INTERRUPTED
        missing = ToolMessage(
            text, tool_call_id=call_id, name=names.get(call_id), status="error", id=f"repaired-{call_id}"
        )
        yield results.get(call_id) or missing


def _with_named_calls(message: AIMessage) -> AIMessage:
    """A call without an id can never be answered."""
    if all(call.get("id") for call in (*message.tool_calls, *message.invalid_tool_calls)):
        return message
    kept = {
        "tool_calls": [call for call in message.tool_calls if call.get("id")],
        "invalid_tool_calls": [call for call in message.invalid_tool_calls if call.get("id")],
    }
    return message.model_copy(update=kept)


def make_encodable(message: AnyMessage) -> AnyMessage:
    """The message without half characters, which no request can carry: a tool or a model may have left one in the history."""
    update: dict[str, Any] = {"content": clean_json(message.content)}
    if isinstance(message, AIMessage):
        update["tool_calls"] = clean_json(message.tool_calls)
    changed = {name: value for name, value in update.items() if value != getattr(message, name)}
    if changed:
        return message.model_copy(update=changed)
    return message


class ToolCallRepairMiddleware(AgentMiddleware):
    """Gives the model a repaired history; what is stored stays as it happened, each message in its own place."""

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        response = await handler(
            request.override(
                messages=[make_encodable(message) for message in repair_tool_calls(request.messages)]
            )
        )
        return replace(response, result=_with_own_ids(response.result, request.state["messages"]))


def _with_own_ids(new: Sequence[BaseMessage], stored: Sequence[AnyMessage]) -> list[BaseMessage]:
    """A provider may use an id again; the graph would put the new message in the place of the old one."""
    taken = {message.id for message in stored}
    return [
        message.model_copy(update={"id": str(uuid.uuid4())})
        if message.id and message.id in taken
        else message
        for message in new
    ]
