"""The chat model of Amazon Bedrock with the prompt cache of its models."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from langchain_aws import ChatBedrockConverse
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import Field

from ai_platform_engineering.core.model_streams import FeatureMode
from ai_platform_engineering.models.prompt_cache import is_used

_AWS_HOSTS = ("amazonaws.com", "amazonaws.com.cn", "api.aws")
# The models that take cache points; any other refuses the whole request.
_CACHING_MODELS = re.compile(
    r"\bamazon\.nova-(?!sonic)"
    r"|\banthropic\.claude-(?!v\d|instant|3-(?:sonnet|opus|haiku)|3-5-sonnet)"
)


class CachedChatBedrock(ChatBedrockConverse):
    """ChatBedrockConverse, whose requests say what the provider stores in its prompt cache.

    The library places the cache points: behind system prompt, tools and messages, as the model allows.
    """

    prompt_cache: FeatureMode = Field("off", exclude=True)

    @cached_property
    def _cache_options(self) -> dict[str, Any]:
        """The option of the library that has cache points placed; none where the model takes none."""
        takes_cache_points = bool(_CACHING_MODELS.search(self._get_base_model()))
        endpoint = str(self.client.meta.endpoint_url)
        if takes_cache_points and is_used(self.prompt_cache, endpoint, *_AWS_HOSTS):
            return {"cache_control": {"type": "ephemeral"}}
        return {}

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return super()._generate(messages, stop, run_manager, **{**self._cache_options, **kwargs})

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        return super()._stream(messages, stop, run_manager, **{**self._cache_options, **kwargs})
