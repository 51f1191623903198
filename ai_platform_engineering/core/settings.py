"""All settings, read from the environment and `.env` once, at a composition root, and handed down."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, SecretStr

from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.host_patterns import is_loopback
from ai_platform_engineering.core.knowledge_settings import KnowledgeSettings
from ai_platform_engineering.core.legacy_variables import translate_legacy_variables
from ai_platform_engineering.core.model_streams import FeatureMode, ModelStreamSettings
from ai_platform_engineering.core.network_settings import NetworkSettings
from ai_platform_engineering.core.oauth_settings import OAuthSettings
from ai_platform_engineering.core.placement_settings import PlacementSettings
from ai_platform_engineering.core.push_settings import PushSettings
from ai_platform_engineering.core.redaction import Redactor
from ai_platform_engineering.core.server_limits import ServerLimits
from ai_platform_engineering.core.setting_types import (
    ConfigPath,
    Flag,
    HostPatterns,
    InvalidSettings,
    Key,
    ModelName,
    ModelNames,
    Names,
    SandboxMode,
    SettingsGroup,
    WebAddress,
    strip_values,
    to_lower,
)
from ai_platform_engineering.core.source_settings import SourceSettings
from ai_platform_engineering.core.storage_settings import StorageSettings


class ServerSettings(ServerLimits):
    host: str = Field("127.0.0.1", alias="A2A_HOST")
    port: int = Field(8000, alias="A2A_PORT", ge=0, le=65535)
    external_url: WebAddress | None = Field(None, alias="EXTERNAL_URL")
    shared_key: Key | None = Field(None, alias="A2A_AUTH_SHARED_KEY")
    # The holder of this key may speak for other people.
    delegate_key: Key | None = Field(None, alias="A2A_AUTH_DELEGATE_KEY")
    allow_unauthenticated: Flag = Field(False, alias="A2A_ALLOW_UNAUTHENTICATED")
    # Not offered, and not ignored: a server that it protected must not be open.
    oauth2: Flag = Field(False, alias="A2A_AUTH_OAUTH2")
    allowed_hosts: Names = Field((), alias="A2A_ALLOWED_HOSTS")
    allowed_origins: Names = Field((), alias="A2A_ALLOWED_ORIGINS")
    max_request_bytes: int = Field(4 * 1024 * 1024, alias="A2A_MAX_REQUEST_BYTES", gt=0)
    max_file_bytes: int = Field(256 * 1024, alias="A2A_MAX_FILE_BYTES", gt=0)
    card_signing_key: Path | None = Field(None, alias="A2A_CARD_SIGNING_KEY_FILE")
    keep_alive: float = Field(15.0, alias="A2A_KEEP_ALIVE_SECONDS", gt=0)
    # For clients of protocol 0.3 that activate no extension of ours.
    v03_shape: Annotated[Literal["rich", "plain"], BeforeValidator(to_lower)] = Field(
        "rich", alias="A2A_V03_SHAPE"
    )
    # Whether texts of clients that know no data parts of ours may approve, reject and edit tool calls.
    text_decisions: Flag = Field(True, alias="A2A_TEXT_DECISIONS")
    name: str = Field("AI Platform Engineer", alias="A2A_AGENT_NAME")
    busy: Annotated[Literal["enqueue", "reject", "interrupt"], BeforeValidator(to_lower)] = Field(
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
    def local_url(self) -> str:
        """Where clients on this machine reach the server."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - not bound
        if ":" in host:
            host = f"[{host}]"
        return f"http://{host}:{self.port}/"

    @property
    def url(self) -> str:
        """Where clients reach the server; the card names it."""
        host = self.host
        if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
            host = "localhost"
        elif ":" in host:
            host = f"[{host}]"
        return (self.external_url or f"http://{host}:{self.port}").rstrip("/") + "/"


