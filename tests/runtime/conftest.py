"""The database servers of these tests, started once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkpoint_databases import Database, make_database
from tests.support.database_servers import DatabaseServers


@pytest.fixture(scope="session")
def servers() -> Iterator[DatabaseServers]:
    with DatabaseServers() as running:
        yield running


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return make_database(request.param, request.getfixturevalue("servers"), tmp_path)
