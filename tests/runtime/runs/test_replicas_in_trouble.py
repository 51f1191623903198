"""Three replicas behind a load balancer in trouble: each run ends once, for every reader.

`benchmarks/replicas_crash.py` has all kinds of trouble at all moments."""

import random
import secrets
from collections.abc import AsyncIterator

import psycopg
import pytest
import pytest_asyncio

from tests.support.crash.fleet import TROUBLES, Fleet, fleet_of_replicas, one_trouble
from tests.support.crash.strata import STRATA
from tests.support.database_servers import DatabaseServers

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400), pytest.mark.full]

TOGETHER = 3
MOMENTS = {
    "two killed": "mid-text",
    "paused past its lease": "in a read tool",
    "readers cut off": "mid-answer",
    "database unreachable": "between tool end and checkpoint",
    "unreachable for one": "in a write tool",
    "listening connections cut": "remote call in flight",
    "one stopped": "paused for input",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory, servers: DatabaseServers) -> AsyncIterator[Fleet]:
    name = f"f{secrets.token_hex(6)}"
    with psycopg.connect(servers.postgres, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}".encode())
    url = servers.postgres.replace("/postgres", f"/{name}")
    async with fleet_of_replicas(tmp_path_factory.mktemp("fleet"), url, forked=True) as replicas:
        yield replicas


@pytest.mark.parametrize("trouble", MOMENTS)
async def test_each_run_ends_once_for_every_reader(fleet: Fleet, trouble: str) -> None:
    [stratum] = [stratum for stratum in STRATA if stratum.name == MOMENTS[trouble]]
    outcome = await one_trouble(fleet, stratum, TROUBLES[trouble], TOGETHER, random.Random())
    assert len(outcome.verdicts) == 2 * TOGETHER
    for reader, verdict in outcome.verdicts:
        assert verdict.wrong == (), (trouble, outcome.point, reader.tag)
