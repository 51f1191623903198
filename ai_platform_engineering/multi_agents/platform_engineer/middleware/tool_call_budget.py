"""The budget of tool calls in one model message: what is over it is dropped before anything works on it.

A message is stored with every step and each of its calls is a task of the graph, so a message with thousands
of calls would keep the server busy, and again after each restart.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.callbacks import AsyncCallbackHandler, AsyncCallbackManager
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.config import get_config

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import Usage
from ai_platform_engineering.core.message_metadata import LeftOutCallsNote
from ai_platform_engineering.core.settings import LimitSettings
from ai_platform_engineering.core.signals import NoticeEmitted
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import ModelCallHandler
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_requests import (
    add_to_system_prompt,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.tool_call_repair import read_block_id
from ai_platform_engineering.multi_agents.platform_engineer.run_usage import (
    count_model_call,
    count_model_usage,
    is_token_limited,
)
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import (
    current_turn,
    find_last_model_message,
)

_MAX_DROPPED = 100_000  # pieces of calls; a model that goes on after them is stopped

_CHARS_PER_TOKEN = 4  # of an estimate

_TOLD_MODEL = (
    "Your last message had {total} tool calls. Only the first {made} were made; {left_out} were left out and "
    "did not run. Do not claim results for them."
)


class ToolCallsTooLong(CaipeError):
    code = "tool_calls_too_long"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"I stopped the model: it wrote too many tool calls at once, or more than {limit} characters of "
            "arguments for them. Ask for less at once, or set TOOL_ARGUMENTS_MAX_CHARS."
        )


class ToolCallBudgetMiddleware(AgentMiddleware):
    """Cuts a model message to the calls that one may have.

    The model's stream is cut while it arrives, as joining its pieces costs the square of their number.
    """

    def __init__(self, settings: LimitSettings) -> None:
        super().__init__()
        self._settings = settings

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        budget = self._settings.tool_calls_at_once
        guard = _StreamGuard(budget, self._settings.tool_argument_chars)
        count_model_call()
        request = _tell_model(request)
        with _guarded(guard):
            try:
                response = await handler(request)
            except Exception:
                if guard.has_begun:  # a request that was refused cost nothing
                    count_model_usage(guard.usage or _estimate_usage(request, guard.written_chars))
                raise
        _count_response(request, response)
        response, left_out = _cut(response, budget, guard.left_out)
        if not guard.has_seen_calls:
            _check_length(response, self._settings.tool_argument_chars)
        if left_out:
            text = (
                f"The model asked for {budget + left_out} tool calls at once: "
                f"{budget} are made, {left_out} are left out."
            )
            request.runtime.stream_writer(NoticeEmitted("limit", text))
        return response


def _count_response(request: ModelRequest[Any], response: ModelResponse[Any]) -> None:
    """Counts the tokens that the model reports, or an estimate where tokens are limited."""
    for message in response.result:
        if not isinstance(message, AIMessage):
            continue
        if message.usage_metadata is not None:
            count_model_usage(message.usage_metadata)
        elif is_token_limited():
            arguments = json.dumps([call["args"] for call in message.tool_calls])
            count_model_usage(_estimate_usage(request, len(message.text) + len(arguments)))


def _estimate_usage(request: ModelRequest[Any], written_chars: int) -> dict[str, int]:
    """The tokens of a call by the characters that were sent and received."""
    messages: list[BaseMessage] = list(request.messages)
    if request.system_message is not None:
        messages.insert(0, request.system_message)
    sent = count_tokens_approximately(messages, tools=list(request.tools))
    return {"input_tokens": sent, "output_tokens": -(-written_chars // _CHARS_PER_TOKEN)}


def _tell_model(request: ModelRequest[Any]) -> ModelRequest[Any]:
    """The request with a sentence about the calls that were left out of the model's last message."""
    last = find_last_model_message(current_turn(request.state["messages"]))
    note = LeftOutCallsNote.of(last) if last is not None else None
    if last is None or note is None:
        return request
    call_count = len(last.tool_calls)
    text = _TOLD_MODEL.format(total=call_count + note.count, made=call_count, left_out=note.count)
    return add_to_system_prompt(request, [text])


def _cut(response: ModelResponse[Any], budget: int, dropped_in_stream: int) -> tuple[ModelResponse[Any], int]:
    """The response with at most `budget` calls, and how many were left out of it and of its stream."""
    left_out = dropped_in_stream
    result: list[BaseMessage] = []
    dropped_ids: set[str] = set()
    for message in response.result:
        if isinstance(message, AIMessage):
            extra_calls = [*message.tool_calls, *message.invalid_tool_calls][budget:]
            dropped_ids |= {call["id"] or "" for call in extra_calls}
            left_out += len(extra_calls)
            message = _without_calls(message, budget, dropped_ids, left_out)
        elif isinstance(message, ToolMessage) and message.tool_call_id in dropped_ids:
            continue
        result.append(message)
    return replace(response, result=result), left_out


def _check_length(response: ModelResponse[Any], max_chars: int) -> None:
    """The same limit for a message that was not streamed. Raises ToolCallsTooLong."""
    chars = 0
    for message in response.result:
        if isinstance(message, AIMessage):
            chars += sum(len(json.dumps(call["args"])) for call in message.tool_calls)
            chars += sum(len(call["args"] or "") for call in message.invalid_tool_calls)
    if chars > max_chars:
        raise ToolCallsTooLong(max_chars)


