"""The chat model from settings; provider packages load only when their model is used."""

from typing import Any

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel

from ai_platform_engineering.core.errors import ConfigurationError, ModelNotConfigured
from ai_platform_engineering.core.settings import ModelSettings

# What people write -> what LangChain calls it, and the extra that brings the package.
_PROVIDERS = {
    "bedrock": "bedrock_converse",
    "google": "google_genai",
    "gemini": "google_genai",
    "azure": "azure_openai",
}
_EXTRAS = {
    "bedrock_converse": "bedrock",
    "bedrock": "bedrock",
    "google_genai": "google",
    "google_vertexai": "google",
    "ollama": "ollama",
    "litellm": "litellm",
    "azure_ai": "azure",
}


def create_chat_model(settings: ModelSettings, name: str | None = None) -> BaseChatModel:
    """The configured model, or the named one (`provider:model`).

    Raises ModelNotConfigured or ConfigurationError.
    """
    full_name = name or settings.name
    if full_name is None:
        raise ModelNotConfigured()
    prefix, _, model_name = full_name.partition(":")
    if not prefix or not model_name:
        raise ConfigurationError(
            f'LLM_MODEL={full_name}: the form is "provider:model", for example "openai:gpt-5-mini".'
        )
    provider = _PROVIDERS.get(prefix, prefix)
    try:
        model: BaseChatModel = init_chat_model(
            f"{provider}:{model_name}", **_make_options(settings, provider)
        )
    except ImportError:
        raise ConfigurationError(_explain_missing_package(full_name, provider)) from None
    except Exception as error:  # noqa: BLE001 - each provider has errors of its own; their text may hold a key
        raise ConfigurationError(
            f"LLM_MODEL={full_name}: the model cannot be set up ({type(error).__name__}). "
            'It has the form "provider:model", for example "openai:gpt-5-mini", '
            "and needs the API key of its provider."
        ) from None
    return model


def _make_options(settings: ModelSettings, provider: str) -> dict[str, Any]:
    # Retries are ours: they must be seen in the stream. One attempt of the client is one attempt.
    options: dict[str, Any] = {}
    if provider in ("openai", "azure_openai", "anthropic"):
        options |= {"timeout": settings.timeout, "max_retries": 0}
    if settings.temperature is not None:
        options["temperature"] = settings.temperature
    if provider == "openai":
        # Every compatible server speaks chat completions; few speak the newer interface.
        options |= {"use_responses_api": False, "stream_usage": True}
    return options


def _explain_missing_package(full_name: str, provider: str) -> str:
    extra = _EXTRAS.get(provider)
    if extra:
        return (
            f"LLM_MODEL={full_name}: its package is not installed. "
            f"Install it with: pip install 'ai-platform-engineering[{extra}]'"
        )
    return f"LLM_MODEL={full_name}: the package for the provider {provider} is not installed."
