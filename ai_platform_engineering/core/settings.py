"""All settings, read from the environment and `.env` once, at a composition root, and handed down."""

import ipaddress
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from dotenv import dotenv_values
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from ai_platform_engineering.core.errors import ConfigurationError


def _parse_flag(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip().lower() in ("true", "1", "yes", "on")
    return value


def _split_names(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return value.lower()
    return value


Backend = Literal["memory", "sqlite", "postgres", "redis", "mongodb"]
Flag = Annotated[bool, BeforeValidator(_parse_flag)]
Names = Annotated[tuple[str, ...], BeforeValidator(_split_names)]


class _SettingsGroup(BaseModel):
    """Settings that belong together; the alias of a field is its variable."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True, populate_by_name=True)


class ServerSettings(_SettingsGroup):
    host: str = Field("127.0.0.1", alias="A2A_HOST")
    port: int = Field(8000, alias="A2A_PORT", ge=0, le=65535)
    external_url: str | None = Field(None, alias="EXTERNAL_URL")
    shared_key: SecretStr | None = Field(None, alias="A2A_AUTH_SHARED_KEY")
    # The holder of this key may speak for other people.
    delegate_key: SecretStr | None = Field(None, alias="A2A_AUTH_DELEGATE_KEY")
    allow_unauthenticated: Flag = Field(False, alias="A2A_ALLOW_UNAUTHENTICATED")
    allowed_hosts: Names = Field((), alias="A2A_ALLOWED_HOSTS")
    allowed_origins: Names = Field((), alias="A2A_ALLOWED_ORIGINS")
    max_request_bytes: int = Field(4 * 1024 * 1024, alias="A2A_MAX_REQUEST_BYTES", gt=0)
    max_file_bytes: int = Field(256 * 1024, alias="A2A_MAX_FILE_BYTES", gt=0)
    keep_alive: float = Field(15.0, alias="A2A_KEEP_ALIVE_SECONDS", gt=0)
    name: str = Field("AI Platform Engineer", alias="A2A_AGENT_NAME")
    busy: Annotated[Literal["enqueue", "reject", "interrupt"], BeforeValidator(_lower)] = Field(
        "enqueue", alias="WHEN_BUSY"
    )
    shutdown: float = Field(10.0, alias="SHUTDOWN_SECONDS", ge=0)

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def needs_key(self) -> bool:
        """Whether clients must authenticate."""
        return bool(self.shared_key or self.delegate_key)

    @property
    def url(self) -> str:
        """Where clients reach the server; the card names it."""
        host = self.host
        if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
            host = "localhost"
        elif ":" in host:
            host = f"[{host}]"
        return (self.external_url or f"http://{host}:{self.port}").rstrip("/") + "/"


class ModelSettings(_SettingsGroup):
    name: str | None = Field(None, alias="LLM_MODEL")
    fallbacks: Names = Field((), alias="LLM_FALLBACK_MODELS")
    temperature: float | None = Field(None, alias="LLM_TEMPERATURE")
    timeout: float = Field(120.0, alias="LLM_TIMEOUT_SECONDS", gt=0)
    attempts: int = Field(3, alias="LLM_ATTEMPTS", ge=1, le=10)
    retry_delay: float = Field(1.0, alias="LLM_RETRY_SECONDS", ge=0)
    context_tokens: int = Field(100_000, alias="LLM_CONTEXT_TOKENS", ge=1000)


class LimitSettings(_SettingsGroup):
    recursion: int = Field(500, alias="LANGGRAPH_RECURSION_LIMIT", ge=5)
    model_calls: int = Field(60, alias="MODEL_CALL_LIMIT", ge=1)
    tool_calls: int = Field(200, alias="TOOL_CALL_LIMIT", ge=1)
    tool_output_chars: int = Field(100_000, alias="TOOL_MAX_OUTPUT_CHARS", ge=1000)
    run_seconds: float = Field(3600.0, alias="RUN_TIMEOUT_SECONDS", gt=0)
    delegation_seconds: float = Field(900.0, alias="AGENT_TIMEOUT_SECONDS", gt=0)


class PeopleSettings(_SettingsGroup):
    """What people are asked, and for how long."""

    read_only: Flag = Field(False, alias="READ_ONLY")
    request_seconds: float = Field(86_400.0, alias="REQUEST_TIMEOUT_SECONDS", gt=0)
    workflows: Path | None = Field(None, alias="WORKFLOWS_CONFIG")
    task_config: Path | None = Field(None, alias="TASK_CONFIG_PATH")


class KnowledgeSettings(_SettingsGroup):
    """The knowledge base: where it is, and how much of it one question may use."""

    enabled: Flag | None = Field(None, alias="ENABLE_RAG")  # not set: when it holds documents
    server_url: str | None = Field(None, alias="RAG_SERVER_URL")
    server_token: SecretStr | None = Field(None, alias="RAG_SERVER_TOKEN")
    search_calls: int = Field(5, alias="SEARCH_MAX_CALLS", ge=1)
    fetch_calls: int = Field(10, alias="FETCH_DOCUMENT_MAX_CALLS", ge=1)
    max_results: int = Field(3, alias="RAG_MAX_SEARCH_RESULTS", ge=1)
    max_output_chars: int = Field(10_000, alias="RAG_MAX_OUTPUT_CHARS", ge=100)
    database_url: SecretStr | None = Field(None, alias="RAG_DATABASE_URL")
    embeddings: Annotated[Literal["auto", "off", "embedded", "endpoint"], BeforeValidator(_lower)] = Field(
        "auto", alias="RAG_EMBEDDINGS"
    )
    embeddings_url: str | None = Field(None, alias="EMBEDDINGS_BASE_URL")
    embeddings_model: str = Field("text-embedding-3-small", alias="EMBEDDINGS_MODEL")
    embeddings_key: SecretStr | None = Field(None, alias="EMBEDDINGS_API_KEY")
    allow_private: Flag = Field(False, alias="RAG_ALLOW_PRIVATE_ADDRESSES")
    # The REST routes may read files of this machine below these folders.
    ingest_folders: Names = Field((), alias="RAG_INGEST_FOLDERS")
    fetch_bytes: int = Field(10 * 1024 * 1024, alias="RAG_FETCH_MAX_BYTES", gt=0)
    fetch_seconds: float = Field(30.0, alias="RAG_FETCH_TIMEOUT_SECONDS", gt=0)


class SkillSettings(_SettingsGroup):
    """Procedures that the supervisor can follow, and where they come from."""

    enabled: Flag = Field(True, alias="ENABLE_SKILLS")
    folder: Path | None = Field(None, alias="SKILLS_DIR")
    hubs: Names = Field((), alias="SKILL_HUBS")  # url@ref or url@ref#folder
    # For hubs that are added later.
    allow_private: Flag = Field(False, alias="SKILL_HUBS_ALLOW_PRIVATE_ADDRESSES")


class AgentSettings(_SettingsGroup):
    structured_response: Flag = Field(False, alias="USE_STRUCTURED_RESPONSE")
    prompt_config: Path | None = Field(None, alias="PROMPT_CONFIG")
    langgraph_dev: Flag = Field(False, alias="LANGGRAPH_DEV")
    definitions: str | None = Field(None, alias="AGENTS_CONFIG")
    home: Path = Field(default_factory=lambda: Path.home() / ".caipe", alias="CAIPE_HOME")
    remember_facts: Flag = Field(True, alias="REMEMBER_FACTS")


class PlacementSettings(_SettingsGroup):
    """Which agents run as services elsewhere, and how they are reached.

    Their addresses are in `<NAME>_AGENT_URL`.
    """

    agents: Names | None = Field(None, alias="DISTRIBUTED_AGENTS")
    everywhere: Flag = Field(False, alias="DISTRIBUTED_MODE")
    skip_check: Flag | None = Field(None, alias="SKIP_AGENT_CONNECTIVITY_CHECK")
    check_timeout: float = Field(3.0, alias="AGENT_CHECK_TIMEOUT_SECONDS", gt=0)
    check_every: float = Field(30.0, alias="AGENT_CHECK_SECONDS", gt=0)
    connect_timeout: float = Field(5.0, alias="AGENT_CONNECT_TIMEOUT_SECONDS", gt=0)
    idle_timeout: float = Field(60.0, alias="AGENT_IDLE_TIMEOUT_SECONDS", gt=0)
    fallback: Flag = Field(False, alias="PLACEMENT_FALLBACK")

    @property
    def distributed(self) -> frozenset[str]:
        """The names of the distributed agents; `EVERY_AGENT` stands for all of them."""
        if self.agents is None:
            if self.everywhere:
                return frozenset({EVERY_AGENT})
            return frozenset()
        names = frozenset(name.lower() for name in self.agents)
        if "all" in names:
            return frozenset({EVERY_AGENT})
        return names


EVERY_AGENT = "__all__"


def read_placement(variables: Mapping[str, str]) -> PlacementSettings:
    """Only which agents are distributed, whatever else may be wrong with the settings."""
    names = ("DISTRIBUTED_AGENTS", "DISTRIBUTED_MODE")
    return Settings.from_variables({name: variables[name] for name in names if name in variables}).placement


def is_distributed(name: str, distributed: Collection[str]) -> bool:
    return name in distributed or EVERY_AGENT in distributed


class McpSettings(_SettingsGroup):
    connect_timeout: float = Field(30.0, alias="MCP_CONNECT_TIMEOUT", gt=0)
    call_timeout: float = Field(60.0, alias="MCP_CALL_TIMEOUT", gt=0)


class StreamSettings(_SettingsGroup):
    """How deltas are joined before they are stored: the first of a message at once, then by time and size."""

    every: float = Field(0.02, alias="STREAM_COALESCE_SECONDS", ge=0)
    size: int = Field(400, alias="STREAM_COALESCE_CHARS", ge=1)


class StorageSettings(_SettingsGroup):
    """Where conversations are kept; addresses hold passwords, so they are secrets."""

    database_url: SecretStr | None = Field(None, alias="DATABASE_URL")
    checkpoint_type: Annotated[Backend | None, BeforeValidator(_lower)] = Field(
        None, alias="LANGGRAPH_CHECKPOINT_TYPE"
    )
    redis_dsn: SecretStr | None = Field(None, alias="LANGGRAPH_CHECKPOINT_REDIS_URL")
    postgres_dsn: SecretStr | None = Field(None, alias="LANGGRAPH_CHECKPOINT_POSTGRES_DSN")
    mongodb_dsn: SecretStr | None = Field(None, alias="LANGGRAPH_CHECKPOINT_MONGODB_URI")
    ttl_minutes: int | None = Field(None, alias="LANGGRAPH_CHECKPOINT_TTL_MINUTES", ge=1)
    mongodb_uri: SecretStr | None = Field(None, alias="MONGODB_URI")
    redis_url: SecretStr | None = Field(None, alias="REDIS_URL")
    required: Flag = Field(False, alias="STORAGE_REQUIRED")
    store_type: Annotated[Backend | None, BeforeValidator(_lower)] = Field(None, alias="LANGGRAPH_STORE_TYPE")
    retention_days: float = Field(30.0, alias="RETENTION_DAYS", gt=0)


class SlackSettings(_SettingsGroup):
    """The Slack bot: how it reaches Slack, and what it may do where."""

    mode: Annotated[Literal["socket", "http"], BeforeValidator(_lower)] = Field(
        "socket", alias="SLACK_INTEGRATION_BOT_MODE"
    )
    bot_token: SecretStr | None = Field(None, alias="SLACK_INTEGRATION_BOT_TOKEN")
    app_token: SecretStr | None = Field(None, alias="SLACK_INTEGRATION_APP_TOKEN")
    signing_secret: SecretStr | None = Field(None, alias="SLACK_INTEGRATION_SIGNING_SECRET")
    config: Path | None = Field(None, alias="SLACK_INTEGRATION_BOT_CONFIG")
    host: str = Field("127.0.0.1", alias="SLACK_INTEGRATION_HOST")
    port: int = Field(3000, alias="SLACK_INTEGRATION_PORT", ge=0, le=65535)
    api_url: str = Field("https://slack.com/api/", alias="SLACK_INTEGRATION_API_URL")
    streaming: Flag = Field(True, alias="SLACK_INTEGRATION_STREAMING")


class LogSettings(_SettingsGroup):
    level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(str.upper)] = Field(
        "INFO", alias="LOG_LEVEL"
    )


class Settings(_SettingsGroup):
    server: ServerSettings = Field(default_factory=ServerSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    agent: AgentSettings = Field(default_factory=AgentSettings)
    people: PeopleSettings = Field(default_factory=PeopleSettings)
    knowledge: KnowledgeSettings = Field(default_factory=KnowledgeSettings)
    skills: SkillSettings = Field(default_factory=SkillSettings)
    placement: PlacementSettings = Field(default_factory=PlacementSettings)
    mcp: McpSettings = Field(default_factory=McpSettings)
    stream: StreamSettings = Field(default_factory=StreamSettings)
    storage: StorageSettings = Field(default_factory=StorageSettings)
    slack: SlackSettings = Field(default_factory=SlackSettings)
    logging: LogSettings = Field(default_factory=LogSettings)

    @classmethod
    def from_variables(cls, values: Mapping[str, str]) -> Self:
        """Settings from variables; an empty value counts as not set."""
        variables: dict[str, Any] = {name: value.strip() for name, value in values.items() if value.strip()}
        problems: list[str] = []
        groups: dict[str, _SettingsGroup] = {}
        for name, group_type in _GROUPS.items():
            try:
                # By alias alone: an environment may hold a `host` or a `name` of another program.
                groups[name] = group_type.model_validate(variables, by_alias=True, by_name=False)
            except ValidationError as error:
                # Only the variable and the rule: the value may be a secret.
                for detail in error.errors(include_input=False):
                    variable = ".".join(map(str, detail["loc"]))
                    problems.append(f"{variable}: {detail['msg']}")
        if problems:
            raise ConfigurationError(f"Settings are wrong. {'; '.join(problems)}.")
        return cls.model_validate(groups)

    @classmethod
    def load(cls, env_file: Path | str = ".env") -> Self:
        """Settings from the environment over `.env`."""
        return cls.from_variables(read_environment(env_file))


_GROUPS: dict[str, type[_SettingsGroup]] = {
    "server": ServerSettings,
    "model": ModelSettings,
    "limits": LimitSettings,
    "agent": AgentSettings,
    "people": PeopleSettings,
    "knowledge": KnowledgeSettings,
    "skills": SkillSettings,
    "placement": PlacementSettings,
    "mcp": McpSettings,
    "stream": StreamSettings,
    "storage": StorageSettings,
    "slack": SlackSettings,
    "logging": LogSettings,
}


_Source = Literal["environment", ".env", "default"]


class SettingRow(NamedTuple):
    """A setting for people; of a secret only that it is set."""

    name: str
    value: str
    source: _Source


def describe_settings(
    settings: Settings, variables: Mapping[str, str], from_file: Mapping[str, str]
) -> list[SettingRow]:
    """Every setting with its value and its source."""
    rows: list[SettingRow] = []
    for name, group_type in _GROUPS.items():
        group = getattr(settings, name)
        for field, info in group_type.model_fields.items():
            variable = info.alias or field
            source: _Source = "default"
            if variables.get(variable, "").strip():
                source = ".env" if from_file.get(variable) == variables.get(variable) else "environment"
            rows.append(SettingRow(variable, _describe_value(getattr(group, field)), source))
    return rows


def _describe_value(value: Any) -> str:
    if isinstance(value, SecretStr):
        return "set"
    if value is None:
        return ""
    return str(value)


def read_dotenv(env_file: Path | str = ".env") -> dict[str, str]:
    """The variables of the file alone. Raises ConfigurationError."""
    try:
        variables = dotenv_values(env_file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{env_file} cannot be read ({type(error).__name__}). It must be a text file in UTF-8."
        ) from None
    return {name: value for name, value in variables.items() if value is not None}


def read_environment(env_file: Path | str = ".env") -> dict[str, str]:
    """The variables in force: the process environment wins over the file."""
    return {**read_dotenv(env_file), **os.environ}


_exported: dict[str, str] = {}  # variables of the process environment that were set by `export_variables`


def export_variables(variables: Mapping[str, str]) -> None:
    """Sets variables of `.env` in the process environment, for libraries that read it themselves."""
    exports = dict(variables)
    # Python's TLS reads SSL_CERT_FILE; people also set the names that curl and requests read.
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    bundle = bundle or exports.get("REQUESTS_CA_BUNDLE") or exports.get("CURL_CA_BUNDLE")
    if bundle:
        exports.setdefault("SSL_CERT_FILE", bundle)
    for name, value in exports.items():
        if name not in os.environ:
            os.environ[name] = value
            _exported[name] = value


def reread_environment(env_file: Path | str = ".env") -> dict[str, str]:
    """The variables after a change of `.env`, without those of the old file. Nothing is exported yet."""
    process_variables = {name: value for name, value in os.environ.items() if _exported.get(name) != value}
    return {**read_dotenv(env_file), **process_variables}


def replace_exported_variables(variables: Mapping[str, str]) -> None:
    """Exports variables, and removes those that were exported before."""
    for name, value in _exported.items():
        if os.environ.get(name) == value:
            del os.environ[name]
    _exported.clear()
    export_variables(variables)


def is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
