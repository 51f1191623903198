"""What the run log on PostgreSQL does beyond other storages: processes share it, and it may go away."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import psycopg
import pytest
import pytest_asyncio

from ai_platform_engineering.core.errors import ConfigurationError, Fenced
from ai_platform_engineering.core.events import Answered, Notice
from ai_platform_engineering.databases.migrations import SharedTables
from ai_platform_engineering.databases.postgres_database import PostgresAddress, make_payloads, migrate
from ai_platform_engineering.databases.postgres_dialect import PostgresConnection, translate
from ai_platform_engineering.runtime.log import conversation_rows, run_details, run_queries
from ai_platform_engineering.runtime.log.conversation_rows import ConversationPosition
from ai_platform_engineering.runtime.log.log_rows import RunFilter, RunPosition, RunRow
from ai_platform_engineering.runtime.log.postgres_log import PostgresLog
from ai_platform_engineering.runtime.log.postgres_schema import MIGRATIONS, TABLES
from ai_platform_engineering.runtime.log.push_store import PushTarget
from ai_platform_engineering.runtime.log.replica_store import ReplicaStore, RoomForRuns
from ai_platform_engineering.runtime.log.run_details import DetailsFilter
from benchmarks.load.engines import run_postgres
from tests.runtime.log.test_run_log import created, new_run, noted
from tests.support.database_servers import DatabaseServers
from tests.support.run_logs import new_address

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DONE = Answered(text="Done.", trace_id="t")
TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> %s AND query ~ %s"
WRITER = "COMMIT|ROLLBACK|xact_id"
LISTENER = "^LISTEN"


@pytest.fixture
def address(servers: DatabaseServers) -> PostgresAddress:
    return new_address(servers)


@pytest_asyncio.fixture
async def logs(address: PostgresAddress) -> AsyncIterator[tuple[PostgresLog, PostgresLog]]:
    """Two processes' views of one database."""
    opened = PostgresLog.open(address, tick=0), PostgresLog.open(address, tick=0)
    yield opened
    for log in opened:
        await log.close()


def terminate(address: PostgresAddress, pattern: str) -> int:
    """Ends the connections whose last statement matches; returns how many."""
    with psycopg.connect(address.url, autocommit=True) as db:
        return len(db.execute(TERMINATE, (db.info.backend_pid, pattern)).fetchall())


@pytest.mark.full
async def test_a_reader_in_another_process_gets_each_event_once_and_in_order(
    logs: tuple[PostgresLog, PostgresLog],
) -> None:
    writer, reader = logs
    row = await created(writer)
    following = asyncio.create_task(follow(reader, row.run_id, 101))
    for number in range(100):
        await writer.append(row.run_id, row.epoch, [noted(number)])
    assert await following == list(range(1, 102))


async def follow(log: PostgresLog, run_id: str, last: int) -> list[int]:
    """The numbers that a reader gets, up to the last one."""
    numbers: list[int] = []
    while not numbers or numbers[-1] < last:
        await log.wait_for_event(run_id, numbers[-1] if numbers else 0)
        numbers += [item.seq for item in await log.read(run_id, numbers[-1] if numbers else 0)]
    return numbers


async def test_readers_and_writers_go_on_when_their_connections_are_cut(
    logs: tuple[PostgresLog, PostgresLog], address: PostgresAddress
) -> None:
    writer, reader = logs
    row = await created(writer)
    following = asyncio.create_task(follow(reader, row.run_id, 61))
    cut = 0
    for number in range(60):
        await writer.append(row.run_id, row.epoch, [noted(number)])
        if number % 20 == 10:
            cut += await asyncio.to_thread(terminate, address, WRITER)
            cut += await asyncio.to_thread(terminate, address, LISTENER)
    assert await following == list(range(1, 62))
    texts = [item.event.text for item in await reader.read(row.run_id, 1) if isinstance(item.event, Notice)]
    assert texts == [str(number) for number in range(60)], "nothing is lost and nothing is there twice"
    assert cut


