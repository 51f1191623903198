"""The connectors of the product, with waits that take no time."""

import os

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.sources.connectors.api_client import ApiAccess, ApiLimits
from ai_platform_engineering.knowledge_bases.sources.connectors.api_source import ListingRules
from ai_platform_engineering.knowledge_bases.sources.connectors.connector import Connectors
from ai_platform_engineering.knowledge_bases.sources.connectors.connector_factory import create_connectors

LIST_RARELY = ListingRules(cheap_requests=0, hours=24)  # so that passes go on from their cursor


class RecordedWaits:
    """Waits that take no time; how long they would have been is written down."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)


def build_connectors(
    variables: dict[str, str],
    *,
    rules: ListingRules | None = None,
    waits: RecordedWaits | None = None,
    limits: ApiLimits | None = None,
) -> Connectors:
    """The connectors of these variables."""
    access = ApiAccess(limits or ApiLimits(), sleep=(waits or RecordedWaits()).sleep)
    settings = Settings.from_variables(variables)
    return create_connectors(settings, access, rules, variables=dict(os.environ))
