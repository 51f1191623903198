"""Which run is given up when processes die: the one that does it, and never one that only waited there."""

import asyncio

from ai_platform_engineering.core.events import Answered, Failed, TextPart, is_terminal
from ai_platform_engineering.core.settings import LimitSettings
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.runtime.runs.incoming_message import IncomingMessage
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.runs.turn import Turn
from tests.support.run_lists import list_all_runs

NAMES = ("killer", "bystander", "other")


class Process:
    """A process over a log that outlives it; its runs work until they are let go, or until it dies."""

    def __init__(self, log: MemoryLog, *, limits: LimitSettings | None = None) -> None:
        self.log = log
        self.runs = Runs(log, self._work, limits=limits)
        self.working: list[str] = []
        self.release = asyncio.Event()

    async def _work(self, turn: Turn) -> None:
        self.working.append(turn.row.message_id)
        await self.release.wait()
        await self.log.append(turn.row.run_id, turn.row.epoch, [Answered(text="Done.", trace_id="t")])

    async def ask(self, name: str, context: str = "") -> RunRow:
        message = IncomingMessage(
            name, (TextPart(text=name),), owner="ann", principal="ann", context_id=context or name
        )
        row, _ = await self.runs.accept(message)
        return row

    async def until_working(self, *names: str) -> None:
        async with asyncio.timeout(10):
            while not set(names) <= set(self.working):  # noqa: ASYNC110 - a list has no event
                await asyncio.sleep(0)


async def crashes(log: MemoryLog) -> dict[str, int]:
    return {row.message_id: row.crashes for row in await list_all_runs(log, "ann")}


async def failures(log: MemoryLog) -> dict[str, str]:
    """The messages of the runs that failed, by name."""
    messages: dict[str, str] = {}
    for row in await list_all_runs(log, "ann"):
        for item in await log.read(row.run_id):
            if isinstance(item.event, Failed):
                messages[row.message_id] = item.event.message
    return messages


async def test_runs_under_suspicion_go_on_one_at_a_time_and_only_the_one_that_does_it_is_given_up() -> None:
    log = MemoryLog()
    first = Process(log)
    for name in NAMES:
        await first.ask(name)
    await first.until_working(*NAMES)
    second = Process(log)
    assert await second.runs.recover() == 3
    await second.until_working(*NAMES)
    assert await crashes(log) == dict.fromkeys(NAMES, 1)
    third = Process(log)
    await third.runs.recover()
    await third.until_working("killer")
    await asyncio.sleep(0.05)
    assert third.working == ["killer"], "the others wait until it is known that it was not this one"
    assert await crashes(log) == dict.fromkeys(NAMES, 2)
    fourth = Process(log)
    fourth.release.set()
    await fourth.runs.recover()
    await fourth.until_working("bystander", "other")
    assert await crashes(log) == {"killer": 3, "bystander": 2, "other": 2}
    failed = await failures(log)
    assert set(failed) == {"killer"}
    assert failed["killer"].startswith("I gave up on this request: the server crashed 3 times")
    assert "killer" not in fourth.working


async def test_a_process_that_is_stopped_in_an_orderly_way_does_not_count() -> None:
    log = MemoryLog()
    limits = LimitSettings(run_crashes=1)
    for _ in range(4):
        process = Process(log, limits=limits)
        await process.runs.recover()
        await process.ask("long")
        await process.until_working("long")
        await process.runs.hand_over(0)
    assert await crashes(log) == {"long": 0}
    assert await failures(log) == {}


async def test_a_question_that_waited_for_room_is_not_to_blame_until_it_works() -> None:
    log = MemoryLog()
    limits = LimitSettings(runs_working=1)
    first = Process(log, limits=limits)
    # Both are accepted while there is room for one.
    await asyncio.gather(first.ask("killer"), first.ask("waiting"))
    await first.until_working("killer")
    await asyncio.sleep(0.05)
    assert first.working == ["killer"]
    second = Process(log, limits=limits)
    await second.runs.recover()
    await second.until_working("killer")
    assert await crashes(log) == {"killer": 1, "waiting": 0}


async def test_a_question_that_only_waited_is_begun_whatever_happened_meanwhile() -> None:
    log = MemoryLog()
    limits = LimitSettings(run_crashes=1)
    first = Process(log, limits=limits)
    await first.ask("killer", context="talk")
    await first.until_working("killer")
    queued = await first.ask("queued", context="talk")
    second = Process(log, limits=limits)
    second.release.set()
    await second.runs.recover()
    await second.until_working("queued")
    assert set(await failures(log)) == {"killer"}
    events = [item.event async for item in second.runs.follow(queued.run_id)]
    assert [event.kind for event in events if is_terminal(event)] == ["answered"]
