"""The bot's tables in PostgreSQL: processes with the same tokens share the work (docs/adr/0065)."""

import asyncio
import re
import uuid
from collections.abc import Callable
from typing import TypeVar

import psycopg

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.databases.database_choice import DatabaseChoice
from ai_platform_engineering.databases.database_failures import unavailable
from ai_platform_engineering.databases.migrations import Migration, SharedTables
from ai_platform_engineering.databases.postgres_check import check_postgres_address
from ai_platform_engineering.databases.postgres_database import PostgresAddress, PostgresDatabase
from ai_platform_engineering.databases.postgres_listener import PostgresListener
from ai_platform_engineering.databases.sql_connections import Note, SqlConnection, Work

T = TypeVar("T")

_READERS = 2  # connections for queries, besides one that writes and one that listens

# Ids and timestamps are compared by code point, as SQLite does.
_KEY = 'TEXT COLLATE "C" NOT NULL'
_TIME = "DOUBLE PRECISION NOT NULL"

# The tables are those of the SQLite file (`bot_database`).
_FIRST: Migration = (
    f"CREATE TABLE seen (key {_KEY} PRIMARY KEY, at {_TIME})",
    "CREATE INDEX seen_by_time ON seen (at)",
    f"""CREATE TABLE turns (
        turn_id {_KEY} PRIMARY KEY, channel {_KEY}, thread_ts {_KEY}, state TEXT NOT NULL, task_id TEXT,
        "row" TEXT NOT NULL, at {_TIME})""",
    "CREATE INDEX turns_of_thread ON turns (channel, thread_ts)",
    "CREATE INDEX turns_of_task ON turns (task_id)",
    "CREATE INDEX turns_open ON turns (channel, thread_ts) WHERE state = 'open'",
    f"CREATE TABLE posted (channel {_KEY}, ts {_KEY}, at {_TIME}, PRIMARY KEY (channel, ts))",
    f"""CREATE TABLE asked (
        request_id {_KEY} PRIMARY KEY, turn_id {_KEY}, ts TEXT, open INTEGER NOT NULL DEFAULT 1)""",
    "CREATE INDEX asked_of_turn ON asked (turn_id)",
    f"""CREATE TABLE threads (
        channel {_KEY}, thread_ts {_KEY}, given {_KEY}, at {_TIME}, PRIMARY KEY (channel, thread_ts))""",
    f"""CREATE TABLE messages (
        turn_id {_KEY} PRIMARY KEY, channel {_KEY}, thread_ts {_KEY}, message TEXT NOT NULL)""",
    "CREATE INDEX messages_of_thread ON messages (channel, thread_ts)",
    f"""CREATE TABLE holders (
        channel {_KEY}, thread_ts {_KEY}, holder {_KEY}, PRIMARY KEY (channel, thread_ts))""",
    "CREATE INDEX threads_of_holder ON holders (holder)",
    f"CREATE TABLE processes (process_id {_KEY} PRIMARY KEY, lease_until BIGINT NOT NULL)",
    f"CREATE TABLE timers (name {_KEY} PRIMARY KEY, next_at BIGINT NOT NULL)",
    f"CREATE TABLE stops (turn_id {_KEY} PRIMARY KEY, principal TEXT NOT NULL)",
    f"CREATE TABLE questions (channel {_KEY}, author {_KEY}, at {_TIME})",
    "CREATE INDEX questions_of_author ON questions (channel, author, at)",
    f"CREATE TABLE modal_answers (request_id {_KEY} PRIMARY KEY, at {_TIME})",
)
TABLES = SharedTables((_FIRST,))


def make_schema_name(team: str, bot_user: str) -> str:
    """The schema of one installed app: another app in the same workspace gets the same messages."""
    return re.sub("[^a-z0-9]", "_", f"caipe_slack_{team}_{bot_user}".lower())[:63]


class PostgresBotDatabase:
    """A schema of a PostgreSQL database, and a connection that hears of what other processes do."""

    is_shared = True

    def __init__(self, address: PostgresAddress) -> None:
        """Connects, and creates what is missing. Raises psycopg.Error and ConfigurationError."""
        self.process_id = str(uuid.uuid4())
        self._address = address
        self._database = PostgresDatabase(address, TABLES, sender=self.process_id, readers=_READERS)
        self._listener: PostgresListener | None = None

    @classmethod
    async def open(cls, choice: DatabaseChoice, schema: str, timeout_seconds: float) -> "PostgresBotDatabase":
        """Raises ConfigurationError: a bot that went on without the others would answer what they answer."""
        check_postgres_address(choice.address, choice.variable)
        address = PostgresAddress(choice.address, schema, timeout_seconds)
        try:
            return await asyncio.to_thread(cls, address)
        except (psycopg.Error, OSError) as error:
            failure = unavailable(choice.label, error, f"Check {choice.variable}.")
            raise ConfigurationError(f"The bot's tables cannot be opened. {failure}") from None

    async def transact(self, work: Work[T]) -> T:
        return await self._database.submit(work)

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._database.read(work)

    def listen(self, on_note: Callable[[Note], None], on_change: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def receive(notes: list[Note]) -> None:
            for note in notes:
                loop.call_soon_threadsafe(on_note, note)

        def change() -> None:
            loop.call_soon_threadsafe(on_change)

        self._listener = PostgresListener(self._address, self.process_id, receive, change)
        self._listener.start()

    async def close(self) -> None:
        if self._listener is not None:
            await asyncio.to_thread(self._listener.close)
        await asyncio.to_thread(self._database.close)
