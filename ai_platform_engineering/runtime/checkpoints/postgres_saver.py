"""A checkpointer on PostgreSQL that checks the epoch of a run in the statement of each write."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.postgres import _ainternal
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from psycopg import AsyncConnection, AsyncCursor, DatabaseError, sql
from psycopg.rows import DictRow
from psycopg_pool import AsyncConnectionPool

from ai_platform_engineering.core.errors import Fenced
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.databases.postgres_dialect import escape_text
from ai_platform_engineering.runtime.checkpoints.postgres_retries import retry_while_away

_STALE_EPOCH = "CA001"  # the error of the function check_epoch

# What all rows have in common is a value, the rest is an array for each column: a statement is one round
# trip, and a transaction of its own.
_PUT_CHECKPOINT = """
    WITH checked AS MATERIALIZED (SELECT {check}(%s, %s)),
    blobs AS (
        INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
        SELECT %s, %s, new.* FROM checked, unnest(%s::text[], %s::text[], %s::text[], %s::bytea[]) AS new
        ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING)
    INSERT INTO checkpoints
        (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
    SELECT %s, %s, %s, %s, %s::jsonb, %s::jsonb FROM checked
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
    DO UPDATE SET checkpoint = EXCLUDED.checkpoint, metadata = EXCLUDED.metadata
"""
_PUT_WRITES = """
    WITH checked AS MATERIALIZED (SELECT {check}(%s, %s))
    INSERT INTO checkpoint_writes
        (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob)
    SELECT %s, %s, %s, %s, %s, new.* FROM checked,
        unnest(%s::int[], %s::text[], %s::text[], %s::bytea[]) AS new
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO
"""
_REPLACE = "UPDATE SET channel = EXCLUDED.channel, type = EXCLUDED.type, blob = EXCLUDED.blob"
_BLOB_KEY = 2  # how many columns all rows have in common
_BLOB_COLUMNS = range(_BLOB_KEY, 6)  # the other ones
_WRITE_KEY = 5
_WRITE_COLUMNS = range(_WRITE_KEY, 9)

_writing = ContextVar[RunContext | None]("writing", default=None)


@contextmanager
def _fencing(config: RunnableConfig) -> Iterator[None]:
    """A block whose writes are those of the run in the configuration; of no run, they are not checked."""
    context = RunContext.from_config(config)
    token = _writing.set(context if context.run_id and context.epoch else None)
    try:
        yield
    finally:
        _writing.reset(token)


class _Statements:
    """The statements of checkpoints, each with its check of the epoch; made once, since that is slow."""

    def __init__(self, runs_schema: str) -> None:
        check = sql.Identifier(runs_schema, "check_epoch")
        self.put_checkpoint = sql.SQL(_PUT_CHECKPOINT).format(check=check).as_bytes()
        put_writes = sql.SQL(_PUT_WRITES).format(check=check).as_bytes()
        self.replace_writes = put_writes + _REPLACE.encode()
        self.keep_writes = put_writes + b"NOTHING"


class _JoinedWrites:
    """In place of a cursor: takes what LangGraph's saver writes, to be sent as one statement."""

    def __init__(self) -> None:
        self._query = ""
        self._rows: list[tuple[Any, ...]] = []
        self._checkpoint: tuple[Any, ...] | None = None

    async def executemany(self, query: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self._query = query
        self._rows = list(rows)

    async def execute(self, query: str, values: tuple[Any, ...]) -> None:
        assert query == AsyncPostgresSaver.UPSERT_CHECKPOINTS_SQL
        self._checkpoint = values

    def join(self, statements: _Statements) -> tuple[bytes, list[Any]] | None:
        """The statement, and its values after the run and its epoch; None when nothing is written."""
        if self._checkpoint is not None:
            key = self._checkpoint[:_BLOB_KEY]
            return statements.put_checkpoint, [*key, *self._to_lists(_BLOB_COLUMNS), *self._checkpoint]
        if not self._rows:
            return None
        statement = statements.keep_writes
        if self._query == AsyncPostgresSaver.UPSERT_CHECKPOINT_WRITES_SQL:
            statement = statements.replace_writes
            # A statement changes a row only once: of rows with the same index the last one counts.
            self._rows = list({row[_WRITE_KEY]: row for row in self._rows}.values())
        return statement, [*self._rows[0][:_WRITE_KEY], *self._to_lists(_WRITE_COLUMNS)]

    def _to_lists(self, columns: range) -> list[list[Any]]:
        return [[row[column] for row in self._rows] for column in columns]


class FencedPostgresSaver(AsyncPostgresSaver):
    """Refuses the writes of a run that another process has taken over; waits while the database is away.

    The check locks the run's row: a takeover waits for a checkpoint that is being stored, and a checkpoint
    that comes later is refused.
    """

    checks_epoch = True

    def __init__(
        self,
        pool: AsyncConnectionPool[AsyncConnection[DictRow]],
        serde: SerializerProtocol,
        runs_schema: str,
    ) -> None:
        super().__init__(pool, serde=serde)
        self._statements = _Statements(runs_schema)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        run_metadata = {**(config.get("metadata") or {}), **metadata}
        with _fencing({**config, "metadata": run_metadata}):
            return await retry_while_away(
                lambda: super(FencedPostgresSaver, self).aput(config, checkpoint, metadata, new_versions)
            )

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        with _fencing(config):
            await retry_while_away(
                lambda: super(FencedPostgresSaver, self).aput_writes(config, writes, task_id, task_path)
            )

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await retry_while_away(lambda: super(FencedPostgresSaver, self).aget_tuple(config))

    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[AsyncCursor[DictRow]]:
        context = _writing.get()
        if context is None:
            async with super()._cursor(pipeline=pipeline) as cursor:
                yield cursor
            return
        writes = _JoinedWrites()
        yield cast(AsyncCursor[DictRow], writes)
        joined = writes.join(self._statements)
        if joined is None:
            return
        statement, values = joined
        fence = (escape_text(context.run_id), context.epoch)
        try:
            async with _ainternal.get_connection(self.conn) as connection:
                await connection.execute(statement, [*fence, *values], binary=True)
        except DatabaseError as error:
            if error.sqlstate != _STALE_EPOCH:
                raise
            raise Fenced("The run has another owner now.") from None
