"""The newest events of runs in memory: the same as in the database, within their limits."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.core.events import Notice, StoredEvent
from ai_platform_engineering.runtime.log.recent_events import EVENTS_PER_RUN, RecentEvents
from ai_platform_engineering.runtime.log.sqlite_database import Database
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog
from tests.runtime.log.test_sqlite_log import created, noted

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stored(first: int, count: int) -> list[StoredEvent]:
    return [StoredEvent(seq, NOW, Notice(code="info", text=str(seq))) for seq in range(first, first + count)]


def numbers(events: list[StoredEvent] | None) -> list[int] | None:
    if events is None:
        return None
    return [event.seq for event in events]


def test_a_reader_that_keeps_up_is_served_and_one_that_is_behind_is_not() -> None:
    recent = RecentEvents(10**6)
    recent.add("run", stored(1, 100), [10] * 100)
    oldest = 100 - EVENTS_PER_RUN + 1
    assert numbers(recent.read("run", 98, 10)) == [99, 100]
    assert numbers(recent.read("run", 100, 10)) == []
    assert numbers(recent.read("run", oldest - 1, 2)) == [oldest, oldest + 1]
    assert recent.read("run", oldest - 2, 10) is None
    assert recent.read("other", 0, 10) is None


def test_events_after_a_gap_replace_those_before_it() -> None:
    recent = RecentEvents(10**6)
    recent.add("run", stored(1, 3), [1] * 3)
    recent.add("run", stored(7, 2), [1] * 2)
    assert recent.read("run", 3, 10) is None
    assert numbers(recent.read("run", 6, 10)) == [7, 8]


def test_what_was_written_longest_ago_is_dropped_first() -> None:
    recent = RecentEvents(100)
    for run_id in ("a", "b", "c"):
        recent.add(run_id, stored(1, 1), [40])
    assert [numbers(recent.read(run_id, 0, 9)) for run_id in ("a", "b", "c")] == [None, [1], [1]]
    recent.add("b", stored(2, 1), [10])
    recent.add("d", stored(1, 1), [40])
    assert [numbers(recent.read(run_id, 0, 9)) for run_id in ("b", "c", "d")] == [[1, 2], None, [1]]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 90), st.integers(0, 60)), max_size=30))
def test_no_more_is_kept_than_the_limit_allows(writes: list[tuple[str, int, int]]) -> None:
    recent = RecentEvents(1000)
    last = dict.fromkeys("abc", 0)
    for run_id, count, size in writes:
        recent.add(run_id, stored(last[run_id] + 1, count), [size] * count)
        last[run_id] += count
        tails = list(recent._tails.values())
        assert sum(sum(tail.sizes) for tail in tails) == recent._size <= 1000
        assert all(len(tail.events) == len(tail.sizes) <= EVENTS_PER_RUN for tail in tails)
        assert recent.read(run_id, last[run_id], 9) in (None, [])
        assert numbers(recent.read(run_id, last[run_id] - 1, 9)) in (None, [last[run_id]])


@pytest.mark.parametrize("cache_bytes", [0, 300, 10**6])
async def test_readers_see_the_same_whatever_is_in_memory(tmp_path: Path, cache_bytes: int) -> None:
    log = SqliteLog(Database(tmp_path / "runs.db"), cache_bytes=cache_bytes)
    try:
        row = await created(log)
        for number in range(150):
            await log.append("run", row.epoch, [noted(number)])
        for after in (0, 1, 80, 86, 87, 88, 149, 150, 151):
            events = await log.read("run", after, limit=40)
            assert [event.seq for event in events] == list(range(after + 1, min(after + 40, 151) + 1))
            for event in events[1:]:
                assert event.event == noted(event.seq - 2)
    finally:
        await log.close()
