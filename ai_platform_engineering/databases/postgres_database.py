"""PostgreSQL that processes share: a writer with group commit, and threads with connections for readers."""

import asyncio
import contextlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.failure_text import is_disk_full
from ai_platform_engineering.databases.database_failures import explain_failure
from ai_platform_engineering.databases.group_commit import BUSY_BATCH, TICK, GroupCommitWriter, Operation
from ai_platform_engineering.databases.migrations import SharedTables
from ai_platform_engineering.databases.postgres_dialect import (
    EscapingDumper,
    PostgresConnection,
    PostgresRow,
    UnescapingLoader,
    make_row,
)
from ai_platform_engineering.databases.sql_connections import SqlConnection, StorageFailed, Work

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE = 60.0  # seconds for which an operation waits while the database is away
_CLOSING_PATIENCE = 3.0
_RETRY_SECONDS = 0.5
_READERS = 4  # threads, each with a connection from its first query on
_MAX_PAYLOAD = 7000  # bytes of a NOTIFY; PostgreSQL takes 8000
# Which transaction of a writer was committed last. PostgreSQL's own answer (pg_xact_status) is wrong after a
# crash of the server, which may give the number of a lost transaction to another one.
_COMMITS = (
    b"CREATE TABLE IF NOT EXISTS commits(writer TEXT PRIMARY KEY, number BIGINT NOT NULL,"
    b" at TIMESTAMPTZ NOT NULL DEFAULT now()) WITH (fillfactor = 50)",
    b"DELETE FROM commits WHERE at < now() - interval '30 days'",  # of processes that were killed
)
_ADD_WRITER = b"INSERT INTO commits(writer, number) VALUES (%s, 0) ON CONFLICT DO NOTHING"
_REMOVE_WRITER = b"DELETE FROM commits WHERE writer = %s"
_LAST_COMMIT = b"SELECT number FROM commits WHERE writer = %s FOR UPDATE"
# The row stays locked until the end: whoever asks for the last commit waits for one that is under way.
_BEGIN = (
    "BEGIN; INSERT INTO commits(writer, number) VALUES ({writer}, {number}) ON CONFLICT (writer)"
    " DO UPDATE SET number = excluded.number, at = now()"
    " RETURNING (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now"
)
# Errors of the connection, the server or the transaction as a whole; all others are those of one statement.
_BATCH_ERRORS = ("08", "25", "40", "53", "55", "57", "58", "XX")
# After these the same transaction may succeed.
_RETRYABLE = ("08", "40", "55P03", "57P", "25006", "25P03")
_SESSION = (
    "SET client_min_messages = warning",
    # A process that is stopped in the middle must not hold its locks for longer.
    "SET idle_in_transaction_session_timeout = '5s'",
    "SET statement_timeout = '30s'",
)


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Where the tables are: the address, which may have a password, and a schema of its own."""

    url: str = field(repr=False)
    schema: str
    connect_seconds: float = 5.0

    def connect(self) -> PostgresConnection:
        """A connection that commits each statement, unless a transaction is begun. Raises psycopg.Error."""
        connection: psycopg.Connection[PostgresRow] = psycopg.connect(
            self.url,
            autocommit=True,
            connect_timeout=max(2, round(self.connect_seconds)),
            row_factory=make_row,
            client_encoding="utf8",
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=2,
            tcp_user_timeout=20_000,
        )
        connection.adapters.register_dumper(str, EscapingDumper)
        connection.adapters.register_loader("text", UnescapingLoader)
        try:
            for statement in _SESSION:
                connection.execute(statement.encode())
            connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self.schema)))
        except BaseException:
            connection.close()
            raise
        return PostgresConnection(connection)


def migrate(address: PostgresAddress, tables: SharedTables) -> None:
    """Applies the migrations that the schema lacks, once: others who start meanwhile wait.

    Raises psycopg.Error; ConfigurationError when this program is too old for the tables.
    """
    connection = address.connect().raw
    with connection, connection.transaction():
        connection.execute(b"SET LOCAL statement_timeout = 0")
        connection.execute(
            b"SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"caipe migrations {address.schema}",)
        )
        schema = sql.Identifier(address.schema)
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
        connection.execute(
            b"CREATE TABLE IF NOT EXISTS schema_versions(version INTEGER PRIMARY KEY, oldest_reader INTEGER"
            b" NOT NULL, at TIMESTAMPTZ NOT NULL DEFAULT now())"
        )
        [row] = connection.execute(
            b"SELECT coalesce(max(version), 0), coalesce(max(oldest_reader), 0) FROM schema_versions"
        ).fetchall()
        if row[1] > len(tables.migrations):
            raise ConfigurationError(
                f"The database was changed by a newer version of this program (schema {row[0]}), with which"
                " this one cannot share it. Start the newer version."
            )
        for statement in _COMMITS:
            connection.execute(statement)
        for version, migration in enumerate(tables.migrations[row[0] :], row[0] + 1):
            for step in migration:
                connection.execute(step.encode())
            versions = (version, tables.oldest_reader)
            connection.execute(b"INSERT INTO schema_versions VALUES (%s, %s)", versions)


class PostgresWriter(GroupCommitWriter):
    """The thread that writes through one connection.

    While the database is away it waits, and tries again: whether a commit that was cut off took place is
    asked of the database.
    """

    def __init__(
        self, address: PostgresAddress, sender: str, *, tick: float, busy_batch: int, patience: float
    ) -> None:
        """`sender`: the name of this process in what it tells others."""
        self._address = address
        self._sender = sender
        self._patience = patience
        self._connection: PostgresConnection | None = None
        self._name = str(uuid.uuid4())
        self._number = 0  # of the last transaction that was begun
        super().__init__(f"writer of {address.schema}", tick=tick, busy_batch=busy_batch)

    def close(self) -> bool:
        if not super().close():
            return False
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.raw.execute(_REMOVE_WRITER, (self._name,))
        self._disconnect()
        return True

    def _commit(self, batch: list[Operation]) -> None:
        began_at = time.monotonic()
        attempts = 0
        while True:
            try:
                self._transact(batch)
            except Exception as error:  # noqa: BLE001 - no caller may wait for ever
                self._roll_back()
                self.problem = _explain(error)
                if _may_succeed_later(error) and self._is_patient(began_at):
                    if attempts:  # the first time, only this connection may be broken
                        log.warning("%d operations wait for the database: %s", len(batch), self.problem)
                        time.sleep(_RETRY_SECONDS)
                    attempts += 1
                    continue
                log.error("%d operations could not be stored: %s", len(batch), self.problem)
                for operation in batch:
                    operation.error = StorageFailed(f"Nothing could be stored: {self.problem}. Ask again.")
            else:
                self.problem = None
            return

    def _transact(self, batch: list[Operation]) -> None:
        """Stores the batch; again with savepoints when one of its operations was refused."""
        if self._try_transaction(batch, savepoints=False):
            return
        if len(batch) > 1:
            self._try_transaction(batch, savepoints=True)

    def _try_transaction(self, batch: list[Operation], *, savepoints: bool) -> bool:
        """False when nothing is stored, since an operation was refused."""
        db = self._connect()
        self._number += 1
        cursor = db.raw.execute(
            sql.SQL(_BEGIN).format(writer=sql.Literal(self._name), number=sql.Literal(self._number))
        )
        cursor.nextset()
        [started] = cursor.fetchall()
        for operation in batch:
            self._apply(db, operation, started["now"], savepoint=savepoints)
            if operation.error is not None and not savepoints:
                self._roll_back()
                return False
        self._finish(db)
        self.commits += 1
        return True

    def _apply(self, db: PostgresConnection, operation: Operation, now: int, *, savepoint: bool) -> None:
        operation.error = None
        note_count = len(db.notes)
        if savepoint:
            db.execute("SAVEPOINT operation")
        try:
            operation.value = operation.work(db, now)
        except Exception as error:
            if isinstance(error, psycopg.Error) and _concerns_batch(error):
                raise
            operation.error = error
            del db.notes[note_count:]
        if savepoint and operation.error is not None:
            db.execute("ROLLBACK TO SAVEPOINT operation")
        if savepoint:
            db.execute("RELEASE SAVEPOINT operation")

    def _finish(self, db: PostgresConnection) -> None:
        """Tells others what changed, and commits."""
        channel = sql.Literal(self._address.schema)
        statements: list[sql.Composable] = []
        for payload in make_payloads(self._sender, db.notes):
            statements.append(sql.SQL("SELECT pg_notify({}, {});").format(channel, sql.Literal(payload)))
        db.notes.clear()
        try:
            db.raw.execute(sql.SQL(" ").join([*statements, sql.SQL("COMMIT")]))
        except psycopg.OperationalError:
            if not db.raw.closed:
                raise
            if not self._was_committed():
                raise

    def _was_committed(self) -> bool:
        """Whether the last transaction took place, whose connection broke while it was committed."""
        self._disconnect()
        began_at = time.monotonic()
        while True:
            try:
                [row] = self._connect().raw.execute(_LAST_COMMIT, (self._name,)).fetchall()
                return bool(row[0] == self._number)
            except psycopg.OperationalError:
                self._disconnect()
                if not self._is_patient(began_at):
                    raise StorageFailed(
                        "It is not known whether this was stored: the database is away."
                    ) from None
            time.sleep(_RETRY_SECONDS)

    def _is_patient(self, since: float) -> bool:
        """Whether it is worth while to try again; a process that ends does not wait for long."""
        patience = min(self._patience, _CLOSING_PATIENCE) if self._closing.is_set() else self._patience
        return time.monotonic() - since < patience

    def _connect(self) -> PostgresConnection:
        if self._connection is None:
            self._connection = self._address.connect()
            self._connection.raw.execute(_ADD_WRITER, (self._name,))
        return self._connection

    def _roll_back(self) -> None:
        if self._connection is None:
            return
        self._connection.notes.clear()
        try:
            self._connection.raw.execute(b"ROLLBACK")
        except psycopg.Error:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.raw.close()
            self._connection = None


class PostgresDatabase:
    """An open database that several processes share: one writer of this process, and threads that read."""

    def __init__(
        self,
        address: PostgresAddress,
        tables: SharedTables,
        *,
        sender: str,
        tick: float = TICK,
        busy_batch: int = BUSY_BATCH,
        patience: float = PATIENCE,
        readers: int = _READERS,
    ) -> None:
        """Raises psycopg.Error and ConfigurationError."""
        migrate(address, tables)
        self._address = address
        self._patience = patience
        self.submissions = 0  # how often `submit` was called
        self._closing = threading.Event()
        self._local = threading.local()
        self._connections: set[PostgresConnection] = set()
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix=f"reader of {address.schema}")
        self._writer = PostgresWriter(address, sender, tick=tick, busy_batch=busy_batch, patience=patience)

    @property
    def commits(self) -> int:
        return self._writer.commits

    def submit(
        self, work: Work[T], stored: Callable[[], None] | None = None, *, within: float = 0
    ) -> asyncio.Future[T]:
        self.submissions += 1
        return self._writer.submit(work, stored, within=within)

    async def query(self, query: str, *values: Any) -> list[Any]:
        return await self.read(lambda db: db.execute(query, values).fetchall())

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        self._writer.check_open()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    async def check_writable(self) -> str | None:
        return self._writer.problem

    async def release_space(self) -> None:
        """PostgreSQL does so by itself."""

    def close(self) -> None:
        if not self._writer.close():
            return
        self._closing.set()
        self._readers.shutdown()
        for connection in self._connections:
            connection.raw.close()

    def _read(self, work: Callable[[SqlConnection], T]) -> T:
        """Reads in a thread; again while the database is away."""
        give_up_at = time.monotonic() + self._patience
        attempts = 0
        while True:
            try:
                return work(self._reader())
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                self._drop_reader()
                if self._closing.is_set() or time.monotonic() >= give_up_at:
                    raise StorageFailed(f"The database cannot be read: {_explain(error)}.") from None
                if attempts:  # the first time, only this connection may be broken
                    log.warning("a query waits for the database: %s", _explain(error))
                    self._closing.wait(_RETRY_SECONDS)
                attempts += 1

    def _reader(self) -> PostgresConnection:
        connection: PostgresConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._address.connect()
            self._local.connection = connection
            self._connections.add(connection)
        return connection

    def _drop_reader(self) -> None:
        connection: PostgresConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            self._connections.discard(connection)
            connection.raw.close()
            self._local.connection = None


def make_payloads(sender: str, notes: Sequence[Sequence[str | int]]) -> list[str]:
    """Notes as texts of NOTIFY; of several events of a run only the last one is told.

    What is too long is not sent: whoever gets a note without details looks at everything.
    """
    latest = {tuple(note[:2]): note for note in notes}
    payloads: list[str] = []
    items: list[str] = []
    size = 0
    for note in latest.values():
        item = json.dumps(note)
        if len(item) > _MAX_PAYLOAD:
            item = json.dumps(note[:1])
        if items and size + len(item) > _MAX_PAYLOAD:
            payloads.append(_make_payload(sender, items))
            items = []
            size = 0
        items.append(item)
        size += len(item) + 1
    if items:
        payloads.append(_make_payload(sender, items))
    return payloads


def _make_payload(sender: str, items: Sequence[str]) -> str:
    return f"[{json.dumps(sender)}, {', '.join(items)}]"


def _concerns_batch(error: psycopg.Error) -> bool:
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_BATCH_ERRORS)


def _may_succeed_later(error: Exception) -> bool:
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_RETRYABLE)


def _explain(error: Exception) -> str:
    if isinstance(error, psycopg.errors.DiskFull) or is_disk_full(error):
        return "the disk of the database is full"
    return explain_failure(error)
