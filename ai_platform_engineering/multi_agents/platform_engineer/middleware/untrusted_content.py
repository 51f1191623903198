"""Untrusted content: each result is noted with its source, and the model sees it between marker lines.

The stored messages keep the plain text; the markers are only in the model requests. What they mean is said in
the system prompt: `UNTRUSTED_RESULTS`.
"""

import asyncio
import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import AnyMessage, BaseMessage, ToolMessage
from langgraph.config import get_config

from ai_platform_engineering.core.events import SUPERVISOR
from ai_platform_engineering.core.message_metadata import ResultSource
from ai_platform_engineering.core.policy import PolicyDecision, tighten_for_untrusted
from ai_platform_engineering.core.private_text import carries_text
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.tool_traits import LOAD_SKILL_TOOL, ToolTraits, server_of, traits_of
from ai_platform_engineering.models.offline_model import OfflineModel
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ModelCallHandler,
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import find_question
from ai_platform_engineering.multi_agents.platform_engineer.untrusted_messages import (
    ThirdPartyDefinitions,
    find_result_source,
    read_content_before_call,
)
from ai_platform_engineering.runtime.facts import Facts

_BEGIN = "[[untrusted {nonce}: {source}]]"
_CARRIES_FACT = (
    "It carries a fact that was to be remembered, after text that nobody in this conversation wrote."
)
_END = "[[end {nonce}]]"
_M = TypeVar("_M", bound=BaseMessage)
_SECRET = secrets.token_bytes(32)


class UntrustedContentMiddleware(AgentMiddleware):
    """Notes the source of each result, and marks untrusted ones for the model.

    Innermost of those that change what the model sees: a text is cut before it is marked.
    """

    def __init__(self, agent: str) -> None:
        super().__init__()
        self._agent = agent

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        result = await handler(request)
        source = ResultSource(self._describe_source(request))
        if isinstance(result, ToolMessage):
            return _note_source(result, source)
        if not isinstance(result.update, dict) or "messages" not in result.update:
            return result
        messages = [_note_source(message, source) for message in result.update["messages"]]
        return replace(result, update={**result.update, "messages": messages})

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        if isinstance(request.model, OfflineModel):  # it obeys nothing, and reads results as they are
            return await handler(request)
        return await handler(request.override(messages=mark_results(request.messages)))

    def _describe_source(self, request: ToolCallRequest) -> str | None:
        """The source of the call's result in words; None for a tool of the product's own."""
        call = request.tool_call
        if request.tool is None:
            traits = ToolTraits.from_metadata(call["name"], {})
        else:
            traits = traits_of(request.tool)
        if traits.delegates:
            return f"the answer of {call['args'].get('subagent_type')}"
        if traits.is_own:
            return None
        if self._agent == SUPERVISOR:
            return f"the result of {call['name']}"
        return f"the result of {call['name']} of {self._agent}"


class UntrustedContentPolicy:
    """Decides which calls ask a person because of what the model had read before them."""

    def __init__(
        self, definitions: ThirdPartyDefinitions, *, enabled: bool, facts: Facts | None = None
    ) -> None:
        """`facts`: those that stand in the prompt, and that no text of others' may send away."""
        self._definitions = definitions
        self._enabled = enabled
        self._facts = facts

    async def tighten(self, request: ToolCallRequest, decision: PolicyDecision) -> PolicyDecision:
        if not self._enabled or request.tool is None or _is_ordered_skill(request):
            return decision
        call = request.tool_call
        content = read_content_before_call(request.state["messages"], call["id"])
        definitions = await self._definitions.list_sources(server_of(request.tool))
        content = replace(content, definitions=(*content.definitions, *definitions))
        decision = tighten_for_untrusted(decision, traits_of(request.tool), call["args"], content)
        if decision.permission != "allow" or content.is_empty:
            return decision
        if await self._carries_facts(request, content.words):
            return PolicyDecision("ask", _CARRIES_FACT, follows_untrusted=True)
        return decision

    async def _carries_facts(self, request: ToolCallRequest, words: str) -> bool:
        """Whether the call takes a person's facts out of the supervisor, to an agent or to a tool."""
        assert request.tool is not None
        traits = traits_of(request.tool)
        principal = RunContext.from_config(request.runtime.config).principal
        if self._facts is None or principal is None or (traits.is_own and not traits.delegates):
            return False
        texts = [fact.text for fact in await self._facts.list_facts(principal)]
        if not texts:
            return False
        outgoing = json.dumps(request.tool_call["args"], ensure_ascii=False, default=str)
        # In a thread: many facts and long arguments take longer than other conversations should wait.
        return await asyncio.to_thread(carries_text, outgoing, texts, words)