class ModelSettings(ModelStreamSettings):
    name: ModelName | None = Field(None, alias="LLM_MODEL")
    fallbacks: ModelNames = Field((), alias="LLM_FALLBACK_MODELS")
    temperature: float | None = Field(None, alias="LLM_TEMPERATURE")
    timeout: float = Field(120.0, alias="LLM_TIMEOUT_SECONDS", gt=0)
    attempts: int = Field(3, alias="LLM_ATTEMPTS", ge=1, le=10)
    retry_delay: float = Field(1.0, alias="LLM_RETRY_SECONDS", ge=0)
    # Not set: from the profile of the model.
    context_tokens: int | None = Field(None, alias="LLM_CONTEXT_TOKENS", ge=1000)
    prompt_cache: Annotated[FeatureMode, BeforeValidator(to_lower)] = Field("auto", alias="LLM_PROMPT_CACHE")
    # OpenAI's newer interface; compatible servers speak chat completions.
    responses_api: Annotated[FeatureMode, BeforeValidator(to_lower)] = Field(
        "auto", alias="LLM_RESPONSES_API"
    )
    # Whether a model is shown the images in tool results; compatible servers do not say what they can do.
    tool_images: Annotated[FeatureMode, BeforeValidator(to_lower)] = Field("auto", alias="LLM_TOOL_IMAGES")
    bedrock_provider: str | None = Field(None, alias="AWS_BEDROCK_PROVIDER")  # of a model named by an ARN


class LimitSettings(SettingsGroup):
    """Bounds of one question: of each agent's own work, and of the run with all its agents."""

    recursion: int = Field(500, alias="LANGGRAPH_RECURSION_LIMIT", ge=5)
    model_calls: int = Field(60, alias="MODEL_CALL_LIMIT", ge=1)
    tool_calls: int = Field(200, alias="TOOL_CALL_LIMIT", ge=1)
    # Of the supervisor and all agents together, remote ones included.
    run_model_calls: int = Field(150, alias="RUN_MODEL_CALL_LIMIT", ge=1)
    run_tool_calls: int = Field(500, alias="RUN_TOOL_CALL_LIMIT", ge=1)
    run_tokens: int | None = Field(None, alias="RUN_TOKEN_LIMIT", ge=1)  # not set: no limit
    tool_calls_at_once: int = Field(50, alias="TOOL_CALLS_AT_ONCE", ge=1)  # in one model message
    # Of one model message; joining the pieces of its stream costs the square of their number.
    tool_argument_chars: int = Field(100_000, alias="TOOL_ARGUMENTS_MAX_CHARS", ge=1000)
    tool_output_chars: int = Field(100_000, alias="TOOL_MAX_OUTPUT_CHARS", ge=1000)
    # Of the tools that are bound at once; the agent searches the others.
    tool_schema_chars: int = Field(24_000, alias="TOOL_SCHEMA_BUDGET_CHARS", ge=8000)
    # A longer result is stored, and the model reads parts of it.
    tool_result_chars: int = Field(20_000, alias="TOOL_RESULT_MAX_CHARS", ge=2000)
    # Compressed, as they are stored: of one run, and of all.
    tool_result_run_bytes: int = Field(64 * 1024 * 1024, alias="TOOL_RESULT_RUN_MAX_BYTES", ge=1024)
    tool_result_total_bytes: int = Field(1024**3, alias="TOOL_RESULT_TOTAL_MAX_BYTES", ge=1024)
    tool_result_seconds: float = Field(10.0, alias="TOOL_RESULT_QUERY_SECONDS", gt=0)
    # Images in results that a model is shown: the size of one, and how many of the last ones in one request.
    tool_image_bytes: int = Field(1_000_000, alias="TOOL_IMAGE_MAX_BYTES", ge=1, le=3_000_000)
    tool_images: int = Field(3, alias="TOOL_IMAGES_MAX_SHOWN", ge=0, le=20)
    run_seconds: float = Field(3600.0, alias="RUN_TIMEOUT_SECONDS", gt=0)
    # How long a run goes on that nobody follows; not set: as long as any other.
    run_unfollowed_seconds: float | None = Field(None, alias="RUN_UNFOLLOWED_SECONDS", gt=0)
    # Runs that work at once, and questions that wait for them.
    runs_working: int = Field(200, alias="RUNS_MAX_WORKING", ge=1)
    runs_working_per_person: int = Field(50, alias="RUNS_MAX_WORKING_PER_PERSON", ge=1)
    runs_waiting: int = Field(1000, alias="RUN_QUEUE_LIMIT", ge=0)
    runs_waiting_per_person: int = Field(200, alias="RUN_QUEUE_LIMIT_PER_PERSON", ge=0)
    # How often the process may die under a run before the run is given up.
    run_crashes: int = Field(3, alias="RUN_CRASH_LIMIT", ge=1)
    delegation_seconds: float = Field(900.0, alias="AGENT_TIMEOUT_SECONDS", gt=0)


