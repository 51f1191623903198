"""A checkpointer on PostgreSQL that checks the epoch of a run in the transaction of each write."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.postgres import _ainternal
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from psycopg import AsyncConnection, AsyncCursor, DatabaseError, sql
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from ai_platform_engineering.core.errors import Fenced
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.databases.postgres_dialect import escape_text
from ai_platform_engineering.runtime.checkpoints.postgres_retries import retry_while_away

_STALE_EPOCH = "CA001"  # the error of the function check_epoch

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
        self._check = sql.SQL("SELECT {}.check_epoch(%s, %s)").format(sql.Identifier(runs_schema))

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
        try:
            async with (
                _ainternal.get_connection(self.conn) as connection,
                connection.transaction(),
                connection.cursor(binary=True, row_factory=dict_row) as cursor,
            ):
                await cursor.execute(self._check, (escape_text(context.run_id), context.epoch))
                yield cursor
        except DatabaseError as error:
            if error.sqlstate != _STALE_EPOCH:
                raise
            raise Fenced("The run has another owner now.") from None
