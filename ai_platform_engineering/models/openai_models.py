"""The chat models of OpenAI and Azure on our own streams and connections."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import httpx2
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from langchain_openai.chat_models.base import BaseChatOpenAI
from pydantic import Field, model_validator

from ai_platform_engineering.core.model_streams import FeatureMode, ModelStreamSettings
from ai_platform_engineering.models.inline_callbacks import InlineCallbacks
from ai_platform_engineering.models.model_http import create_http_client
from ai_platform_engineering.models.openai_responses import MergedResponses
from ai_platform_engineering.models.openai_stream import MergedCompletions
from ai_platform_engineering.models.prompt_cache import OPENAI_HOST, is_used, make_cache_key
from ai_platform_engineering.models.tool_schemas import ToolSchemas

_SCHEMAS = ToolSchemas()
_MOST_SYNC_CLIENTS = 4


class _OwnServerFeatures(BaseChatOpenAI):
    """What compatible servers often lack: the Responses API, and the key of the provider's prompt cache."""

    prompt_cache: FeatureMode = Field("off", exclude=True)
    responses_api: FeatureMode = Field("off", exclude=True)

    @model_validator(mode="after")
    def _choose_api(self) -> Self:
        """Responses are not stored at the provider: conversations may be older than what it keeps."""
        self.use_responses_api = self._uses(self.responses_api)
        if self.use_responses_api:
            self.store = False
        return self

    @cached_property
    def _sends_cache_key(self) -> bool:
        return self._uses(self.prompt_cache)

    @cached_property
    def _reasons(self) -> bool:
        return bool((self.profile or {}).get("reasoning_output"))

    def _uses(self, mode: FeatureMode) -> bool:
        return is_used(mode, str(self.root_async_client.base_url), OPENAI_HOST)

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        payload: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        if self._sends_cache_key and "prompt_cache_key" not in payload:
            payload["prompt_cache_key"] = make_cache_key(payload.get("messages") or payload["input"])
        if self.use_responses_api and self._reasons:
            # Without it the model would begin its reasoning anew after each tool call.
            payload.setdefault("include", ["reasoning.encrypted_content"])
        return payload


class CachedChatOpenAI(_OwnServerFeatures, ChatOpenAI):
    """ChatOpenAI with the library's own streams."""


class CachedAzureChatOpenAI(_OwnServerFeatures, AzureChatOpenAI):
    """AzureChatOpenAI with the library's own streams."""


class _MergedStreams(InlineCallbacks, _OwnServerFeatures):
    """What is ours in a model: its HTTP client, how streams are read, and the schemas of tools.

    LangChain makes the payloads and converts the chunks, the OpenAI client sends the requests.
    """

    stream_settings: ModelStreamSettings = Field(exclude=True)
    takes_proxy: ClassVar[bool] = True  # from OPENAI_PROXY

    @model_validator(mode="after")
    def validate_environment(self) -> Self:
        """Sets up the clients; it replaces LangChain's validator of this name, which does so too."""
        proxy = self.openai_proxy if self.takes_proxy else None
        self.http_async_client = create_http_client(self.stream_settings, proxy)
        if self.http_client is None:
            self.http_client = _create_sync_client(proxy)
        self.openai_proxy = None  # LangChain would refuse it together with a client
        self.http_socket_options = ()  # of a transport that is not used
        super().validate_environment()  # type: ignore[operator]  # a method, once pydantic has made the class
        self.openai_proxy = proxy
        self.async_client = MergedCompletions(
            self.root_async_client, self.stream_settings, self.stream_chunk_timeout
        )
        # The client makes its own when it is first used, unless there is one.
        self.root_async_client.responses = MergedResponses(
            self.root_async_client, self.stream_settings, self.stream_chunk_timeout
        )
        self.stream_chunk_timeout = None  # LangChain would start a task for each chunk
        return self

    def bind_tools(
        self, tools: Sequence[Any], *, strict: bool | None = None, **options: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        bind = super().bind_tools
        if options.get("response_format"):  # changes the schemas
            return bind(tools, strict=strict, **options)

        def convert(tool: Any) -> Any:
            return bind([tool], strict=strict).kwargs["tools"][0]  # type: ignore[attr-defined]

        return bind(_SCHEMAS.convert_all(tools, strict, convert), strict=strict, **options)


@lru_cache(_MOST_SYNC_CLIENTS)
def _create_sync_client(proxy: str | None) -> httpx2.Client:
    """The library wants a client for synchronous calls too, which are never made: one serves all models."""
    return httpx2.Client(proxy=proxy)


class MergedChatOpenAI(_MergedStreams, ChatOpenAI):
    """ChatOpenAI, with what arrived together merged."""


class MergedAzureChatOpenAI(_MergedStreams, AzureChatOpenAI):
    """AzureChatOpenAI, with what arrived together merged."""

    takes_proxy: ClassVar[bool] = False
