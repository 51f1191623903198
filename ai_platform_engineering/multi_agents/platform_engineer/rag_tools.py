"""The tools of the knowledge base on the supervisor: bounded per question, so that a search never runs away.

The bounds follow the tools that come from the knowledge base, never a name: a domain agent's own `search` is not capped.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.types import Command
from pydantic import PrivateAttr

from ai_platform_engineering.core.settings import KnowledgeSettings
from ai_platform_engineering.multi_agents.platform_engineer.middleware.call_limits import current_turn
from ai_platform_engineering.multi_agents.platform_engineer.middleware.offered_tools import ModelCallHandler
from ai_platform_engineering.runtime.checkpoints.fenced_saver import RUN_ID_KEY

SEARCH, FETCH_DOCUMENT = "search", "fetch_document"

CAP_MESSAGE = (
    "[Document already retrieved] You have reached the maximum allowed number of {tool_name} calls ({max}). Please synthesize your answer "
    "from the documents already retrieved. Do NOT call {tool_name} again."
)
TRUNCATED = "[Output truncated]"

_MOST_QUERIES = 10_000  # a wrapper outside of a run is never told that a query has ended

_number: ContextVar[int | None] = ContextVar("number of the call in its question", default=None)

_Query = tuple[str | None, str | None]


class _KnowledgeTool(BaseTool):
    """A tool of the knowledge base whose output is bounded."""

    _wrapped_tool: BaseTool = PrivateAttr()
    _max_chars: int = PrivateAttr()

    @classmethod
    def of(cls, tool: BaseTool, settings: KnowledgeSettings) -> "_KnowledgeTool":
        wrapper = cls(
            name=tool.name,
            description=tool.description,
            args_schema=tool.args_schema,
            metadata={**(tool.metadata or {}), "knowledge": True},
        )
        wrapper._wrapped_tool, wrapper._max_chars = tool, settings.max_output_chars
        return wrapper

    async def _arun(self, *args: Any, config: RunnableConfig, **kwargs: Any) -> Any:
        return self._bounded(await self._wrapped_tool.ainvoke(self._arguments(kwargs), _silent(config)))

    def _run(self, *args: Any, config: RunnableConfig, **kwargs: Any) -> Any:
        return self._bounded(self._wrapped_tool.invoke(self._arguments(kwargs), _silent(config)))

    def _arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        return given

    def _bounded(self, output: Any) -> Any:
        """The output, cut where it is longer than allowed; content blocks count together."""
        if isinstance(output, str):
            return _cut(output, self._max_chars)
        if not isinstance(output, list):
            return output
        left, kept = self._max_chars, list[Any]()
        for block in output:
            text: Any
            if isinstance(block, str):
                text = block
            elif isinstance(block, Mapping):
                text = block.get("text")
            else:
                text = None
            if not isinstance(text, str):
                kept.append(block)
                continue
            if len(text) > left:
                cut = _cut(text, left)
                kept.append(cut if isinstance(block, str) else {**block, "text": cut})
                break
            left -= len(text)
            kept.append(block)
        return kept


def _silent(config: RunnableConfig) -> RunnableConfig:
    """Nobody is told of the call inside: it is the same call."""
    return {**config, "callbacks": []}


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}\n{TRUNCATED}"


class _CapCounterMixin(_KnowledgeTool):
    """Counts the calls of a question. Within a run its own messages say the number of a call, so that the count survives a pause and a
    restart; with a thread alone the thread is what is counted for."""

    _call_counts: dict[_Query, int] = PrivateAttr(default_factory=dict)
    _max_calls: int = PrivateAttr()

    async def _arun(self, *args: Any, config: RunnableConfig, **kwargs: Any) -> Any:
        if self._admits(config):
            return await super()._arun(*args, config=config, **kwargs)
        return self._cap_message()

    def _run(self, *args: Any, config: RunnableConfig, **kwargs: Any) -> Any:
        if self._admits(config):
            return super()._run(*args, config=config, **kwargs)
        return self._cap_message()

    def _admits(self, config: RunnableConfig) -> bool:
        query = _query(config)
        number = _number.get() or self._call_counts.get(query, 0) + 1
        self._call_counts[query] = max(number, self._call_counts.pop(query, 0))
        while len(self._call_counts) > _MOST_QUERIES:
            del self._call_counts[next(iter(self._call_counts))]
        return number <= self._max_calls

    def _cap_message(self) -> str:
        return CAP_MESSAGE.format(tool_name=self.name, max=self._max_calls)

    def is_used_up(self, calls: int) -> bool:
        return calls >= self._max_calls

    def forget_run(self, run_id: str) -> None:
        """The run has ended."""
        for query in [query for query in self._call_counts if query[1] == run_id]:
            del self._call_counts[query]


class FetchDocumentCapWrapper(_CapCounterMixin):
    @classmethod
    def of(cls, tool: BaseTool, settings: KnowledgeSettings) -> "FetchDocumentCapWrapper":
        wrapper = super().of(tool, settings)
        assert isinstance(wrapper, FetchDocumentCapWrapper)
        wrapper._max_calls = settings.fetch_calls
        return wrapper


class SearchCapWrapper(_CapCounterMixin):
    _max_results: int = PrivateAttr()

    @classmethod
    def of(cls, tool: BaseTool, settings: KnowledgeSettings) -> "SearchCapWrapper":
        wrapper = super().of(tool, settings)
        assert isinstance(wrapper, SearchCapWrapper)
        wrapper._max_calls, wrapper._max_results = settings.search_calls, settings.max_results
        return wrapper

    def _arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        wanted = given.get("limit")
        limit = wanted if isinstance(wanted, int) and wanted > 0 else self._max_results
        return {**given, "limit": min(limit, self._max_results)}


def wrap_knowledge_tools(tools: Sequence[BaseTool], settings: KnowledgeSettings) -> list[BaseTool]:
    """The tools of the knowledge base, each within its bounds."""
    kinds: Mapping[str, type[_KnowledgeTool]] = {
        SEARCH: SearchCapWrapper,
        FETCH_DOCUMENT: FetchDocumentCapWrapper,
    }
    return [kinds.get(tool.name, _KnowledgeTool).of(tool, settings) for tool in tools]


def _query(config: RunnableConfig) -> _Query:
    thread_id = (config.get("configurable") or {}).get("thread_id")
    return thread_id, (config.get("metadata") or {}).get(RUN_ID_KEY)


ToolHandler = Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]


class KnowledgeCapMiddleware(AgentMiddleware):
    """Numbers the calls of a question by the messages of its run, and takes away what is used up: from the next turn on the model is not
    offered it any more, and goes on with the rest."""

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        turn = current_turn(request.state["messages"])
        kept = [
            one
            for one in request.tools
            if not (isinstance(one, _CapCounterMixin) and one.is_used_up(_calls(turn, one.name)))
        ]
        return await handler(request if len(kept) == len(request.tools) else request.override(tools=kept))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolMessage | Command[Any]:
        if not isinstance(request.tool, _CapCounterMixin):
            return await handler(request)
        turn = current_turn(request.state["messages"])
        token = _number.set(_place(turn, request.tool.name, request.tool_call["id"]))
        try:
            return await handler(request)
        finally:
            _number.reset(token)


def _calls(messages: Sequence[AnyMessage], tool: str) -> int:
    return sum(
        call["name"] == tool
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    )


def _place(turn: Sequence[AnyMessage], tool: str, call_id: str | None) -> int:
    """The number of the call among those of its tool in the question, also when several are made at once."""
    said = [message for message in turn if isinstance(message, AIMessage)]
    at_once = [call["id"] for call in said[-1].tool_calls if call["name"] == tool] if said else []
    return _calls(said[:-1], tool) + (at_once.index(call_id) if call_id in at_once else 0) + 1
