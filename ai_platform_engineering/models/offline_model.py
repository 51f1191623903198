"""The embedded model when none is configured: it routes by words, fills arguments by schema and reports results; it does not think."""

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

from ai_platform_engineering.models.offline.compose import RoutedCall, RouterReply
from ai_platform_engineering.models.offline.conversation import read_conversation
from ai_platform_engineering.models.offline.supervisor import supervise
from ai_platform_engineering.models.offline.tools import ANSWER, offered
from ai_platform_engineering.models.offline.worker import work

OFFLINE_NOTICE = (
    "No language model is configured, so the embedded offline router answers: it matches the words of a question to agents and tools and "
    "reports what they return. For a language model set LLM_MODEL, for example "
    'LLM_MODEL="openai:gpt-5-mini" with OPENAI_API_KEY (or OPENAI_BASE_URL for a compatible server), in the environment or in .env, '
    "and start again."
)

_NAME = "offline"
_WORDS = re.compile(r"\s*\S+\s*|\s+")
_LONGEST_PIECE = 80


class OfflineModel(BaseChatModel):
    """A chat model without weights: the same messages and tools give the same reply."""

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
        for chunk in _chunks(reply(messages, kwargs.get("tools") or []), len(messages)):
            yield ChatGenerationChunk(message=chunk)
            await asyncio.sleep(0)  # a long answer lets others work between its words

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages, stop, None, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        # The base class demands it; there is nothing to wait for.
        said = reply(messages, kwargs.get("tools") or [])
        calls = [
            {"name": call.name, "args": dict(call.arguments), "id": call_id}
            for call, call_id in _with_ids(said, len(messages))
        ]
        message = AIMessage(
            content=said.text, tool_calls=calls, usage_metadata=_usage(), response_metadata=_metadata(said)
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


def reply(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> RouterReply:
    """What the model says to these messages with these tools bound."""
    conversation, offer = read_conversation(messages), offered(tools)
    if conversation.wants_summary and not tools:
        return RouterReply()  # it cannot summarise; who asks keeps an outline instead
    said = supervise(conversation, offer) if offer.delegates else work(conversation, offer)
    if offer.structured and not said.calls:
        return RouterReply(
            "",
            (RoutedCall(ANSWER, {"content": said.text, "citations": [dict(one) for one in said.citations]}),),
        )
    return said


def _with_ids(said: RouterReply, position: int) -> Iterator[tuple[RoutedCall, str]]:
    """Ids that are the same for the same turn and differ within a conversation."""
    for index, call in enumerate(said.calls):
        seed = json.dumps([position, index, call.name, call.arguments], sort_keys=True, default=str)
        yield call, f"call_{hashlib.sha256(seed.encode()).hexdigest()[:20]}"


def _chunks(said: RouterReply, position: int) -> Iterator[AIMessageChunk]:
    for piece in _pieces(said.text):
        yield AIMessageChunk(content=piece)
    for index, (call, call_id) in enumerate(_with_ids(said, position)):
        yield AIMessageChunk(
            content="", tool_call_chunks=[tool_call_chunk(name=call.name, args="", id=call_id, index=index)]
        )
        for piece in _pieces(json.dumps(call.arguments, ensure_ascii=False)):
            yield AIMessageChunk(
                content="", tool_call_chunks=[tool_call_chunk(name=None, args=piece, id=None, index=index)]
            )
    yield AIMessageChunk(
        content="", usage_metadata=_usage(), response_metadata=_metadata(said), chunk_position="last"
    )


def _pieces(text: str) -> Iterator[str]:
    """The text word by word; what has no blanks comes in lengths."""
    for found in _WORDS.finditer(text):
        for start in range(0, len(found[0]), _LONGEST_PIECE):
            yield found[0][start : start + _LONGEST_PIECE]


def _usage() -> UsageMetadata:
    return UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)


def _metadata(said: RouterReply) -> dict[str, Any]:
    return {"model_name": _NAME, "finish_reason": "tool_calls" if said.calls else "stop"}
