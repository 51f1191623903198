"""The settings of push notifications: where they may go, and how many wait for how long."""

from pydantic import Field

from ai_platform_engineering.core.setting_types import Flag, HostPatterns, SettingsGroup


class PushSettings(SettingsGroup):
    """Notifications of a task's changes of state, sent to addresses that clients choose."""

    enabled: Flag = Field(True, alias="A2A_PUSH_NOTIFICATIONS")
    # Receivers that may be in private networks, and may use http.
    private_hosts: HostPatterns = Field((), alias="A2A_PUSH_PRIVATE_HOSTS")
    configs_per_task: int = Field(10, alias="A2A_PUSH_CONFIGS_PER_TASK", ge=1, le=100)
    # Notifications that wait: for one receiver of one task, for all of one person's tasks, and in all.
    queue_per_config: int = Field(20, alias="A2A_PUSH_QUEUE_PER_CONFIG", ge=1, le=1000)
    queue_per_user: int = Field(2_000, alias="A2A_PUSH_QUEUE_PER_USER", ge=1, le=1_000_000)
    queue: int = Field(10_000, alias="A2A_PUSH_QUEUE_LIMIT", ge=1, le=1_000_000)
    # A notification that could not be delivered is sent again, later each time.
    attempts: int = Field(10, alias="A2A_PUSH_ATTEMPTS", ge=1, le=100)
    retry_seconds: float = Field(5.0, alias="A2A_PUSH_RETRY_SECONDS", ge=0, le=86_400)
    max_retry_seconds: float = Field(3600.0, alias="A2A_PUSH_MAX_RETRY_SECONDS", ge=0, le=86_400)
    max_age_seconds: float = Field(86_400.0, alias="A2A_PUSH_MAX_AGE_SECONDS", gt=0)
    timeout: float = Field(10.0, alias="A2A_PUSH_TIMEOUT_SECONDS", gt=0, le=300)
    connections: int = Field(50, alias="A2A_PUSH_MAX_CONNECTIONS", ge=1, le=1000)
    connections_per_host: int = Field(4, alias="A2A_PUSH_MAX_CONNECTIONS_PER_HOST", ge=1, le=1000)
    max_bytes: int = Field(1024 * 1024, alias="A2A_PUSH_MAX_BYTES", ge=4096)