class PeopleSettings(SettingsGroup):
    """What people are asked, and for how long."""

    read_only: Flag = Field(False, alias="READ_ONLY")
    # A change that follows text of others' asks a person, whatever is said of its tool.
    ask_on_untrusted: Flag = Field(True, alias="ASK_ON_UNTRUSTED_CONTENT")
    request_seconds: float = Field(86_400.0, alias="REQUEST_TIMEOUT_SECONDS", gt=0)
    workflows: Path | None = Field(None, alias="WORKFLOWS_CONFIG")
    task_config: Path | None = Field(None, alias="TASK_CONFIG_PATH")


class SkillSettings(SettingsGroup):
    """Procedures that the supervisor can follow, and where they come from."""

    enabled: Flag = Field(True, alias="ENABLE_SKILLS")
    folder: Path | None = Field(None, alias="SKILLS_DIR")
    hubs: Names = Field((), alias="SKILL_HUBS")  # url@ref or url@ref#folder
    # For hubs that are added later.
    allow_private: Flag = Field(False, alias="SKILL_HUBS_ALLOW_PRIVATE_ADDRESSES")
    private_hosts: HostPatterns = Field((), alias="SKILL_HUBS_PRIVATE_HOSTS")


class AgentSettings(SettingsGroup):
    structured_response: Flag = Field(False, alias="USE_STRUCTURED_RESPONSE")
    prompt_config: Path | None = Field(None, alias="PROMPT_CONFIG")
    langgraph_dev: Flag = Field(False, alias="LANGGRAPH_DEV")
    definitions: str | None = Field(None, alias="AGENTS_CONFIG")
    home: Path = Field(default_factory=lambda: Path.home() / ".caipe", alias="CAIPE_HOME")
    remember_facts: Flag = Field(True, alias="REMEMBER_FACTS")


class McpSettings(SettingsGroup):
    connect_timeout: float = Field(30.0, alias="MCP_CONNECT_TIMEOUT", gt=0)
    call_timeout: float = Field(60.0, alias="MCP_CALL_TIMEOUT", gt=0)
    # A tool server that nobody has used for so long is ended; 0: never.
    idle_timeout: float = Field(600.0, alias="MCP_IDLE_SECONDS", ge=0)
    # Processes of tool servers, of all replicas that share a database, and how long another one waits.
    max_servers: int = Field(100, alias="MCP_MAX_SERVERS", ge=1, le=100_000)
    slot_wait: float = Field(15.0, alias="MCP_SLOT_SECONDS", ge=1, le=600)
    # A tool server that asks people in the middle of a call holds it open for so long.
    question_timeout: float = Field(3600.0, alias="MCP_QUESTION_SECONDS", gt=0)
    # `auto`: where bubblewrap works. `required`: a tool server is not started without it.
    sandbox: Annotated[SandboxMode, BeforeValidator(to_lower)] = Field("auto", alias="MCP_SANDBOX")
    # A tool that its server has changed since it was first seen waits for `caipe agents trust`.
    hold_changed_tools: Flag = Field(True, alias="MCP_HOLD_CHANGED_TOOLS")
    max_message_bytes: int = Field(16 * 1024 * 1024, alias="MCP_MAX_MESSAGE_BYTES", ge=1024)
    max_message_values: int = Field(100_000, alias="MCP_MAX_MESSAGE_VALUES", ge=100)
    # So long after its start a server tries each tool server once, and those that fail again and again.
    check_servers: Flag = Field(True, alias="MCP_CHECK_SERVERS")
    check_delay: float = Field(10.0, alias="MCP_CHECK_DELAY_SECONDS", ge=0)
    check_every: float = Field(300.0, alias="MCP_CHECK_SECONDS", gt=0)


class GitSettings(SettingsGroup):
    """How much of a git repository is fetched, for the knowledge base and for skills."""

    max_bytes: int = Field(512 * 1024 * 1024, alias="GIT_MAX_BYTES", gt=0)
    max_files: int = Field(100_000, alias="GIT_MAX_FILES", gt=0)


class StreamSettings(SettingsGroup):
    """How deltas are joined before they are stored: the first of a message at once, then by time and size."""

    every: float = Field(0.02, alias="STREAM_COALESCE_SECONDS", ge=0)
    size: int = Field(400, alias="STREAM_COALESCE_CHARS", ge=1)


