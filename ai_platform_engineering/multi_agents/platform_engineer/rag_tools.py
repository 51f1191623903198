"""The tools of the knowledge base on the supervisor, with a cap on calls and output per question.

The caps apply to the knowledge base's tools, never by name: a domain agent's own `search` has none.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import PrivateAttr

from ai_platform_engineering.core.knowledge_settings import KnowledgeSettings
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.tool_traits import traits_of
from ai_platform_engineering.multi_agents.platform_engineer.output_truncation import truncate_output

SEARCH = "search"
FETCH_DOCUMENT = "fetch_document"

CAP_MESSAGE = (
    "[Document already retrieved] You have reached the maximum allowed number of {tool_name} calls ({max}). "
    "Please synthesize your answer from the documents already retrieved. Do NOT call {tool_name} again."
)

# Outside of a run nobody calls `forget_run`: the oldest counts are dropped.
_MAX_COUNTED_QUERIES = 10_000

# The number of the current call among those of its tool in the question; None outside of a run.
CALL_NUMBER: ContextVar[int | None] = ContextVar("number of the call in its question", default=None)

_Query = tuple[str | None, str | None]  # thread id, run id


class _KnowledgeTool(BaseTool):
    """A tool of the knowledge base with a limit on the length of its output."""

    _wrapped_tool: BaseTool = PrivateAttr()
    _max_chars: int = PrivateAttr()

    @classmethod
    def of(cls, tool: BaseTool, settings: KnowledgeSettings) -> "_KnowledgeTool":
        traits = replace(traits_of(tool), is_knowledge=True)
        wrapper = cls(
            name=tool.name,
            description=tool.description,
            args_schema=tool.args_schema,
            metadata={**(tool.metadata or {}), **traits.to_metadata()},
        )
        wrapper._wrapped_tool = tool
        wrapper._max_chars = settings.max_output_chars
        return wrapper

    async def _arun(self, *args: Any, config: RunnableConfig, **kwargs: Any) -> Any:
        output = await self._wrapped_tool.ainvoke(self._limit_arguments(kwargs), _without_callbacks(config))
        return truncate_output(output, self._max_chars)

    def _run(self, *args: Any, config: RunnableConfig, **kwargs: Any) -> Any:
        output = self._wrapped_tool.invoke(self._limit_arguments(kwargs), _without_callbacks(config))
        return truncate_output(output, self._max_chars)

    def _limit_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments


def _without_callbacks(config: RunnableConfig) -> RunnableConfig:
    """The configuration for the wrapped tool: its call is the wrapper's call, and is reported only once."""
    return {**config, "callbacks": []}


class _CapCounterMixin(_KnowledgeTool):
    """Counts the calls of a question, and refuses those above the maximum.

    Within a run the run's messages give the number of a call, so that the count survives a pause and a
    restart. Outside of a run the calls of a thread are counted.
    """

    _call_counts: dict[_Query, int] = PrivateAttr(default_factory=dict)
    _max_calls: int = PrivateAttr()

    async def _arun(self, *args: Any, config: RunnableConfig, **kwargs: Any) -> Any:
        if self._count_call(config):
            return await super()._arun(*args, config=config, **kwargs)
        return self.cap_message

    def _run(self, *args: Any, config: RunnableConfig, **kwargs: Any) -> Any:
        if self._count_call(config):
            return super()._run(*args, config=config, **kwargs)
        return self.cap_message

    def _count_call(self, config: RunnableConfig) -> bool:
        """Whether the call is within the maximum."""
        query = _read_query(config)
        number = CALL_NUMBER.get() or self._call_counts.get(query, 0) + 1
        self._call_counts[query] = max(number, self._call_counts.pop(query, 0))
        while len(self._call_counts) > _MAX_COUNTED_QUERIES:
            del self._call_counts[next(iter(self._call_counts))]
        return number <= self._max_calls

    @property
    def cap_message(self) -> str:
        """What a call above the maximum answers: our own words, which the model is to heed."""
        return CAP_MESSAGE.format(tool_name=self.name, max=self._max_calls)

    def is_used_up(self, calls: int) -> bool:
        return calls >= self._max_calls

    def forget_run(self, run_id: str) -> None:
        """Drops the counts of a run that has ended."""
        for query in list(self._call_counts):
            if query[1] == run_id:
                del self._call_counts[query]


class FetchDocumentCapWrapper(_CapCounterMixin):
    """`fetch_document` with a cap on calls."""

    @classmethod
    def of(cls, tool: BaseTool, settings: KnowledgeSettings) -> "FetchDocumentCapWrapper":
        wrapper = super().of(tool, settings)
        assert isinstance(wrapper, FetchDocumentCapWrapper)
        wrapper._max_calls = settings.fetch_calls
        return wrapper


class SearchCapWrapper(_CapCounterMixin):
    """`search` with a cap on calls and on results."""

    _max_results: int = PrivateAttr()

    @classmethod
    def of(cls, tool: BaseTool, settings: KnowledgeSettings) -> "SearchCapWrapper":
        wrapper = super().of(tool, settings)
        assert isinstance(wrapper, SearchCapWrapper)
        wrapper._max_calls = settings.search_calls
        wrapper._max_results = settings.max_results
        return wrapper

    def _limit_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        limit = arguments.get("limit")
        if not isinstance(limit, int) or limit <= 0:
            limit = self._max_results
        return {**arguments, "limit": min(limit, self._max_results)}


def wrap_knowledge_tools(tools: Sequence[BaseTool], settings: KnowledgeSettings) -> list[BaseTool]:
    """The tools of the knowledge base, each wrapped with its caps."""
    wrappers: Mapping[str, type[_KnowledgeTool]] = {
        SEARCH: SearchCapWrapper,
        FETCH_DOCUMENT: FetchDocumentCapWrapper,
    }
    return [wrappers.get(tool.name, _KnowledgeTool).of(tool, settings) for tool in tools]


def _read_query(config: RunnableConfig) -> _Query:
    run = RunContext.from_config(config)
    return run.thread_id, run.run_id or None
