"""Connectors: the kinds of sources behind an API, each with a prefix of its locations."""

from collections.abc import Collection, Mapping
from typing import Protocol

from ai_platform_engineering.knowledge_bases.sources.source_items import DocumentSource


class SourceConnector(Protocol):
    """A kind of source behind an API. Its locations begin with `kind` and a colon."""

    @property
    def kind(self) -> str: ...

    @property
    def example(self) -> str:
        """A location, for people: confluence:SPACE."""

    @property
    def options(self) -> Collection[str]:
        """The options that a datasource of this kind may have."""

    def create(self, address: str, options: Mapping[str, str]) -> DocumentSource:
        """The source of a location, of which `address` is what follows the colon.

        Raises Refused for what is malformed, and ConfigurationError that names the variables to set."""


Connectors = Mapping[str, SourceConnector]


def find_connector(location: str, connectors: Connectors) -> tuple[SourceConnector, str] | None:
    """The connector whose prefix a location has, and what follows the colon."""
    kind, colon, address = location.strip().partition(":")
    connector = connectors.get(kind.lower())
    if not colon or connector is None:
        return None
    return connector, address.strip()


def list_examples(connectors: Connectors) -> str:
    """`, confluence:SPACE, jira:PROJECT`, to go on with a list of locations; empty without connectors."""
    return "".join(f", {connector.example}" for connector in connectors.values())
