"""Calls of a chat model that only inline callback handlers listen to, such as LangGraph's stream of messages.

For each call LangChain collects what a tracer would need and starts two tasks, and for each token it looks
every handler up again. Without a tracer nobody uses any of it.
"""

import inspect
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManager,
    AsyncCallbackManagerForLLMRun,
    BaseCallbackHandler,
    Callbacks,
)
from langchain_core.callbacks.base import LLMManagerMixin
from langchain_core.callbacks.manager import ahandle_event
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models._utils import _normalize_messages
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult, RunInfo
from langchain_core.utils.uuid import uuid7

log = logging.getLogger(__name__)

# What LangChain tells a tracer about a structured answer; its own method removes it from the options.
_TRACED_OPTIONS = frozenset({"ls_structured_output_format", "structured_output_format"})

_TokenHandler = Callable[..., Any]


class InlineCallbacks(BaseChatModel):
    """A chat model that calls inline handlers directly; with any other handler LangChain's way is taken."""

    async def agenerate(
        self,
        messages: list[list[BaseMessage]],
        stop: list[str] | None = None,
        callbacks: Callbacks = None,
        *,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        run_name: str | None = None,
        run_id: uuid.UUID | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        manager = AsyncCallbackManager.configure(
            callbacks, self.callbacks, self.verbose, tags, self.tags, metadata, self.metadata
        )
        if len(messages) != 1 or not _is_inline(manager) or not _TRACED_OPTIONS.isdisjoint(kwargs):
            return await super().agenerate(
                messages,
                stop,
                callbacks,
                tags=tags,
                metadata=metadata,
                run_name=run_name,
                run_id=run_id,
                **kwargs,
            )
        run_manager = InlineRunManager.from_manager(manager, run_id or uuid7())
        [conversation] = messages
        await run_manager.on_start(conversation)
        try:
            result = await self._agenerate_with_cache(
                _normalize_messages(conversation), stop=stop, run_manager=run_manager, **kwargs
            )
        except Exception as error:
            await run_manager.on_llm_error(error, response=LLMResult(generations=[]))
            raise
        llm_output = self._combine_llm_outputs([result.llm_output])
        output = LLMResult(generations=[list(result.generations)], llm_output=llm_output)
        await run_manager.on_llm_end(output)
        output.run = [RunInfo(run_id=run_manager.run_id)]
        return output


class InlineRunManager(AsyncCallbackManagerForLLMRun):
    """The callbacks of one model call, in the task that makes it."""

    @classmethod
    def from_manager(cls, manager: AsyncCallbackManager, run_id: uuid.UUID) -> "InlineRunManager":
        run_manager = cls(
            run_id=run_id,
            handlers=manager.handlers,
            inheritable_handlers=manager.inheritable_handlers,
            parent_run_id=manager.parent_run_id,
            tags=manager.tags,
            inheritable_tags=manager.inheritable_tags,
            metadata=manager.metadata,
            inheritable_metadata=manager.inheritable_metadata,
        )
        for handler in manager.handlers:
            if _listens_to_tokens(handler):
                run_manager._token_handlers.append((handler, handler.on_llm_new_token))
        return run_manager

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._token_handlers: list[tuple[BaseCallbackHandler, _TokenHandler]] = []

    async def on_start(self, messages: list[BaseMessage]) -> None:
        await self._notify("on_chat_model_start", "ignore_chat_model", {}, [messages], metadata=self.metadata)

    async def on_llm_new_token(self, token: Any, *, chunk: Any = None, **kwargs: Any) -> None:
        for handler, on_token in self._token_handlers:
            try:
                result = on_token(
                    token,
                    chunk=chunk,
                    run_id=self.run_id,
                    parent_run_id=self.parent_run_id,
                    tags=self.tags,
                    **kwargs,
                )
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                if handler.raise_error:
                    raise
                log.warning("callback %s failed: %r", type(handler).__name__, error)

    async def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        await self._notify("on_llm_end", "ignore_llm", response, **kwargs)

    async def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        await self._notify("on_llm_error", "ignore_llm", error, **kwargs)

    def _notify(self, event: str, ignored: str, *args: Any, **kwargs: Any) -> Awaitable[None]:
        return ahandle_event(
            self.handlers,
            event,
            ignored,
            *args,
            run_id=self.run_id,
            parent_run_id=self.parent_run_id,
            tags=self.tags,
            **kwargs,
        )


def _is_inline(manager: AsyncCallbackManager) -> bool:
    """Whether all handlers run inline; without any, LangChain does little, and does not stream."""
    return bool(manager.handlers) and all(handler.run_inline for handler in manager.handlers)


def _listens_to_tokens(handler: BaseCallbackHandler) -> bool:
    if handler.ignore_llm:
        return False
    own = type(handler).on_llm_new_token
    return own is not LLMManagerMixin.on_llm_new_token
