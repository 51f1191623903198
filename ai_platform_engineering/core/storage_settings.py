"""The settings of the databases that keep conversations."""

from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr

from ai_platform_engineering.core.setting_types import Backend, ExpiryMinutes, Flag, SettingsGroup, to_lower

REQUIRED = "STORAGE_REQUIRED forbids to go on without it."


class StorageSettings(SettingsGroup):
    """Where conversations are kept; addresses hold passwords, so they are secrets."""

    database_url: SecretStr | None = Field(None, alias="DATABASE_URL")
    checkpoint_type: Annotated[Backend | None, BeforeValidator(to_lower)] = Field(
        None, alias="LANGGRAPH_CHECKPOINT_TYPE"
    )
    redis_dsn: SecretStr | None = Field(None, alias="LANGGRAPH_CHECKPOINT_REDIS_URL")
    postgres_dsn: SecretStr | None = Field(None, alias="LANGGRAPH_CHECKPOINT_POSTGRES_DSN")
    mongodb_dsn: SecretStr | None = Field(None, alias="LANGGRAPH_CHECKPOINT_MONGODB_URI")
    ttl_minutes: ExpiryMinutes = Field(None, alias="LANGGRAPH_CHECKPOINT_TTL_MINUTES")
    mongodb_uri: SecretStr | None = Field(None, alias="MONGODB_URI")
    redis_url: SecretStr | None = Field(None, alias="REDIS_URL")
    required: Flag = Field(False, alias="STORAGE_REQUIRED")
    # How long a database may take to answer at the start; that of the knowledge base, too.
    timeout_seconds: float = Field(5.0, alias="STORAGE_TIMEOUT_SECONDS", gt=0, le=300)
    store_type: Annotated[Backend | None, BeforeValidator(to_lower)] = Field(
        None, alias="LANGGRAPH_STORE_TYPE"
    )
    retention_days: float = Field(30.0, alias="RETENTION_DAYS", gt=0)
    # Conversations that are shared by a link: for how long, and how many of one person; 0 switches it off.
    share_days: float = Field(30.0, alias="SHARE_DAYS", gt=0, le=3650)
    max_shares: int = Field(100, alias="SHARES_MAX_PER_PERSON", ge=0, le=1000)
    cache_bytes: int = Field(8_000_000, alias="RUN_LOG_CACHE_BYTES", ge=0)
