"""Retries of model calls: after a transient failure the same model again, then the fallback models.

Each retry is signalled, so that readers discard what the failed attempt had streamed.
"""

import asyncio
import random
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse

from ai_platform_engineering.core.redaction import Redactor
from ai_platform_engineering.core.settings import ModelSettings
from ai_platform_engineering.core.signals import ModelRetried, NoticeEmitted
from ai_platform_engineering.graph.failures import is_overflow, is_transient, retry_after
from ai_platform_engineering.graph.retry_reasons import describe_transient
from ai_platform_engineering.models.model_loader import load_chat_model
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import ModelCallHandler
from ai_platform_engineering.multi_agents.platform_engineer.run_usage import may_retry_model

_LONGEST_WAIT = 30.0


class ModelRetryMiddleware(AgentMiddleware):
    """Tries the configured model several times, then each fallback model."""

    def __init__(self, settings: ModelSettings, redactor: Redactor) -> None:
        super().__init__()
        self._settings = settings
        self._redactor = redactor

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        try:
            return await self._call_with_fallbacks(request, handler)
        except Exception as error:
            # The graph's checkpoint stores its text, in which some providers repeat our key.
            self._redactor.redact_error(error)
            raise

    async def _call_with_fallbacks(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        for fallback in self._settings.fallbacks:
            try:
                return await self._call_with_retries(request, handler)
            except Exception as error:
                if is_overflow(error):
                    raise
                request.runtime.stream_writer(ModelRetried(type(error).__name__))
                text = f"The model is unavailable; continuing with {fallback}."
                request.runtime.stream_writer(NoticeEmitted("fallback", text))
                request = request.override(model=await load_chat_model(self._settings, fallback))
        return await self._call_with_retries(request, handler)

    async def _call_with_retries(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        attempt = 1
        while True:
            try:
                return await handler(request)
            except Exception as error:
                is_last = attempt >= self._settings.attempts or not may_retry_model()
                if is_last or not is_transient(error):
                    raise  # the text of the last attempt stays, as the partial answer
                delay = self._retry_delay(attempt, error)
                attempt += 1
                request.runtime.stream_writer(ModelRetried(type(error).__name__))
                notice = self._describe_retry(error, attempt, delay)
                request.runtime.stream_writer(NoticeEmitted("retry", notice))
                await asyncio.sleep(delay)

    def _describe_retry(self, error: Exception, attempt: int, delay: float) -> str:
        """Why the model is asked again, for the which time, and when."""
        moment = f"in {delay:.0f} s" if delay >= 1 else "now"
        return (
            f"{describe_transient(error)}. Trying again {moment}"
            f" (attempt {attempt} of {self._settings.attempts})."
        )

    def _retry_delay(self, attempt: int, error: Exception) -> float:
        """The seconds that the provider asks for, else an exponential backoff with jitter."""
        delay = retry_after(error)
        if delay is None:
            delay = self._settings.retry_delay * 2 ** (attempt - 1) * random.uniform(0.75, 1.25)
        return min(delay, _LONGEST_WAIT)
