"""The context window: old turns are summarised, large results are cut, and after an overflow less is sent.

Only the messages that the model sees get fewer; the stored ones stay. A call never loses its result.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, cast

from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware, ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langgraph.types import Command

from ai_platform_engineering.core.signals import ModelRetried
from ai_platform_engineering.core.summary_prompt import SUMMARY_HEADING, SUMMARY_REQUEST
from ai_platform_engineering.graph.failures import is_overflow
from ai_platform_engineering.graph.visible_text import visible_text
from ai_platform_engineering.models.model_profile import find_context_tokens
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import ModelCallHandler
from ai_platform_engineering.multi_agents.platform_engineer.middleware.untrusted_content import mark_results
from ai_platform_engineering.multi_agents.platform_engineer.run_usage import (
    count_model_call,
    count_model_usage,
)

log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 6
_SMALLEST_LIMIT = 500  # tokens; less is no conversation
_SUMMARY_THRESHOLD = 0.8  # of the window: with more than that, old turns are summarised
_RECENT_SHARE = 0.4  # of the window, for the turns that are not summarised
_RETRY_SHARE = 0.6  # of the tokens that were too many
_TEXT_LENGTHS = (
    20_000,
    8_000,
    3_000,
    1_000,
    300,
    80,
)  # characters that texts are cut to, one after the other
_CUT = "\n[… {} characters left out to fit the model's context]"
_PROMPT = (
    SUMMARY_REQUEST
    + """ for yourself, in at most 300 words. Keep names, ids, numbers, decisions and open questions.
Write only the summary.

