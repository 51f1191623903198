"""A model call that fails for a passing reason is made again, then by another model; what had been said is declared void."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse

from ai_platform_engineering.core.settings import ModelSettings
from ai_platform_engineering.core.signals import ModelRetried, NoticeEmitted
from ai_platform_engineering.graph.failures import is_overflow, is_transient, retry_after
from ai_platform_engineering.models.chat_model import create_chat_model

_LONGEST_WAIT = 30.0


class ModelRetryMiddleware(AgentMiddleware):
    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self._settings = settings

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        for spare in (*self._settings.fallbacks, None):
            try:
                return await self._attempts(request, handler)
            except Exception as error:
                if spare is None or is_overflow(error):
                    raise
                request.runtime.stream_writer(ModelRetried(type(error).__name__))
                request.runtime.stream_writer(
                    NoticeEmitted("fallback", f"The model is not available; {spare} goes on instead.")
                )
                request = request.override(model=create_chat_model(self._settings, spare))
        raise AssertionError("the last attempt returns or raises")

    async def _attempts(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        attempt = 1
        while True:
            try:
                return await handler(request)
            except Exception as error:
                if attempt >= self._settings.attempts or not is_transient(error):
                    raise  # what the last attempt said stays, as what remains of the answer
                request.runtime.stream_writer(ModelRetried(type(error).__name__))
                await asyncio.sleep(self._pause(attempt, error))
                attempt += 1

    def _pause(self, attempt: int, error: Exception) -> float:
        asked = retry_after(error)
        wait = (
            asked
            if asked is not None
            else self._settings.retry_delay * 2 ** (attempt - 1) * random.uniform(0.75, 1.25)
        )
        return min(wait, _LONGEST_WAIT)
