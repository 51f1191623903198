"""The keeper of a replica: it takes the runs that no replica works on, as far as it has room."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime

import pytest
import pytest_asyncio

from ai_platform_engineering.core.events import Answered, TextPart
from ai_platform_engineering.core.settings import LimitSettings
from ai_platform_engineering.runtime.log.postgres_log import PostgresLog
from ai_platform_engineering.runtime.runs import replica_keeper
from ai_platform_engineering.runtime.runs.incoming_message import IncomingMessage
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.runs.turn import Turn
from tests.runtime.log.test_run_log import new_run
from tests.support.database_servers import DatabaseServers
from tests.support.run_logs import new_address


@pytest_asyncio.fixture
async def logs(servers: DatabaseServers) -> AsyncIterator[tuple[PostgresLog, PostgresLog]]:
    """Two replicas' views of one database."""
    address = new_address(servers)
    opened = PostgresLog.open(address, tick=0), PostgresLog.open(address, tick=0)
    yield opened
    for log in opened:
        await log.close()


class Worker:
    """Answers runs as soon as the gate is open, and counts how many it works on together."""

    def __init__(self, log: PostgresLog, limits: LimitSettings) -> None:
        self._log = log
        self._working = 0
        self.gate = asyncio.Event()
        self.most = 0
        self.answered: list[str] = []
        self.runs = Runs(log, self._work, limits=limits)

    async def _work(self, turn: Turn) -> None:
        self._working += 1
        self.most = max(self.most, self._working)
        await self.gate.wait()
        await self._log.append(turn.row.run_id, turn.row.epoch, [Answered(text="Done.", trace_id="t")])
        self._working -= 1
        self.answered.append(turn.row.run_id)


async def until_answered(worker: Worker, count: int) -> None:
    worker.gate.set()
    await until(lambda: len(worker.answered) >= count)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_start_takes_all_runs_of_a_dead_replica(logs: tuple[PostgresLog, PostgresLog]) -> None:
    dead, alive = logs
    assert dead.replicas is not None
    await dead.replicas.renew(-1)
    holder = dead.replicas.replica_id
    rows = [(await dead.create(new_run(context=f"c{n}", holder=holder)))[0] for n in range(60)]
    worker = Worker(alive, LimitSettings(runs_working=100, runs_working_per_person=100))
    assert await worker.runs.recover() == 60
    await until_answered(worker, 60)
    assert sorted(worker.answered) == sorted(row.run_id for row in rows)
    await worker.runs.close("over")


async def test_a_run_that_waits_is_taken_when_another_one_ends(
    logs: tuple[PostgresLog, PostgresLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_keeper, "_LOOK_SECONDS", 600.0)  # it does not look by itself
    other, mine = logs
    for number in range(7):
        await other.create(new_run(context=f"c{number}"))
    worker = Worker(mine, LimitSettings(runs_working=2))
    assert await worker.runs.recover() == 2
    await until(lambda: worker.most == 2)
    await until_answered(worker, 7)
    assert worker.most == 2
    await worker.runs.close("over")


async def test_one_person_at_their_limit_holds_up_nobody_else(logs: tuple[PostgresLog, PostgresLog]) -> None:
    other, mine = logs
    for number in range(30):
        await other.create(new_run(context=f"a{number}", owner="ann"))
    await other.create(new_run(context="b", owner="bob"))
    worker = Worker(mine, LimitSettings(runs_working=10, runs_working_per_person=3))
    assert await worker.runs.recover() == 4, "three of ann and the one of bob"
    await until_answered(worker, 31)
    await worker.runs.close("over")


async def test_whoever_follows_through_another_replica_follows(
    logs: tuple[PostgresLog, PostgresLog],
) -> None:
    limits = LimitSettings(run_unfollowed_seconds=0.3)
    here, there = (Worker(log, limits) for log in logs)
    await here.runs.recover()
    row, _ = await here.runs.accept(IncomingMessage("m", (TextPart(text="?"),), "ann", "ann"))
    await until(lambda: here.most == 1)
    log = logs[0]
    since = await first_change(log, row.run_id, None)
    with there.runs.following(row.run_id):
        for _ in range(3):
            since = await first_change(log, row.run_id, since)
        with here.runs.following(row.run_id):
            while await log.find_unfollowed_since(row.run_id) is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            assert await log.find_unfollowed_since(row.run_id) is None, "it is followed where it works"
    there.runs.followers.touch(row.run_id)
    await first_change(log, row.run_id, None)
    here.gate.set()
    await here.runs.close("over")


async def first_change(log: PostgresLog, run_id: str, before: datetime | None) -> datetime:
    """The next time since when nobody follows the run."""
    async with asyncio.timeout(60):
        while True:
            since = await log.find_unfollowed_since(run_id)
            if since is not None and (before is None or since > before):
                return since
            await asyncio.sleep(0.01)
