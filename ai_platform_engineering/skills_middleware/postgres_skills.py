"""The skill catalogue in PostgreSQL, in a schema of its own; imported when it is used, since an installation
may lack the client."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.databases.database_failures import explain_failure
from ai_platform_engineering.databases.migrations import Migration, SharedTables
from ai_platform_engineering.databases.postgres_database import PostgresAddress, migrate
from ai_platform_engineering.databases.postgres_dialect import PostgresConnection
from ai_platform_engineering.databases.sql_connections import SqlConnection, lock_key

SCHEMA = "caipe_skills"
_RETRY_SECONDS = 2.0
_KEY = 'TEXT COLLATE "C" NOT NULL'

# The tables are those of SQLite (`skill_database`). Migrations only add.
_FIRST: Migration = (
    f"""CREATE TABLE skills(
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, origin {_KEY}, origin_id {_KEY}, place {_KEY},
        folder TEXT NOT NULL, mark TEXT NOT NULL, problems TEXT NOT NULL,
        UNIQUE(origin, origin_id, place))""",
    f"""CREATE TABLE files(
        skill BIGINT NOT NULL REFERENCES skills(id) ON DELETE CASCADE, path {_KEY}, content BYTEA NOT NULL,
        PRIMARY KEY(skill, path))""",
    f"""CREATE TABLE switches(
        origin {_KEY}, origin_id {_KEY}, name {_KEY}, enabled BOOLEAN NOT NULL,
        PRIMARY KEY(origin, origin_id, name))""",
    f"""CREATE TABLE hubs(
        rowid BIGINT GENERATED ALWAYS AS IDENTITY, id {_KEY} PRIMARY KEY, url TEXT NOT NULL,
        ref TEXT NOT NULL, path TEXT NOT NULL, pin TEXT NOT NULL, configured BOOLEAN NOT NULL)""",
    f"""CREATE TABLE fetches(
        hub {_KEY} PRIMARY KEY, epoch BIGINT NOT NULL, lease_until BIGINT NOT NULL,
        problem TEXT NOT NULL DEFAULT '')""",
)
TABLES = SharedTables((_FIRST,))


class PostgresSkillDatabase:
    """`SkillDatabase` in a database that several servers share, through one connection."""

    def __init__(self, url: str, label: str, connect_seconds: float) -> None:
        """`label`: the database for people, without its password."""
        self._address = PostgresAddress(url, SCHEMA, connect_seconds)
        self._label = label
        self._lock = threading.Lock()
        self._connection: PostgresConnection | None = None
        self._is_migrated = False
        self._failure: psycopg.Error | None = None
        self._failed_at = 0.0

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    @contextmanager
    def reading(self) -> Iterator[SqlConnection]:
        with self._lock, self._explain_errors():
            self._try_connection(b"SELECT 1")
            yield self._connect()

    @contextmanager
    def writing(self) -> Iterator[SqlConnection]:
        with self._lock, self._explain_errors():
            self._try_connection(b"BEGIN")
            db = self._connect()
            try:
                lock_key(db, SCHEMA)
                yield db
            except BaseException:
                self._roll_back()
                raise
            db.execute("COMMIT")

    def read_clock(self, db: SqlConnection) -> int:
        query = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        return int(db.execute(query).fetchone()[0])

    def _try_connection(self, statement: bytes) -> None:
        """Executes a first statement; a connection that broke meanwhile is replaced."""
        try:
            self._connect().raw.execute(statement)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            if self._connection is None:  # there was none
                raise
            self._disconnect()
            self._connect().raw.execute(statement)

    def _connect(self) -> PostgresConnection:
        if self._connection is None or self._connection.raw.closed:
            self._connection = self._open_connection()
        return self._connection

    def _open_connection(self) -> PostgresConnection:
        # A refresh asks several times, and each time a database that does not answer would be waited for.
        if self._failure is not None and time.monotonic() < self._failed_at + _RETRY_SECONDS:
            raise self._failure
        try:
            if not self._is_migrated:
                migrate(self._address, TABLES)
                self._is_migrated = True
            connection = self._address.connect()
        except psycopg.Error as error:
            self._failure = error
            self._failed_at = time.monotonic()
            raise
        self._failure = None
        return connection

    def _roll_back(self) -> None:
        try:
            self._connect().raw.execute(b"ROLLBACK")
        except psycopg.Error:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.raw.close()
            self._connection = None

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, OSError) as error:
            reason = explain_failure(error)
            raise SourceUnavailable(f"Skills in {self._label} cannot be used: {reason}.") from None
