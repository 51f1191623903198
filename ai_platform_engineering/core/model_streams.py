"""Settings of the streams of models: who reads them, and how much."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from ai_platform_engineering.core.setting_types import SettingsGroup, to_lower

# A feature of a provider. `auto`: where the server is the provider's own. `on`: also with a custom base URL.
FeatureMode = Literal["auto", "on", "off"]


class ModelStreamSettings(SettingsGroup):
    """The settings of a model that are about its stream; the limits are those of the fast client."""

    # `fast`: we read it, and what arrived together is one chunk. `stock`: the provider's client reads it.
    stream_client: Annotated[Literal["fast", "stock"], BeforeValidator(to_lower)] = Field(
        "fast", alias="LLM_STREAM_CLIENT"
    )
    max_connections: int = Field(1000, alias="LLM_MAX_CONNECTIONS", ge=1)  # to all model servers together
    max_response_bytes: int = Field(64 * 1024 * 1024, alias="LLM_MAX_RESPONSE_BYTES", ge=1024)
    max_event_bytes: int = Field(4 * 1024 * 1024, alias="LLM_MAX_EVENT_BYTES", ge=1024)
    max_event_values: int = Field(20_000, alias="LLM_MAX_EVENT_VALUES", ge=100)
