"""The chat model of Anthropic on our own streams and connections."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import anthropic
from anthropic.types import RawMessageStreamEvent
from anthropic.types.beta import BetaRawMessageStreamEvent
from langchain_anthropic import ChatAnthropic, convert_to_anthropic_tool
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from pydantic import Field

from ai_platform_engineering.core.model_streams import FeatureMode, ModelStreamSettings
from ai_platform_engineering.models.anthropic_stream import MessageStream
from ai_platform_engineering.models.inline_callbacks import InlineCallbacks
from ai_platform_engineering.models.model_http import create_http_client
from ai_platform_engineering.models.prompt_cache import ANTHROPIC_HOST, add_breakpoints, is_used
from ai_platform_engineering.models.tool_schemas import ToolSchemas

_SCHEMAS = ToolSchemas()


@dataclass(frozen=True, slots=True)
class _StreamingResponse:
    """A response of the library whose stream is ours."""

    headers: Any
    stream: MessageStream

    def parse(self) -> MessageStream:
        return self.stream


class CachedChatAnthropic(ChatAnthropic):
    """ChatAnthropic, whose requests say what the provider stores in its prompt cache."""

    prompt_cache: FeatureMode = Field("off", exclude=True)

    @cached_property
    def _uses_prompt_cache(self) -> bool:
        return is_used(self.prompt_cache, self.anthropic_api_url or "", ANTHROPIC_HOST)

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        payload: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        if self._uses_prompt_cache and "cache_control" not in payload:
            add_breakpoints(payload)
        return payload


class MergedChatAnthropic(InlineCallbacks, CachedChatAnthropic):
    """ChatAnthropic, with what arrived together merged.

    LangChain makes the payloads and converts the events, the Anthropic client sends the requests.
    """

    stream_settings: ModelStreamSettings = Field(exclude=True)

    @cached_property
    def _async_client(self) -> anthropic.AsyncClient:
        http_client = create_http_client(self.stream_settings, self.anthropic_proxy)
        return anthropic.AsyncClient(**self._client_params, http_client=http_client)

    async def _acreate(self, payload: dict[str, Any]) -> Any:
        response = await super()._acreate(payload)
        if not payload.get("stream"):
            return response
        event_type = BetaRawMessageStreamEvent if "betas" in payload else RawMessageStreamEvent
        stream = MessageStream(response.http_response, self.stream_settings, self._async_client, event_type)
        return _StreamingResponse(response.headers, stream)

    def bind_tools(
        self, tools: Sequence[Any], *, strict: bool | None = None, **options: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        def convert(tool: Any) -> Any:
            schema = convert_to_anthropic_tool(tool, strict=strict)
            return schema if "description" in schema else None  # else it would be converted once more

        return super().bind_tools(_SCHEMAS.convert_all(tools, strict, convert), strict=strict, **options)