class SlackSettings(SettingsGroup):
    """The Slack bot: how it reaches Slack, and what it may do where."""

    mode: Annotated[Literal["socket", "http"], BeforeValidator(to_lower)] = Field(
        "socket", alias="SLACK_INTEGRATION_BOT_MODE"
    )
    bot_token: SecretStr | None = Field(None, alias="SLACK_INTEGRATION_BOT_TOKEN")
    app_token: SecretStr | None = Field(None, alias="SLACK_INTEGRATION_APP_TOKEN")
    signing_secret: SecretStr | None = Field(None, alias="SLACK_INTEGRATION_SIGNING_SECRET")
    config: ConfigPath | None = Field(None, alias="SLACK_INTEGRATION_BOT_CONFIG")
    host: str = Field("127.0.0.1", alias="SLACK_INTEGRATION_HOST")
    port: int = Field(3000, alias="SLACK_INTEGRATION_PORT", ge=0, le=65535)
    api_url: WebAddress = Field("https://slack.com/api/", alias="SLACK_INTEGRATION_API_URL")
    streaming: Flag = Field(True, alias="SLACK_INTEGRATION_STREAMING")
    # Not offered, and not ignored: a bot that it protected must not answer everybody.
    rbac: Flag = Field(False, alias="SLACK_RBAC_ENABLED")
    approval_file_bytes: int = Field(200_000, alias="SLACK_INTEGRATION_APPROVAL_FILE_BYTES", ge=0)


class LogSettings(SettingsGroup):
    level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(str.upper)] = Field(
        "INFO", alias="LOG_LEVEL"
    )


class Settings(SettingsGroup):
    server: ServerSettings = Field(default_factory=ServerSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    agent: AgentSettings = Field(default_factory=AgentSettings)
    people: PeopleSettings = Field(default_factory=PeopleSettings)
    knowledge: KnowledgeSettings = Field(default_factory=KnowledgeSettings)
    sources: SourceSettings = Field(default_factory=SourceSettings)
    skills: SkillSettings = Field(default_factory=SkillSettings)
    placement: PlacementSettings = Field(default_factory=PlacementSettings)
    git: GitSettings = Field(default_factory=GitSettings)
    mcp: McpSettings = Field(default_factory=McpSettings)
    oauth: OAuthSettings = Field(default_factory=OAuthSettings)
    network: NetworkSettings = Field(default_factory=NetworkSettings)
    push: PushSettings = Field(default_factory=PushSettings)
    stream: StreamSettings = Field(default_factory=StreamSettings)
    storage: StorageSettings = Field(default_factory=StorageSettings)
    slack: SlackSettings = Field(default_factory=SlackSettings)
    logging: LogSettings = Field(default_factory=LogSettings)
    _redactor: Redactor = PrivateAttr(default_factory=Redactor)

    @property
    def redactor(self) -> Redactor:
        """Removes the secrets of the environment, those of providers included, from texts."""
        return self._redactor

    @property
    def allows_private_addresses(self) -> bool:
        """Whether network tools reach this machine and private networks.

        By default only for one person at their own machine: on loopback, without keys, without anything in
        front of the server that could bring others, and without Slack.
        """
        if self.network.allow_private is not None:
            return self.network.allow_private
        server = self.server
        is_behind_proxy = bool(server.external_url or server.allowed_hosts or server.allow_unauthenticated)
        serves_others = server.needs_key or is_behind_proxy or self.slack.bot_token is not None
        return server.loopback and not serves_others

    @classmethod
    def from_variables(cls, values: Mapping[str, str]) -> Self:
        """Settings from variables; an empty value counts as not set, and legacy names as ours."""
        translation = translate_legacy_variables(values)
        variables = strip_values(translation.variables)
        problems = list(translation.problems)
        groups: dict[str, SettingsGroup] = {}
        for name, group_type in list_groups():
            try:
                groups[name] = group_type.parse_variables(variables, translation.sources)
            except InvalidSettings as error:
                problems += error.problems
        if problems:
            raise InvalidSettings(problems)
        settings = cls.model_validate(groups)
        settings._redactor = Redactor.from_variables(variables)
        return settings

    @classmethod
    def load(cls, env_file: Path | None = None) -> Self:
        """Settings from the environment over the `.env` files, or over the named file alone."""
        return cls.from_variables(read_environment(env_file))


def list_groups() -> Iterator[tuple[str, type[SettingsGroup]]]:
    """The groups of settings, each with its name in `Settings`."""
    for name, info in Settings.model_fields.items():
        assert isinstance(info.annotation, type)
        assert issubclass(info.annotation, SettingsGroup)
        yield name, info.annotation


def read_placement(variables: Mapping[str, str]) -> PlacementSettings:
    """Only which agents are distributed, whatever else may be wrong with the settings."""
    names = ("DISTRIBUTED_AGENTS", "DISTRIBUTED_MODE")
    return Settings.from_variables({name: variables[name] for name in names if name in variables}).placement
