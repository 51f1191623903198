"""Tool search: an agent whose tool schemas are too long for its model requests finds its tools by words.

What is bound follows from the messages, so it is the same after a pause, a crash or a later question. All
tools can be called, bound or not: whether a call runs is decided by the policy alone.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain.tools import ToolRuntime, tool
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field

from ai_platform_engineering.core.message_metadata import FoundToolsNote, ResultSource
from ai_platform_engineering.core.tool_traits import SEARCH_TOOLS_TOOL, mark_as_own
from ai_platform_engineering.multi_agents.platform_engineer.delegation import find_scope
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ModelCallHandler,
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_requests import remove_tool
from ai_platform_engineering.multi_agents.platform_engineer.tool_catalog import ToolCatalog, measure_schema

_MAX_FOUND = 8  # tools that one search binds
_MAX_OTHERS = 15  # further matches that it names
_LISTED_SHARE = 6  # the names of all tools take at most this part of the budget
_MAX_WORDS_CHARS = 500
_DESCRIPTION = (
    "You have {count} tools, and only a few of them are bound now. This finds others by words of what they "
    "do, such as `list merge requests`, or by their names; what it finds is bound from your next message on. "
    "Search before you say that something cannot be done. Their names: {names}"
)
_FOUND = "Bound from now on, the best match first: {names}."
_OTHERS = " Other matches, which a narrower search binds: {names}."
_NO_MATCH = "No tool matches. Try other words: the description of search_tools has the names of the tools."
_UNKNOWN = "There is no tool {name}; nothing was called. Find the right one with search_tools."
_SIMILAR = " Similar ones: {names}."


class SearchToolsArguments(BaseModel):
    words: str = Field(description="What the tools do, or their names.", max_length=_MAX_WORDS_CHARS)


class ToolSearchMiddleware(AgentMiddleware):
    """Inside whatever restricts the tools: it chooses among those that are still offered."""

    def __init__(self, catalog: ToolCatalog, budget: int) -> None:
        """`budget`: characters of all tool schemas in a model request, also of the product's own tools."""
        super().__init__()
        self._catalog = catalog
        self._budget = budget
        self._own_sizes: dict[str, int] = {}
        self.tools: Sequence[BaseTool] = ()
        # With less than half of it nothing can be too much: the product's own tools take a sixth.
        if catalog.chars > budget // 2:
            self.tools = [_build_search_tool(catalog, budget)]

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        if not self.tools:
            return await handler(request)
        return await handler(self._choose_tools(request))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        if request.tool is not None or not self.tools:
            return await handler(request)
        call = request.tool_call
        text = _UNKNOWN.format(name=call["name"])
        offered = _find_offered(request.state["messages"], self._catalog)
        similar = self._catalog.search(call["name"], offered.__contains__)
        if similar:
            text += _SIMILAR.format(names=", ".join(similar[:_MAX_FOUND]))
        return ToolMessage(
            text,
            tool_call_id=call["id"],
            name=call["name"],
            status="error",
            additional_kwargs=ResultSource(None).to_metadata(),
        )

    def _choose_tools(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """The request with all tools where they fit, else with the search and what it has found so far."""
        own_tools: list[BaseTool | dict[str, Any]] = []
        offered: list[str] = []
        for bound in request.tools:
            if isinstance(bound, BaseTool) and bound.name in self._catalog.tools:
                offered.append(bound.name)
            else:
                own_tools.append(bound)
        own_chars = sum(map(self._measure_own, own_tools))
        search_chars = self._measure_own(self.tools[0])
        sizes = {name: self._catalog.tools[name].chars for name in offered}
        if own_chars - search_chars + sum(sizes.values()) <= self._budget:
            return remove_tool(request, SEARCH_TOOLS_TOOL)
        names = choose_found_tools(request.state["messages"], sizes, self._budget - own_chars)
        return request.override(tools=[*own_tools, *(self._catalog.tools[name].tool for name in names)])

    def _measure_own(self, bound: BaseTool | dict[str, Any]) -> int:
        """The size of a tool that is no domain tool; those of one graph never change."""
        if not isinstance(bound, BaseTool):
            return measure_schema(bound)
        if bound.name not in self._own_sizes:
            self._own_sizes[bound.name] = measure_schema(bound)
        return self._own_sizes[bound.name]


def choose_found_tools(messages: Sequence[AnyMessage], sizes: Mapping[str, int], room: int) -> list[str]:
    """The tools that searches have found or that were called, as many as fit: the last used ones.

    They are in the order in which they came, so that a provider's prompt cache holds for the first of them.
    """
    last_used: dict[str, int] = {}
    for number, message in enumerate(messages):
        for name in _list_used(message):
            if name in sizes:
                last_used[name] = number
    fitting: set[str] = set()
    for name in sorted(last_used, key=lambda name: -last_used[name]):
        if sizes[name] <= room:
            fitting.add(name)
            room -= sizes[name]
    return [name for name in last_used if name in fitting]


def _list_used(message: AnyMessage) -> Sequence[str]:
    """The tools that a message calls or that a search has found."""
    if isinstance(message, AIMessage):
        return [call["name"] for call in message.tool_calls]
    if not isinstance(message, ToolMessage):
        return ()
    note = FoundToolsNote.of(message)
    if note is None:
        return ()
    return note.names


def _build_search_tool(catalog: ToolCatalog, budget: int) -> BaseTool:
    description = _DESCRIPTION.format(
        count=len(catalog.tools), names=_list_names(catalog, budget // _LISTED_SHARE)
    )

    @tool(SEARCH_TOOLS_TOOL, args_schema=SearchToolsArguments, description=description)
    async def search_tools(words: str, runtime: ToolRuntime) -> ToolMessage:
        offered = _find_offered(runtime.state["messages"], catalog)
        matches = await asyncio.to_thread(catalog.search, words, offered.__contains__)
        bound_names = _take_fitting(matches, catalog, budget // 2)
        return ToolMessage(
            _render_matches(matches, bound_names),
            tool_call_id=runtime.tool_call_id,
            name=SEARCH_TOOLS_TOOL,
            additional_kwargs=FoundToolsNote(tuple(bound_names)).to_metadata(),
        )

    mark_as_own(search_tools)
    return search_tools


def _find_offered(messages: Sequence[AnyMessage], catalog: ToolCatalog) -> Collection[str]:
    """The names of the tools that the question's scope allows."""
    allowed = find_scope(messages).tools
    if allowed is None:
        return catalog.tools.keys()
    return allowed


def _take_fitting(matches: Sequence[str], catalog: ToolCatalog, max_chars: int) -> list[str]:
    """The first matches whose schemas fit together."""
    names: list[str] = []
    for name in matches[:_MAX_FOUND]:
        max_chars -= catalog.tools[name].chars
        if max_chars < 0:
            break
        names.append(name)
    return names


def _render_matches(matches: Sequence[str], found: Sequence[str]) -> str:
    # Names alone: descriptions are third-party text, which is bound with the tools and nowhere else.
    if not found:
        return _NO_MATCH
    text = _FOUND.format(names=", ".join(found))
    others = matches[len(found) : len(found) + _MAX_OTHERS]
    if others:
        text += _OTHERS.format(names=", ".join(others))
    return text


def _list_names(catalog: ToolCatalog, max_chars: int) -> str:
    """The names of the tools, as many as fit."""
    listed: list[str] = []
    remaining_chars = max_chars
    for name in catalog.tools:
        remaining_chars -= len(name) + 2
        if remaining_chars < 0:
            return f"{', '.join(listed)} and {len(catalog.tools) - len(listed)} more."
        listed.append(name)
    return f"{', '.join(listed)}."