def _without_calls(message: AIMessage, budget: int, dropped_ids: set[str], left_out: int) -> AIMessage:
    """The message with its first calls, wherever providers put them, and a note about the others."""
    if not left_out:
        return message
    metadata = {**message.additional_kwargs, **LeftOutCallsNote(left_out).to_metadata()}
    if isinstance(metadata.get("tool_calls"), list):
        metadata["tool_calls"] = [
            call for call in metadata["tool_calls"] if not _is_dropped(call, dropped_ids)
        ]
    update: dict[str, Any] = {
        "tool_calls": message.tool_calls[:budget],
        "invalid_tool_calls": message.invalid_tool_calls[: max(0, budget - len(message.tool_calls))],
        "additional_kwargs": metadata,
    }
    if isinstance(message.content, list):
        update["content"] = [block for block in message.content if not _is_dropped_block(block, dropped_ids)]
    return message.model_copy(update=update)


def _is_dropped(call: Any, dropped_ids: set[str]) -> bool:
    return isinstance(call, Mapping) and call.get("id") in dropped_ids


def _is_dropped_block(block: Any, dropped_ids: set[str]) -> bool:
    return isinstance(block, Mapping) and read_block_id(block) in dropped_ids


# --- the model's stream -------------------------------------------------------------------------------------


class _StreamGuard(AsyncCallbackHandler):
    """Drops the pieces of calls over the budget from a model's stream; raises ToolCallsTooLong."""

    raise_error = True
    run_inline = True

    def __init__(self, budget: int, max_chars: int) -> None:
        self._budget = budget
        self._max_chars = max_chars
        self._chars = 0
        self._dropped = 0
        self._count = 0
        self.has_begun = False
        self._text_chars = 0
        self._usage = Usage()
        self._numbers: dict[Any, int] = {}  # the number of the call that an index stands for now
        self._call_ids: dict[Any, str] = {}  # its id, once it is known

    @property
    def has_seen_calls(self) -> bool:
        return self._count > 0

    @property
    def left_out(self) -> int:
        """How many calls were dropped."""
        return max(0, self._count - self._budget)

    @property
    def written_chars(self) -> int:
        """The characters of the text and of the arguments so far."""
        return self._text_chars + self._chars

    @property
    def usage(self) -> dict[str, int] | None:
        """The tokens that the model reported so far; None where it reported none."""
        if not self._usage.input_tokens:
            return None
        output_tokens = max(self._usage.output_tokens, -(-self.written_chars // _CHARS_PER_TOKEN))
        return {"input_tokens": self._usage.input_tokens, "output_tokens": output_tokens}

    async def on_llm_start(self, *args: Any, **kwargs: Any) -> None:
        pass

    async def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        pass

    async def on_llm_new_token(self, token: Any, *, chunk: Any = None, **kwargs: Any) -> None:
        message = getattr(chunk, "message", None)
        if not isinstance(message, AIMessageChunk):
            return
        self.has_begun = True
        content = message.content
        if not isinstance(content, str):
            content = message.text
        self._text_chars += len(content)
        if message.usage_metadata is not None:
            self._usage = self._usage.plus(message.usage_metadata)
        if not message.tool_call_chunks:
            return
        kept_pieces: list[Any] = []
        dropped_indexes: set[Any] = set()
        for piece in message.tool_call_chunks:
            if self._number_of(piece) <= self._budget:
                kept_pieces.append(piece)
                self._chars += len(piece.get("args") or "")
            else:
                dropped_indexes.add(piece.get("index"))
                self._dropped += 1
        if self._chars > self._max_chars or self._dropped > _MAX_DROPPED:
            raise ToolCallsTooLong(self._max_chars)
        if dropped_indexes:
            # In place: the library joins these very objects to the message.
            message.tool_call_chunks = kept_pieces
            message.tool_calls = []
            message.invalid_tool_calls = []
            message.additional_kwargs.pop("tool_calls", None)
            _drop_blocks(message, dropped_indexes)

    def _number_of(self, piece: Mapping[str, Any]) -> int:
        """The number of the call that a piece belongs to, counted from one."""
        index = piece.get("index")
        call_id = piece.get("id") or ""
        earlier_id = self._call_ids.get(index, "")
        # Some servers give no index, others give every call the same one, and an id of its own.
        has_other_id = bool(call_id and earlier_id and call_id != earlier_id)
        if index is None or index not in self._numbers or has_other_id:
            self._count += 1
            self._numbers[index] = self._count
            self._call_ids[index] = ""
        if call_id:
            self._call_ids[index] = call_id
        return self._numbers[index]


def _drop_blocks(message: AIMessageChunk, indexes: set[Any]) -> None:
    """Removes the content blocks of dropped calls; a provider gives a call and its block one index."""
    if not isinstance(message.content, list):
        return
    message.content = [
        block
        for block in message.content
        if not isinstance(block, dict) or block.get("index") not in indexes or block.get("type") == "text"
    ]


@contextmanager
def _guarded(guard: _StreamGuard) -> Iterator[None]:
    """Adds the guard to the callbacks of the model call inside, before those that show its stream."""
    config = get_config()
    callbacks = config.get("callbacks")
    if isinstance(callbacks, AsyncCallbackManager):  # as LangGraph leaves it
        manager = callbacks.copy()
    else:
        manager = AsyncCallbackManager.configure(inheritable_callbacks=callbacks)
    manager.handlers.insert(0, guard)
    manager.inheritable_handlers.insert(0, guard)
    token = var_child_runnable_config.set({**config, "callbacks": manager})
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)
