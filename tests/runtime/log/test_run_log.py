"""What every storage of the run log must do; a new storage joins by a line in `tests.support.run_logs`."""

import asyncio
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ai_platform_engineering.core.errors import Fenced, MessageConflict, Refused, RunNotFound, WrongState
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Cancelled,
    Failed,
    Form,
    InputField,
    InputRequested,
    InputResolved,
    Notice,
    Paused,
    RunStarted,
    StoredEvent,
    TextDelta,
    TextPart,
)
from ai_platform_engineering.runtime.log.log_rows import (
    AnswerMessage,
    EventBatch,
    JournalEntry,
    Marker,
    NewRun,
    PendingRequest,
    RunRow,
    StoredMarker,
)
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.runtime.log.run_log import RunLog
from tests.support.examples import scale_examples
from tests.support.run_lists import list_all_open_requests, list_all_runs
from tests.support.run_logs import NAMES, log_opener

WAIT = 120  # seconds after which a wait that never ends is a failure
LATER = datetime(9000, 1, 1, tzinfo=UTC)
BEFORE = datetime(2000, 1, 1, tzinfo=UTC)

Storage = Callable[[], RunLog]


@pytest.fixture(params=NAMES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """Makes an empty log at every call."""
    open_log = log_opener(request.param, request)
    opened: list[RunLog] = []

    def another() -> RunLog:
        opened.append(open_log(tmp_path / str(len(opened))))
        return opened[-1]

    yield another
    for log in opened:
        asyncio.run(log.close())


@pytest.fixture
def log(storage: Storage) -> RunLog:
    return storage()


def new_run(
    *,
    owner: str = "ann",
    context: str = "context",
    message: str | None = None,
    text: str = "Hello",
    lasting: bool = True,
    **more: Any,
) -> NewRun:
    message_id = message or str(uuid.uuid4())
    started = RunStarted(
        message_id=message_id, parts=(TextPart(text=text),), owner=owner, principal=f"principal of {owner}"
    )
    return NewRun(
        run_id=str(uuid.uuid4()),
        context_id=context,
        owner=owner,
        message_id=message_id,
        digest=f"digest of {text}",
        started=started,
        lasting_id=lasting,
        **more,
    )


async def created(log: RunLog, **how: Any) -> RunRow:
    row, is_new = await log.create(new_run(**how))
    assert is_new
    return row


def noted(text: object) -> Notice:
    return Notice(code="info", text=str(text))


ENDINGS: list[AnyEvent] = [
    Answered(text="Done.", trace_id="t"),
    Failed(message="No.", trace_id="t"),
    Cancelled(trace_id="t"),
]


def texts(items: list[StoredEvent]) -> list[str]:
    return [item.event.text for item in items if isinstance(item.event, Notice)]


# --- creating -----------------------------------------------------------------------------------------------


async def test_a_new_run_begins_with_its_question_as_number_one(log: RunLog) -> None:
    new = new_run(text="Which version?")
    row, is_new = await log.create(new)
    assert is_new
    assert (row.run_id, row.context_id, row.owner, row.message_id) == (
        new.run_id,
        new.context_id,
        "ann",
        new.message_id,
    )
    assert (row.principal, row.status, row.last_seq) == ("principal of ann", "running", 1)
    assert [(item.seq, item.event) for item in await log.read(row.run_id)] == [(1, new.started)]
    assert await log.get(row.run_id) == row


async def test_the_task_that_the_wire_names_is_the_run_and_its_context(log: RunLog) -> None:
    row = await created(log)
    assert (row.ref.task_id, row.ref.context_id) == (row.run_id, row.context_id)


async def test_twenty_equal_messages_at_once_start_one_run(log: RunLog) -> None:
    sent = [replace(new_run(message="m"), run_id=f"run-{number}") for number in range(20)]
    answers = await asyncio.gather(*(log.create(new) for new in sent))
    assert [is_new for _, is_new in answers].count(True) == 1
    assert len({row.run_id for row, _ in answers}) == 1
    assert len(await list_all_runs(log, "ann")) == 1
    assert len(await log.read(answers[0][0].run_id)) == 1, "the question is stored once"


async def test_a_message_sent_again_after_the_end_finds_its_run(log: RunLog) -> None:
    first = await created(log, message="m")
    await log.append(first.run_id, first.epoch, [ENDINGS[0]])
    again, is_new = await log.create(new_run(message="m"))
    assert not is_new
    assert again.run_id == first.run_id
    assert again.status == "ended", "the row is as it stands now"


async def test_a_known_id_with_other_content_is_a_conflict_and_changes_nothing(log: RunLog) -> None:
    first = await created(log, message="m", text="one")
    with pytest.raises(MessageConflict, match="already used with different content"):
        await log.create(new_run(message="m", text="another"))
    assert [row.run_id for row in await list_all_runs(log, "ann")] == [first.run_id]


@pytest.mark.sample(3)
@pytest.mark.parametrize("other", [{"owner": "bob"}, {"context": "another context"}])
async def test_a_message_id_counts_per_owner_and_context(log: RunLog, other: dict[str, str]) -> None:
    await created(log, message="m", text="one")
    await created(log, message="m", text="two", **other)


async def test_a_message_without_a_context_finds_its_run_while_it_works(log: RunLog) -> None:
    first = await created(log, message="m", context="given-1", lasting=False)
    again, is_new = await log.create(new_run(message="m", context="given-2", lasting=False))
    assert not is_new
    assert again.run_id == first.run_id


async def test_a_message_without_a_context_starts_anew_once_its_run_has_ended(log: RunLog) -> None:
    first = await created(log, message="m", context="given-1", lasting=False)
    await log.append(first.run_id, first.epoch, [ENDINGS[0]])
    second = await created(log, message="m", context="given-2", lasting=False)
    assert second.run_id != first.run_id


async def test_a_message_without_a_context_and_with_other_content_is_a_run_of_its_own(log: RunLog) -> None:
    first = await created(log, message="m", context="given-1", text="one", lasting=False)
    second = await created(log, message="m", context="given-2", text="two", lasting=False)
    assert first.run_id != second.run_id


async def test_a_message_without_a_context_never_finds_the_run_of_somebody_else(log: RunLog) -> None:
    first = await created(log, message="m", owner="ann", lasting=False)
    second = await created(log, message="m", owner="bob", lasting=False)
    assert first.run_id != second.run_id


# --- numbers ------------------------------------------------------------------------------------------------


async def test_numbers_have_no_gap_and_begin_at_one(log: RunLog) -> None:
    row = await created(log)
    assert await log.append(row.run_id, row.epoch, [noted("a")]) == 2
    assert await log.append(row.run_id, row.epoch, [noted("b"), noted("c"), noted("d")]) == 5
    items = await log.read(row.run_id)
    assert [item.seq for item in items] == [1, 2, 3, 4, 5]
    assert texts(items) == ["a", "b", "c", "d"]
    now = await log.get(row.run_id)
    assert now is not None
    assert now.last_seq == 5


async def test_runs_are_numbered_each_for_itself(log: RunLog) -> None:
    first, second = await created(log), await created(log)
    await log.append(first.run_id, first.epoch, [noted("one")])
    await log.append(second.run_id, second.epoch, [noted("two")])
    assert [(item.seq, texts([item])) for item in await log.read(first.run_id)] == [(1, []), (2, ["one"])]
    assert [(item.seq, texts([item])) for item in await log.read(second.run_id)] == [(1, []), (2, ["two"])]


async def test_writes_at_once_get_numbers_without_gap_and_stay_together(log: RunLog) -> None:
    row = await created(log)
    batches = [[noted(f"{batch}.{number}") for number in range(random.randint(1, 4))] for batch in range(25)]
    ends = await asyncio.gather(*(log.append(row.run_id, row.epoch, batch) for batch in batches))
    items = {item.seq: item.event for item in await log.read(row.run_id)}
    assert sorted(items) == list(range(1, 2 + sum(map(len, batches))))
    for batch, end in zip(batches, ends, strict=True):
        assert [items[seq] for seq in range(end - len(batch) + 1, end + 1)] == batch, (
            "a call's events have numbers in a row, in order"
        )


async def test_the_time_of_an_event_never_goes_back(log: RunLog) -> None:
    row = await created(log)
    for number in range(5):
        await log.append(row.run_id, row.epoch, [noted(number)])
    times = [item.stored_at for item in await log.read(row.run_id)]
    assert times == sorted(times)
    assert all(at.tzinfo is not None for at in times)
    now = await log.get(row.run_id)
    assert now is not None
    assert (now.created, now.updated) == (row.created, times[-1])


# --- reading ------------------------------------------------------------------------------------------------


async def test_reading_begins_after_a_number_and_ends_at_a_limit(log: RunLog) -> None:
    row = await created(log)
    await log.append(row.run_id, row.epoch, [noted(number) for number in range(2, 8)])
    assert [item.seq for item in await log.read(row.run_id, after=3)] == [4, 5, 6, 7]
    assert [item.seq for item in await log.read(row.run_id, after=3, limit=2)] == [4, 5]
    assert await log.read(row.run_id, after=7) == []
    assert await log.read(row.run_id, after=70) == []


async def test_a_long_run_is_read_in_pages(log: RunLog) -> None:
    row = await created(log)
    await log.append(row.run_id, row.epoch, [noted(number) for number in range(999)])
    events: list[StoredEvent] = []
    while page := await log.read(row.run_id, len(events)):
        assert len(page) <= 256
        events += page
    assert [item.seq for item in events] == list(range(1, 1001))


async def test_what_was_read_does_not_change_when_more_is_stored(log: RunLog) -> None:
    row = await created(log)
    before = await log.read(row.run_id)
    events = list(before)
    await log.append(row.run_id, row.epoch, [noted("more")])
    assert before == events


async def test_an_unknown_run_is_not_there(log: RunLog) -> None:
    assert await log.get("nothing") is None
    for attempt in (
        log.read("nothing"),
        log.append("nothing", 1, [noted("x")]),
        log.advance_epoch("nothing"),
        log.take_over("nothing"),
        log.mark_attempt("nothing", "working"),
        log.wait_for_event("nothing", 0),
    ):
        with pytest.raises(RunNotFound):
            await attempt


@settings(
    max_examples=scale_examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # the fixture is a factory: each example has its log
@given(
    batches=st.lists(st.lists(st.text(max_size=5), min_size=1, max_size=5), max_size=8),
    readers=st.lists(st.integers(0, 12), max_size=4),
)
def test_a_reader_sees_the_stored_events_in_order_whenever_it_begins(
    storage: Storage, batches: list[list[str]], readers: list[int]
) -> None:
    async def follow(log: RunLog, run_id: str, after: int) -> list[StoredEvent]:
        events: list[StoredEvent] = []
        while not (events and isinstance(events[-1].event, Answered)):
            await log.wait_for_event(run_id, after)
            events += await log.read(run_id, after, limit=3)
            after = events[-1].seq
        return events

    async def scenario() -> None:
        log = storage()
        row = await created(log)
        last = 2 + sum(map(len, batches))
        following = [asyncio.create_task(follow(log, row.run_id, after % last)) for after in readers]
        for batch in batches:
            await log.append(row.run_id, row.epoch, [noted(text) for text in batch])
            await asyncio.sleep(0)
        await log.append(row.run_id, row.epoch, [ENDINGS[0]])
        stored = [item for start in range(0, last, 256) for item in await log.read(row.run_id, start)]
        assert [item.seq for item in stored] == list(range(1, last + 1))
        for after, events in zip(
            readers, await asyncio.wait_for(asyncio.gather(*following), WAIT), strict=True
        ):
            assert events == stored[after % last :]

    asyncio.run(scenario())


# --- waking -------------------------------------------------------------------------------------------------


async def test_a_reader_is_woken_by_the_next_event_and_then_finds_it(log: RunLog) -> None:
    row = await created(log)
    waiting = [asyncio.create_task(log.wait_for_event(row.run_id, 1)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    await log.append(row.run_id, row.epoch, [noted("now")])
    await asyncio.wait_for(asyncio.gather(*waiting), WAIT)
    assert texts(await log.read(row.run_id, after=1)) == ["now"]


async def test_waiting_for_what_is_stored_already_returns_at_once(log: RunLog) -> None:
    row = await created(log)
    await asyncio.wait_for(log.wait_for_event(row.run_id, 0), WAIT)


async def test_a_reader_that_waits_for_a_later_number_sleeps_on(log: RunLog) -> None:
    row = await created(log)
    waiting = asyncio.create_task(log.wait_for_event(row.run_id, 3))
    await asyncio.sleep(0)
    await log.append(row.run_id, row.epoch, [noted("two"), noted("three")])
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    await log.append(row.run_id, row.epoch, [noted("four")])
    await asyncio.wait_for(waiting, WAIT)


async def test_events_of_another_run_wake_nobody(log: RunLog) -> None:
    mine, other = await created(log), await created(log)
    waiting = asyncio.create_task(log.wait_for_event(mine.run_id, 1))
    await asyncio.sleep(0)
    await log.append(other.run_id, other.epoch, [noted("other")])
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_a_reader_that_goes_away_harms_neither_the_writer_nor_other_readers(log: RunLog) -> None:
    row = await created(log)
    leaves, stays = (asyncio.create_task(log.wait_for_event(row.run_id, 1)) for _ in range(2))
    await asyncio.sleep(0)
    leaves.cancel()
    await asyncio.wait({leaves})
    await log.append(row.run_id, row.epoch, [noted("now")])
    await asyncio.wait_for(stays, WAIT)


# --- fencing ------------------------------------------------------------------------------------------------


async def test_a_claim_gives_a_new_epoch_and_refuses_the_old_one(log: RunLog) -> None:
    row = await created(log)
    epoch = await log.advance_epoch(row.run_id)
    assert epoch > row.epoch
    with pytest.raises(Fenced):
        await log.append(row.run_id, row.epoch, [noted("from the old owner")])
    await log.append(row.run_id, epoch, [noted("from the new owner")])
    assert texts(await log.read(row.run_id)) == ["from the new owner"]


async def test_events_of_many_runs_are_stored_together_but_for_those_that_may_not_write(log: RunLog) -> None:
    rows = [await created(log) for _ in range(3)]
    await log.advance_epoch(rows[1].run_id)
    batches = [EventBatch(row.run_id, row.epoch, [noted("one"), noted("two")]) for row in rows]
    storing = log.append_all([*batches, EventBatch("nothing", 1, [noted("lost")])])
    await log.append(rows[0].run_id, rows[0].epoch, [noted("three")])  # in the order of the calls
    errors = await storing
    assert [type(error) for error in errors] == [type(None), Fenced, type(None), RunNotFound]
    stored = [texts(await log.read(row.run_id)) for row in rows]
    assert stored == [["one", "two", "three"], [], ["one", "two"]]
    for row in rows:
        current = await log.get(row.run_id)
        assert current is not None
        assert [item.seq for item in await log.read(row.run_id)] == list(range(1, current.last_seq + 1))


async def test_a_takeover_counts_the_crash_of_a_process_that_worked(log: RunLog) -> None:
    row = await created(log)
    await log.append(row.run_id, row.epoch, [], [Marker("", "c1")])
    first = await log.take_over(row.run_id)
    assert (first.epoch, first.crashes) == (row.epoch + 1, 1)
    assert (await log.take_over(row.run_id)).crashes == 1, "it only waited there"
    await log.mark_attempt(row.run_id, "working")
    assert (await log.take_over(row.run_id)).crashes == 2
    await log.mark_attempt(row.run_id, "working")
    await log.mark_attempt(row.run_id, "handed_over")
    last = await log.take_over(row.run_id)
    assert last.crashes == 2, "it was stopped in an orderly way"
    assert await log.get(row.run_id) == last
    with pytest.raises(Fenced):
        await log.append(row.run_id, first.epoch, [noted("late")])


async def test_a_run_that_never_began_or_waits_for_people_has_no_crash(log: RunLog) -> None:
    waiting = await created(log)
    assert (await log.take_over(waiting.run_id)).crashes == 0
    paused = await created(log)
    await log.append(paused.run_id, paused.epoch, [Paused(text="Well?")], [Marker("", "c1")])
    assert (await log.take_over(paused.run_id)).crashes == 0


async def test_of_many_claims_only_the_last_may_write(log: RunLog) -> None:
    row = await created(log)
    epochs = await asyncio.gather(*(log.advance_epoch(row.run_id) for _ in range(10)))
    assert len(set(epochs)) == 10
    for epoch in sorted(epochs)[:-1]:
        with pytest.raises(Fenced):
            await log.append(row.run_id, epoch, [noted("late")])
    assert await log.append(row.run_id, max(epochs), [noted("last")]) == 2


async def test_an_epoch_that_was_never_given_is_refused(log: RunLog) -> None:
    row = await created(log)
    with pytest.raises(Fenced):
        await log.append(row.run_id, row.epoch + 1, [noted("from nowhere")])


@pytest.mark.sample(3)
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.kind)
async def test_nothing_is_stored_after_the_end(log: RunLog, ending: AnyEvent) -> None:
    row = await created(log)
    await log.append(row.run_id, row.epoch, [noted("before"), ending])
    for epoch in (row.epoch, await log.advance_epoch(row.run_id)):
        with pytest.raises(Fenced):
            await log.append(row.run_id, epoch, [noted("after")])
    assert (await log.read(row.run_id))[-1].event == ending


async def test_of_two_endings_at_once_exactly_one_is_stored(log: RunLog) -> None:
    row = await created(log)
    outcomes = await asyncio.gather(
        *(log.append(row.run_id, row.epoch, [ending]) for ending in ENDINGS), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Fenced", "Fenced", "int"]
    assert len(await log.read(row.run_id)) == 2


async def test_a_refused_write_wakes_nobody_and_takes_no_number(log: RunLog) -> None:
    row = await created(log)
    epoch = await log.advance_epoch(row.run_id)
    waiting = asyncio.create_task(log.wait_for_event(row.run_id, 1))
    await asyncio.sleep(0)
    with pytest.raises(Fenced):
        await log.append(row.run_id, row.epoch, [noted("a"), noted("b")])
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert await log.append(row.run_id, epoch, [noted("c")]) == 2
    await asyncio.wait_for(waiting, WAIT)


# --- status -------------------------------------------------------------------------------------------------


async def test_the_status_follows_the_events(log: RunLog) -> None:
    row = await created(log)

    async def after(*events: AnyEvent) -> str:
        await log.append(row.run_id, row.epoch, events)
        now = await log.get(row.run_id)
        assert now is not None
        return now.status

    assert await after(TextDelta(message_id="m", offset=0, text="I need")) == "running"
    assert (
        await after(InputRequested(request_id="r", asked=Form()), Paused(text="Which?", requests=("r",)))
        == "paused"
    )
    assert await after(InputResolved(request_id="r", resolution="answered", value={"a": 1})) == "running"
    assert await after(ENDINGS[0]) == "ended"


async def test_a_request_that_is_withdrawn_by_the_end_leaves_the_run_ended(log: RunLog) -> None:
    row = await created(log)
    await log.append(row.run_id, row.epoch, [Paused(text="Which?", requests=("r",))])
    await log.append(
        row.run_id, row.epoch, [InputResolved(request_id="r", resolution="withdrawn"), ENDINGS[2]]
    )
    now = await log.get(row.run_id)
    assert now is not None
    assert now.status == "ended"


# --- finding ------------------------------------------------------------------------------------------------


async def test_an_owner_finds_the_own_runs_newest_first(log: RunLog) -> None:
    rows = [
        await created(log, owner=owner, context=context)
        for owner, context in [("ann", "a"), ("bob", "a"), ("ann", "b"), ("ann", "a")]
    ]
    first, of_bob, second, third = (row.run_id for row in rows)
    assert [row.run_id for row in await list_all_runs(log, "ann")] == [third, second, first]
    assert [row.run_id for row in await list_all_runs(log, "ann", "a")] == [third, first]
    assert [row.run_id for row in await list_all_runs(log, "bob")] == [of_bob]
    assert await list_all_runs(log, "bob", "b") == []
    assert await list_all_runs(log, "nobody") == []


async def test_new_events_do_not_change_the_order_of_runs(log: RunLog) -> None:
    first, second = await created(log), await created(log)
    await log.append(first.run_id, first.epoch, [noted("late")])
    assert [row.run_id for row in await list_all_runs(log, "ann")] == [second.run_id, first.run_id]


async def test_the_conversations_of_an_owner_are_listed_by_their_newest_run(log: RunLog) -> None:
    first = await created(log, context="a")
    await created(log, context="b")
    await created(log, owner="bob", context="c")
    last = await created(log, context="a")
    conversations = (await log.list_conversations("ann", limit=10)).rows
    assert [talk.context_id for talk in conversations] == ["a", "b"]
    assert (conversations[0].owner, conversations[0].created, conversations[0].updated) == (
        "ann",
        first.created,
        last.created,
    )
    assert (await log.list_conversations("nobody", limit=10)).rows == []


async def test_what_has_not_ended_is_listed_oldest_first(log: RunLog) -> None:
    working, paused, done = await created(log), await created(log, owner="bob"), await created(log)
    await log.append(paused.run_id, paused.epoch, [Paused(text="Which?")])
    await log.append(done.run_id, done.epoch, [ENDINGS[0]])
    await log.append(working.run_id, working.epoch, [noted("later")])
    assert [(row.run_id, row.status) for row in await log.find_unfinished()] == [
        (working.run_id, "running"),
        (paused.run_id, "paused"),
    ]


async def test_a_run_for_an_idle_conversation_is_refused_while_another_one_works(log: RunLog) -> None:
    working = await created(log)
    with pytest.raises(WrongState):
        await log.create(new_run(only_if_idle=True))
    assert (await created(log, context="other", only_if_idle=True)).status == "running"
    await log.append(working.run_id, working.epoch, [Paused(text="Which?")])
    assert (await created(log, only_if_idle=True)).status == "running"


async def test_a_run_is_not_created_over_another_one(log: RunLog) -> None:
    row = await created(log, text="first")
    with pytest.raises(Refused):
        await log.create(replace(new_run(text="second"), run_id=row.run_id))
    assert len(await log.read(row.run_id)) == 1


# --- answers ------------------------------------------------------------------------------------------------


async def test_an_answer_is_recalled_by_its_owner_and_context_alone(log: RunLog) -> None:
    row = await created(log, context="talk")
    answer = AnswerMessage(row.run_id, "m2", "digest", before=7)
    await log.store_answer(answer)
    assert await log.find_answer("ann", "talk", "m2") == answer
    for owner, context, message in [("bob", "talk", "m2"), ("ann", "other", "m2"), ("ann", "talk", "m3")]:
        assert await log.find_answer(owner, context, message) is None
    with pytest.raises(RunNotFound):
        await log.store_answer(AnswerMessage("nothing", "m2", "digest", 1))


# --- markers ------------------------------------------------------------------------------------------------


async def test_a_marker_says_after_which_number_its_checkpoint_was_stored(log: RunLog) -> None:
    row = await created(log)
    await log.append(row.run_id, row.epoch, [noted("a")], [Marker("", "c1")])
    await log.append(row.run_id, row.epoch, [], [Marker("tools:1", "c2"), Marker("", "c1")])
    await log.append(row.run_id, row.epoch, [noted("b"), noted("c")], [Marker("", "c3")])
    assert await log.markers(row.run_id) == [
        StoredMarker("", "c1", 2),
        StoredMarker("tools:1", "c2", 2),
        StoredMarker("", "c3", 4),
    ]
    assert len(await log.read(row.run_id)) == 4, "markers take no numbers"


async def test_a_refused_write_leaves_no_marker(log: RunLog) -> None:
    row = await created(log)
    await log.advance_epoch(row.run_id)
    with pytest.raises(Fenced):
        await log.append(row.run_id, row.epoch, [noted("a")], [Marker("", "c1")])
    assert await log.markers(row.run_id) == []


# --- orders -------------------------------------------------------------------------------------------------


async def test_a_remote_order_is_kept_for_its_run_and_key(log: RunLog) -> None:
    row, other = await created(log), await created(log)
    assert await log.find_remote_task(row.run_id, "tools:1") is None
    await log.store_remote_task(row.run_id, row.epoch, "tools:1", "jira", "remote-1")
    await log.store_remote_task(row.run_id, row.epoch, "tools:2", "argocd", "remote-2")
    assert await log.find_remote_task(row.run_id, "tools:1") == "remote-1"
    assert await log.find_remote_task(other.run_id, "tools:1") is None
    await log.store_remote_task(row.run_id, row.epoch, "tools:1", "jira", "remote-3")
    assert await log.find_remote_task(row.run_id, "tools:1") == "remote-3"


async def test_all_orders_of_a_run_are_listed_with_their_agents(log: RunLog) -> None:
    row, other = await created(log), await created(log)
    assert await log.list_remote_tasks(row.run_id) == []
    await log.store_remote_task(row.run_id, row.epoch, "tools:1", "jira", "remote-1")
    await log.store_remote_task(other.run_id, other.epoch, "tools:1", "jira", "elsewhere")
    await log.store_remote_task(row.run_id, row.epoch, "tools:2", "argocd", "remote-2")
    await log.store_remote_task(row.run_id, row.epoch, "tools:1", "jira", "remote-3")
    assert await log.list_remote_tasks(row.run_id) == [("jira", "remote-3"), ("argocd", "remote-2")]
    await log.append(row.run_id, row.epoch, [ENDINGS[2]])
    assert len(await log.list_remote_tasks(row.run_id)) == 2, "whoever cancels the run asks afterwards"
    with pytest.raises(RunNotFound):
        await log.list_remote_tasks("nothing")


# --- the journal --------------------------------------------------------------------------------------------


async def begin(log: RunLog, row: RunRow, *, idempotent: bool = False) -> JournalEntry:
    return await log.begin(row.run_id, row.epoch, "ns/call", "delete", {"name": "x"}, idempotent=idempotent)


async def test_a_call_runs_once_and_its_outcome_answers_the_next_time(log: RunLog) -> None:
    row = await created(log)
    first = await begin(log, row)
    assert (first.may_run, first.tool, first.arguments) == (True, "delete", {"name": "x"})
    await log.finish(row.run_id, row.epoch, "ns/call", "done", {"content": "gone", "status": "success"})
    again = await begin(log, row, idempotent=True)
    assert (again.may_run, again.state, again.outcome) == (
        False,
        "done",
        {"content": "gone", "status": "success"},
    )
    assert await log.journal(row.run_id) == [again]


async def test_a_call_without_an_outcome_may_have_taken_effect(log: RunLog) -> None:
    row = await created(log)
    await begin(log, row)
    for idempotent in (False, False, True):
        entry = await begin(log, row, idempotent=idempotent)
        assert (entry.may_run, entry.state) == (False, "unknown")
    await log.finish(row.run_id, row.epoch, "ns/call", "done", "it did")
    assert (await begin(log, row)).outcome == "it did"


async def test_a_call_that_does_no_harm_twice_runs_again(log: RunLog) -> None:
    row = await created(log)
    await begin(log, row, idempotent=True)
    now = replace(row, epoch=await log.advance_epoch(row.run_id))
    entry = await begin(log, now, idempotent=True)
    assert (entry.may_run, entry.epoch) == (True, now.epoch)


async def test_a_withdrawn_call_runs_anew(log: RunLog) -> None:
    row = await created(log)
    await begin(log, row)
    await log.finish(row.run_id, row.epoch, "ns/call", "withdrawn")
    assert (await begin(log, row)).may_run


async def test_an_outcome_that_is_stored_stays(log: RunLog) -> None:
    row = await created(log)
    await begin(log, row)
    await log.finish(row.run_id, row.epoch, "ns/call", "done", "first")
    await log.finish(row.run_id, row.epoch, "ns/call", "withdrawn")
    assert [(entry.state, entry.outcome) for entry in await log.journal(row.run_id)] == [("done", "first")]
    with pytest.raises(Refused):
        await log.finish(row.run_id, row.epoch, "another", "done", "x")


async def test_the_journal_lists_the_calls_as_they_began(log: RunLog) -> None:
    row = await created(log)
    for key in ("b", "a", "c"):
        await log.begin(row.run_id, row.epoch, key, "write", {}, idempotent=True)
    await log.finish(row.run_id, row.epoch, "b", "done")
    await log.begin(row.run_id, row.epoch, "a", "write", {"again": True}, idempotent=True)
    assert [entry.key for entry in await log.journal(row.run_id)] == ["b", "a", "c"]
    assert (await log.journal(row.run_id))[1].arguments == {"again": True}


async def test_a_person_settles_what_is_unknown_and_nothing_else(log: RunLog) -> None:
    row = await created(log)
    assert not await log.settle(row.run_id, "ns/call", "done", "ann")
    await begin(log, row)
    assert not await log.settle(row.run_id, "ns/call", "too early", "ann"), "its outcome may still come"
    await begin(log, row)
    assert await log.settle(row.run_id, "ns/call", {"content": "it was deleted"}, "ann")
    assert not await log.settle(row.run_id, "ns/call", "again", "bob")
    entry = await begin(log, row)
    assert (entry.state, entry.outcome, entry.settled_by) == ("done", {"content": "it was deleted"}, "ann")


async def test_a_call_that_its_run_left_open_can_be_settled(log: RunLog) -> None:
    row = await created(log)
    await begin(log, row)
    await log.append(row.run_id, row.epoch, [ENDINGS[2]])
    assert await log.settle(row.run_id, "ns/call", "it happened", "ann")


async def test_an_old_owner_orders_begins_and_finishes_nothing(log: RunLog) -> None:
    row = await created(log)
    await begin(log, row)
    await log.advance_epoch(row.run_id)
    for attempt in (
        log.store_remote_task(row.run_id, row.epoch, "key", "jira", "remote"),
        log.begin(row.run_id, row.epoch, "other", "delete", {}, idempotent=False),
        log.finish(row.run_id, row.epoch, "ns/call", "done", "late"),
    ):
        with pytest.raises(Fenced):
            await attempt
    assert await log.find_remote_task(row.run_id, "key") is None
    assert [(entry.key, entry.state) for entry in await log.journal(row.run_id)] == [("ns/call", "intent")]


async def test_what_json_cannot_say_is_kept_as_text(log: RunLog) -> None:
    row = await created(log)
    entry = await log.begin(
        row.run_id, row.epoch, "k", "write", {"at": uuid.UUID(int=1), "many": (1, 2)}, idempotent=False
    )
    assert entry.arguments == {"at": str(uuid.UUID(int=1)), "many": [1, 2]}
    assert await log.journal(row.run_id) == [entry]


# --- requests -----------------------------------------------------------------------------------------------


def asks(*request_ids: str) -> list[AnyEvent]:
    return [
        InputRequested(request_id=request_id, asked=Form(response=f"{request_id}?"), agent="jira")
        for request_id in request_ids
    ]


async def statuses(log: RunLog, run_id: str) -> dict[str, str]:
    return {request.request_id: request.status for request in await log.requests(run_id)}


async def test_a_request_is_stored_with_its_event(log: RunLog) -> None:
    row = await created(log)
    events = asks("r1", "r2")
    await log.append(row.run_id, row.epoch, [*events, Paused(text="?", requests=("r1", "r2"))])
    assert await log.requests(row.run_id) == [
        PendingRequest(f"r{number}", row.run_id, event) for number, event in enumerate(events, 1)
    ]
    assert await log.request("r2") == PendingRequest("r2", row.run_id, events[1])
    assert await log.request("r3") is None


def until(expires_at: datetime | None, request_id: str = "r") -> InputRequested:
    return InputRequested(request_id=request_id, asked=Form(response=f"{request_id}?", expires_at=expires_at))


def message(row: RunRow, message_id: str = "answer") -> AnswerMessage:
    return AnswerMessage(row.run_id, message_id, f"digest of {message_id}", row.last_seq)


async def claimed(
    log: RunLog, row: RunRow, *request_ids: str, by: str = "ann", message_id: str = "answer"
) -> list[str]:
    return await log.claim_requests(
        message(row, message_id), {request_id: {"answer": request_id} for request_id in request_ids}, by
    )


async def answer_of(log: RunLog, request_id: str) -> tuple[str, Any, str]:
    request = await log.request(request_id)
    assert request is not None
    return request.status, request.answer, request.by


async def test_of_forty_answers_at_once_one_is_taken(log: RunLog) -> None:
    row = await created(log)
    await log.append(row.run_id, row.epoch, asks("r"))
    values = [({"r": {"answer": number}}, f"person {number}") for number in range(40)]
    claims = await asyncio.gather(*(log.claim_requests(message(row, by), value, by) for value, by in values))
    (winner,) = [number for number, claimed_ids in enumerate(claims) if claimed_ids]
    assert claims[winner] == ["r"]
    assert await answer_of(log, "r") == ("claimed", {"answer": winner}, f"person {winner}")
    message_numbers = [
        number
        for number, (_, by) in enumerate(values)
        if await log.find_answer(row.owner, row.context_id, by)
    ]
    assert message_numbers == [winner], "a message that claimed nothing is not remembered"


async def test_of_forty_answers_to_several_requests_each_request_takes_one(log: RunLog) -> None:
    row, ids = await created(log), ["r1", "r2", "r3"]
    await log.append(row.run_id, row.epoch, asks(*ids))
    picks = [random.sample(ids, random.randint(1, 3)) for _ in range(37)] + [
        [request_id] for request_id in ids
    ]
    claims = await asyncio.gather(
        *(claimed(log, row, *pick, message_id=f"m{number}") for number, pick in enumerate(picks))
    )
    assert sorted(request_id for claimed_ids in claims for request_id in claimed_ids) == ids
    message_numbers = [
        number for number in range(40) if await log.find_answer(row.owner, row.context_id, f"m{number}")
    ]
    assert message_numbers == [number for number, claimed_ids in enumerate(claims) if claimed_ids]


async def test_an_answer_says_when_it_was_given_and_by_whom(log: RunLog) -> None:
    row = await created(log)
    await log.append(row.run_id, row.epoch, asks("r"))
    began = datetime.now(UTC)
    await claimed(log, row, "r", by="bob")
    request = await log.request("r")
    assert request is not None
    assert request.at is not None
    assert began <= request.at <= datetime.now(UTC)
    assert await answer_of(log, "r") == ("claimed", {"answer": "r"}, "bob")


async def test_several_values_are_claimed_as_they_were_asked_and_the_message_is_kept(log: RunLog) -> None:
    row = await created(log)
    await log.append(row.run_id, row.epoch, asks("r1", "r2", "r3"))
    assert await claimed(log, row, "r3", "r1", "unknown") == ["r1", "r3"]
    assert await statuses(log, row.run_id) == {"r1": "claimed", "r2": "pending", "r3": "claimed"}
    assert await log.find_answer(row.owner, row.context_id, "answer") == message(row)
    now = await log.get(row.run_id)
    assert now is not None
    assert (now.status, now.last_seq) == ("running", 4), "a claim is no event: the run's own work tells of it"


async def test_only_what_still_waits_is_claimed(log: RunLog) -> None:
    row = await created(log)
    await log.append(row.run_id, row.epoch, asks("r1", "r2"))
    assert await claimed(log, row, "r1", by="ann") == ["r1"]
    assert await claimed(log, row, "r1", "r2", by="bob", message_id="second") == ["r2"]
    assert await claimed(log, row, "r1", "r2", by="eve", message_id="third") == []
    assert [await answer_of(log, request_id) for request_id in ("r1", "r2")] == [
        ("claimed", {"answer": "r1"}, "ann"),
        ("claimed", {"answer": "r2"}, "bob"),
    ]
    assert await log.find_answer(row.owner, row.context_id, "third") is None


async def test_an_answer_after_its_time_is_never_claimed(log: RunLog) -> None:
    row, now = await created(log), datetime.now(UTC)
    early, late = until(now + timedelta(hours=1), "early"), until(now - timedelta(microseconds=1), "late")
    await log.append(row.run_id, row.epoch, [early, late, until(None, "any")])
    assert await claimed(log, row, "late") == []
    assert await log.find_answer(row.owner, row.context_id, "answer") is None
    assert await claimed(log, row, "early", "late", "any") == ["early", "any"]
    assert await statuses(log, row.run_id) == {"early": "claimed", "late": "pending", "any": "claimed"}


async def test_a_request_of_another_run_is_not_claimed(log: RunLog) -> None:
    row, other = await created(log), await created(log)
    await log.append(row.run_id, row.epoch, asks("r1"))
    await log.append(other.run_id, other.epoch, asks("r2"))
    assert await claimed(log, row, "r2") == []
    assert await claimed(log, row, "r1", "r2") == ["r1"]
    assert await statuses(log, other.run_id) == {"r2": "pending"}
    with pytest.raises(RunNotFound):
        await log.claim_requests(AnswerMessage("nothing", "answer", "digest", 1), {"r2": {}}, "ann")


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("resolution", "status"),
    [
        ("answered", "resolved"),
        ("approved", "resolved"),
        ("edited", "resolved"),
        ("rejected", "resolved"),
        ("expired", "expired"),
        ("withdrawn", "withdrawn"),
    ],
)
async def test_a_resolved_request_takes_no_answer(log: RunLog, resolution: Any, status: str) -> None:
    row = await created(log)
    await log.append(row.run_id, row.epoch, asks("r1", "r2"))
    await log.append(
        row.run_id,
        row.epoch,
        [InputResolved(request_id="r1", resolution=resolution, by="ann", value={"a": 1})],
    )
    assert await statuses(log, row.run_id) == {"r1": status, "r2": "pending"}
    assert await answer_of(log, "r1") == (status, {"a": 1}, "ann")
    assert await claimed(log, row, "r1", "r2", by="bob") == ["r2"]
    assert await answer_of(log, "r1") == (status, {"a": 1}, "ann")


async def test_a_claimed_answer_stays_when_it_is_resolved(log: RunLog) -> None:
    row = await created(log)
    await log.append(row.run_id, row.epoch, asks("r"))
    await claimed(log, row, "r")
    before = await log.request("r")
    await log.append(row.run_id, row.epoch, asks("r"))
    assert await statuses(log, row.run_id) == {"r": "claimed"}, (
        "asked again by a run that goes on after a crash"
    )
    await log.append(
        row.run_id,
        row.epoch,
        [InputResolved(request_id="r", resolution="answered", by="bob", value={"other": 1})],
    )
    assert await answer_of(log, "r") == ("resolved", {"answer": "r"}, "ann")
    after = await log.request("r")
    assert before is not None
    assert after is not None
    assert after.at == before.at, "it was answered when it was claimed"


async def test_the_end_of_a_run_withdraws_what_it_asked(log: RunLog) -> None:
    row, other = await created(log), await created(log)
    await log.append(row.run_id, row.epoch, asks("r1", "r2", "r3"))
    await log.append(other.run_id, other.epoch, asks("r4"))
    await log.append(row.run_id, row.epoch, [InputResolved(request_id="r1", resolution="answered")])
    await claimed(log, row, "r2")
    await log.append(row.run_id, row.epoch, [ENDINGS[1]])
    assert await statuses(log, row.run_id) == {"r1": "resolved", "r2": "withdrawn", "r3": "withdrawn"}
    assert await statuses(log, other.run_id) == {"r4": "pending"}
    assert await claimed(log, row, "r3") == []


async def test_what_waits_for_people_is_listed_oldest_first(log: RunLog) -> None:
    first, second, bobs = await created(log), await created(log), await created(log, owner="bob")
    assert await list_all_open_requests(log, "ann") == []
    await log.append(second.run_id, second.epoch, [until(BEFORE, "a")])
    await log.append(first.run_id, first.epoch, asks("b", "c", "d"))
    await log.append(bobs.run_id, bobs.epoch, asks("e"))
    await claimed(log, first, "c")
    await log.append(first.run_id, first.epoch, [InputResolved(request_id="d", resolution="expired")])
    assert [request.request_id for request in await list_all_open_requests(log, "ann")] == ["b"]
    assert await log.find_overdue_runs(10) == [second.run_id], "its request can no longer be answered"
    assert [request.request_id for request in await list_all_open_requests(log, "bob")] == ["e"]
    await log.append(second.run_id, second.epoch, [ENDINGS[2]])
    assert [request.request_id for request in await list_all_open_requests(log, "ann")] == ["b"]


async def test_a_run_resolves_its_own_requests_only(log: RunLog) -> None:
    row, other = await created(log), await created(log)
    await log.append(row.run_id, row.epoch, asks("r"))
    await log.append(other.run_id, other.epoch, [InputResolved(request_id="r", resolution="withdrawn")])
    assert await statuses(log, row.run_id) == {"r": "pending"}


async def test_a_refused_write_asks_nothing(log: RunLog) -> None:
    row = await created(log)
    await log.advance_epoch(row.run_id)
    with pytest.raises(Fenced):
        await log.append(row.run_id, row.epoch, asks("r"))
    assert await log.request("r") is None


# --- what people wrote --------------------------------------------------------------------------------------


async def test_what_people_wrote_in_a_conversation(log: RunLog) -> None:
    first = await created(log, text="Is 10.0.0.5 up?")
    asked = InputRequested(request_id="r1", asked=Form(fields=(InputField(field_name="host"),)))
    await log.append(first.run_id, first.epoch, [asked])
    answer = AnswerMessage(first.run_id, "m2", "digest", 2)
    await log.claim_requests(answer, {"r1": {"host": "10.0.0.6"}}, "ann")
    second = await created(log, text="And now?")
    await created(log, text="Somebody else's", owner="bob")
    await created(log, text="Elsewhere", context="other")
    inputs = await log.list_person_input("ann", "context", 10)
    assert [(item.run_id, item.parts) for item in inputs] == [
        (second.run_id, (TextPart(text="And now?"),)),
        (first.run_id, (TextPart(text="Is 10.0.0.5 up?"),)),
    ]
    assert [(request.status, request.answer) for request in inputs[1].requests] == [
        ("claimed", {"host": "10.0.0.6"})
    ]
    assert [item.run_id for item in await log.list_person_input("ann", "context", 1)] == [second.run_id]


# --- allowances ---------------------------------------------------------------------------------------------


async def test_a_tool_is_allowed_in_its_conversation_until_it_is_taken_back(log: RunLog) -> None:
    row = await created(log)
    began = datetime.now(UTC)
    await log.allow(row.run_id, row.epoch, "jira/create", "ann")
    await log.allow(row.run_id, row.epoch, "argocd/sync", "ann")
    await log.allow(row.run_id, row.epoch, "jira/create", "bob")
    allowances = await log.list_allowances("ann", "context")
    assert [(allowance.tool, allowance.by) for allowance in allowances] == [
        ("jira/create", "ann"),
        ("argocd/sync", "ann"),
    ], "the first word counts"
    assert all(began <= allowance.at <= datetime.now(UTC) for allowance in allowances)
    for owner, context in (("bob", "context"), ("ann", "another")):
        assert await log.list_allowances(owner, context) == []
        assert not await log.disallow(owner, context, "jira/create")
    assert await log.disallow("ann", "context", "jira/create")
    assert not await log.disallow("ann", "context", "jira/create")
    assert [allowance.tool for allowance in await log.list_allowances("ann", "context")] == ["argocd/sync"]


async def test_what_is_allowed_holds_for_the_next_run_of_the_conversation(log: RunLog) -> None:
    first = await created(log)
    await log.allow(first.run_id, first.epoch, "jira/create", "ann")
    await log.append(first.run_id, first.epoch, [ENDINGS[0]])
    await created(log)
    assert [allowance.tool for allowance in await log.list_allowances("ann", "context")] == ["jira/create"]


async def test_an_old_owner_or_an_ended_run_allows_nothing(log: RunLog) -> None:
    row, over = await created(log), await created(log)
    await log.advance_epoch(row.run_id)
    await log.append(over.run_id, over.epoch, [ENDINGS[0]])
    for attempt in (
        log.allow(row.run_id, row.epoch, "t", "ann"),
        log.allow(over.run_id, over.epoch, "t", "ann"),
    ):
        with pytest.raises(Fenced):
            await attempt
    assert await log.list_allowances("ann", "context") == []
    with pytest.raises(RunNotFound):
        await log.allow("nothing", 1, "t", "ann")


# --- retention ----------------------------------------------------------------------------------------------


async def test_ended_runs_are_forgotten_with_all_that_belongs_to_them(log: RunLog) -> None:
    ended_run, working, paused = (
        await created(log, message="m", context="old"),
        await created(log),
        await created(log),
    )
    await log.append(ended_run.run_id, ended_run.epoch, asks("r"), [Marker("", "c")])
    await log.store_answer(AnswerMessage(ended_run.run_id, "m2", "digest", 1))
    await begin(log, ended_run)
    await log.store_remote_task(ended_run.run_id, ended_run.epoch, "k", "jira", "remote")
    await log.allow(ended_run.run_id, ended_run.epoch, "jira/create", "ann")
    await log.allow(working.run_id, working.epoch, "jira/create", "ann")
    await log.append(ended_run.run_id, ended_run.epoch, [ENDINGS[0]])
    await log.append(paused.run_id, paused.epoch, [*asks("r2"), Paused(text="?")])
    assert await log.delete_runs(ended_run.created) == 0
    assert await log.get(ended_run.run_id) is not None
    assert await log.delete_runs(LATER) == 1
    assert await log.get(ended_run.run_id) is None
    assert (await log.request("r"), await log.find_answer("ann", "old", "m2")) == (None, None)
    assert await log.list_allowances("ann", "old") == []
    assert [allowance.tool for allowance in await log.list_allowances("ann", "context")] == ["jira/create"]
    for attempt in (
        log.read(ended_run.run_id),
        log.journal(ended_run.run_id),
        log.markers(ended_run.run_id),
        log.find_remote_task(ended_run.run_id, "k"),
    ):
        with pytest.raises(RunNotFound):
            await attempt
    assert [row.run_id for row in await list_all_runs(log, "ann")] == [paused.run_id, working.run_id]
    assert [talk.context_id for talk in (await log.list_conversations("ann", limit=10)).rows] == ["context"]
    assert await statuses(log, paused.run_id) == {"r2": "pending"}
    again = await created(log, message="m", context="old", text="other")
    assert await log.find_remote_task(again.run_id, "k") is None


async def test_a_conversation_stays_while_it_has_runs(log: RunLog) -> None:
    await ended(log, context="talk")
    working = await created(log, context="talk")
    assert await log.delete_runs(LATER) == 1
    assert [talk.context_id for talk in (await log.list_conversations("ann", limit=10)).rows] == ["talk"]
    assert [row.run_id for row in await list_all_runs(log, "ann", "talk")] == [working.run_id]


# --- forgetting (storages with a bound) ---------------------------------------------------------------------


async def ended(log: RunLog, **how: Any) -> str:
    row = await created(log, **how)
    await log.append(row.run_id, row.epoch, [ENDINGS[0]])
    return row.run_id


async def test_at_the_bound_the_oldest_ended_run_is_forgotten() -> None:
    log = MemoryLog(most=3)
    old_run, recent_run, working = await ended(log), await ended(log), (await created(log)).run_id
    newest = await created(log)
    assert await log.get(old_run) is None
    assert [row.run_id for row in await list_all_runs(log, "ann")] == [newest.run_id, working, recent_run]


async def test_runs_that_work_or_wait_for_people_are_never_forgotten() -> None:
    log = MemoryLog(most=3)
    working, paused = await created(log), await created(log)
    await log.append(paused.run_id, paused.epoch, [Paused(text="Which?")])
    for _ in range(20):
        await ended(log)
    more = [await created(log) for _ in range(10)]
    for row in (working, paused, *more):
        assert await log.get(row.run_id) is not None
        await log.append(row.run_id, row.epoch, [noted("still here")])


async def test_the_bound_holds_however_many_runs_end() -> None:
    log = MemoryLog(most=10)
    run_ids: list[str] = []
    for _ in range(35):
        run_ids.append(await ended(log))
        newest_first = [row.run_id for row in await list_all_runs(log, "ann")]
        assert newest_first == run_ids[:-11:-1]


async def test_a_forgotten_message_may_be_sent_again() -> None:
    log = MemoryLog(most=1)
    forgotten = await ended(log, message="m", text="one")
    await ended(log)
    again = await created(log, message="m", text="another")
    assert again.run_id != forgotten


# --- ids by their beginning -----------------------------------------------------------------------


async def test_runs_and_contexts_are_found_by_the_beginning_of_their_ids(log: RunLog) -> None:
    rows = [await created(log, context=context) for context in ("abcd-1", "abcd-2", "abcd-2", "abce")]
    await created(log, owner="bob", context="abcd-3")
    assert await log.find_contexts_by_prefix("ann", "abcd", 5) == ["abcd-1", "abcd-2"]
    assert await log.find_contexts_by_prefix("ann", "abc", 2) == ["abcd-1", "abcd-2"]
    assert await log.find_contexts_by_prefix("ann", "abcd-2", 5) == ["abcd-2"]
    assert await log.find_contexts_by_prefix("ann", "x", 5) == []
    for row in rows:
        assert [match.task_id for match in await log.find_runs_by_prefix("ann", row.run_id[:13], 5)] == [
            row.run_id
        ]
        assert await log.find_runs_by_prefix("bob", row.run_id[:13], 5) == []
    everything = await log.find_runs_by_prefix("ann", "", 10)
    assert [match.task_id for match in everything] == sorted(row.run_id for row in rows)
    assert len(await log.find_runs_by_prefix("ann", "", 2)) == 2