{}"""
)


class SummarisedState(AgentState[Any]):
    """Adds the summary of old turns to the state: `text`, and `upto`, the id of the last covered message."""

    summary: NotRequired[dict[str, Any]]


class ContextWindowMiddleware(AgentMiddleware[SummarisedState]):
    """Keeps what the model sees within its context window."""

    state_schema = SummarisedState

    def __init__(self, configured_limit: int | None) -> None:
        """`configured_limit`: tokens; None for what the profile of the model says."""
        super().__init__()
        self._configured_limit = configured_limit
        self._accepted_limit: int | None = None  # lower, once a model has refused as many

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        limit = self._find_limit(request.model)
        stored_summary: dict[str, Any] = cast("dict[str, Any]", request.state.get("summary") or {})
        summary = await self._update_summary(request, stored_summary, limit)
        messages = _apply_summary(request.messages, summary)
        response = await self._call_model(request, handler, messages, limit)
        if summary == stored_summary:
            return response
        return ExtendedModelResponse(model_response=response, command=Command(update={"summary": summary}))

    def _find_limit(self, model: BaseChatModel) -> int:
        limit = self._configured_limit or find_context_tokens(model)
        if self._accepted_limit is None:
            return limit
        return min(limit, self._accepted_limit)

    async def _call_model(
        self, request: ModelRequest[Any], handler: ModelCallHandler, messages: list[AnyMessage], limit: int
    ) -> ModelResponse[Any]:
        """Calls the model, after an overflow again with fewer tokens."""
        budget = limit
        attempt = 1
        while True:
            shortened = shorten(messages, budget)
            try:
                response = await handler(request.override(messages=shortened))
            except Exception as error:
                if attempt >= _MAX_ATTEMPTS or not is_overflow(error):
                    raise
                request.runtime.stream_writer(ModelRetried("context"))
                budget = int(min(budget, count_tokens(shortened)) * _RETRY_SHARE)
                attempt += 1
            else:
                if budget < limit:
                    self._lower_limit(budget)
                return response

    def _lower_limit(self, budget: int) -> None:
        """Keeps a smaller budget that was accepted; when every attempt was refused the limit stays."""
        self._accepted_limit = max(_SMALLEST_LIMIT, min(budget, self._accepted_limit or budget))
        log.info("the model's context is smaller than assumed; using %d tokens", self._accepted_limit)

    async def _update_summary(
        self, request: ModelRequest[Any], summary: dict[str, Any], limit: int
    ) -> dict[str, Any]:
        """A new summary when the messages are too many for the window, else the one there is."""
        messages = request.messages
        if count_tokens(_apply_summary(messages, summary)) <= limit * _SUMMARY_THRESHOLD:
            return summary
        start = _index_after(messages, summary.get("upto"))
        cut = _find_cut(messages, start, limit)
        if cut <= start:
            return summary
        old_messages = _apply_summary(messages[:cut], summary)
        text = await self._summarise(request.model, old_messages, limit)
        return {"text": text, "upto": messages[cut - 1].id}

    async def _summarise(self, model: BaseChatModel, messages: Sequence[AnyMessage], limit: int) -> str:
        lines = [
            f"{message.type}: {message.text}"
            for message in mark_results(shorten(messages, limit // 2))
            if message.text
        ]
        text = "\n".join(lines)[-limit * 2 :]
        count_model_call()
        try:
            # Kept out of the stream: this text is for the model alone.
            answer = await model.ainvoke(
                _PROMPT.format(text), {"tags": ["nostream"], "metadata": {"lc_source": "summary"}}
            )
            count_model_usage(answer.usage_metadata or {})
            summary = visible_text(answer.text)
            if summary:
                return summary
        except Exception as error:  # noqa: BLE001 - a summary is a help, never a reason to fail the question
            log.warning(
                "summarising failed (%s); the outline of the conversation is kept instead",
                type(error).__name__,
            )
        return _outline(messages)


def _find_cut(messages: Sequence[AnyMessage], start: int, limit: int) -> int:
    """The index where the recent turns begin: always at a question, so that no call loses its result."""
    cut = start
    for index in range(start + 1, len(messages)):
        if not isinstance(messages[index], HumanMessage):
            continue
        cut = index
        if count_tokens(messages[index:]) <= limit * _RECENT_SHARE:
            break
    return cut


def count_tokens(messages: Sequence[AnyMessage]) -> int:
    return count_tokens_approximately(messages)


def shorten(messages: Sequence[AnyMessage], budget: int) -> list[AnyMessage]:
    """The messages within a budget of tokens: cuts results first, then drops old turns, then cuts texts."""
    shortened = list(messages)
    for length in _TEXT_LENGTHS:
        if count_tokens(shortened) <= budget:
            return shortened
        shortened = [_cut_result(message, length) for message in shortened]
    shortened = _drop_old_turns(shortened, budget)
    for length in _TEXT_LENGTHS:
        if count_tokens(shortened) <= budget:
            break
        shortened = [_cut_text(message, length) for message in shortened]
    return shortened


def _drop_old_turns(messages: list[AnyMessage], budget: int) -> list[AnyMessage]:
    """The messages from the first question on with which they fit, at the latest from the last one."""
    questions = [index for index, message in enumerate(messages) if isinstance(message, HumanMessage)]
    for index in questions:
        if count_tokens(messages[index:]) <= budget or index == questions[-1]:
            return messages[index:]
    return messages


def _cut_result(message: AnyMessage, length: int) -> AnyMessage:
    if isinstance(message, ToolMessage):
        return _cut_text(message, length)
    return message


def _cut_text(message: AnyMessage, length: int) -> AnyMessage:
    text = message.text
    has_blocks = isinstance(message, AIMessage) and not isinstance(message.content, str)
    if len(text) <= length or has_blocks:
        return message
    return message.model_copy(update={"content": text[:length] + _CUT.format(len(text) - length)})


def _apply_summary(messages: Sequence[AnyMessage], summary: Mapping[str, Any]) -> list[AnyMessage]:
    """The messages with the summary in place of those that it covers."""
    if not summary:
        return list(messages)
    start = _index_after(messages, summary.get("upto"))
    return [HumanMessage(f"{SUMMARY_HEADING}\n{summary['text']}"), *messages[start:]]


def _index_after(messages: Sequence[AnyMessage], message_id: str | None) -> int:
    if not message_id:
        return 0
    for index, message in enumerate(messages):
        if message.id == message_id:
            return index + 1
    return 0


def _outline(messages: Sequence[AnyMessage]) -> str:
    """The beginnings of the last texts, for a conversation that could not be summarised."""
    texts = [
        message for message in messages if isinstance(message, HumanMessage | AIMessage) and message.text
    ]
    return "\n".join(f"{message.type}: {message.text[:300]}" for message in texts[-20:])
