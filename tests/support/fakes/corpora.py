"""Streams of chunks in the shapes that provider integrations really produce, and a model that replays
them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from .model import as_request, merged
from .request import ToolUse

_GEMINI_SIGNATURES = "__gemini_function_call_thought_signatures__"
_LOOK = ToolUse("github_list_repos", {"org": "acme", "limit": 5}, "tooluse_k3JdP1")
_ASK = ToolUse("argocd_get_app", {"name": "web"}, "tooluse_w9QxZ2")


@dataclass(frozen=True)
class Corpus:
    """One reply as a stream; `inline` says that the reasoning stands in the text between `<think>` tags."""

    name: str
    stream: tuple[AIMessageChunk, ...]
    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolUse, ...] = ()
    inline: bool = False

    @property
    def chunks(self) -> list[AIMessageChunk]:
        """Fresh copies, as LangChain writes ids into the chunks it passes on."""
        return [chunk.model_copy(deep=True) for chunk in self.stream]


def _usage(given: int, made: int) -> UsageMetadata:
    return UsageMetadata(input_tokens=given, output_tokens=made, total_tokens=given + made)


# --- Bedrock Converse: content is a list of indexed blocks, empty lists mark starts and stops, plain "" ends


def _bedrock(content: Any, **fields: Any) -> AIMessageChunk:
    metadata = {**fields.pop("response_metadata", {}), "model_provider": "bedrock_converse"}
    return AIMessageChunk(content=content, response_metadata=metadata, **fields)


def _bedrock_text(index: int, *texts: str) -> list[AIMessageChunk]:
    return [*(_bedrock([{"type": "text", "text": text, "index": index}]) for text in texts), _bedrock([])]


def _bedrock_reasoning(index: int, *texts: str) -> list[AIMessageChunk]:
    parts: list[dict[str, str]] = [*({"text": text} for text in texts), {"signature": "EqQBCkgIARABGAIiQL8d"}]
    return [
        *(
            _bedrock([{"type": "reasoning_content", "reasoning_content": part, "index": index}])
            for part in parts
        ),
        _bedrock([]),
    ]


def _bedrock_call(index: int, call: ToolUse, *, pieces: int = 3) -> list[AIMessageChunk]:
    text = json.dumps(call.args)
    size = -(-len(text) // pieces)
    opening = _bedrock(
        [{"type": "tool_use", "name": call.name, "id": call.id, "index": index}],
        tool_call_chunks=[tool_call_chunk(name=call.name, id=call.id, args=None, index=index)],
    )
    deltas = [
        _bedrock(
            [{"type": "tool_use", "input": part, "id": None, "index": index}],
            tool_call_chunks=[tool_call_chunk(name=None, id=None, args=part, index=index)],
        )
        for part in ["", *(text[start : start + size] for start in range(0, len(text), size))]
    ]
    return [opening, *deltas, _bedrock([])]


def _bedrock_message(*parts: list[AIMessageChunk], stop: str = "end_turn") -> tuple[AIMessageChunk, ...]:
    usage: dict[str, Any] = {**_usage(812, 41), "input_token_details": {"cache_read": 0, "cache_creation": 0}}
    last = {"metrics": {"latencyMs": [1204]}, "model_name": "us.anthropic.claude-sonnet-4-5-v1:0"}
    return (
        _bedrock([]),
        *(chunk for part in parts for chunk in part),
        _bedrock("", response_metadata={"stopReason": stop}),
        _bedrock("", response_metadata=last, usage_metadata=usage),
    )


# --- Gemini: text is a plain string or, from version 3 and next to thoughts, a list; function calls come whol


def _gemini(
    content: Any, *calls: ToolUse, last: bool = False, signature: str | None = None
) -> AIMessageChunk:
    metadata: dict[str, Any] = {"safety_ratings": [], "model_provider": "google_genai"}
    if last:
        metadata |= {"finish_reason": "STOP", "model_name": "gemini-2.5-pro"}
    extra: dict[str, Any] = {}
    if calls:
        extra["function_call"] = {"name": calls[-1].name, "arguments": json.dumps(calls[-1].args)}
    if calls and signature:
        extra[_GEMINI_SIGNATURES] = {calls[0].id: signature}
    return AIMessageChunk(
        content=content,
        additional_kwargs=extra,
        response_metadata=metadata,
        tool_call_chunks=[
            tool_call_chunk(name=c.name, args=json.dumps(c.args), id=c.id, index=None) for c in calls
        ],
        usage_metadata={**_usage(0 if last else 96, 4), "input_token_details": {"cache_read": 0}},
    )


def _thought(text: str) -> dict[str, str]:
    return {"type": "thinking", "thinking": text}


# --- OpenAI-compatible gateways and local models.


def _plain(content: str, reasoning: str | None = None, **fields: Any) -> AIMessageChunk:
    extra = {} if reasoning is None else {"reasoning_content": reasoning}
    return AIMessageChunk(content=content, additional_kwargs=extra, **fields)


def _plain_message(*chunks: AIMessageChunk, finish: str = "stop") -> tuple[AIMessageChunk, ...]:
    end = _plain("", response_metadata={"finish_reason": finish, "model_name": "local"})
    return (_plain(""), *chunks, end, _plain("", usage_metadata=_usage(120, 30), chunk_position="last"))


def _plain_call(index: int, call: ToolUse) -> list[AIMessageChunk]:
    text = json.dumps(call.args)
    parts = [tool_call_chunk(name=call.name, args="", id=call.id, index=index)]
    parts += [
        tool_call_chunk(name=None, args=text[start : start + 7], id=None, index=index)
        for start in range(0, len(text), 7)
    ]
    return [_plain("", tool_call_chunks=[part]) for part in parts]


def _inline(name: str, *texts: str, text: str, reasoning: str) -> Corpus:
    return Corpus(
        name, _plain_message(*(_plain(part) for part in texts)), text=text, reasoning=reasoning, inline=True
    )


BEDROCK = (
    Corpus(
        "bedrock-text",
        _bedrock_message(_bedrock_text(0, "The ", "app is", " healthy.")),
        text="The app is healthy.",
    ),
    Corpus(
        "bedrock-reasoning-then-text",
        _bedrock_message(
            _bedrock_reasoning(0, "The user asks ", "about the app."), _bedrock_text(1, "It is ", "healthy.")
        ),
        text="It is healthy.",
        reasoning="The user asks about the app.",
    ),
    Corpus(
        "bedrock-text-and-call",
        _bedrock_message(_bedrock_text(0, "I look ", "first."), _bedrock_call(1, _LOOK), stop="tool_use"),
        text="I look first.",
        calls=(_LOOK,),
    ),
    Corpus(
        "bedrock-reasoning-text-and-parallel-calls",
        _bedrock_message(
            _bedrock_reasoning(0, "Two ", "sources."),
            _bedrock_text(1, "Both."),
            _bedrock_call(2, _LOOK),
            _bedrock_call(3, _ASK, pieces=1),
            stop="tool_use",
        ),
        text="Both.",
        reasoning="Two sources.",
        calls=(_LOOK, _ASK),
    ),
    Corpus("bedrock-empty", _bedrock_message()),
)

GEMINI = (
    Corpus(
        "gemini-text",
        (_gemini("The "), _gemini("app is healthy"), _gemini(".", last=True)),
        text="The app is healthy.",
    ),
    Corpus("gemini-usage-only-end", (_gemini("Done."), _gemini("", last=True)), text="Done."),
    Corpus(
        "gemini-thinking-then-text",
        (
            _gemini([_thought("**Checking** the app. ")]),
            _gemini([_thought("It syncs.")]),
            _gemini("It is "),
            _gemini("healthy.", last=True),
        ),
        text="It is healthy.",
        reasoning="**Checking** the app. It syncs.",
    ),
    Corpus(
        "gemini-thinking-and-text-in-one-chunk",
        (_gemini([_thought("Short."), {"type": "text", "text": "It "}]), _gemini("works.", last=True)),
        text="It works.",
        reasoning="Short.",
    ),
    Corpus(
        "gemini-text-and-call",
        (_gemini("I look first."), _gemini("", _LOOK, last=True)),
        text="I look first.",
        calls=(_LOOK,),
    ),
    Corpus(
        "gemini-thinking-and-parallel-calls",
        (
            _gemini([_thought("Two sources.")]),
            _gemini("", _LOOK, _ASK, signature="CiQBjz1rXw=="),
            _gemini("", last=True),
        ),
        reasoning="Two sources.",
        calls=(_LOOK, _ASK),
    ),
    Corpus(
        "gemini-3-blocks",
        (
            _gemini([_thought("Hm.")]),
            _gemini([{"type": "text", "text": "It is "}]),
            _gemini([{"type": "text", "text": "up."}]),
            _gemini([{"type": "text", "text": "", "extras": {"signature": "CiQBjz1rXw=="}}], last=True),
        ),
        text="It is up.",
        reasoning="Hm.",
    ),
)

OPENAI = (
    Corpus("openai-text", _plain_message(_plain("The "), _plain(""), _plain("app.")), text="The app."),
    Corpus(
        "openai-reasoning-content",
        _plain_message(_plain("", "Let me "), _plain("", "see."), _plain("Here "), _plain("it is.")),
        text="Here it is.",
        reasoning="Let me see.",
    ),
    Corpus(
        "openai-reasoning-and-parallel-calls",
        _plain_message(
            _plain("", "Both."), *_plain_call(0, _LOOK), *_plain_call(1, _ASK), finish="tool_calls"
        ),
        reasoning="Both.",
        calls=(_LOOK, _ASK),
    ),
    Corpus("openai-empty", _plain_message()),
)

INLINE = (
    _inline(
        "inline-whole-tags",
        "<think>",
        "Let me see.",
        "</think>",
        "The app is up.",
        text="The app is up.",
        reasoning="Let me see.",
    ),
    _inline(
        "inline-split-tags",
        "<th",
        "ink>Let ",
        "me.</",
        "thi",
        "nk",
        ">It ",
        "is.",
        text="It is.",
        reasoning="Let me.",
    ),
    _inline("inline-one-letter", *"<think>a < b</think>c <d> e", text="c <d> e", reasoning="a < b"),
    _inline("inline-one-chunk", "<think>Short.</think>Answer.", text="Answer.", reasoning="Short."),
    _inline(
        "inline-closing-with-text",
        "<think>one",
        " two</think>three",
        " four",
        text="three four",
        reasoning="one two",
    ),
    _inline(
        "inline-looks-like-a-tag",
        "Use <th",
        "ead> and a <",
        " b.",
        text="Use <thead> and a < b.",
        reasoning="",
    ),
    _inline("inline-never-closed", "<think>I ", "go on", text="", reasoning="I go on"),
    _inline("inline-empty-thought", "<think>", "</think>", "Yes.", text="Yes.", reasoning=""),
)

CORPORA: tuple[Corpus, ...] = (*BEDROCK, *GEMINI, *OPENAI, *INLINE)


class CorpusChatModel(BaseChatModel):
    """Replays corpora: the n-th after the last user message, the last one again and again."""

    replies: tuple[Corpus, ...]

    @property
    def _llm_type(self) -> str:
        return "corpus"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools in OpenAI's form."""
        return self.bind(
            tools=[convert_to_openai_tool(tool) for tool in tools], tool_choice=tool_choice, **kwargs
        )

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._reply(messages).chunks:
            await asyncio.sleep(0)
            yield ChatGenerationChunk(message=chunk)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return merged([*self._reply(messages).chunks, AIMessageChunk(content="", chunk_position="last")])

    def _reply(self, messages: list[BaseMessage]) -> Corpus:
        return self.replies[min(as_request(messages).position, len(self.replies) - 1)]
