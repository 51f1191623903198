"""Chat models whose streams we read ourselves, for the providers whose protocol we know."""

from importlib import import_module
from typing import Any

from langchain_core.language_models import BaseChatModel

from ai_platform_engineering.core.settings import ModelSettings
from ai_platform_engineering.net.proxies import has_only_http_proxies

# Module and class by LangChain's name of the provider; by name, since the providers' packages are large and
# only those of the models in use are imported.
_CLASSES = {
    "openai": ("ai_platform_engineering.models.openai_models", "MergedChatOpenAI"),
    "azure_openai": ("ai_platform_engineering.models.openai_models", "MergedAzureChatOpenAI"),
    "anthropic": ("ai_platform_engineering.models.anthropic_models", "MergedChatAnthropic"),
}


def create_streaming_model(
    provider: str, name: str, options: dict[str, Any], settings: ModelSettings
) -> BaseChatModel | None:
    """The model on our own client; none with LLM_STREAM_CLIENT=stock, a SOCKS proxy, or another provider."""
    if provider not in _CLASSES or settings.stream_client == "stock" or not has_only_http_proxies():
        return None
    module_name, class_name = _CLASSES[provider]
    model_class = getattr(import_module(module_name), class_name)
    model: BaseChatModel = model_class(model=name, stream_settings=settings, **options)
    return model
