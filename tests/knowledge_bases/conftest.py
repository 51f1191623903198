"""Real database servers for the knowledge base."""

from collections.abc import Iterator

import pytest

from tests.support.database_servers import DatabaseServers


@pytest.fixture(scope="module")
def servers() -> Iterator[DatabaseServers]:
    with DatabaseServers() as running:
        yield running


def empty_knowledge(address: str) -> None:
    """Removes the knowledge base from a database."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS caipe_kb CASCADE")
