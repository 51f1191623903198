"""What the bot stores, over both databases; and what processes that share one see of each other."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

import psycopg
import pytest
import pytest_asyncio

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.databases.database_choice import DatabaseChoice
from ai_platform_engineering.databases.postgres_database import PostgresAddress
from ai_platform_engineering.integrations.slack_bot.bot_database import BotDatabase, SqliteBotDatabase
from ai_platform_engineering.integrations.slack_bot.bot_postgres import (
    PostgresBotDatabase,
    make_schema_name,
)
from ai_platform_engineering.integrations.slack_bot.bot_store import BotStore
from ai_platform_engineering.integrations.slack_bot.incoming_messages import SlackMessage
from ai_platform_engineering.integrations.slack_bot.stream_progress import OpenMessage, StreamProgress
from ai_platform_engineering.integrations.slack_bot.thread_holders import ThreadHolders, ThreadTaken
from ai_platform_engineering.integrations.slack_bot.turn_rows import ThreadKey, TurnRow
from tests.support.database_servers import DatabaseServers

THREAD = ThreadKey("C1", "1.0")
DRAWN = StreamProgress(part=OpenMessage("3.0", 7, True, 1.5), posted=("2.0", "3.0"), starts=(0, 7))
TURN = TurnRow("C1:1.0", "T1", *THREAD, "U1", "first@example.com", {"message_id": "m", "text": "What runs?"})
MESSAGE = SlackMessage("T1", "C1", "U1", "5.0", "1.0", "Hi", "", mentions=True, direct=False)
LATER = replace(MESSAGE, ts="6.0", text="And?", mentions=False)


@dataclass
class Times:
    now: float = 1_000_000.0


@dataclass
class Process:
    """A process of the bot, as far as its database can tell."""

    store: BotStore
    holders: ThreadHolders

    @classmethod
    def on(cls, database: BotDatabase, times: Times) -> "Process":
        return cls(BotStore(database, lambda: times.now), ThreadHolders(database))


@pytest.fixture
def times() -> Times:
    return Times()


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def bot(request: pytest.FixtureRequest, times: Times) -> AsyncIterator[Process]:
    database: BotDatabase = SqliteBotDatabase(None)
    if request.param == "postgres":
        servers: DatabaseServers = request.getfixturevalue("servers")
        database = PostgresBotDatabase(new_address(servers))
    yield Process.on(database, times)
    await database.close()


def new_address(servers: DatabaseServers) -> PostgresAddress:
    return PostgresAddress(servers.postgres, f"test_{uuid.uuid4().hex}")


Start = Callable[[], Process]


@pytest_asyncio.fixture
async def start(servers: DatabaseServers, times: Times) -> AsyncIterator[Start]:
    """Starts processes that share a database."""
    address = new_address(servers)
    databases: list[PostgresBotDatabase] = []

    def start() -> Process:
        databases.append(PostgresBotDatabase(address))
        return Process.on(databases[-1], times)

    yield start
    for database in databases:
        await database.close()


async def end_lease(process: Process) -> None:
    """As when the process has not renewed its lease for long."""
    statement = "UPDATE processes SET lease_until = 0 WHERE process_id = ?"
    await process.store.database.transact(
        lambda db, _: db.execute(statement, (process.holders.process_id,)).rowcount
    )


# --- both databases -----------------------------------------------------------------------------------------


async def test_a_message_is_stored_once_until_it_is_handled(bot: Process) -> None:
    assert await bot.store.receive(MESSAGE, "event:1", "message:5.0", follow_up=False) == "here"
    assert await bot.store.receive(MESSAGE, "event:2", "message:5.0", follow_up=False) == "ignored"
    assert await bot.store.list_unhandled(THREAD) == [MESSAGE]
    assert await bot.store.list_unhandled(ThreadKey("C1", "2.0")) == []
    await bot.store.mark_handled(MESSAGE)
    assert await bot.store.receive(MESSAGE, "event:1", "message:5.0", follow_up=False) == "ignored"
    assert await bot.store.list_unhandled() == []
    assert not await bot.store.record_if_new("event:2"), "the keys of what is ignored are recorded, too"


async def test_a_follow_up_counts_in_a_thread_with_work_or_one_that_the_bot_was_in(bot: Process) -> None:
    assert await bot.store.receive(LATER, "1", follow_up=True) == "ignored"
    assert await bot.store.receive(MESSAGE, "2", follow_up=False) == "here"
    assert await bot.store.receive(LATER, "1", follow_up=True) == "here"
    for message in await bot.store.list_unhandled():
        await bot.store.mark_handled(message)
    assert await bot.holders.release(THREAD)
    assert await bot.store.receive(replace(LATER, ts="7.0"), "3", follow_up=True) == "ignored"
    await bot.store.record_sent(*THREAD, "5.0")
    await bot.store.record_sent(*THREAD, "4.0")
    assert await bot.store.last_sent_ts(*THREAD) == "5.0", "an event that comes late takes nothing back"
    assert await bot.store.receive(replace(LATER, ts="8.0"), "4", follow_up=True) == "here"


async def test_a_turn_is_read_as_it_was_stored_and_a_second_one_like_it_changes_nothing(bot: Process) -> None:
    assert await bot.store.add_turn(TURN)
    drawn = replace(TURN, drawn=DRAWN, task_id="t1")
    await bot.store.save_turn(drawn)
    assert await bot.store.add_turn(TURN)
    assert await bot.store.find_turn(TURN.turn_id) == drawn
    assert await bot.store.find_turn_of_task("t1") == drawn
    assert await bot.store.is_posted("C1", "2.0")
    assert not await bot.store.is_posted("C1", "9.0")
    await bot.store.save_turn(replace(drawn, state="done"))
    assert await bot.store.list_open_turns() == []


async def test_the_message_of_a_request_is_known_and_closed_by_the_first(bot: Process) -> None:
    assert await bot.store.record_request("r1", TURN.turn_id) is None
    assert await bot.store.record_request("r1", TURN.turn_id) == ""
    await bot.store.record_request_message("r1", "C1", "4.0")
    assert await bot.store.record_request("r1", TURN.turn_id) == "4.0"
    assert await bot.store.list_open_requests(TURN.turn_id) == ["r1"]
    closed = await asyncio.gather(*(bot.store.close_request("r1") for _ in range(3)))
    assert sorted(closed, key=str) == ["4.0", None, None]
    assert await bot.store.list_open_requests(TURN.turn_id) == []


async def test_questions_of_an_hour_are_counted_by_person_and_channel(bot: Process, times: Times) -> None:
    assert [await bot.store.record_question("C1", "U1", 2) for _ in range(3)] == [None, None, times.now]
    assert await bot.store.record_question("C1", "U2", 2) is None
    assert await bot.store.record_question("C2", "U1", 2) is None
    first = times.now
    times.now += 1800
    assert await bot.store.record_question("C1", "U1", 2) == first
    times.now += 1801
    assert await bot.store.record_question("C1", "U1", 2) is None


async def test_a_modal_shows_the_errors_of_its_answer_once(bot: Process, times: Times) -> None:
    await bot.store.begin_modal_answer("r1")
    assert not await bot.store.take_modal_answers(["r1", "r2"])
    await bot.store.begin_modal_answer("r1")
    assert await bot.store.take_modal_answers(["r1"])
    assert not await bot.store.take_modal_answers(["r1"])
    await bot.store.begin_modal_answer("r1")
    times.now += 301  # its process was killed
    assert not await bot.store.take_modal_answers(["r1"])


async def test_what_is_too_old_is_deleted(bot: Process, times: Times) -> None:
    await bot.store.add_turn(TURN)
    await bot.store.add_turn(replace(TURN, turn_id="C1:2.0"))
    await bot.store.save_turn(replace(TURN, state="done", drawn=DRAWN))
    await bot.store.record_request("r1", TURN.turn_id)
    await bot.store.record_stop(TURN.turn_id, "second@example.com")
    await bot.store.record_if_new("event:1")
    times.now += 31 * 24 * 3600
    await bot.store.delete_expired()
    assert await bot.store.find_turn(TURN.turn_id) is None
    assert [row.turn_id for row in await bot.store.list_open_turns()] == ["C1:2.0"]
    assert await bot.store.list_open_requests(TURN.turn_id) == []
    assert await bot.store.find_stops([TURN.turn_id]) == {}
    assert not await bot.store.is_posted("C1", "2.0")
    assert await bot.store.record_if_new("event:1")


async def test_a_thread_is_released_when_there_is_nothing_to_do_in_it(bot: Process) -> None:
    await bot.store.receive(MESSAGE, "1", follow_up=False)
    assert not await bot.holders.release(THREAD)
    await bot.store.add_turn(TURN)
    await bot.store.mark_handled(MESSAGE)
    assert not await bot.holders.release(THREAD)
    await bot.store.save_turn(replace(TURN, state="done"))
    assert await bot.holders.release(THREAD)
    with pytest.raises(ThreadTaken):
        await bot.store.save_turn(TURN)


async def test_a_timer_fires_once_in_its_time(bot: Process) -> None:
    assert await bot.holders.claim_timer("cleanup", 3600)
    assert not await bot.holders.claim_timer("cleanup", 3600)
    assert await bot.holders.claim_timer("now", 0)
    assert await bot.holders.claim_timer("now", 0)


# --- several processes --------------------------------------------------------------------------------------


async def test_of_an_event_that_both_get_one_has_it_and_it_belongs_to_the_holder_of_its_thread(
    start: Start,
) -> None:
    first, second = start(), start()
    receipts = await asyncio.gather(
        *(process.store.receive(MESSAGE, "event:1", follow_up=False) for process in (first, second) * 5)
    )
    assert sorted(receipts) == ["here", *["ignored"] * 9]
    holder, other = first, second
    if not (await first.holders.list_work()).threads:
        holder, other = second, first
    work = await holder.holders.list_work()
    assert work.threads == work.with_messages == {THREAD}
    assert await other.store.receive(LATER, "event:2", follow_up=True) == "elsewhere"
    assert await other.store.add_turn(replace(TURN, turn_id="C1:1.0:again")) is False
    assert set((await holder.holders.list_work()).open_turns) == {"C1:1.0:again"}
    assert (await other.holders.list_work()).threads == set()


async def test_the_holder_is_told_of_what_reaches_others(start: Start) -> None:
    first, second = start(), start()
    notes: asyncio.Queue[object] = asyncio.Queue()
    listening = asyncio.Event()
    first.store.database.listen(notes.put_nowait, listening.set)
    async with asyncio.timeout(30):
        await listening.wait()
        await first.store.add_turn(TURN)
        await second.store.receive(MESSAGE, "event:1", follow_up=False)
        assert await notes.get() == ["thread", *THREAD]
        await second.store.record_stop(TURN.turn_id, "second@example.com")
        assert await notes.get() == ["stop", TURN.turn_id, "second@example.com"]
        await second.holders.leave()
        assert await notes.get() == ["work"]
    assert await first.store.find_stops([TURN.turn_id, "C1:9.0"]) == {TURN.turn_id: "second@example.com"}


async def test_the_threads_of_a_process_without_a_lease_go_to_one_other_and_it_writes_nothing_more(
    start: Start,
) -> None:
    killed, second, third = start(), start(), start()
    await killed.holders.renew(600)
    await killed.store.add_turn(TURN)
    assert await second.holders.renew(60) == 2
    assert await second.holders.free_dead() == 0
    assert await second.holders.claim_unheld(9) == []
    await end_lease(killed)
    freed = await asyncio.gather(second.holders.free_dead(), third.holders.free_dead())
    assert sum(freed) == 1
    claims = await asyncio.gather(*(process.holders.claim_unheld(9) for process in (second, third) * 3))
    assert [thread for claim in claims for thread in claim] == [THREAD]
    with pytest.raises(ThreadTaken):
        await killed.store.save_turn(replace(TURN, task_id="late"))
    assert (await second.store.list_open_turns()) == [TURN]
    assert await second.holders.renew(60) == 1


async def test_one_look_renews_frees_and_claims(start: Start) -> None:
    killed, other = start(), start()
    await killed.holders.refresh(600, 9)
    await killed.store.add_turn(TURN)
    refreshed = await other.holders.refresh(60, 9)
    assert (refreshed.processes, refreshed.freed, refreshed.threads) == (2, 0, [])
    await end_lease(killed)
    refreshed = await other.holders.refresh(60, 9)
    assert (refreshed.processes, refreshed.freed, refreshed.threads) == (1, 1, [THREAD])


async def test_a_process_that_leaves_gives_its_threads_up(start: Start) -> None:
    first, second = start(), start()
    await first.holders.renew(60)
    await first.store.receive(MESSAGE, "event:1", follow_up=False)
    await first.holders.leave()
    assert await second.holders.claim_unheld(9) == [THREAD]
    assert await second.store.list_unhandled(THREAD) == [MESSAGE]


async def test_processes_that_start_together_create_the_tables_once(servers: DatabaseServers) -> None:
    address = new_address(servers)
    databases = await asyncio.gather(*(asyncio.to_thread(PostgresBotDatabase, address) for _ in range(4)))
    with psycopg.connect(address.url) as db:
        query = f"SELECT count(*) FROM {address.schema}.schema_versions"
        assert db.execute(query.encode()).fetchone() == (1,)
    for database in databases:
        await database.close()


async def test_a_database_that_is_away_is_an_error_without_its_password() -> None:
    choice = DatabaseChoice("postgres", "postgresql://caipe:never@127.0.0.1:1/db", "DATABASE_URL")
    with pytest.raises(ConfigurationError, match=r"PostgreSQL at 127\.0\.0\.1:1 cannot be used") as refused:
        await PostgresBotDatabase.open(choice, make_schema_name("T1", "U1"), 2.0)
    assert "never" not in str(refused.value)


def test_each_installed_app_has_tables_of_its_own() -> None:
    assert make_schema_name("T0AB", "U0-1") == "caipe_slack_t0ab_u0_1"
