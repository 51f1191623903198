"""Chat models of ours for the providers whose protocol we know: their streams and their prompt caches."""

from importlib import import_module
from typing import Any

from langchain_core.language_models import BaseChatModel

from ai_platform_engineering.core.settings import ModelSettings
from ai_platform_engineering.net.proxies import has_only_http_proxies

# Module and class by LangChain's name of the provider; by name, since the providers' packages are large and
# only those of the models in use are imported.
_STREAMING_CLASSES = {
    "openai": ("ai_platform_engineering.models.openai_models", "MergedChatOpenAI"),
    "azure_openai": ("ai_platform_engineering.models.openai_models", "MergedAzureChatOpenAI"),
    "anthropic": ("ai_platform_engineering.models.anthropic_models", "MergedChatAnthropic"),
}
# With the library's own streams.
_CACHING_CLASSES = {
    "openai": ("ai_platform_engineering.models.openai_models", "CachedChatOpenAI"),
    "azure_openai": ("ai_platform_engineering.models.openai_models", "CachedAzureChatOpenAI"),
    "anthropic": ("ai_platform_engineering.models.anthropic_models", "CachedChatAnthropic"),
    "bedrock_converse": ("ai_platform_engineering.models.bedrock_models", "CachedChatBedrock"),
}


def create_streaming_model(
    provider: str, name: str, options: dict[str, Any], settings: ModelSettings
) -> BaseChatModel | None:
    """The model on our own client; none with LLM_STREAM_CLIENT=stock, a SOCKS proxy, or another provider."""
    if settings.stream_client == "stock" or not has_only_http_proxies():
        return None
    model_class = _find_class(_STREAMING_CLASSES, provider)
    if model_class is None:
        return None
    model: BaseChatModel = model_class(
        model=name, stream_settings=settings, prompt_cache=settings.prompt_cache, **options
    )
    return model


def create_caching_model(
    provider: str, name: str, options: dict[str, Any], settings: ModelSettings
) -> BaseChatModel | None:
    """The model on the provider's client; none for a provider whose prompt cache needs nothing of us."""
    model_class = _find_class(_CACHING_CLASSES, provider)
    if model_class is None:
        return None
    model: BaseChatModel = model_class(model=name, prompt_cache=settings.prompt_cache, **options)
    return model


def _find_class(classes: dict[str, tuple[str, str]], provider: str) -> Any:
    """The class of a provider's model; None when there is none."""
    if provider not in classes:
        return None
    module_name, class_name = classes[provider]
    return getattr(import_module(module_name), class_name)
