"""The run log on SQLite: kills, locks, group commits, migrations, and the same results as in memory."""

import asyncio
import contextlib
import json
import sqlite3
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError, Fenced
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Form,
    InputRequested,
    InputResolved,
    Notice,
    Paused,
    RunStarted,
    StoredEvent,
    TextPart,
)
from ai_platform_engineering.databases.sql_connections import StorageFailed
from ai_platform_engineering.runtime.log import run_rows
from ai_platform_engineering.runtime.log.log_rows import AnswerMessage, Marker, NewRun, RunRow
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.log.sqlite_database import Database
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog
from ai_platform_engineering.runtime.log.sqlite_schema import MIGRATIONS
from tests.conftest import ROOT
from tests.support.run_lists import list_all_open_requests, list_all_runs
from tests.support.strategies import EVENTS, examples

WAIT = 120  # seconds after which a wait that never ends is a failure
LATER = datetime(9000, 1, 1, tzinfo=UTC)
EARLIER = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "caipe.db"


@contextlib.asynccontextmanager
async def opened(path: Path, **how: Any) -> AsyncIterator[SqliteLog]:
    log = SqliteLog.open(path, **how)
    try:
        yield log
    finally:
        await log.close()


def new_run(
    run_id: str = "run",
    *,
    message: str | None = None,
    digest: str = "d",
    lasting: bool = True,
    context: str = "talk",
) -> NewRun:
    started = RunStarted(
        message_id=message or f"message of {run_id}",
        parts=(TextPart(text="Hello"),),
        owner="ann",
        principal="ann",
    )
    return NewRun(run_id, context, "ann", started.message_id, digest, started, lasting)


async def created(log: RunLog, run_id: str = "run") -> RunRow:
    row, is_new = await log.create(new_run(run_id))
    assert is_new
    return row


def noted(text: object) -> Notice:
    return Notice(code="info", text=str(text))


ANSWERED = Answered(text="Done.", trace_id="t")


async def everything(log: RunLog, run_id: str = "run") -> list[StoredEvent]:
    events: list[StoredEvent] = []
    while page := await log.read(run_id, len(events)):
        events += page
    return events


# --- the file -----------------------------------------------------------------------------------------------


async def read_run_data(log: RunLog) -> list[Any]:
    """What is kept of the run."""
    by_run = (log.get, log.markers, log.journal, log.requests, log.list_remote_tasks)
    return [
        await everything(log),
        await log.list_allowances("ann", "talk"),
        *[await look("run") for look in by_run],
    ]


async def test_what_was_stored_is_there_after_opening_the_file_again(path: Path) -> None:
    request = InputRequested(request_id="r", asked=Form(response="Which?"))
    async with opened(path) as log:
        row = await created(log)
        await log.append("run", row.epoch, [noted("a"), request], [Marker("ns", "c1")])
        await log.store_remote_task("run", row.epoch, "k", "jira", "remote")
        await log.allow("run", row.epoch, "jira/create", "ann")
        await log.begin("run", row.epoch, "call", "delete", {"n": 1}, idempotent=False)
        assert await log.claim_requests(
            AnswerMessage("run", "m2", "d2", 3), {"r": {"answer": "blue"}}, "ann"
        ) == ["r"]
        await log.advance_epoch("run")
        before = await read_run_data(log)
    async with opened(path) as log:
        assert await read_run_data(log) == before
        assert [(request.status, request.answer, request.by) for request in await log.requests("run")] == [
            ("claimed", {"answer": "blue"}, "ann")
        ]
        assert await log.find_remote_task("run", "k") == "remote"
        assert await log.find_answer("ann", "talk", "m2") == AnswerMessage("run", "m2", "d2", 3)
        assert [item.run_id for item in await log.find_unfinished()] == ["run"]
        again, is_new = await log.create(replace(new_run("another"), message_id=row.message_id))
        assert (again.run_id, is_new) == ("run", False)
        entry = await log.begin("run", again.epoch, "call", "delete", {"n": 1}, idempotent=False)
        assert entry.state == "unknown"


