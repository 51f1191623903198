"""The model's tools for stored results: read a page, select with JMESPath, find lines by a pattern."""

from collections.abc import Sequence
from dataclasses import dataclass

from langchain.tools import BaseTool, ToolRuntime, tool
from langchain_core.messages import AnyMessage, ToolMessage
from pydantic import BaseModel, Field

from ai_platform_engineering.core.message_metadata import ResultSource, StoredResultNote
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.tool_traits import (
    RESULT_GREP_TOOL,
    RESULT_PAGE_TOOL,
    RESULT_QUERY_TOOL,
    mark_as_own,
)
from ai_platform_engineering.multi_agents.platform_engineer.untrusted_messages import find_result_source
from ai_platform_engineering.runtime.log.result_store import ResultStore
from ai_platform_engineering.runtime.results.result_reader import ResultReader, ResultUnreadable

_PAGE_CHARS = 8_000
_MAX_NUMBER = 10**9  # beyond any result
_NOT_HERE = "There is no stored result {result_id} in this conversation."
_GONE = "The stored result {result_id} was removed to make room. Call its tool again."
_QUERY = (
    "Select from a stored JSON result with a JMESPath expression, such as "
    "`[?status.health.status!='Healthy'].metadata.name`, `length(items)` or `items[0:20].{name: name}`."
)
_GREP = (
    "Find the lines of a stored result that match a regular expression, ignoring case. Lines of a JSON "
    "result are its values with their paths, such as `items[3].metadata.name: checkout`."
)
_RESULT_ID = Field(description="The id that the message of the result names, r-…")


class PageArguments(BaseModel):
    result_id: str = _RESULT_ID
    offset: int = Field(0, description="The first character.", ge=0, le=_MAX_NUMBER)
    length: int = Field(_PAGE_CHARS, description="How many characters.", ge=1)


class QueryArguments(BaseModel):
    result_id: str = _RESULT_ID
    expression: str


class GrepArguments(BaseModel):
    result_id: str = _RESULT_ID
    pattern: str
    skip: int = Field(
        0, description="How many matches to leave out, to go on after a page of them.", ge=0, le=_MAX_NUMBER
    )


@dataclass(frozen=True, slots=True)
class StoredResults:
    """Access to the stored results of a conversation. `max_chars`: of what is read at once."""

    store: ResultStore
    reader: ResultReader
    max_chars: int


def has_stored_result(messages: Sequence[AnyMessage]) -> bool:
    return any(isinstance(message, ToolMessage) and StoredResultNote.of(message) for message in messages)


def build_result_tools(results: StoredResults) -> list[BaseTool]:
    @tool(RESULT_PAGE_TOOL, args_schema=PageArguments, description="Read a part of a stored result.")
    async def result_page(result_id: str, offset: int, length: int, runtime: ToolRuntime) -> ToolMessage:
        message = _find_message(runtime, result_id)
        if message is None:
            return _refuse(runtime, RESULT_PAGE_TOOL, _NOT_HERE.format(result_id=result_id))
        length = min(length, results.max_chars)
        part = await results.store.read(_read_run_id(runtime), result_id, offset, length)
        if part is None:
            return _refuse(runtime, RESULT_PAGE_TOOL, _GONE.format(result_id=result_id))
        end = part.start + len(part.text)
        heading = f"[Characters {part.start:,} to {end:,} of {part.chars:,}]"
        return _reply(runtime, RESULT_PAGE_TOOL, f"{heading}\n{part.text}", message)

    @tool(RESULT_QUERY_TOOL, args_schema=QueryArguments, description=_QUERY)
    async def result_query(result_id: str, expression: str, runtime: ToolRuntime) -> ToolMessage:
        message = _find_message(runtime, result_id)
        if message is None:
            return _refuse(runtime, RESULT_QUERY_TOOL, _NOT_HERE.format(result_id=result_id))
        content = await results.store.read_all(_read_run_id(runtime), result_id)
        if content is None:
            return _refuse(runtime, RESULT_QUERY_TOOL, _GONE.format(result_id=result_id))
        try:
            output = await results.reader.query(content, expression, results.max_chars)
        except ResultUnreadable as error:
            return _refuse(runtime, RESULT_QUERY_TOOL, str(error))
        return _reply(runtime, RESULT_QUERY_TOOL, output, message)

    @tool(RESULT_GREP_TOOL, args_schema=GrepArguments, description=_GREP)
    async def result_grep(result_id: str, pattern: str, skip: int, runtime: ToolRuntime) -> ToolMessage:
        message = _find_message(runtime, result_id)
        if message is None:
            return _refuse(runtime, RESULT_GREP_TOOL, _NOT_HERE.format(result_id=result_id))
        content = await results.store.read_all(_read_run_id(runtime), result_id)
        if content is None:
            return _refuse(runtime, RESULT_GREP_TOOL, _GONE.format(result_id=result_id))
        try:
            output = await results.reader.grep(content, pattern, skip, results.max_chars)
        except ResultUnreadable as error:
            return _refuse(runtime, RESULT_GREP_TOOL, str(error))
        return _reply(runtime, RESULT_GREP_TOOL, output, message)

    for result_tool in (result_page, result_query, result_grep):
        mark_as_own(result_tool)
    return [result_page, result_query, result_grep]


def _find_message(runtime: ToolRuntime, result_id: str) -> ToolMessage | None:
    """The message of a stored result; none where the agent's own messages do not have it."""
    for message in reversed(runtime.state["messages"]):
        if not isinstance(message, ToolMessage):
            continue
        note = StoredResultNote.of(message)
        if note is not None and note.result_id == result_id:
            return message
    return None


def _read_run_id(runtime: ToolRuntime) -> str:
    return RunContext.from_config(runtime.config).run_id


def _reply(runtime: ToolRuntime, name: str, text: str, message: ToolMessage) -> ToolMessage:
    """A part of a result, which is as untrusted as the message of the result."""
    source = ResultSource(find_result_source(message))
    return ToolMessage(
        text, tool_call_id=runtime.tool_call_id, name=name, additional_kwargs=source.to_metadata()
    )


def _refuse(runtime: ToolRuntime, name: str, text: str) -> ToolMessage:
    return ToolMessage(text, tool_call_id=runtime.tool_call_id, name=name, status="error")
