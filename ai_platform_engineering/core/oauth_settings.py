"""The settings of sign-ins to hosted MCP servers: how tokens are encrypted, and how many are kept."""

from pydantic import Field

from ai_platform_engineering.core.setting_types import HostPatterns, Key, SettingsGroup


class OAuthSettings(SettingsGroup):
    """OAuth for MCP servers with `auth: oauth`."""

    # Not set: a key file in CAIPE_HOME that only its owner can read.
    encryption_key: Key | None = Field(None, alias="MCP_OAUTH_ENCRYPTION_KEY")
    # Authorization servers that may be in private networks, and may use http.
    private_hosts: HostPatterns = Field((), alias="MCP_OAUTH_PRIVATE_HOSTS")
    timeout: float = Field(15.0, alias="MCP_OAUTH_TIMEOUT_SECONDS", gt=0, le=300)
    # How long a person may take to sign in.
    sign_in_seconds: float = Field(600.0, alias="MCP_OAUTH_SIGN_IN_SECONDS", gt=0, le=86_400)
    max_pending: int = Field(1_000, alias="MCP_OAUTH_MAX_PENDING", ge=1, le=1_000_000)
    max_pending_per_user: int = Field(20, alias="MCP_OAUTH_MAX_PENDING_PER_USER", ge=1, le=1_000_000)
    max_logins: int = Field(10_000, alias="MCP_OAUTH_MAX_LOGINS", ge=1, le=1_000_000)
    # MCP sessions of different people with one server; the one that was used least recently ends.
    max_sessions: int = Field(200, alias="MCP_OAUTH_MAX_SESSIONS", ge=1, le=10_000)