async def test_the_file_survives_the_loss_of_power_and_is_for_its_owner_alone(path: Path) -> None:
    database = Database(path)

    def read_pragmas(db: sqlite3.Connection, _: int) -> list[Any]:
        return [
            db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "auto_vacuum")
        ]

    assert await database.submit(read_pragmas) == ["wal", 2, 2]
    assert [stat.S_IMODE(file.stat().st_mode) for file in sorted(path.parent.iterdir())] == [0o600] * 4
    database.close()


@pytest.mark.parametrize("content", [b"no database, whatever its name says" * 100, b"short"])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    for _ in range(2):  # the lock is free again
        with pytest.raises(ConfigurationError, match=r"caipe\.db cannot be used: .*move the file away"):
            SqliteLog.open(path)
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_made_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError, match="CAIPE_HOME"):
        SqliteLog.open(tmp_path / "file" / "caipe.db")
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(ConfigurationError, match="CAIPE_HOME"):
        SqliteLog.open(tmp_path / "folder.db")


# --- one process --------------------------------------------------------------------------------------------

CHILD = """
import asyncio, sys
from pathlib import Path
from ai_platform_engineering.core.events import Notice
from ai_platform_engineering.runtime.log.sqlite_log import SqliteLog
from tests.runtime.log.test_sqlite_log import created

async def write(log, run_id):
    row = await created(log, run_id)
    for number in range(1_000_000):
        events = [Notice(code="info", text=f"{number}.{part}") for part in range(number % 3 + 1)]
        last = await log.append(run_id, row.epoch, events)
        print(run_id, last, number, flush=True)

async def main():
    log = SqliteLog.open(Path(sys.argv[1]))
    print("open", flush=True)
    await asyncio.gather(*(write(log, f"run-{number}") for number in range(int(sys.argv[2]))))
    await asyncio.Event().wait()

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def child(
    path: Path, runs: int, environment: dict[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process that has the file open, writes so many runs, and prints every sequence number."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CHILD,
        str(path),
        str(runs),
        stdout=asyncio.subprocess.PIPE,
        env=environment,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), WAIT) == b"open\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_second_process_is_refused_until_the_first_one_is_killed(
    path: Path, guarded_environment: dict[str, str]
) -> None:
    async with child(path, 0, guarded_environment) as process:
        with pytest.raises(
            ConfigurationError, match=r"in use by another process.*Stop that one, or set CAIPE_HOME"
        ):
            SqliteLog.open(path)
        process.kill()
        await process.wait()
        async with opened(path) as log:
            await created(log)


async def test_the_file_is_opened_once_in_a_process_too_and_is_free_when_closed(path: Path) -> None:
    async with opened(path):
        with pytest.raises(ConfigurationError, match="in use"):
            SqliteLog.open(path)
    async with opened(path):
        pass


@pytest.mark.parametrize("lines", [1, 40, 300])
async def test_after_a_kill_every_number_that_was_told_is_stored_and_none_is_missing(
    path: Path, lines: int, guarded_environment: dict[str, str]
) -> None:
    reported: dict[str, dict[int, int]] = {}
    async with child(path, 5, guarded_environment) as process:
        assert process.stdout is not None
        heard = [await asyncio.wait_for(process.stdout.readline(), WAIT) for _ in range(lines)]
        process.kill()
        heard += (await process.stdout.read()).splitlines(keepends=True)
    for line in heard:
        if line.endswith(b"\n"):
            run_id, last, number = line.decode().split()
            reported.setdefault(run_id, {})[int(last)] = int(number)
    async with opened(path) as log:
        for row in await log.find_unfinished():
            items = await everything(log, row.run_id)
            assert [item.seq for item in items] == list(range(1, row.last_seq + 1))
            texts = {item.seq: item.event.text for item in items if isinstance(item.event, Notice)}
            for last, number in reported.get(row.run_id, {}).items():
                size = number % 3 + 1
                assert [texts[last - size + 1 + part] for part in range(size)] == [
                    f"{number}.{part}" for part in range(size)
                ]
            expected_texts = [
                f"{number}.{part}" for number in range(row.last_seq) for part in range(number % 3 + 1)
            ]
            assert list(texts.values()) == expected_texts[: len(texts)], (
                "a call's events are stored together, in order"
            )
            assert len(texts) in {
                sum(n % 3 + 1 for n in range(count)) for count in range(row.last_seq + 1)
            }, "and whole"
            assert (
                await log.append(row.run_id, await log.advance_epoch(row.run_id), [noted("on")])
                == row.last_seq + 1
            )
        assert reported.keys() <= {row.run_id for row in await log.find_unfinished()}


# --- versions -----------------------------------------------------------------------------------------------

STEP_NEXT = (
    "ALTER TABLE runs ADD COLUMN title TEXT NOT NULL DEFAULT ''",
    "UPDATE runs SET title = (SELECT kind FROM events WHERE events.run_id = runs.run_id AND seq = 1)",
)


def version(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def test_an_empty_file_takes_every_step(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    Database(path, migrations=(*MIGRATIONS, STEP_NEXT)).close()
    assert version(path) == len(MIGRATIONS) + 1


async def test_a_file_of_the_version_before_keeps_what_it_has(path: Path) -> None:
    async with opened(path) as log:
        row = await created(log)
    database = Database(path, migrations=(*MIGRATIONS, STEP_NEXT))
    assert [tuple(row) for row in database.rows("SELECT run_id, title FROM runs")] == [("run", "run_started")]
    log = SqliteLog(database)
    assert await log.get("run") == row
    assert await log.append("run", row.epoch, [noted("on")]) == 2
    await log.close()
    assert version(path) == len(MIGRATIONS) + 1


async def test_requests_and_orders_of_the_first_version_are_there_in_this_one(path: Path) -> None:
    first = Database(path, migrations=MIGRATIONS[:1])
    await first.submit(lambda db, now: _as_the_first_version_stored(db))
    first.close()
    assert version(path) == 1
    async with opened(path) as log:
        row = await log.get("run")
        assert row is not None
        assert (row.owner, row.context_id, row.status, row.last_seq, row.crashes) == (
            "ann",
            "talk",
            "running",
            1,
            0,
        )
        requests = {
            request.request_id: (request.status, request.answer, request.by, request.at)
            for request in await log.requests("run")
        }
        assert requests == {"open": ("pending", None, "", None), "done": ("resolved", {"a": 1}, "ann", None)}
        assert (await log.find_remote_task("run", "k"), await log.list_remote_tasks("run")) == (
            "remote",
            [("", "remote")],
        )
        assert await log.list_allowances("ann", "talk") == []
        assert [request.request_id for request in await list_all_open_requests(log, "ann")] == ["open"]
        assert await log.claim_requests(
            AnswerMessage("run", "m2", "d2", 1), {"open": {"b": 2}, "done": {}}, "bob"
        ) == ["open"]
        await log.store_remote_task("run", row.epoch, "k", "jira", "remote-2")
        await log.allow("run", row.epoch, "jira/create", "ann")
        before = await read_run_data(log)
    assert version(path) == len(MIGRATIONS)
    async with opened(path) as log:
        assert await read_run_data(log) == before


def store_run_of_first_version(db: sqlite3.Connection) -> None:
    """The run `run` with the columns that every version has."""
    new = new_run("run")
    values = (new.context_id, new.owner, new.started.principal, new.message_id, new.digest)
    db.execute(
        "INSERT INTO runs(run_id, context_id, owner, principal, message_id, digest, lasting_id, status,"
        " last_seq, epoch, created, updated) VALUES ('run', ?, ?, ?, ?, ?, 1, 'running', 1, 1, 1, 1)",
        values,
    )
    db.execute("INSERT INTO events VALUES ('run', 1, 1, 'run_started', ?)", (new.started.model_dump_json(),))


def _as_the_first_version_stored(db: sqlite3.Connection) -> None:
    event = InputRequested(request_id="open", asked=Form(response="Which?")).model_dump(
        mode="json", exclude={"asked": {"expires_at"}}
    )
    store_run_of_first_version(db)
    for request_id, status, answer, by in (
        ("open", "pending", None, ""),
        ("done", "resolved", {"a": 1}, "ann"),
    ):
        body = json.dumps({**event, "request_id": request_id})
        db.execute(
            "INSERT INTO pending VALUES (?, 'run', ?, ?, ?, ?)",
            (request_id, body, status, json.dumps(answer), by),
        )
    db.execute("INSERT INTO orders VALUES ('run', 'k', 'remote')")


async def test_a_step_that_breaks_changes_nothing(path: Path) -> None:
    async with opened(path) as log:
        await created(log)
    with pytest.raises(ConfigurationError, match="cannot be used"):
        Database(path, migrations=(*MIGRATIONS, (*STEP_NEXT, "CREATE TABLE runs(x)")))
    assert version(path) == len(MIGRATIONS)
    async with opened(path) as log:
        assert [item.seq for item in await log.read("run")] == [1]
    database = Database(path, migrations=(*MIGRATIONS, STEP_NEXT))
    assert database.rows("SELECT title FROM runs")
    database.close()


def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    Database(path, migrations=(*MIGRATIONS, STEP_NEXT)).close()
    for _ in range(2):
        with pytest.raises(
            ConfigurationError, match=r"newer version.*Start the newer version, or set CAIPE_HOME"
        ):
            SqliteLog.open(path)
    assert version(path) == len(MIGRATIONS) + 1


# --- commits ------------------------------------------------------------------------------------------------


async def test_one_commit_serves_all_who_wait(path: Path) -> None:
    database = Database(path)
    log = SqliteLog(database)
    rows = await asyncio.gather(*(created(log, f"run-{number}") for number in range(50)))
    before = database.commits
    ends = await asyncio.gather(
        *(log.append(row.run_id, row.epoch, [noted(number)]) for row in rows for number in range(4))
    )
    assert sorted(ends) == sorted([2, 3, 4, 5] * 50)
    assert 1 <= database.commits - before <= 5
    await log.close()


async def test_old_and_new_epochs_in_the_same_commits_never_mix(path: Path) -> None:
    async with opened(path) as log:
        old = (await created(log)).epoch
        new = await log.advance_epoch("run")
        writes = [
            log.append("run", epoch, [noted(f"{epoch}"), noted(f"{number}")])
            for number in range(500)
            for epoch in (old, new)
        ]
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(outcome, Fenced) for outcome in outcomes[::2])
        assert outcomes[1::2] == list(range(3, 1003, 2)), "in the order of the calls"
        items = await everything(log)
        assert [item.seq for item in items] == list(range(1, 1002))
        assert {item.event.text for item in items[1::2] if isinstance(item.event, Notice)} == {f"{new}"}


async def test_a_claim_fences_what_follows_it_in_the_same_commit(path: Path) -> None:
    async with opened(path) as log:
        row = await created(log)
        outcomes = await asyncio.gather(
            log.append("run", row.epoch, [noted("before")]),
            log.advance_epoch("run"),
            log.append("run", row.epoch, [noted("after")]),
            log.append("run", row.epoch + 1, [noted("new owner")]),
            return_exceptions=True,
        )
        assert [outcome if isinstance(outcome, int) else type(outcome) for outcome in outcomes] == [
            2,
            row.epoch + 1,
            Fenced,
            3,
        ]


async def test_work_that_fails_half_way_is_undone_alone(path: Path) -> None:
    database = Database(path)
    log = SqliteLog(database)
    row = await created(log)

    def broken(db: sqlite3.Connection, _: int) -> None:
        db.execute("UPDATE runs SET last_seq = 77, epoch = 77")
        raise ValueError("half way")

    first, failed, second = await asyncio.gather(
        log.append("run", row.epoch, [noted("a")]),
        database.submit(broken),
        log.append("run", row.epoch, [noted("b")]),
        return_exceptions=True,
    )
    assert (first, second) == (2, 3)
    assert isinstance(failed, ValueError)
    await log.close()


async def test_an_event_that_cannot_be_encoded_costs_no_number(path: Path) -> None:
    async with opened(path) as log:
        row = await created(log)
        bad = noted("x").model_copy(update={"text": object()})
        outcomes = await asyncio.gather(
            log.append("run", row.epoch, [noted("a"), bad]),
            log.append("run", row.epoch, [noted("b")]),
            return_exceptions=True,
        )
        assert outcomes[1] == 2
        assert isinstance(outcomes[0], Exception)
        assert [item.seq for item in await everything(log)] == [1, 2]


async def test_on_a_full_disk_nobody_gets_a_number_and_what_was_given_stays(path: Path) -> None:
    database = Database(path)
    log = SqliteLog(database)
    rows = [await created(log, f"run-{number}") for number in range(3)]
    await database.submit(lambda db, _: db.execute("PRAGMA max_page_count = 80").fetchall())
    last_numbers: dict[str, int] = {}
    waiting = asyncio.create_task(log.wait_for_event("run-0", 10_000))
    for _ in range(200):
        writes = (log.append(row.run_id, row.epoch, [noted("x" * 1500)]) for row in rows)
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        if any(isinstance(outcome, BaseException) for outcome in outcomes):
            break
        last_numbers = {
            row.run_id: outcome
            for row, outcome in zip(rows, outcomes, strict=True)
            if isinstance(outcome, int)
        }
    else:
        pytest.fail("the disk was never full")
    assert [type(outcome) for outcome in outcomes] == [StorageFailed] * 3
    assert "full" in str(outcomes[0])
    assert {row.run_id: row.last_seq for row in await list_all_runs(log, "ann")} == last_numbers
    await database.submit(lambda db, _: db.execute("PRAGMA max_page_count = 100000").fetchall())
    for row in rows:
        assert await log.append(row.run_id, row.epoch, [noted("room again")]) == last_numbers[row.run_id] + 1
        assert [item.seq for item in await everything(log, row.run_id)] == list(
            range(1, last_numbers[row.run_id] + 2)
        )
    waiting.cancel()
    await log.close()


async def test_a_commit_that_cannot_begin_gives_nobody_a_number(path: Path) -> None:
    database = Database(path)
    log = SqliteLog(database)
    row = await created(log)
    await database.submit(lambda db, _: db.execute("PRAGMA busy_timeout = 1").fetchall())
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageFailed, match="locked"):
            await log.append("run", row.epoch, [noted("a")])
        other.execute("ROLLBACK")
    assert await log.append("run", row.epoch, [noted("a")]) == 2
    await log.close()


async def test_a_reader_that_holds_an_old_snapshot_stops_no_writer(path: Path) -> None:
    async with opened(path) as log:
        row = await created(log)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as slow:
            slow.execute("BEGIN")
            assert slow.execute("SELECT count(*) FROM events").fetchone() == (1,)
            for number in range(200):
                await asyncio.wait_for(log.append("run", row.epoch, [noted(number)]), WAIT)
            assert slow.execute("SELECT count(*) FROM events").fetchone() == (1,)
        assert len(await everything(log)) == 201


async def test_a_reader_that_is_behind_reads_everything_while_more_is_written(path: Path) -> None:
    async with opened(path) as log:
        row = await created(log)

        async def follow() -> list[int]:
            numbers: list[int] = []
            while len(numbers) < 301:
                await log.wait_for_event("run", len(numbers))
                numbers += [item.seq for item in await log.read("run", len(numbers), limit=1)]
            return numbers

        readers = [asyncio.create_task(follow()) for _ in range(3)]
        for number in range(100):
            await log.append("run", row.epoch, [noted(number)] * 3)
        for numbers in await asyncio.wait_for(asyncio.gather(*readers), WAIT):
            assert numbers == list(range(1, 302))


async def test_a_write_whose_caller_is_gone_is_stored_and_wakes_readers_and_harms_nobody(path: Path) -> None:
    log = SqliteLog.open(path, tick=60, busy_batch=1)  # both writes are in the commit that closing makes
    row = await created(log)
    waiting = asyncio.create_task(log.wait_for_event("run", 1))
    leaves = asyncio.create_task(log.append("run", row.epoch, [noted("a")]))
    stays = asyncio.create_task(log.append("run", row.epoch, [noted("b")]))
    await asyncio.sleep(0)
    leaves.cancel()
    closing = asyncio.create_task(log.close())
    assert await asyncio.wait_for(stays, WAIT) == 3
    await asyncio.wait({waiting}, timeout=WAIT)
    assert waiting.done()
    await closing
    async with opened(path) as log:
        assert [item.seq for item in await log.read("run")] == [1, 2, 3]


async def test_who_comes_within_a_tick_shares_the_next_commit(path: Path) -> None:
    database = Database(path, tick=60, busy_batch=1)
    log = SqliteLog(database)
    row = await created(log)
    before, writes = database.commits, []
    for number in range(10):
        writes.append(asyncio.create_task(log.append("run", row.epoch, [noted(number)])))
        await asyncio.to_thread(str)  # the writer's thread has time to take it
    await asyncio.wait_for(log.close(), WAIT)
    assert await asyncio.gather(*writes) == list(range(2, 12))
    assert database.commits == before + 1


async def test_work_that_may_wait_shares_the_commit_of_work_that_may_not(path: Path) -> None:
    database = Database(path)
    order: list[str] = []
    before = database.commits
    later = database.submit(lambda db, now: order.append("later"), within=3600)
    await asyncio.to_thread(str)  # the writer's thread has time to take it
    assert not later.done()
    await asyncio.wait_for(database.submit(lambda db, now: order.append("now")), WAIT)
    assert later.done()
    assert (order, database.commits - before) == (["later", "now"], 1)
    database.close()


async def test_work_that_may_wait_is_committed_without_other_work(path: Path) -> None:
    database = Database(path)
    assert await asyncio.wait_for(database.submit(lambda db, now: "done", within=0.001), WAIT) == "done"
    left = database.submit(lambda db, now: "left", within=3600)
    await asyncio.to_thread(database.close)
    assert await asyncio.wait_for(left, WAIT) == "left"


async def test_an_error_of_work_that_is_alone_in_its_commit_leaves_nothing(path: Path) -> None:
    database = Database(path)
    log = SqliteLog(database)
    await created(log)

    def break_off(db: sqlite3.Connection, now: int) -> None:
        db.execute("UPDATE runs SET last_seq = 99")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await database.submit(break_off)
    assert database.rows("SELECT last_seq FROM runs")[0][0] == 1
    await log.append("run", 1, [noted(1)])
    await log.close()


async def test_times_do_not_go_back_when_the_clock_does(path: Path) -> None:
    database = Database(path)
    log = SqliteLog(database)
    row = await created(log)
    ahead = datetime(2999, 1, 1, tzinfo=UTC)
    await database.submit(
        lambda db, _: db.execute("UPDATE runs SET updated = ?", (int(ahead.timestamp()) * 1_000_000,))
    )
    await log.append("run", row.epoch, [noted("a")])
    assert (await log.read("run"))[-1].stored_at == ahead
    await log.close()


# --- the end ------------------------------------------------------------------------------------------------


async def test_closing_stores_what_was_submitted_and_then_refuses(path: Path) -> None:
    log = SqliteLog.open(path, tick=60, busy_batch=1)  # the next commit is far away
    row = await created(log)
    writes = [asyncio.create_task(log.append("run", row.epoch, [noted(number)])) for number in range(20)]
    await asyncio.sleep(0)
    await asyncio.wait_for(log.close(), WAIT)
    assert await asyncio.wait_for(asyncio.gather(*writes), WAIT) == list(range(2, 22))
    for attempt in (
        log.append("run", row.epoch, [noted("late")]),
        log.create(new_run("late")),
        log.get("run"),
        log.wait_for_event("run", 0),
    ):
        with pytest.raises(StorageFailed, match="closed"):
            await attempt
    await log.close()
    async with opened(path) as log:
        assert len(await log.read("run")) == 21


# --- retention ----------------------------------------------------------------------------------------------


async def test_forgetting_goes_in_slices_between_which_others_write(path: Path) -> None:
    database = Database(path)
    log = SqliteLog(database)
    for number in range(3):
        row = await created(log, f"old-{number}")
        await log.append(row.run_id, row.epoch, [noted("x" * 200)] * 1200)
        await log.append(row.run_id, row.epoch, [ANSWERED])
    row = await created(log)
    before = database.commits
    pages = database.rows("PRAGMA page_count")[0][0]
    forgetting = asyncio.create_task(log.delete_runs(LATER))
    written = 0
    while not forgetting.done():
        await log.append("run", row.epoch, [noted("meanwhile")])
        written += 1
    assert await forgetting == 3
    assert database.commits - before >= 3 * 1200 // 500
    assert written > 3
    assert [tuple(row) for row in database.rows("SELECT DISTINCT run_id FROM events")] == [("run",)]
    assert database.rows("SELECT * FROM forgotten") == []
    assert database.rows("PRAGMA page_count")[0][0] < pages / 2, "the file has given its room back"
    await log.close()


async def test_a_crash_while_forgetting_leaves_no_half_run_and_the_next_time_removes_the_rest(
    path: Path,
) -> None:
    database = Database(path)
    log = SqliteLog(database)
    row = await created(log)
    await log.append("run", row.epoch, [noted("x")] * 600)
    await log.append("run", row.epoch, [ANSWERED])
    assert await database.submit(lambda db, now: run_rows.hide_ended(db, now + 1, 500)) == 1
    assert await database.submit(lambda db, _: run_rows.remove_hidden(db, 500))
    assert await list_all_runs(log, "ann") == []
    await log.close()
    async with opened(path) as log:
        assert await log.delete_runs(LATER) == 0
    with contextlib.closing(sqlite3.connect(path)) as db:
        row_counts = db.execute(
            "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM events),"
            " (SELECT count(*) FROM forgotten)"
        ).fetchone()
    assert row_counts == (0, 0, 0)


# --- the same as in memory ----------------------------------------------------------------------------------

runs_: st.SearchStrategy[str] = st.sampled_from(["a", "b", "c"])
epochs: st.SearchStrategy[int] = st.sampled_from([1, 1, 1, 2, 3])
keys: st.SearchStrategy[str] = st.sampled_from(["k1", "k2"])
texts: st.SearchStrategy[str] = st.text(max_size=5)
requests: st.SearchStrategy[str] = st.sampled_from(["r1", "r2"])
event: st.SearchStrategy[AnyEvent] = st.one_of(
    st.builds(noted, texts),
    st.builds(
        InputRequested,
        request_id=requests,
        asked=st.builds(Form, expires_at=st.sampled_from([None, LATER, EARLIER])),
    ),
    st.builds(
        InputResolved,
        request_id=requests,
        resolution=st.sampled_from(["answered", "expired", "withdrawn"]),
        value=st.integers(),
    ),
    st.builds(Paused, text=texts),
    st.builds(lambda: ANSWERED),
)
tools: st.SearchStrategy[str] = st.sampled_from(["t1", "t2"])
answers = st.builds(AnswerMessage, runs_, st.sampled_from(["m1", "m2"]), texts, st.integers(0, 9))
markers = st.lists(
    st.builds(Marker, st.sampled_from(["", "tools:1"]), st.sampled_from(["c1", "c2"])), max_size=2
)
messages = st.builds(
    new_run,
    runs_,
    message=st.sampled_from(["m1", "m2"]),
    digest=st.sampled_from(["d1", "d2"]),
    lasting=st.booleans(),
    context=st.sampled_from(["x", "y"]),
)
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def call(name: str, *values: Any, **named: Any) -> st.SearchStrategy[Call]:
    return st.tuples(st.just(name), st.tuples(*values), st.fixed_dictionaries(named))


operations: st.SearchStrategy[Call] = st.one_of(
    call("create", messages),
    call("create", messages),
    call("append", runs_, epochs, st.lists(event, max_size=4), markers),
    call("append", runs_, epochs, st.lists(event, max_size=4), markers),
    call("advance_epoch", runs_),
    call("take_over", runs_),
    call("mark_attempt", runs_, st.sampled_from(["working", "handed_over"])),
    call("store_answer", answers),
    call("store_remote_task", runs_, epochs, keys, texts, texts),
    call(
        "begin",
        runs_,
        epochs,
        keys,
        texts,
        st.dictionaries(texts, st.integers(), max_size=2),
        idempotent=st.booleans(),
    ),
    call("finish", runs_, epochs, keys, st.sampled_from(["done", "withdrawn"]), st.none() | texts),
    call("settle", runs_, keys, texts, texts),
    call(
        "claim_requests",
        answers,
        st.dictionaries(requests, st.dictionaries(texts, texts, max_size=2), max_size=2),
        texts,
    ),
    call("allow", runs_, epochs, tools, texts),
    call("disallow", st.sampled_from(["ann", "bob"]), st.sampled_from(["x", "talk"]), tools),
    call("delete_runs", st.sampled_from([LATER, EARLIER])),
)


async def read_all(log: RunLog) -> list[Any]:
    """All that can be read of the log."""
    looks: list[Callable[[], Any]] = [
        lambda: list_all_runs(log, "ann"),
        lambda: list_all_runs(log, "ann", "x"),
        log.find_unfinished,
        lambda: log.list_conversations("ann", limit=100),
        lambda: list_all_open_requests(log, "ann"),
        lambda: list_all_open_requests(log, "bob"),
        lambda: log.find_overdue_runs(100),
        lambda: log.find_open_runs("ann", "talk"),
        lambda: log.find_asking_run("ann", "talk"),
        lambda: log.list_allowances("ann", "x"),
        lambda: log.list_allowances("ann", "talk"),
    ]
    looks += [
        lambda context=context, message=message: log.find_answer("ann", context, message)
        for context in "xy"
        for message in ("m1", "m2")
    ]
    looks += [lambda request=request: log.request(request) for request in ("r1", "r2")]
    for run_id in "abc":
        looks += [lambda look=look, run_id=run_id: look(run_id) for look in (log.get, log.read, log.markers)]
        looks += [
            lambda look=look, run_id=run_id: look(run_id)
            for look in (log.journal, log.requests, log.list_remote_tasks)
        ]
        looks += [
            lambda run_id=run_id: log.read(run_id, 2, 3),
            lambda run_id=run_id: log.find_remote_task(run_id, "k1"),
        ]
    return [await outcome_of(look()) for look in looks]


async def outcome_of(pending: Any) -> Any:
    """What was returned or raised, without the times."""
    try:
        return timeless(await pending)
    except CaipeError as error:
        return type(error), str(error)


def timeless(value: Any) -> Any:
    if isinstance(value, datetime):
        return "a time"
    if isinstance(value, list):
        return [timeless(item) for item in value]
    if isinstance(value, StoredEvent):
        return value.seq, value.event
    if isinstance(value, tuple):
        return tuple(timeless(item) for item in value)
    if hasattr(value, "__dataclass_fields__"):
        return type(value), [timeless(getattr(value, name)) for name in value.__dataclass_fields__]
    return value


@examples(60)
@given(st.lists(operations, min_size=5, max_size=30))
def test_any_operations_have_the_same_effect_as_in_memory(calls: list[Call]) -> None:
    async def scenario(folder: str) -> None:
        memory = MemoryLog()
        async with opened(Path(folder) / "caipe.db", tick=0) as stored:
            for name, values, named in [("create", (new_run("a", message="m0"),), {}), *calls]:
                expected, actual = [
                    await outcome_of(getattr(log, name)(*values, **named)) for log in (memory, stored)
                ]
                assert actual == expected, name
                assert await read_all(stored) == await read_all(memory), name

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(folder))


@examples(40)
@given(st.lists(st.one_of(*EVENTS.values()), max_size=20))
def test_every_event_comes_back_as_it_was(events: list[AnyEvent]) -> None:
    async def scenario(folder: str) -> None:
        async with opened(Path(folder) / "caipe.db", tick=0) as log:
            row = await created(log)
            await log.append("run", row.epoch, events)
            assert [item.event for item in await log.read("run", 1)] == events

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(folder))
