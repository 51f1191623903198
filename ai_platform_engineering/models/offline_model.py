"""The embedded chat model for when no language model is configured.

It routes requests by their words, fills arguments by schema and reports results; it does not reason.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from ai_platform_engineering.core.tool_traits import ANSWER_TOOL
from ai_platform_engineering.models.offline.agent_reply import reply_as_agent
from ai_platform_engineering.models.offline.bound_tools import BoundTools, read_bound_tools
from ai_platform_engineering.models.offline.chat_history import read_chat_history
from ai_platform_engineering.models.offline.installation import NOTHING_ELSE, Installation
from ai_platform_engineering.models.offline.router_reply import RoutedCall, RouterReply
from ai_platform_engineering.models.offline.supervisor_reply import reply_as_supervisor

OFFLINE_NOTICE = (
    "No language model is configured: the embedded offline router only matches words to agents and tools. "
    'Set LLM_MODEL, for example LLM_MODEL="openai:gpt-5-mini" with OPENAI_API_KEY, and restart.'
)

_NAME = "offline"
_WORDS = re.compile(r"\s*\S+\s*|\s+")
_MAX_PIECE_CHARS = 80


class OfflineModel(BaseChatModel):
    """A chat model without weights: the same messages and tools give the same reply."""

    installation: Installation = NOTHING_ELSE  # what the supervisor's router can name and not use
    notice: str = OFFLINE_NOTICE  # what people are told at the start of a conversation

    @property
    def _llm_type(self) -> str:
        return _NAME

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        router_reply = self._reply(messages, kwargs.get("tools") or [])
        await asyncio.sleep(router_reply.delay_seconds)
        for chunk in _make_chunks(router_reply, len(messages)):
            yield ChatGenerationChunk(message=chunk)
            await asyncio.sleep(0)  # a long answer lets others work between its words

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        router_reply = self._reply(messages, kwargs.get("tools") or [])
        await asyncio.sleep(router_reply.delay_seconds)
        return _make_result(router_reply, len(messages))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        # The base class demands it; there is nothing to wait for.
        return _make_result(self._reply(messages, kwargs.get("tools") or []), len(messages))

    def _reply(self, messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> RouterReply:
        return reply(messages, tools, self.installation)


def reply(
    messages: Sequence[BaseMessage],
    tools: Sequence[dict[str, Any]],
    installation: Installation = NOTHING_ELSE,
) -> RouterReply:
    """What the model replies to these messages with these tools bound."""
    history = read_chat_history(messages)
    if history.wants_summary and not tools:
        return RouterReply()  # it cannot summarise; the caller keeps an outline instead
    bound_tools = read_bound_tools(tools, installation)
    if bound_tools.can_delegate:
        router_reply = reply_as_supervisor(history, bound_tools)
    else:
        router_reply = reply_as_agent(history, bound_tools)
    return use_answer_tool(router_reply, bound_tools)


def use_answer_tool(router_reply: RouterReply, bound_tools: BoundTools) -> RouterReply:
    """The reply, with its answer as a call where answers are structured."""
    if bound_tools.has_answer_tool and not router_reply.calls:
        return RouterReply("", (_make_answer_call(router_reply),))
    return router_reply


def _make_result(router_reply: RouterReply, position: int) -> ChatResult:
    tool_calls = list[dict[str, Any]]()
    for call, call_id in _iterate_calls(router_reply, position):
        tool_calls.append({"name": call.name, "args": dict(call.arguments), "id": call_id})
    message = AIMessage(
        content=router_reply.text,
        tool_calls=tool_calls,
        usage_metadata=_zero_usage(),
        response_metadata=_response_metadata(router_reply),
    )
    return ChatResult(generations=[ChatGeneration(message=message)])


def _make_answer_call(router_reply: RouterReply) -> RoutedCall:
    citations = list(map(dict, router_reply.citations))
    return RoutedCall(ANSWER_TOOL, {"content": router_reply.text, "citations": citations})


def _iterate_calls(router_reply: RouterReply, position: int) -> Iterator[tuple[RoutedCall, str]]:
    """The calls with ids that are the same for the same turn and differ within a conversation."""
    for index, call in enumerate(router_reply.calls):
        seed = json.dumps([position, index, call.name, call.arguments], sort_keys=True, default=str)
        yield call, f"call_{hashlib.sha256(seed.encode()).hexdigest()[:20]}"


def _make_chunks(router_reply: RouterReply, position: int) -> Iterator[AIMessageChunk]:
    for piece in _split_text(router_reply.text):
        yield AIMessageChunk(content=piece)
    for index, (call, call_id) in enumerate(_iterate_calls(router_reply, position)):
        yield AIMessageChunk(
            content="", tool_call_chunks=[tool_call_chunk(name=call.name, args="", id=call_id, index=index)]
        )
        for piece in _split_text(json.dumps(call.arguments, ensure_ascii=False)):
            yield AIMessageChunk(
                content="", tool_call_chunks=[tool_call_chunk(name=None, args=piece, id=None, index=index)]
            )
    yield AIMessageChunk(
        content="",
        usage_metadata=_zero_usage(),
        response_metadata=_response_metadata(router_reply),
        chunk_position="last",
    )


def _split_text(text: str) -> Iterator[str]:
    """The text word by word; a long word comes in pieces."""
    for word in _WORDS.finditer(text):
        for start in range(0, len(word[0]), _MAX_PIECE_CHARS):
            yield word[0][start : start + _MAX_PIECE_CHARS]


def _zero_usage() -> UsageMetadata:
    return UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)


def _response_metadata(router_reply: RouterReply) -> dict[str, Any]:
    finish_reason = "tool_calls" if router_reply.calls else "stop"
    return {"model_name": _NAME, "finish_reason": finish_reason}
