"""The limits of what clients may cost a server: their requests, connections, streams and wrong keys."""

from pydantic import Field

from ai_platform_engineering.core.setting_types import SettingsGroup


class ServerLimits(SettingsGroup):
    """The part of the server's settings that protects it from its clients."""

    # What one request may hold, counted before anything is converted.
    max_json_values: int = Field(3_000, alias="A2A_MAX_JSON_VALUES", ge=100)
    max_json_depth: int = Field(100, alias="A2A_MAX_JSON_DEPTH", ge=8, le=200)
    max_parts: int = Field(100, alias="A2A_MAX_PARTS", ge=1)
    max_id_chars: int = Field(256, alias="A2A_MAX_ID_CHARS", ge=36)
    # Connections and streams.
    max_connections: int = Field(1_000, alias="A2A_MAX_CONNECTIONS", ge=1)
    header_seconds: float = Field(10.0, alias="A2A_HEADER_TIMEOUT_SECONDS", gt=0)
    body_seconds: float = Field(60.0, alias="A2A_BODY_TIMEOUT_SECONDS", gt=0)
    idle_seconds: float = Field(10.0, alias="A2A_IDLE_TIMEOUT_SECONDS", gt=0)
    stalled_seconds: float = Field(60.0, alias="A2A_STALLED_READER_SECONDS", gt=0)
    max_unsent_bytes: int = Field(128 * 1024 * 1024, alias="A2A_MAX_UNSENT_BYTES", ge=1024 * 1024)
    max_streams: int = Field(500, alias="A2A_MAX_STREAMS", ge=1)
    max_user_streams: int = Field(100, alias="A2A_MAX_STREAMS_PER_USER", ge=1)
    # Wrong keys from one address before it is refused for a time that grows, and requests of one person.
    max_wrong_keys: int = Field(10, alias="A2A_MAX_WRONG_KEYS", ge=1)
    wrong_key_seconds: float = Field(300.0, alias="A2A_WRONG_KEY_MAX_SECONDS", ge=1)
    requests_per_minute: int = Field(6_000, alias="A2A_MAX_REQUESTS_PER_MINUTE", ge=1)
    # How long a browser that has sent the key need not send it again.
    session_seconds: float = Field(7 * 86_400.0, alias="A2A_SESSION_SECONDS", ge=60, le=90 * 86_400)
