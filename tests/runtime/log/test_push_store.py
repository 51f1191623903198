"""What every storage of the run log must do with push configs and their queues."""

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import Refused, RunNotFound
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Notice,
    Paused,
    RunStarted,
    TextDelta,
    TextPart,
)
from ai_platform_engineering.runtime.log.log_rows import NewRun
from ai_platform_engineering.runtime.log.push_store import DueNotification, PushLimits, PushTarget
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog
from tests.support.run_logs import NAMES, log_opener

HOOK = PushTarget("https://a.example/hook", "https://a.example", token="t", scheme="Bearer", credentials="c")
OTHER = PushTarget("https://b.example/hook", "https://b.example", config_id="other")
LATER = datetime(9000, 1, 1, tzinfo=UTC)
PAUSED = Paused(requests=(), text="?")
DELTA = TextDelta(message_id="m", text="x", offset=0, agent="a")
DONE = Answered(text="Yes.", trace_id="t")
LIMITS = PushLimits(configs_per_run=10, queue_per_config=20, queue_per_owner=100, queue=100)


@pytest.fixture(params=NAMES)
def run_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunLog]:
    log = log_opener(request.param, request)(tmp_path)
    log.push.limits = LIMITS
    yield log
    asyncio.run(log.close())


async def create(log: RunLog, push: PushTarget | None = None, owner: str = "ann") -> str:
    run_id = str(uuid.uuid4())
    started = RunStarted(message_id=run_id, parts=(TextPart(text="?"),), owner=owner, principal=owner)
    await log.create(NewRun(run_id, "c", owner, run_id, "d", started, lasting_id=True, push=push))
    return run_id


async def due(log: RunLog, **busy: list[int] | list[str]) -> list[tuple[str, str, int]]:
    """Config, state and failed attempts of what is due."""
    found = await find(log, **busy)
    return [(item.config.target.config_id, item.state, item.attempts) for item in found]


async def find(log: RunLog, **busy: list[int] | list[str]) -> list[DueNotification]:
    return await log.push.find_due(
        **{"busy_configs": [], "busy_hosts": [], "limit": 10, **busy}  # type: ignore[arg-type]
    )


async def write(log: RunLog, run_id: str, *events: AnyEvent) -> None:
    await log.append(run_id, 1, events)


async def test_states_are_queued_with_their_events_each_once_and_in_order(run_log: RunLog) -> None:
    run_id = await create(run_log, HOOK)
    await write(run_log, run_id, DELTA)
    await write(run_log, run_id, Notice(text="still", code="queue"))  # works as before
    await write(run_log, run_id, DELTA, PAUSED)
    seen: list[tuple[str, int]] = []
    while found := await find(run_log):
        [item] = found
        seen.append((item.state, item.seq))
        await run_log.push.remove(item)
    assert seen == [("working", 1), ("input-required", 5)]
    await write(run_log, run_id, DONE)
    assert await due(run_log) == [(run_id, "completed", 0)]
    await run_log.close()


async def test_a_run_without_a_config_queues_nothing(run_log: RunLog) -> None:
    await create(run_log, HOOK)
    run_id = await create(run_log)
    await write(run_log, run_id, DONE)
    assert [state for _, state, _ in await due(run_log)] == ["working"]
    assert await run_log.push.list_configs(run_id, limit=10) == []
    await run_log.close()


async def test_a_config_is_stored_with_all_that_it_holds(run_log: RunLog) -> None:
    run_id = await create(run_log)
    stored = await run_log.push.set_config(run_id, HOOK)
    other = await run_log.push.set_config(run_id, OTHER)
    assert stored.target == HOOK.for_run(run_id)
    assert await run_log.push.find_config(run_id, run_id) == stored
    assert await run_log.push.find_config(run_id, "nothing") is None
    assert await run_log.push.list_configs(run_id, limit=10) == [stored, other]
    assert await run_log.push.list_configs(run_id, after=stored.number, limit=10) == [other]
    assert await run_log.push.delete_config(run_id, "other")
    assert not await run_log.push.delete_config(run_id, "other")
    with pytest.raises(RunNotFound):
        await run_log.push.set_config("nobody", HOOK)
    await run_log.close()


