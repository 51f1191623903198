"""What the connectors of Confluence and Jira share: credentials, and times that do not depend on a time
zone."""

import base64
import math
from datetime import datetime

from pydantic import SecretStr

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.source_settings import SourceSettings
from ai_platform_engineering.knowledge_bases.sources.connectors.api_client import ApiEndpoint

# Search indexes lag behind, and queries know minutes alone. What is listed twice costs one line.
_OVERLAP_MINUTES = 10


def create_endpoint(
    service: str,
    settings: SourceSettings,
    *,
    base_url: str,
    address_variable: str,
    personal_token: SecretStr | None,
    personal_token_variable: str,
) -> ApiEndpoint:
    """The endpoint with the credentials of Data Center (a personal token) or of Cloud (a user's API token).

    Raises ConfigurationError."""
    if personal_token is not None:
        secret = personal_token.get_secret_value()
        headers = {"Authorization": f"Bearer {secret}"}
        return ApiEndpoint(
            service, base_url, address_variable, personal_token_variable, headers, secrets=(secret,)
        )
    if settings.atlassian_email is None or settings.atlassian_token is None:
        raise ConfigurationError(
            f"{service} is not configured. Set ATLASSIAN_EMAIL and ATLASSIAN_TOKEN (Cloud), "
            f"or {personal_token_variable} (Data Center)."
        )
    secret = settings.atlassian_token.get_secret_value()
    login = base64.b64encode(f"{settings.atlassian_email}:{secret}".encode()).decode()
    headers = {"Authorization": f"Basic {login}"}
    return ApiEndpoint(
        service,
        base_url,
        address_variable,
        "ATLASSIAN_EMAIL and ATLASSIAN_TOKEN",
        headers,
        secrets=(secret, login),
    )


def count_minutes_since(since: datetime, now: datetime) -> int:
    """How many minutes a query looks back. An absolute time would be read in the time zone of the account."""
    return max(0, math.ceil((now - since).total_seconds() / 60)) + _OVERLAP_MINUTES
