"""The chat model from settings; provider packages load only when their model is used."""

from collections.abc import Sequence
from typing import Any

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel

from ai_platform_engineering.core.environment import find_missing_variables
from ai_platform_engineering.core.errors import ConfigurationError, ModelNotConfigured
from ai_platform_engineering.core.model_providers import ModelProvider, check_model_name, find_provider
from ai_platform_engineering.core.optional_packages import explain_extra
from ai_platform_engineering.core.settings import ModelSettings
from ai_platform_engineering.models.streaming_models import create_caching_model, create_streaming_model


def create_chat_model(settings: ModelSettings, name: str | None = None) -> BaseChatModel:
    """The configured model, or the named one (`provider:model`).

    Raises ModelNotConfigured or ConfigurationError.
    """
    full_name = name or settings.name
    if full_name is None:
        raise ModelNotConfigured()
    try:
        check_model_name(full_name)
    except ValueError as error:
        raise ConfigurationError(f"LLM_MODEL={full_name}: {error}.") from None
    model_name = full_name.partition(":")[2]
    provider = find_provider(full_name)
    missing = find_missing_variables(provider)
    try:
        options = _make_options(settings, provider, model_name)
        model = create_streaming_model(provider.name, model_name, options, settings)
        if model is None:
            model = create_caching_model(provider.name, model_name, options, settings)
        if model is None:
            model = init_chat_model(f"{provider.name}:{model_name}", **options)
    except ImportError:
        raise ConfigurationError(_explain_missing_package(full_name, provider)) from None
    except Exception as error:  # noqa: BLE001 - each provider has errors of its own; their text may hold a key
        if missing:
            raise ConfigurationError(describe_missing_variables(full_name, missing)) from None
        raise ConfigurationError(
            f"LLM_MODEL={full_name}: the model cannot be set up ({type(error).__name__}). "
            f"It needs {provider.needs or 'the API key of its provider'}."
        ) from None
    if missing and not provider.other_sources:
        # Some libraries would send a request without a key, and tell a failed connection.
        raise ConfigurationError(describe_missing_variables(full_name, missing))
    return model


def _make_options(settings: ModelSettings, provider: ModelProvider, model_name: str) -> dict[str, Any]:
    # Retries are ours: they must be seen in the stream. One attempt of the client is one attempt.
    options: dict[str, Any] = {}
    if settings.temperature is not None:
        options["temperature"] = settings.temperature
    match provider.name:
        case "openai" | "azure_openai":
            options |= {"stream_usage": True, "timeout": settings.timeout, "max_retries": 0}
            # Every compatible server speaks chat completions; few speak the newer interface.
            if provider.name == "openai":
                options["responses_api"] = settings.responses_api
        case "anthropic" | "groq":
            options |= {"timeout": settings.timeout, "max_retries": 0}
        case "google_genai":
            # Its library takes 0 retries for "as many as it likes".
            options |= {"timeout": settings.timeout, "max_retries": 1}
            if provider.is_vertex:
                options["vertexai"] = True
        case "bedrock_converse":
            options |= {"timeout": round(settings.timeout) or 1, "max_retries": 0}
            # Any other id names its vendor itself.
            if model_name.startswith("arn:") and settings.bedrock_provider:
                options["provider"] = settings.bedrock_provider
        case _:
            pass
    return options


def describe_missing_variables(full_name: str, missing: Sequence[str]) -> str:
    """Which variables a model needs and are not set."""
    names = " and ".join(names.replace("|", " or ") for names in missing)
    verb = "is" if len(missing) == 1 else "are"
    return (
        f"LLM_MODEL={full_name} needs {names}, which {verb} not set. "
        "For a server that takes no key any word will do as a key."
    )


def _explain_missing_package(full_name: str, provider: ModelProvider) -> str:
    if provider.extra:
        return f"LLM_MODEL={full_name}: its package is not installed. {explain_extra(provider.extra)}"
    return f"LLM_MODEL={full_name}: the package for the provider {provider.name} is not installed."