def mark_results(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """The messages with untrusted results between marker lines."""
    nonce = _make_nonce()
    return [_mark_result(message, nonce) for message in messages]


def insert_before_end_marker(message: ToolMessage, blocks: Sequence[Any]) -> ToolMessage:
    """A marked result with more content, inside its markers."""
    if find_result_source(message) is None:
        return message.model_copy(update={"content": [*_list_blocks(message), *blocks]})
    if isinstance(message.content, str):
        text, _, end = message.content.rpartition("\n")
        return message.model_copy(update={"content": [_text_block(text), *blocks, _text_block(end)]})
    return message.model_copy(update={"content": [*message.content[:-1], *blocks, message.content[-1]]})


def mark_blocks(blocks: Sequence[Any], result: ToolMessage) -> list[Any]:
    """Content from a result that a message of another role has, between the result's markers."""
    source = find_result_source(result)
    if source is None:
        return list(blocks)
    begin, end = _make_markers(source, _make_nonce())
    return [_text_block(begin), *blocks, _text_block(end)]


def _list_blocks(message: ToolMessage) -> list[Any]:
    if isinstance(message.content, str):
        return [_text_block(message.content)]
    return list(message.content)


def _make_markers(source: str, nonce: str) -> tuple[str, str]:
    begin = _BEGIN.format(nonce=nonce, source=source.replace("]", ")"))
    return begin, _END.format(nonce=nonce)


def _mark_result(message: AnyMessage, nonce: str) -> AnyMessage:
    if not isinstance(message, ToolMessage):
        return message
    source = find_result_source(message)
    if source is None:
        return message
    # A result that names the nonce has read it somewhere, and could end itself with it.
    begin, end = _make_markers(source, nonce)
    if isinstance(message.content, str):
        text = message.content.replace(nonce, "…")
        return message.model_copy(update={"content": f"{begin}\n{text}\n{end}"})
    blocks = [_without_nonce(block, nonce) for block in message.content]
    marked_blocks = [_text_block(begin), *blocks, _text_block(end)]
    return message.model_copy(update={"content": marked_blocks})


def _without_nonce(block: Any, nonce: str) -> Any:
    if isinstance(block, str):
        return block.replace(nonce, "…")
    if isinstance(block, dict) and isinstance(block.get("text"), str):
        return {**block, "text": block["text"].replace(nonce, "…")}
    return block


def _text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _make_nonce() -> str:
    """The same for all model calls of a conversation, so that a provider's prompt cache holds."""
    run = RunContext.from_config(get_config())
    key = run.thread_id or run.run_id
    return hmac.new(_SECRET, str(key).encode(), hashlib.sha256).hexdigest()[:12]


def _note_source(message: _M, source: ResultSource) -> _M:
    """A result with its source; a tool may have noted a more exact one itself."""
    if not isinstance(message, ToolMessage) or ResultSource.of(message) is not None:
        return message
    metadata = {**message.additional_kwargs, **source.to_metadata()}
    return message.model_copy(update={"additional_kwargs": metadata})


def _is_ordered_skill(request: ToolCallRequest) -> bool:
    """Whether the person began the question with the skill's name, as a command."""
    call = request.tool_call
    question = find_question(request.state["messages"])
    if call["name"] != LOAD_SKILL_TOOL or question is None:
        return False
    return call["id"] == f"{question.id}:skill"
