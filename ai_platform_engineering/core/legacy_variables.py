"""Variables of cnoe-io/ai-platform-engineering that have another name here, and are read for compatibility.

`docs/migrating.md` explains them; a test compares it with these tables.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MODEL_VARIABLE = "LLM_MODEL"
PROVIDER_VARIABLE = "LLM_PROVIDER"
AGENT_MODEL_SUFFIX = "_LLM_MODEL"

_TEMPERATURE_VARIABLE = "LLM_TEMPERATURE"
_CONTEXT_VARIABLE = "LLM_CONTEXT_TOKENS"
_SUPERVISOR_PREFIX = "SUPERVISOR_"
_AGENT_PREFIX = re.compile(r"(SUBAGENT_(?P<agent>[A-Z0-9_]+?)_)(?:LLM_PROVIDER|MODEL)")


@dataclass(frozen=True, slots=True)
class LegacyProvider:
    """A value of LLM_PROVIDER: how LLM_MODEL begins for it, and the variables that describe it."""

    prefix: str
    model: str
    temperature: str
    context_tokens: str | None
    connection: tuple[str, ...]  # keys, addresses, regions


PROVIDERS: Mapping[str, LegacyProvider] = {
    "anthropic-claude": LegacyProvider(
        "anthropic",
        "ANTHROPIC_MODEL_NAME",
        "ANTHROPIC_TEMPERATURE",
        "ANTHROPIC_MAX_CONTEXT_TOKENS",
        ("ANTHROPIC_API_KEY",),
    ),
    "aws-bedrock": LegacyProvider(
        "bedrock",
        "AWS_BEDROCK_MODEL_ID",
        "BEDROCK_TEMPERATURE",
        "AWS_BEDROCK_MAX_CONTEXT_TOKENS",
        ("AWS_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_BEDROCK_PROVIDER"),
    ),
    "azure-openai": LegacyProvider(
        "azure",
        "AZURE_OPENAI_DEPLOYMENT",
        "AZURE_TEMPERATURE",
        "AZURE_OPENAI_MAX_CONTEXT_TOKENS",
        ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_API_VERSION"),
    ),
    "gcp-vertexai": LegacyProvider(
        "vertexai",
        "VERTEXAI_MODEL_NAME",
        "VERTEXAI_TEMPERATURE",
        "GCP_VERTEXAI_MAX_CONTEXT_TOKENS",
        ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"),
    ),
    "google-gemini": LegacyProvider(
        "google",
        "GOOGLE_GEMINI_MODEL_NAME",
        "GOOGLE_TEMPERATURE",
        "GOOGLE_GEMINI_MAX_CONTEXT_TOKENS",
        ("GOOGLE_API_KEY",),
    ),
    "groq": LegacyProvider("groq", "GROQ_MODEL_NAME", "GROQ_TEMPERATURE", None, ("GROQ_API_KEY",)),
    "openai": LegacyProvider(
        "openai",
        "OPENAI_MODEL_NAME",
        "OPENAI_TEMPERATURE",
        "OPENAI_MAX_CONTEXT_TOKENS",
        ("OPENAI_API_KEY", "OPENAI_ENDPOINT"),
    ),
}

# Read whatever LLM_PROVIDER says. Of two for one setting the first that is set counts.
RENAMED: Mapping[str, str] = {
    "OPENAI_ENDPOINT": "OPENAI_BASE_URL",
    "AZURE_OPENAI_API_VERSION": "OPENAI_API_VERSION",
    "MAX_CONTEXT_TOKENS": _CONTEXT_VARIABLE,
    "AGENT_CONNECTIVITY_TIMEOUT": "AGENT_CHECK_TIMEOUT_SECONDS",
    "AGENT_CONNECTIVITY_REFRESH_INTERVAL": "AGENT_CHECK_SECONDS",
    "POSTGRES_DSN": "LANGGRAPH_CHECKPOINT_POSTGRES_DSN",
}

# Read for the model of the supervisor, and of one agent.
MODEL_PATTERNS = (
    "SUPERVISOR_LLM_PROVIDER",
    "SUPERVISOR_MODEL",
    "SUBAGENT_<NAME>_LLM_PROVIDER",
    "SUBAGENT_<NAME>_MODEL",
)


@dataclass(frozen=True, slots=True)
class LegacyConflict:
    """Two variables for one setting that do not agree; `name` is ours, and it counts."""

    name: str
    legacy_name: str


@dataclass(frozen=True, slots=True, repr=False)
class TranslatedVariables:
    """An environment with our names for what legacy variables say; `sources` are these, by our name.

    `problems` stop the start, like values that a setting cannot have: each begins with its variable.
    """

    variables: dict[str, str]
    sources: Mapping[str, str] = field(default_factory=dict)
    conflicts: tuple[LegacyConflict, ...] = ()
    problems: tuple[str, ...] = ()


def translate_legacy_variables(variables: Mapping[str, str]) -> TranslatedVariables:
    """The environment with our names added; those that are set already stay, so it may be done twice."""
    translator = _Translator(variables)
    translator.translate_models()
    for legacy_name, name in RENAMED.items():
        translator.rename(legacy_name, name)
    return translator.result(variables)


def legacy_names() -> frozenset[str]:
    """Every variable that is read for compatibility, those with `<NAME>` as patterns."""
    names = {PROVIDER_VARIABLE, *RENAMED, *MODEL_PATTERNS}
    for provider in PROVIDERS.values():
        names |= {provider.model, provider.temperature, *provider.connection}
        names |= {provider.context_tokens} if provider.context_tokens else set()
    return frozenset(names)


class _Translator:
    """Collects what the legacy variables of one environment say."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._values = {name: value.strip() for name, value in variables.items() if value.strip()}
        self._translated: dict[str, str] = {}
        self._sources: dict[str, str] = {}
        self._unreadable: dict[str, str] = {}  # our name -> the legacy variable that cannot be translated
        self._problems: dict[str, list[str]] = {}  # by our name: nobody cares when ours is set

    def result(self, variables: Mapping[str, str]) -> TranslatedVariables:
        missing = {name: value for name, value in self._translated.items() if name not in self._values}
        in_use = {name for name, value in self._translated.items() if self._values.get(name, value) == value}
        disputed = {**self._sources, **self._unreadable}
        conflicts = [
            LegacyConflict(name, legacy_name)
            for name, legacy_name in disputed.items()
            if name in self._values and name not in in_use
        ]
        problems = []
        for name, name_problems in self._problems.items():
            if name not in self._values:
                problems += name_problems
        return TranslatedVariables(
            {**variables, **missing},
            {name: source for name, source in self._sources.items() if name in in_use},
            tuple(conflicts),
            tuple(problems),
        )

    def rename(self, legacy_name: str, name: str) -> None:
        value = self._values.get(legacy_name)
        if value is not None and name not in self._translated:
            self._translated[name] = value
            self._sources[name] = legacy_name

    def translate_models(self) -> None:
        for prefix, name in self._agent_prefixes():
            self._translate_model(prefix, name)
        provider = self._translate_model(_SUPERVISOR_PREFIX, MODEL_VARIABLE)
        if MODEL_VARIABLE not in self._sources | self._unreadable:
            provider = self._translate_model("", MODEL_VARIABLE)
        if provider is None:
            return
        self.rename(_SUPERVISOR_PREFIX + provider.temperature, _TEMPERATURE_VARIABLE)
        self.rename(provider.temperature, _TEMPERATURE_VARIABLE)
        if provider.context_tokens:
            self.rename(provider.context_tokens, _CONTEXT_VARIABLE)

    def _agent_prefixes(self) -> Iterator[tuple[str, str]]:
        """How the variables of an agent's model begin, and our name for the model."""
        prefixes = (_AGENT_PREFIX.fullmatch(name) for name in sorted(self._values))
        agents = {match[1]: match["agent"] for match in prefixes if match}
        for prefix, agent in agents.items():
            yield prefix, agent + AGENT_MODEL_SUFFIX

    def _translate_model(self, prefix: str, name: str) -> LegacyProvider | None:
        """Takes `<prefix>LLM_PROVIDER` and its model, or `<prefix>MODEL`, as our variable of that name."""
        provider_variable = prefix + PROVIDER_VARIABLE
        provider_name = self._values.get(provider_variable)
        if provider_name is None:
            if prefix:  # without one it would be anybody's MODEL
                self.rename(f"{prefix}MODEL", name)
            return None
        provider = PROVIDERS.get(provider_name.lower())
        if provider is None:
            known_names = ", ".join(PROVIDERS)
            self._refuse(name, provider_variable, f"it is none of the providers {known_names}")
            return None
        model = self._values.get(prefix + provider.model) or self._values.get(provider.model)
        if model is None:
            self._refuse(name, provider_variable, f"the provider needs {prefix}{provider.model} as well")
            return provider
        self._check_connection(prefix, provider, name)
        self._translated[name] = f"{provider.prefix}:{model}"
        self._sources[name] = provider_variable
        return provider

    def _check_connection(self, prefix: str, provider: LegacyProvider, name: str) -> None:
        """Refuses an address or key for one model alone: with another one, questions went elsewhere."""
        if not prefix:
            return
        for variable in provider.connection:
            own_value = self._values.get(prefix + variable)
            if own_value is None or own_value == self._values.get(variable):
                continue
            if prefix == _SUPERVISOR_PREFIX:
                remedy = f"all models of a process have one connection to a provider: set {variable}"
            else:
                remedy = (
                    "an agent in this process has the connection of the supervisor: "
                    "make it a service with DISTRIBUTED_AGENTS, and set the variable there without its prefix"
                )
            self._problems.setdefault(name, []).append(f"{prefix}{variable}: {remedy}")

    def _refuse(self, name: str, legacy_name: str, reason: str) -> None:
        self._unreadable[name] = legacy_name
        self._problems.setdefault(name, []).append(f"{legacy_name}: {reason}")
