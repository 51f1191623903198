"""Stored results: a long result goes into the run log, and the model gets its head, its size and its shape.

Neither messages nor checkpoints nor the journal hold more than that.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.message_metadata import DirectCallNote, StoredResultNote
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.settings import LimitSettings
from ai_platform_engineering.core.tool_traits import ToolTraits, traits_of
from ai_platform_engineering.databases.sql_connections import StorageFailed
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ModelCallHandler,
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_requests import filter_tools
from ai_platform_engineering.multi_agents.platform_engineer.middleware.result_tools import (
    StoredResults,
    build_result_tools,
    has_stored_result,
)
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import find_question
from ai_platform_engineering.runtime.log.result_store import PackedResult, ResultLimits, ResultStore
from ai_platform_engineering.runtime.results.result_reader import ResultReader, ResultUnreadable

log = logging.getLogger(__name__)

_HEAD_SHARE = 4  # the head takes this part of what a message may have
_STORED = (
    "[Stored result {result_id}: {chars:,} characters, {shape}. Below are its first {head:,} characters; "
    "result_query, result_grep and result_page read the others.]\n{text}\n[… {left_out:,} more characters]"
)


class StoredResultsMiddleware(AgentMiddleware):
    """Inside the journal, which would otherwise hold long results, too.

    Not stored are results of knowledge base tools, which have a limit of their own, of failed calls, and of
    direct tool calls: they are the answer as they are.
    """

    def __init__(self, store: ResultStore | None, limits: LimitSettings) -> None:
        """`store`: None where there is no run log, or no model that could read parts of a result."""
        super().__init__()
        self.tools: Sequence[BaseTool] = ()
        self._store = store
        self._reader = ResultReader(limits.tool_result_seconds)
        self._max_chars = limits.tool_result_chars
        self._limits = ResultLimits(limits.tool_result_run_bytes, limits.tool_result_total_bytes)
        if store is not None:
            self.tools = build_result_tools(StoredResults(store, self._reader, self._max_chars // 2))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        if self.tools and not has_stored_result(request.state["messages"]):
            request = filter_tools(request, lambda name: not ToolTraits.from_name(name).reads_results)
        return await handler(request)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        result = await handler(request)
        if self._store is None or not isinstance(result, ToolMessage) or not self._is_stored(request, result):
            return result
        run = RunContext.from_config(request.runtime.config)
        packed = await asyncio.to_thread(PackedResult.pack, result.text)
        if not run.run_id or not packed.fits(self._limits):
            return result
        try:
            await self._store.store(run.run_id, run.epoch, packed, self._limits)
        except StorageFailed as error:
            log.warning("a tool result was not stored: %s", error)
            return result
        return await self._shorten(result, packed)

    def _is_stored(self, request: ToolCallRequest, result: ToolMessage) -> bool:
        if result.status == "error" or len(result.text) <= self._max_chars or request.tool is None:
            return False
        traits = traits_of(request.tool)
        return not traits.is_own and not traits.is_knowledge and not _is_direct_call(request)

    async def _shorten(self, result: ToolMessage, packed: PackedResult) -> ToolMessage:
        """The message with the head of its result."""
        text = result.text
        head = self._max_chars // _HEAD_SHARE
        content = _STORED.format(
            result_id=packed.result_id,
            chars=packed.chars,
            shape=await self._describe(text),
            head=head,
            text=text[:head],
            left_out=packed.chars - head,
        )
        metadata = {**result.additional_kwargs, **StoredResultNote(packed.result_id).to_metadata()}
        update = {"content": _replace_texts(result.content, content), "additional_kwargs": metadata}
        return result.model_copy(update=update)

    async def _describe(self, text: str) -> str:
        content = await asyncio.to_thread(text.encode, "utf-8", "surrogatepass")
        try:
            return await self._reader.describe(content)
        except ResultUnreadable:
            return "of a shape that could not be read"


def _is_direct_call(request: ToolCallRequest) -> bool:
    """Whether the tool was ordered with the question, and its result is the answer."""
    question = find_question(request.state["messages"])
    if question is None:
        return False
    note = DirectCallNote.of(question)
    return note is not None and note.call is not None


def _replace_texts(content: str | list[Any], text: str) -> str | list[Any]:
    """The content with one text in place of all of its own; images and the like stay."""
    if isinstance(content, str):
        return text
    others = [block for block in content if isinstance(block, dict) and block.get("type") != "text"]
    return [{"type": "text", "text": text}, *others]
