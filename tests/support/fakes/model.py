"""A chat model that plays a script in the process, with real streaming."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelInvalidRequestError,
    ModelRateLimitError,
)
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr

from ai_platform_engineering.models.tool_schemas import ToolSchemas

from .request import Msg, Request, ToolUse, named
from .script import (
    CallArgs,
    CallOpened,
    Casting,
    Fail,
    Piece,
    Playback,
    Player,
    Reasoning,
    Refused,
    Text,
    Think,
)

_SCHEMAS = ToolSchemas()  # a schema takes milliseconds, and tools are bound at every call


class ScriptedOutage(ConnectionError, ModelAPIError):
    """A scripted server failure, seen both as a connection error and as a model error."""


class ScriptedRateLimit(ConnectionError, ModelRateLimitError):
    """A scripted rate limit, seen both as a connection error and as a model error."""


class ScriptedChatModel(BaseChatModel):
    """Plays a script or a book; with `streaming=False` it answers whole messages only."""

    script: Casting
    model: str = "scripted"
    streaming: bool = True
    reports_usage: bool = True
    _player: Player = PrivateAttr()
    _bound: list[tuple[str, ...]] = PrivateAttr(default_factory=list)

    def model_post_init(self, context: Any, /) -> None:
        """Take the script on stage."""
        super().model_post_init(context)
        self._player = Player(self.script)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def requests(self) -> list[Request]:
        """Every request, in the order they came."""
        return self._player.requests

    @property
    def abandoned(self) -> list[Request]:
        """The requests whose caller went away before the reply was complete."""
        return self._player.abandoned

    @property
    def refusals(self) -> list[str]:
        """Why requests had no answer in the script."""
        return self._player.refusals

    @property
    def bound_tools(self) -> list[tuple[str, ...]]:
        """The tool names of each `bind_tools`, in order."""
        return self._bound

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools in OpenAI's form and note their names."""
        known = _SCHEMAS.convert_all(tools, None, convert_to_openai_tool)
        formatted = [convert_to_openai_tool(tool) for tool in known]
        self._bound.append(_names(formatted))
        return self.bind(tools=formatted, tool_choice=tool_choice, **kwargs)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for chunk in self._chunks(messages, stream=True, kwargs=kwargs):
            yield ChatGenerationChunk(message=chunk)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return merged([chunk async for chunk in self._chunks(messages, stream=False, kwargs=kwargs)])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(self._agenerate(messages, **kwargs))).result()

    async def _chunks(
        self, messages: list[BaseMessage], *, stream: bool, kwargs: dict[str, Any]
    ) -> AsyncIterator[AIMessageChunk]:
        request = as_request(messages, model=self.model, stream=stream, tools=kwargs.get("tools") or [])
        self._player.requests.append(request)
        playback = self._player.cue(request)
        shape, sent = _Shape(playback), 0
        try:
            async for piece in playback.pieces(gated=stream):
                sent += 1
                yield shape.chunk(piece)
        except Refused as refused:
            raise _exception(refused.fail) from None
        except (asyncio.CancelledError, GeneratorExit):
            self._player.abandoned.append(request)
            raise
        last = shape.last(request, sent)
        if not self.reports_usage:
            last.usage_metadata = None
        yield last


class _Shape:
    """The chunks of one reply: plain text, or content blocks when there is reasoning in it."""

    def __init__(self, playback: Playback) -> None:
        self._id, self._cut = playback.id, playback.cut
        self._blocks = any(isinstance(item, Think) for item in playback.items)
        self._index, self._kind, self._called = -1, "", False

    def chunk(self, piece: Piece) -> AIMessageChunk:
        match piece:
            case Text(text=text):
                return AIMessageChunk(content=self._content("text", text), id=self._id)
            case Reasoning(text=text):
                return AIMessageChunk(content=self._content("reasoning", text), id=self._id)
            case CallOpened(index=index, id=call_id, name=name):
                self._called, self._kind = True, ""
                return self._call(tool_call_chunk(name=name, args="", id=call_id, index=index))
            case CallArgs(index=index, text=text):
                return self._call(tool_call_chunk(name=None, args=text, id=None, index=index))

    def last(self, request: Request, sent: int) -> AIMessageChunk:
        tokens = request.approximate_tokens
        return AIMessageChunk(
            content=[] if self._blocks else "",
            id=self._id,
            usage_metadata=UsageMetadata(input_tokens=tokens, output_tokens=sent, total_tokens=tokens + sent),
            response_metadata={
                "finish_reason": "length" if self._cut else "tool_calls" if self._called else "stop",
                "model_name": request.model,
            },
            chunk_position="last",
        )

    def _call(self, chunk: Any) -> AIMessageChunk:
        return AIMessageChunk(content=[] if self._blocks else "", tool_call_chunks=[chunk], id=self._id)

    def _content(self, kind: str, text: str) -> Any:
        if not self._blocks:
            return text
        if kind != self._kind:
            self._index, self._kind = self._index + 1, kind
        return [{"type": kind, kind: text, "index": self._index}]


def merged(chunks: Sequence[AIMessageChunk]) -> ChatResult:
    """The whole message that these chunks add up to."""
    total = chunks[0]
    for chunk in chunks[1:]:
        total = total + chunk
    message = AIMessage(
        content=total.content,
        id=total.id,
        tool_calls=total.tool_calls,
        invalid_tool_calls=total.invalid_tool_calls,
        usage_metadata=total.usage_metadata,
        response_metadata=total.response_metadata,
        additional_kwargs=total.additional_kwargs,
    )
    return ChatResult(generations=[ChatGeneration(message=message)])


def as_request(
    messages: Sequence[BaseMessage], *, model: str = "", stream: bool = False, tools: Sequence[Any] = ()
) -> Request:
    """LangChain messages as a normalised request."""
    system = "\n".join(str(m.text) for m in messages if isinstance(m, SystemMessage))
    return Request(
        system=system, messages=named(_messages(messages)), tools=_names(tools), model=model, stream=stream,
        raw={"messages": list(messages), "tools": list(tools)},
    )  # fmt: skip


def _messages(messages: Sequence[BaseMessage]) -> list[Msg]:
    done: list[Msg] = []
    for message in messages:
        match message:
            case HumanMessage():
                done.append(Msg("user", str(message.text)))
            case AIMessage():
                calls = tuple(ToolUse(c["name"], c["args"], c["id"] or "") for c in message.tool_calls)
                done.append(Msg("assistant", str(message.text), calls))
            case ToolMessage():
                done.append(
                    Msg("tool", str(message.text), tool_call_id=message.tool_call_id, tool=message.name)
                )
            case _:
                pass  # a system message, which is not part of the conversation
    return done


def _names(tools: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(tool.get("function", tool).get("name", tool.get("type"))) for tool in tools)


def _exception(fail: Fail) -> Exception:
    if fail.error is not None:
        return fail.error
    if fail.status == 429:
        return ScriptedRateLimit(fail.message)
    if fail.status >= 500:
        return ScriptedOutage(fail.message)
    if fail.code == "context_length_exceeded":
        return ContextOverflowError(fail.message)
    return (ModelAuthenticationError if fail.status == 401 else ModelInvalidRequestError)(fail.message)
