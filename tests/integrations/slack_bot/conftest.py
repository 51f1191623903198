"""PostgreSQL for the tests of several processes of the bot."""

from collections.abc import Iterator

import pytest

from tests.support.database_servers import DatabaseServers


@pytest.fixture(scope="session")
def servers() -> Iterator[DatabaseServers]:
    with DatabaseServers() as started:
        yield started