async def test_a_commit_that_was_cut_off_is_not_repeated_when_it_took_place(
    logs: tuple[PostgresLog, PostgresLog], address: PostgresAddress
) -> None:
    """Its connection is cut again and again while it writes as fast as it can."""
    writer, _ = logs
    row = await created(writer)
    over = threading.Event()

    def cut() -> None:
        while not over.is_set():
            terminate(address, WRITER)
            over.wait(0.3)

    cutting = threading.Thread(target=cut)
    cutting.start()
    try:
        for number in range(40):
            await writer.append(row.run_id, row.epoch, [noted(number)])
    finally:
        over.set()
        await asyncio.to_thread(cutting.join)
    texts = [item.event.text for item in await writer.read(row.run_id, 1) if isinstance(item.event, Notice)]
    assert texts == [str(number) for number in range(40)]


async def test_whoever_was_taken_over_by_another_process_writes_nothing(
    logs: tuple[PostgresLog, PostgresLog],
) -> None:
    first, second = logs
    row = await created(first)
    taken = await second.take_over(row.run_id)
    for write in (
        first.append(row.run_id, row.epoch, [noted("late")]),
        first.begin(row.run_id, row.epoch, "k", "tool", {}, idempotent=False),
        first.store_remote_task(row.run_id, row.epoch, "k", "agent", "task"),
    ):
        with pytest.raises(Fenced):
            await write
    assert await second.append(row.run_id, taken.epoch, [DONE]) == 2


async def test_of_one_message_sent_to_two_processes_at_once_there_is_one_run(
    logs: tuple[PostgresLog, PostgresLog],
) -> None:
    for number in range(10):
        pairs = [log.create(new_run(message=f"m{number}")) for log in logs]
        (one, _), (other, _) = await asyncio.gather(*pairs)
        assert one.run_id == other.run_id


@pytest.mark.parametrize("text", ["a\x00b", "\x01", "\x010000", "\ud83d", "é\x00\udfff"])
async def test_text_that_postgresql_refuses_is_stored_all_the_same(
    logs: tuple[PostgresLog, PostgresLog], text: str
) -> None:
    first, second = logs
    row, _ = await first.create(new_run(owner=text, context=text, message=f"m{text}"))
    assert await second.get(row.run_id) == row
    assert (row.owner, row.context_id) == (text, text)
    await first.rename_conversation(text, text, text)
    [conversation] = (await second.list_conversations(text, limit=9)).rows
    assert conversation.title == text
    entry = await first.begin(row.run_id, 1, text, text, {"x": "a\x00b"}, idempotent=False)
    assert await second.journal(row.run_id) == [entry]


# --- tables -------------------------------------------------------------------------------------------------


def versions(address: PostgresAddress) -> list[int]:
    with contextlib.closing(address.connect().raw) as db:
        return [row[0] for row in db.execute("SELECT version FROM schema_versions ORDER BY version")]


