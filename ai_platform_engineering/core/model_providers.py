"""Providers of chat models: their names in LLM_MODEL, the extras with their packages, what they need."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class ModelProvider:
    """A provider of LLM_MODEL: LangChain's name for it, the extra that brings its package, what it needs.

    Of the variables `A|B` one is needed. The libraries read them from the environment; those of some
    providers also find what they need elsewhere, for example in `~/.aws` (`other_sources`).
    """

    name: str
    extra: str | None = None
    variables: tuple[str, ...] = ()
    is_vertex: bool = False
    other_sources: bool = False

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
_BEDROCK = ModelProvider(
    "bedrock_converse", "bedrock", ("AWS_REGION|AWS_DEFAULT_REGION|AWS_PROFILE",), other_sources=True
)
_GEMINI = ModelProvider(
    "google_genai", "google", ("GOOGLE_API_KEY|GEMINI_API_KEY|GOOGLE_GENAI_USE_VERTEXAI",)
)
# The same package: the one that LangChain once had for Vertex AI alone is given up.
_VERTEX = ModelProvider(
    "google_genai", "google", ("GOOGLE_CLOUD_PROJECT",), is_vertex=True, other_sources=True
)

# By what people write before the colon.
PROVIDERS: Mapping[str, ModelProvider] = {
    "openai": ModelProvider("openai", variables=("OPENAI_API_KEY",)),
    "anthropic": ModelProvider("anthropic", variables=("ANTHROPIC_API_KEY",)),
    "azure": _AZURE,
    "azure_openai": _AZURE,
    "azure_ai": ModelProvider(
        "azure_ai",
        "azure",
        ("AZURE_AI_PROJECT_ENDPOINT|AZURE_AI_OPENAI_ENDPOINT|AZURE_OPENAI_ENDPOINT",),
        other_sources=True,
    ),
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


# LangChain's names of further providers: whoever installs their package can use them.
LANGCHAIN_PROVIDERS = frozenset(
    """
    anthropic_bedrock baseten bedrock_mantle_anthropic bedrock_mantle_openai cohere deepseek fireworks
    google_anthropic_vertex huggingface ibm langsmith meta mistralai nvidia openrouter perplexity together
    upstage xai
    """.split()
)


def find_provider(full_name: str) -> ModelProvider:
    """The provider of a model (`provider:model`)."""
    prefix = full_name.partition(":")[0]
    return PROVIDERS.get(prefix) or ModelProvider(prefix)


def check_model_name(full_name: str) -> str:
    """The name of a model, if it has the form `provider:model` with a known provider. Raises ValueError."""
    prefix, _, model = full_name.partition(":")
    if not prefix or not model:
        raise ValueError('the form is "provider:model", for example "openai:gpt-5-mini"')
    if prefix in PROVIDERS or prefix in LANGCHAIN_PROVIDERS:
        return full_name
    similar = get_close_matches(prefix, [*PROVIDERS, *LANGCHAIN_PROVIDERS], n=1)
    if similar:
        raise ValueError(f'there is no provider "{prefix}"; did you mean "{similar[0]}:{model}"?')
    raise ValueError(f'there is no provider "{prefix}"; there are {", ".join(PROVIDERS)}')
