"""The chat model from settings; provider packages load only when their model is used."""

from typing import Any

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel

from ai_platform_engineering.core.errors import ConfigurationError, ModelNotConfigured
from ai_platform_engineering.core.settings import ModelSettings


def chat_model(settings: ModelSettings, name: str | None = None) -> BaseChatModel:
    """The configured model, or the named one (`provider:model`). Raises ModelNotConfigured or ConfigurationError."""
    wanted = name or settings.name
    if wanted is None:
        raise ModelNotConfigured()
    provider = wanted.partition(":")[0]
    # Retries are ours: they must be seen in the stream. One attempt of the client is one attempt.
    options: dict[str, Any] = {"timeout": settings.timeout, "max_retries": 0}
    if settings.temperature is not None:
        options["temperature"] = settings.temperature
    if provider == "openai":
        # Every compatible server speaks chat completions; few speak the newer interface.
        options |= {"use_responses_api": False, "stream_usage": True}
    try:
        model: BaseChatModel = init_chat_model(wanted, **options)
    except ImportError as error:
        raise ConfigurationError(f"LLM_MODEL={wanted}: the package {error.name or provider} is not installed.") from None
    except Exception as error:  # noqa: BLE001 - each provider has errors of its own; their text may hold a key
        raise ConfigurationError(
            f"LLM_MODEL={wanted}: the model cannot be set up ({type(error).__name__}). "
            'It has the form "provider:model", for example "openai:gpt-5-mini", and needs the API key of its provider.'
        ) from None
    return model
