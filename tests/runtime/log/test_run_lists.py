"""Lists of runs and requests, page by page, on every storage of the run log."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest
import pytest_asyncio

from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Cancelled,
    Failed,
    Form,
    InputRequested,
    InputResolved,
    Notice,
    Paused,
    PlanUpdated,
    RunStarted,
    TextDelta,
    TextPart,
    ToolStarted,
)
from ai_platform_engineering.core.transcript import TranscriptState, fold
from ai_platform_engineering.runtime.log import conversation_rows, run_queries
from ai_platform_engineering.runtime.log.conversation_rows import ConversationPosition
from ai_platform_engineering.runtime.log.log_rows import NewRun, RunFilter, RunPosition, RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.log.sqlite_database import Database
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog
from ai_platform_engineering.runtime.log.sqlite_schema import _STATES, MIGRATIONS
from tests.support.run_lists import list_all_open_requests, list_all_runs
from tests.support.run_logs import NAMES, log_opener

ANSWERED = Answered(text="Yes.", trace_id="t")
PAUSED = Paused(text="Which?")
ENDS: dict[str, list[AnyEvent]] = {
    "working": [],
    "input-required": [PAUSED],
    "resumed": [PAUSED, InputResolved(request_id="r", resolution="answered")],
    "completed": [ANSWERED],
    "failed": [Failed(message="No.", trace_id="t")],
    "canceled": [Cancelled(trace_id="t")],
}


@pytest_asyncio.fixture(params=NAMES)
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunLog]:
    opened = log_opener(request.param, request)(tmp_path)
    yield opened
    await opened.close()


async def add_run(
    log: RunLog, run_id: str, *events: AnyEvent, owner: str = "ann", context: str = "talk"
) -> RunRow:
    started = RunStarted(message_id=run_id, parts=(TextPart(text="?"),), owner=owner)
    row, _ = await log.create(NewRun(run_id, context, owner, run_id, "digest", started, lasting_id=True))
    for event in events:
        await log.append(row.run_id, row.epoch, [event])
    stored_row = await log.get(run_id)
    assert stored_row is not None
    return stored_row


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", ENDS)
async def test_the_state_of_a_row_is_that_of_its_transcript(log: RunLog, name: str) -> None:
    row = await add_run(log, "run", *ENDS[name])
    events = [item.event for item in await log.read("run")]
    assert row.state == fold(events).state
    page = await log.list_runs(RunFilter("ann", state=row.state), limit=10)
    assert [listed.run_id for listed in page.rows] == ["run"]


async def test_pages_have_every_run_once_from_the_latest_change_of_state_on(log: RunLog) -> None:
    for number in range(7):
        await add_run(log, f"run-{number}")
    first_row = await log.get("run-0")
    assert first_row is not None
    await log.append("run-0", first_row.epoch, [ANSWERED])
    await add_run(log, "other", owner="bob")
    expected = ["run-0", *(f"run-{number}" for number in range(6, 0, -1))]
    for size in (1, 2, 3, 7, 50):
        assert [row.run_id for row in await list_all_runs(log, "ann", size=size)] == expected


async def test_texts_of_a_run_do_not_move_it_in_the_list(log: RunLog) -> None:
    row = await add_run(log, "first")
    await add_run(log, "second")
    await log.append(row.run_id, row.epoch, [TextDelta(message_id="m", offset=0, text="late")])
    assert [listed.run_id for listed in await list_all_runs(log, "ann")] == ["second", "first"]


async def test_a_page_goes_on_behind_its_position_when_runs_change_and_go(log: RunLog) -> None:
    for number in range(4):
        await add_run(log, f"run-{number}", ANSWERED)
    first = await log.list_runs(RunFilter("ann"), limit=2)
    await add_run(log, "newer")
    second = await log.list_runs(RunFilter("ann"), after=RunPosition.of(first.rows[-1]), limit=2)
    assert [row.run_id for row in first.rows + second.rows] == ["run-3", "run-2", "run-1", "run-0"]
    assert (first.has_more, second.has_more, first.total, second.total) == (True, False, 4, 5)


async def test_runs_are_filtered_by_conversation_state_and_time(log: RunLog) -> None:
    await add_run(log, "old", ANSWERED, context="a")
    await asyncio.sleep(0.001)
    since = datetime.now(UTC)
    await add_run(log, "new", ANSWERED, context="b")
    await add_run(log, "paused", PAUSED, context="b")

    async def listed(run_filter: RunFilter) -> list[str]:
        page = await log.list_runs(run_filter, limit=10)
        assert page.total == len(page.rows)
        return [row.run_id for row in page.rows]

    assert await listed(RunFilter("ann", context_id="a")) == ["old"]
    assert await listed(RunFilter("ann", state="completed")) == ["new", "old"]
    assert await listed(RunFilter("ann", since=since)) == ["paused", "new"]
    assert await listed(RunFilter("ann", "b", "input-required", since)) == ["paused"]
    assert await listed(RunFilter("ann", since=datetime.now(UTC) + timedelta(hours=1))) == []
    assert await listed(RunFilter("nobody")) == []


async def test_the_unfinished_runs_of_a_conversation_are_found(log: RunLog) -> None:
    await add_run(log, "ended", ANSWERED)
    await add_run(log, "paused", PAUSED)
    await add_run(log, "working")
    await add_run(log, "elsewhere", context="other")
    assert [row.run_id for row in await log.find_open_runs("ann", "talk")] == ["working", "paused"]
    assert await log.find_open_runs("bob", "talk") == []


async def test_a_run_is_found_by_the_message_that_began_it(log: RunLog) -> None:
    await add_run(log, "first", ANSWERED)
    row = await log.find_run_of_message("ann", "talk", "first")
    assert row is not None
    assert row.run_id == "first"
    assert await log.find_run_of_message("ann", "other", "first") is None
    assert await log.find_run_of_message("bob", "talk", "first") is None


async def test_the_last_run_with_requests_is_found_when_it_has_ended(log: RunLog) -> None:
    asked = InputRequested(request_id="r", asked=Form(response="Which?"))
    assert await log.find_asking_run("ann", "talk") is None
    await add_run(log, "asking", asked, PAUSED, ANSWERED)
    await add_run(log, "plain", ANSWERED)
    row = await log.find_asking_run("ann", "talk")
    assert row is not None
    assert row.run_id == "asking"
    assert await log.find_asking_run("bob", "talk") is None


async def test_a_conversation_exists_with_its_first_run(log: RunLog) -> None:
    assert not await log.has_conversation("ann", "talk")
    await add_run(log, "run")
    assert await log.has_conversation("ann", "talk")
    assert not await log.has_conversation("bob", "talk")


async def test_an_outline_has_the_messages_and_states_and_no_progress(log: RunLog) -> None:
    await add_run(
        log,
        "run",
        TextDelta(message_id="m", offset=0, text="Well"),
        ToolStarted(call_id="c", tool="t"),
        PlanUpdated(title="plan"),
        Notice(code="info", text="note"),
        ANSWERED,
    )
    await add_run(log, "other", PAUSED)
    outlines = await log.read_outlines(["run", "other"])
    kinds = {run_id: [item.event.kind for item in items] for run_id, items in outlines.items()}
    assert kinds == {"run": ["run_started", "notice", "answered"], "other": ["run_started", "paused"]}
    assert outlines["run"][-1].seq == 6


async def test_requests_are_listed_in_pages_until_they_expire(log: RunLog) -> None:
    past = datetime.now(UTC) - timedelta(minutes=1)
    for number in range(5):
        asked = InputRequested(request_id=f"r{number}", asked=Form(response="?"))
        await add_run(log, f"run-{number}", asked, PAUSED)
    overdue = InputRequested(request_id="late", asked=Form(response="?", expires_at=past))
    await add_run(log, "overdue", overdue, PAUSED)
    for size in (1, 2, 10):
        requests = await list_all_open_requests(log, "ann", size)
        assert [request.request_id for request in requests] == ["r0", "r1", "r2", "r3", "r4"]
    assert await list_all_open_requests(log, "bob") == []
    assert await log.find_overdue_runs(10) == ["overdue"]


async def test_the_longest_overdue_requests_come_first(log: RunLog) -> None:
    now = datetime.now(UTC)
    for minutes in (1, 3, 2):
        form = Form(response="?", expires_at=now - timedelta(minutes=minutes))
        await add_run(log, f"run-{minutes}", InputRequested(request_id=f"r{minutes}", asked=form), PAUSED)
    assert await log.find_overdue_runs(2) == ["run-3", "run-2"]


# --- conversations ------------------------------------------------------------------------------------------


async def list_titles(log: RunLog, query: str = "", size: int = 2) -> list[str]:
    titles: list[str] = []
    position: ConversationPosition | None = None
    while True:
        page = await log.list_conversations("ann", query=query, after=position, limit=size)
        titles += [row.title for row in page.rows]
        if not page.has_more:
            return titles
        position = ConversationPosition(page.rows[-1].updated, page.rows[-1].context_id)


async def ask(log: RunLog, run_id: str, question: str, context: str, *events: AnyEvent) -> None:
    started = RunStarted(message_id=run_id, parts=(TextPart(text=question),), owner="ann")
    row, _ = await log.create(NewRun(run_id, context, "ann", run_id, "digest", started, lasting_id=True))
    for event in events:
        await log.append(row.run_id, row.epoch, [event])


async def test_conversations_have_their_first_question_as_a_title_and_the_newest_comes_first(
    log: RunLog,
) -> None:
    await ask(log, "1", "Why is  checkout\nfailing?", "a", ANSWERED)
    await ask(log, "2", "Which version?", "b", PAUSED)
    await ask(log, "3", "And since when?", "a")
    await add_run(log, "4", owner="bob", context="c")
    for size in (1, 2, 10):
        assert await list_titles(log, size=size) == ["Why is checkout failing?", "Which version?"]
    rows = (await log.list_conversations("ann", limit=10)).rows
    assert [(row.context_id, row.state) for row in rows] == [("a", "working"), ("b", "input-required")]


async def test_conversations_are_found_by_the_words_of_all_their_questions(log: RunLog) -> None:
    await ask(log, "1", "Why is Checkout failing?", "a")
    await ask(log, "2", "Roll it back by 100%", "a")
    await ask(log, "3", "ÄRGER mit dem Cluster", "b")
    assert await list_titles(log, "CHECKOUT") == ["Why is Checkout failing?"]
    assert await list_titles(log, "roll it") == ["Why is Checkout failing?"]
    assert await list_titles(log, "100%") == ["Why is Checkout failing?"]
    assert await list_titles(log, "1_0") == []
    assert await list_titles(log, "ärger") == ["ÄRGER mit dem Cluster"]


async def test_a_conversation_can_be_renamed(log: RunLog) -> None:
    await ask(log, "1", "Why?", "a")
    assert await log.rename_conversation("ann", "a", "The outage")
    assert not await log.rename_conversation("bob", "a", "Mine")
    assert await list_titles(log) == ["The outage"]
    assert await list_titles(log, "outage") == ["The outage"]
    await ask(log, "2", "And now?", "a")
    assert await list_titles(log) == ["The outage"]


async def test_a_deleted_conversation_leaves_nothing_behind(log: RunLog) -> None:
    await ask(log, "1", "Why?", "a", ANSWERED)
    await ask(log, "2", "When?", "a", ANSWERED)
    await ask(log, "3", "Who?", "b", ANSWERED)
    assert await log.delete_conversation("ann", "a") == 2
    assert await list_titles(log) == ["Who?"]
    assert await log.get("1") is None
    assert not await log.has_conversation("ann", "a")
    assert await log.delete_conversation("ann", "a") == 0


async def test_conversations_go_with_their_last_run(log: RunLog) -> None:
    await ask(log, "1", "Why?", "a", ANSWERED)
    await log.delete_runs(datetime.now(UTC) + timedelta(hours=1))
    assert await list_titles(log) == []


# --- SQLite -------------------------------------------------------------------------------------------------


async def test_runs_of_an_older_file_get_their_states_and_expiries(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    expires_at = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    log = SqliteLog.open(path, tick=0)
    for name, events in ENDS.items():
        await add_run(log, name, *events)
    form = Form(response="?", expires_at=expires_at)
    await add_run(log, "asking", InputRequested(request_id="r", asked=form), PAUSED)
    states = {row.run_id: row.state for row in await list_all_runs(log, "ann")}
    await log.close()
    _downgrade(path)
    log = SqliteLog.open(path, tick=0)
    assert {row.run_id: row.state for row in await list_all_runs(log, "ann")} == states
    assert await list_titles(log) == ["?"]
    assert (await log.list_runs(RunFilter("ann"), limit=1)).total == len(states)
    assert len(await list_all_open_requests(log, "ann")) == 1
    await log.close()
    database = Database(path)
    [row] = database.rows("SELECT expires_at FROM pending")
    database.close()
    assert abs(row["expires_at"] - expires_at.timestamp() * 1_000_000) < 1_000


def _downgrade(path: Path) -> None:
    """The file as the version before wrote it."""
    database = sqlite3.connect(path)
    for trigger in ("run_created", "run_deleted", "run_changed_state"):
        database.execute(f"DROP TRIGGER {trigger}")
    for table in (
        "run_counts",
        "conversations",
        "push_configs",
        "push_queue",
        "run_details",
        "run_agents",
        "shares",
        "results",
        "result_chunks",
        "result_total",
    ):
        database.execute(f"DROP TABLE {table}")
    for index in ("runs_by_time", "runs_by_state", "runs_by_context", "runs_open"):
        database.execute(f"DROP INDEX {index}")
    for index in ("runs_by_number", "runs_by_state_and_number", "runs_ended_at"):
        database.execute(f"DROP INDEX {index}")
    for index in ("pending_expiry", "pending_of_owner"):
        database.execute(f"DROP INDEX {index}")
    for table, column in (
        ("runs", "state"),
        ("runs", "state_at"),
        ("pending", "expires_at"),
        ("pending", "owner"),
        ("runs", "unfollowed_since"),
    ):
        database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    database.execute("CREATE INDEX runs_of_owner ON runs(owner)")
    database.execute("CREATE INDEX runs_ended ON runs(updated) WHERE status = 'ended'")
    database.execute(f"PRAGMA user_version = {MIGRATIONS.index(_STATES)}")
    database.commit()
    database.close()


NOW = datetime(2026, 1, 1, tzinfo=UTC)
FILTERS = {
    "all": RunFilter("a"),
    "state": RunFilter("a", state="failed"),
    "conversation": RunFilter("a", "c"),
    "conversation and state": RunFilter("a", "c", "failed"),
    "since": RunFilter("a", since=NOW),
}


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[tuple[sqlite3.Connection, list[str]]]:
    """A connection to an empty log, and the statements that it runs."""
    Database(tmp_path / "runs.db").close()
    connection = sqlite3.connect(tmp_path / "runs.db")
    connection.row_factory = sqlite3.Row
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    yield connection, statements
    connection.close()


def check_plans(connection: sqlite3.Connection, statements: list[str]) -> None:
    """Each statement goes through an index, in the order of the index."""
    connection.set_trace_callback(None)
    assert statements
    for statement in statements:
        plan = [row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert not [step for step in plan if step.startswith("SCAN") or "TEMP B-TREE" in step], statement


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("after", [None, RunPosition(NOW, "x")], ids=["first page", "later page"])
def test_a_page_of_runs_is_read_from_an_index_without_sorting(
    traced: tuple[sqlite3.Connection, list[str]], name: str, after: RunPosition | None
) -> None:
    connection, statements = traced
    run_queries.list_runs(connection, FILTERS[name], after, 50)
    check_plans(connection, statements)
    is_counted = any("run_counts" in statement for statement in statements)
    assert is_counted == (name in ("all", "state"))


def test_pages_of_requests_conversations_and_outlines_are_read_from_an_index_without_sorting(
    traced: tuple[sqlite3.Connection, list[str]],
) -> None:
    connection, statements = traced
    run_queries.list_open_requests(connection, "a", 0, 7, 50)
    conversation_rows.list_conversations(connection, "a", "", None, 50)
    conversation_rows.list_conversations(connection, "a", "word", ConversationPosition(NOW, "c"), 50)
    run_queries.read_outlines(connection, ["r"])
    assert len(statements) == 4
    check_plans(connection, statements)


async def test_the_total_follows_every_change(log: RunLog) -> None:
    async def totals(owner: str) -> dict[str, int]:
        found: dict[str, int] = {"all": (await log.list_runs(RunFilter(owner), limit=1)).total}
        for state in get_args(TranscriptState):
            page = await log.list_runs(RunFilter(owner, state=state), limit=1)
            if page.total:
                found[state] = page.total
        return found

    assert await totals("ann") == {"all": 0}
    for number, events in enumerate(ENDS.values()):
        await add_run(log, f"r{number}", *events, context=f"c{number % 2}")
    before = {"all": 6, "working": 2, "input-required": 1, "completed": 1, "failed": 1, "canceled": 1}
    assert await totals("ann") == before
    assert await totals("bob") == {"all": 0}
    await log.delete_conversation("ann", "c1")
    left = [row.state for row in await list_all_runs(log, "ann")]
    expected = {"all": len(left), **{state: left.count(state) for state in left}}
    assert await totals("ann") == expected
    assert len(left) < 6


def test_every_state_is_listed() -> None:
    assert set(get_args(TranscriptState)) - {"submitted"} == set(ENDS) - {"resumed"}
