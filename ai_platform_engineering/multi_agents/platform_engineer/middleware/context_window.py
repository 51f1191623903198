"""The context window: old turns are summarised, large results are shortened, and a model that refuses is asked with less.

What is stored stays whole; only what the model sees gets smaller, and a call never loses its result.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
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

log = logging.getLogger(__name__)

_TRIES = 6
_SMALLEST = 500  # tokens; less is no conversation
_KEPT_SHARE = 0.4  # of the window, for the turns that stay as they are
_SHORTER = (20_000, 8_000, 3_000, 1_000, 300, 80)
_CUT = "\n[… {} characters left out to fit the model's context]"
_PROMPT = (
    SUMMARY_REQUEST
    + """ for yourself, in at most 300 words. Keep names, ids, numbers, decisions and open questions.
Write only the summary.

{}"""
)

Handler = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


class SummarisedState(AgentState[Any]):
    summary: NotRequired[dict[str, Any]]  # {"text", "upto": id of the last message it covers}


class ContextWindowMiddleware(AgentMiddleware[SummarisedState]):
    state_schema = SummarisedState

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit  # sinks when the model says that less is possible

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Handler
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        before: dict[str, Any] = cast("dict[str, Any]", request.state.get("summary") or {})
        summary = await self._summary(request, before)
        messages = _with_summary(request.messages, summary)
        response = await self._ask(request, handler, messages)
        if summary == before:
            return response
        return ExtendedModelResponse(model_response=response, command=Command(update={"summary": summary}))

    async def _ask(
        self, request: ModelRequest[Any], handler: Handler, messages: list[AnyMessage]
    ) -> ModelResponse[Any]:
        budget, attempt = self._limit, 1
        while True:
            view = shorten(messages, budget)
            try:
                response = await handler(request.override(messages=view))
            except Exception as error:
                if attempt >= _TRIES or not is_overflow(error):
                    raise
                request.runtime.stream_writer(ModelRetried("context"))
                budget, attempt = int(min(budget, count_tokens(view)) * 0.6), attempt + 1
            else:
                self._learn(budget)
                return response

    def _learn(self, budget: int) -> None:
        """Keeps a smaller budget that was accepted; what was refused to the end teaches nothing."""
        if budget < self._limit:
            self._limit = max(_SMALLEST, budget)
            log.info("the model's context is smaller than assumed; using %d tokens", self._limit)

    async def _summary(self, request: ModelRequest[Any], before: dict[str, Any]) -> dict[str, Any]:
        """A summary of the older turns, when what the model would see is too much."""
        messages = request.messages
        if count_tokens(_with_summary(messages, before)) <= self._limit * 0.8:
            return before
        start = _index_after(messages, before.get("upto"))
        cut = self._cut(messages, start)
        if cut <= start:
            return before
        old = _with_summary(messages[:cut], before)
        return {"text": await self._summarise(request.model, old), "upto": messages[cut - 1].id}

    def _cut(self, messages: Sequence[AnyMessage], start: int) -> int:
        """Where the turns that stay begin: always at a question, so that no call is split from its result."""
        questions = [
            index for index in range(start + 1, len(messages)) if isinstance(messages[index], HumanMessage)
        ]
        fitting = [
            index for index in questions if count_tokens(messages[index:]) <= self._limit * _KEPT_SHARE
        ]
        if fitting:
            return fitting[0]
        if questions:
            return questions[-1]
        return start

    async def _summarise(self, model: BaseChatModel, old: Sequence[AnyMessage]) -> str:
        lines = [
            f"{message.type}: {message.text}"
            for message in shorten(list(old), self._limit // 2)
            if message.text
        ]
        text = "\n".join(lines)[-self._limit * 2 :]
        try:
            # Kept out of the stream: this text is for the model alone.
            answer = await model.ainvoke(
                _PROMPT.format(text), {"tags": ["nostream"], "metadata": {"lc_source": "summary"}}
            )
            if said := visible_text(answer.text):
                return said
        except Exception as error:  # noqa: BLE001 - a summary is a help, never a reason to fail the question
            log.warning(
                "summarising failed (%s); the outline of the conversation is kept instead",
                type(error).__name__,
            )
        return _outline(old)


def count_tokens(messages: Sequence[AnyMessage]) -> int:
    return count_tokens_approximately(messages)


def shorten(messages: Sequence[AnyMessage], budget: int) -> list[AnyMessage]:
    """The messages within a budget of tokens: first results get shorter, then old turns leave, then texts get shorter."""
    view = list(messages)
    for most in _SHORTER:
        if count_tokens(view) <= budget:
            return view
        view = [_cut_text(message, most) if isinstance(message, ToolMessage) else message for message in view]
    questions = [index for index, message in enumerate(view) if isinstance(message, HumanMessage)]
    for index in questions:
        if count_tokens(view[index:]) <= budget or index == questions[-1]:
            view = view[index:]
            break
    for most in _SHORTER:
        if count_tokens(view) <= budget:
            break
        view = [_cut_text(message, most) for message in view]
    return view


def _cut_text(message: AnyMessage, most: int) -> AnyMessage:
    text = message.text
    if len(text) <= most or (isinstance(message, AIMessage) and not isinstance(message.content, str)):
        return message
    return message.model_copy(update={"content": text[:most] + _CUT.format(len(text) - most)})


def _with_summary(messages: Sequence[AnyMessage], summary: Mapping[str, Any]) -> list[AnyMessage]:
    if not summary:
        return list(messages)
    start = _index_after(messages, summary.get("upto"))
    return [HumanMessage(f"{SUMMARY_HEADING}\n{summary['text']}"), *messages[start:]]


def _index_after(messages: Sequence[AnyMessage], message_id: str | None) -> int:
    return next(
        (index + 1 for index, message in enumerate(messages) if message_id and message.id == message_id), 0
    )


def _outline(messages: Sequence[AnyMessage]) -> str:
    said = [message for message in messages if isinstance(message, HumanMessage | AIMessage) and message.text]
    return "\n".join(f"{message.type}: {message.text[:300]}" for message in said[-20:])
