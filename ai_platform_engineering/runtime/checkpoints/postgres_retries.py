"""Repeats calls of PostgreSQL while it is away: a restart of the database is no reason to fail a run."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from langgraph.store.base import Op, Result
from langgraph.store.postgres.aio import AsyncPostgresStore
from psycopg import OperationalError

from ai_platform_engineering.databases.database_failures import explain_failure

log = logging.getLogger(__name__)

T = TypeVar("T")

_PATIENCE = 60.0
_RETRY_SECONDS = 0.5


async def retry_while_away(call: Callable[[], Awaitable[T]]) -> T:
    """The result of a call that may be repeated: it stores the same, or only reads."""
    give_up_at = time.monotonic() + _PATIENCE
    attempts = 0
    while True:
        try:
            return await call()
        except OperationalError as error:
            if time.monotonic() >= give_up_at:
                raise
            if attempts:  # the first time, only this connection may be broken
                log.warning("a call of the checkpointer waits for the database: %s", explain_failure(error))
                await asyncio.sleep(_RETRY_SECONDS)
            attempts += 1


class RetryingPostgresStore(AsyncPostgresStore):
    """A store whose calls wait while the database is away."""

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        operations = list(ops)
        return await retry_while_away(lambda: super(RetryingPostgresStore, self).abatch(operations))
