"""The chat model from settings; provider packages load only when their model is used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel

from ai_platform_engineering.core.errors import ConfigurationError, ModelNotConfigured
from ai_platform_engineering.core.optional_packages import explain_extra
from ai_platform_engineering.core.settings import ModelSettings
from ai_platform_engineering.models.streaming_models import create_streaming_model


@dataclass(frozen=True, slots=True)
class ModelProvider:
    """A provider of LLM_MODEL: LangChain's name for it, the extra that brings its package, what it needs.

    Of the variables `A|B` one is needed. The libraries read them from the environment.
    """

    name: str
    extra: str | None = None
    variables: tuple[str, ...] = ()
    is_vertex: bool = False

    @property
    def needs(self) -> str:
        """The variables for people."""
        return ", ".join(variable.replace("|", " or ") for variable in self.variables)


_AZURE = ModelProvider(
    "azure_openai",
    variables=(
        "AZURE_OPENAI_ENDPOINT",
        "AZURE_OPENAI_API_KEY|OPENAI_API_KEY|AZURE_OPENAI_AD_TOKEN",
        "OPENAI_API_VERSION",
    ),
)
_BEDROCK = ModelProvider("bedrock_converse", "bedrock", ("AWS_REGION|AWS_DEFAULT_REGION|AWS_PROFILE",))
_GEMINI = ModelProvider(
    "google_genai", "google", ("GOOGLE_API_KEY|GEMINI_API_KEY|GOOGLE_GENAI_USE_VERTEXAI",)
)
# The same package: the one that LangChain once had for Vertex AI alone is given up.
_VERTEX = ModelProvider("google_genai", "google", ("GOOGLE_CLOUD_PROJECT",), is_vertex=True)

# By what people write before the colon; others are LangChain's own names.
_PROVIDERS: Mapping[str, ModelProvider] = {
    "openai": ModelProvider("openai", variables=("OPENAI_API_KEY",)),
    "anthropic": ModelProvider("anthropic", variables=("ANTHROPIC_API_KEY",)),
    "azure": _AZURE,
    "azure_openai": _AZURE,
    "azure_ai": ModelProvider("azure_ai", "azure"),
    "bedrock": _BEDROCK,
    "bedrock_converse": _BEDROCK,
    "google": _GEMINI,
    "gemini": _GEMINI,
    "google_genai": _GEMINI,
    "vertexai": _VERTEX,
    "google_vertexai": _VERTEX,
    "groq": ModelProvider("groq", "groq", ("GROQ_API_KEY",)),
    "ollama": ModelProvider("ollama", "ollama"),
    "litellm": ModelProvider("litellm", "litellm"),
}


def find_provider(full_name: str) -> ModelProvider:
    """The provider of a model (`provider:model`)."""
    prefix = full_name.partition(":")[0]
    return _PROVIDERS.get(prefix) or ModelProvider(prefix)


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
    provider = find_provider(full_name)
    try:
        options = _make_options(settings, provider, model_name)
        model = create_streaming_model(provider.name, model_name, options, settings)
        if model is None:
            model = init_chat_model(f"{provider.name}:{model_name}", **options)
    except ImportError:
        raise ConfigurationError(_explain_missing_package(full_name, provider)) from None
    except Exception as error:  # noqa: BLE001 - each provider has errors of its own; their text may hold a key
        raise ConfigurationError(
            f"LLM_MODEL={full_name}: the model cannot be set up ({type(error).__name__}). "
            'It has the form "provider:model", for example "openai:gpt-5-mini", '
            f"and needs {provider.needs or 'the API key of its provider'}."
        ) from None
    return model


def _make_options(settings: ModelSettings, provider: ModelProvider, model_name: str) -> dict[str, Any]:
    # Retries are ours: they must be seen in the stream. One attempt of the client is one attempt.
    options: dict[str, Any] = {}
    if settings.temperature is not None:
        options["temperature"] = settings.temperature
    match provider.name:
        case "openai" | "azure_openai":
            # Every compatible server speaks chat completions; few speak the newer interface.
            options |= {"use_responses_api": False, "stream_usage": True}
            options |= {"timeout": settings.timeout, "max_retries": 0}
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


def _explain_missing_package(full_name: str, provider: ModelProvider) -> str:
    if provider.extra:
        return f"LLM_MODEL={full_name}: its package is not installed. {explain_extra(provider.extra)}"
    return f"LLM_MODEL={full_name}: the package for the provider {provider.name} is not installed."