def test_of_processes_that_start_together_one_creates_the_tables(address: PostgresAddress) -> None:
    threads = [threading.Thread(target=migrate, args=(address, TABLES)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert versions(address) == list(range(1, len(MIGRATIONS) + 1))


async def test_an_older_process_goes_on_beside_a_newer_one(address: PostgresAddress) -> None:
    older = PostgresLog.open(address, tick=0)
    row = await created(older)
    newer = [*MIGRATIONS, ("ALTER TABLE runs ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'",)]
    migrate(address, SharedTables(newer))
    await older.append(row.run_id, row.epoch, [noted(1)])
    assert (await created(older, context="other")).last_seq == 1
    await older.close()
    again = PostgresLog.open(address, tick=0)  # and starts anew
    assert len(await again.find_unfinished()) == 2
    await again.close()
    assert versions(address) == list(range(1, len(newer) + 1))


def test_a_process_that_is_too_old_for_the_tables_is_refused(address: PostgresAddress) -> None:
    migrate(address, TABLES)
    with contextlib.closing(address.connect().raw) as db:
        db.execute("INSERT INTO schema_versions(version, oldest_reader) VALUES (99, 99)")
    with pytest.raises(ConfigurationError, match="newer version of this program"):
        PostgresLog.open(address)


class Explaining(PostgresConnection):
    """A connection that also asks how each query would be executed on large tables."""

    def __init__(self, address: PostgresAddress) -> None:
        super().__init__(address.connect().raw)
        self.plans: list[str] = []
        for setting in ("enable_seqscan", "enable_bitmapscan", "enable_sort"):
            self.raw.execute(f"SET {setting} = off".encode())

    def execute(self, statement, values=(), /):  # type: ignore[no-untyped-def]
        query, is_numbered = translate(statement)
        if is_numbered:
            values = {f"p{position}": value for position, value in enumerate(values, 1)}
        rows = self.raw.execute(b"EXPLAIN " + query, values).fetchall()
        self.plans.append("\n".join(row[0] for row in rows))
        return self.raw.execute(query, values)


@pytest.fixture
def explaining(address: PostgresAddress) -> Iterator[Explaining]:
    migrate(address, TABLES)
    connection = Explaining(address)
    yield connection
    connection.raw.close()


def test_pages_are_read_from_an_index_without_sorting(explaining: Explaining) -> None:
    for run_filter in (
        RunFilter("a"),
        RunFilter("a", state="failed"),
        RunFilter("a", "c"),
        RunFilter("a", since=NOW),
    ):
        run_queries.list_runs(explaining, run_filter, RunPosition(NOW, "x"), 50)
    run_queries.list_open_requests(explaining, "a", 0, 7, 50)
    run_queries.read_outlines(explaining, ["r"])
    conversation_rows.list_conversations(explaining, "a", "word", ConversationPosition(NOW, "c"), 50)
    for details_filter in (
        DetailsFilter("a"),
        DetailsFilter("a", state="failed"),
        DetailsFilter("a", agent="x"),
    ):
        run_details.list_details(explaining, details_filter, 7, 50)
    assert len(explaining.plans) == 14
    for plan in explaining.plans:
        assert "Seq Scan" not in plan, plan
        assert "Sort" not in plan, plan


# --- replicas -----------------------------------------------------------------------------------------------


ROOM = RoomForRuns(in_all=99, of_person=99)
ANN = "principal of ann"
BOB = "principal of bob"


def replicas_of(logs: tuple[PostgresLog, PostgresLog]) -> tuple[ReplicaStore, ReplicaStore]:
    first, second = logs
    assert first.replicas is not None
    assert second.replicas is not None
    return first.replicas, second.replicas


async def test_of_two_replicas_one_takes_a_run_that_nobody_holds(
    logs: tuple[PostgresLog, PostgresLog],
) -> None:
    first, second = replicas_of(logs)
    run_ids = [(await created(logs[0], context=f"c{number}")).run_id for number in range(40)]
    batches = await asyncio.gather(first.take_unheld(ROOM, 20), second.take_unheld(ROOM, 20))
    taken = [*batches[0], *batches[1]]
    assert sorted(row.run_id for row in taken) == sorted(run_ids)
    assert [len(batch) for batch in batches] == [20, 20]
    assert {row.holder for row in batches[1]} == {second.replica_id}
    assert {row.epoch for row in taken} == {2}
    assert await second.take_unheld(ROOM, 9) == []


async def test_runs_are_taken_as_far_as_there_is_room_for_their_persons(
    logs: tuple[PostgresLog, PostgresLog],
) -> None:
    first, _ = replicas_of(logs)
    for number in range(6):
        await created(logs[0], context=f"a{number}")
    await created(logs[0], owner="bob", context="b")
    room = RoomForRuns(in_all=3, of_person=2, used={ANN: 1})
    assert [row.principal for row in await first.take_unheld(room, 9)] == [ANN, BOB]
    full = RoomForRuns(in_all=9, of_person=2, used={ANN: 2})
    await created(logs[0], owner="bob", context="b2")
    assert [row.principal for row in await first.take_unheld(full, 1)] == [BOB], "ann's are not before his"
    assert len(await first.take_unheld(RoomForRuns(in_all=2, of_person=9), 9)) == 2
    assert await first.take_unheld(RoomForRuns(in_all=0, of_person=9), 9) == []


async def test_the_runs_of_a_replica_whose_lease_has_ended_belong_to_nobody(
    logs: tuple[PostgresLog, PostgresLog],
) -> None:
    first, second = replicas_of(logs)
    row, _ = await logs[0].create(new_run(holder=first.replica_id, attempt="working"))
    waiting, _ = await logs[0].create(new_run(context="w", holder=first.replica_id, attempt="waiting"))
    assert await first.renew(60) is False, "it had none before"
    assert await first.renew(60) is True
    assert await second.free_dead(within=60) == 0
    assert await second.take_unheld(ROOM, 9) == []
    await first.renew(-1)
    assert await first.free_dead(within=60) == 0, "a replica does not declare itself dead"
    assert await second.free_dead(within=60) == 1
    taken = {row.run_id: row for row in await second.take_unheld(ROOM, 9)}
    assert set(taken) == {row.run_id, waiting.run_id}
    assert (taken[row.run_id].holder, taken[row.run_id].crashes) == (second.replica_id, 1)
    assert taken[waiting.run_id].crashes == 0, "nothing of it was under way"
    assert await first.renew(60) is False
    assert await first.find_lost([row.run_id]) == [row.run_id]


async def test_nobody_is_declared_dead_because_the_database_was_away(
    logs: tuple[PostgresLog, PostgresLog],
) -> None:
    first, second = replicas_of(logs)
    await first.renew(-1)
    release = threading.Event()
    outage = asyncio.ensure_future(second.database.submit(lambda db, now: release.wait(10)))
    late = asyncio.ensure_future(second.free_dead(within=0.05))
    await asyncio.sleep(0.1)
    release.set()
    await outage
    assert await late == 0
    assert await second.free_dead(within=60) == 1


async def test_a_timer_runs_once_for_all_replicas(logs: tuple[PostgresLog, PostgresLog]) -> None:
    claims = [log.replicas.claim_timer("retention", 600) for log in logs if log.replicas is not None]
    assert sorted(await asyncio.gather(*claims)) == [False, True]


async def test_a_notification_is_sent_by_one_process(logs: tuple[PostgresLog, PostgresLog]) -> None:
    first, second = logs
    await first.create(new_run(push=PushTarget("https://a.example/hook", "https://a.example")))
    [due] = await second.push.find_due(busy_configs=[], busy_hosts=[], limit=9)
    assert await first.push.find_due(busy_configs=[], busy_hosts=[], limit=9) == []
    await second.push.remove(due)
    assert await second.push.find_due(busy_configs=[], busy_hosts=[], limit=9) == []


def test_notes_fit_into_what_postgresql_sends() -> None:
    payloads = make_payloads("me", [["event", f"run-{number}", number] for number in range(2000)])
    assert len(payloads) > 1
    assert max(map(len, payloads)) < 8000
    assert make_payloads("me", [["event", "r", 1], ["event", "r", 2]]) == ['["me", ["event", "r", 2]]']
    assert make_payloads("me", [["event", "x" * 9000, 1]]) == ['["me", ["event"]]']


@pytest.mark.full
async def test_a_crash_of_the_database_loses_no_commit_and_repeats_none() -> None:
    """After a crash PostgreSQL may give the id of a lost transaction to another one of the many that come."""
    with run_postgres("fsync=off") as (url, engine):
        address = PostgresAddress(url, "crashes")
        writers = [PostgresLog.open(address, tick=0) for _ in range(3)]
        rows = [await created(log, context=f"c{number}") for number, log in enumerate(writers)]
        over = asyncio.Event()
        work = [
            asyncio.create_task(append_until(over, log, row)) for log, row in zip(writers, rows, strict=True)
        ]
        for _ in range(4):
            await asyncio.sleep(0.5)
            await asyncio.to_thread(engine.stop)
            await asyncio.to_thread(engine.start)
            await asyncio.sleep(1.5)
        over.set()
        for log, row, appending in zip(writers, rows, work, strict=True):
            count = await appending
            stored = list(await log.read(row.run_id, 1, count + 99))
            texts = [item.event.text for item in stored if isinstance(item.event, Notice)]
            assert texts == [str(number) for number in range(count)]
            await log.close()


async def append_until(over: asyncio.Event, log: PostgresLog, row: RunRow) -> int:
    """Appends one event after the other; returns how many."""
    count = 0
    while not over.is_set():
        await log.append(row.run_id, row.epoch, [noted(count)])
        count += 1
    return count