async def test_a_failed_attempt_is_counted_and_waits(run_log: RunLog) -> None:
    run_id = await create(run_log, HOOK)
    [first] = await find(run_log)
    await run_log.push.postpone(first, LATER)
    await write(run_log, run_id, DONE)
    assert await due(run_log) == []  # the next one never overtakes it
    assert await run_log.push.next_due_at(datetime.now(UTC)) == LATER
    before = datetime.now(UTC) - timedelta(seconds=1)
    await run_log.push.postpone(first, before)
    assert await due(run_log) == [(run_id, "working", 2)]
    assert await run_log.push.next_due_at(before) is None
    # What became due after somebody looked is not missed.
    assert await run_log.push.next_due_at(before - timedelta(seconds=1)) == before
    await run_log.push.remove(first)
    assert await due(run_log) == [(run_id, "completed", 0)]
    await run_log.close()


async def test_what_is_busy_is_left_out(run_log: RunLog) -> None:
    run_id = await create(run_log, HOOK)
    await run_log.push.set_config(run_id, OTHER)
    await write(run_log, run_id, DONE)
    [first, second] = await find(run_log)
    assert await due(run_log, busy_configs=[first.config.number]) == [("other", "completed", 0)]
    assert await due(run_log, busy_hosts=[second.config.target.host]) == [(run_id, "working", 0)]
    assert len(await find(run_log, limit=1)) == 1  # type: ignore[arg-type]
    await run_log.close()


async def test_of_too_many_for_one_receiver_the_oldest_goes(run_log: RunLog) -> None:
    run_log.push.limits = PushLimits(configs_per_run=1, queue_per_config=2, queue_per_owner=100, queue=100)
    run_id = await create(run_log, HOOK)
    await write(run_log, run_id, PAUSED)
    await write(run_log, run_id, DONE)
    [first] = await find(run_log)
    assert first.state == "input-required"
    with pytest.raises(Refused, match="A2A_PUSH_CONFIGS_PER_TASK"):
        await run_log.push.set_config(run_id, OTHER)
    await run_log.push.set_config(run_id, HOOK)  # replaces the one with its id
    await run_log.close()


@pytest.mark.sample(3)
@pytest.mark.parametrize(("queue_per_owner", "queue"), [(2, 100), (100, 2)])
async def test_too_many_of_one_person_or_in_all_are_not_queued(
    run_log: RunLog, caplog: pytest.LogCaptureFixture, queue_per_owner: int, queue: int
) -> None:
    run_log.push.limits = PushLimits(1, 2, queue_per_owner, queue)
    run_id = await create(run_log, HOOK)
    await create(run_log, HOOK)
    await write(run_log, run_id, DONE)
    assert [state for _, state, _ in await due(run_log)] == ["working", "working"]
    [first, *_] = await find(run_log)
    await run_log.push.remove(first)
    assert [state for _, state, _ in await due(run_log)] == ["working"]
    assert "A2A_PUSH_QUEUE_LIMIT" in caplog.text
    run_log.push.limits = PushLimits(1, 2, 1, 100)
    bobs = await create(run_log, HOOK, owner="bob")
    assert (bobs, "working", 0) in await due(run_log)  # what waits for others is no reason
    await run_log.close()


async def test_configs_go_with_their_run(run_log: RunLog) -> None:
    ended, open_run = await create(run_log, HOOK), await create(run_log, HOOK)
    await write(run_log, ended, DONE)
    await run_log.delete_runs(LATER)
    assert await run_log.push.list_configs(ended, limit=10) == []
    assert await due(run_log) == [(open_run, "working", 0)]
    await run_log.close()


async def test_whoever_delivers_is_woken_by_a_change(run_log: RunLog) -> None:
    run_id = await create(run_log, HOOK)
    await run_log.push.wait_for_change()
    waiting = asyncio.create_task(run_log.push.wait_for_change())
    await asyncio.sleep(0)
    assert not waiting.done()
    await write(run_log, run_id, DONE)
    async with asyncio.timeout(120):
        await waiting
    await run_log.close()


async def test_a_queue_survives_the_process(tmp_path: Path) -> None:
    first = SqliteLog.open(tmp_path / "caipe.db", tick=0)
    run_id = await create(first, HOOK)
    await write(first, run_id, DONE)
    await first.close()
    second = SqliteLog.open(tmp_path / "caipe.db", tick=0)
    await second.push.wait_for_change()
    [item] = await find(second)
    assert (item.config.target, item.state) == (HOOK.for_run(run_id), "working")
    await second.close()
