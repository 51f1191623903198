"""The interface of checkpoint backends."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore
from langgraph.store.base.batch import AsyncBatchedBaseStore

from ai_platform_engineering.databases.database_choice import DatabaseChoice


@dataclass(frozen=True, slots=True)
class OpenBackend:
    """An open backend: its checkpointer, its store, and the function that prunes a thread (thread id, idle).

    The exit stack that opened it closes it."""

    saver: BaseCheckpointSaver[Any]
    store: BaseStore
    prune: Callable[[str, bool], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """The timeout of the first answer, and the minutes after which an unused conversation may be deleted.

    `runs_schema`: the schema of the run log, if that is in the same PostgreSQL database."""

    timeout_seconds: float
    ttl_minutes: int | None = None
    runs_schema: str | None = None


class BackendOpener(Protocol):
    """Opens a backend; what has to be closed is pushed on the stack."""

    async def __call__(
        self, choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack
    ) -> OpenBackend: ...


class BackendCheck(Protocol):
    """Tries the database with a real call, and creates nothing there.

    Raises ConfigurationError for a text that is no address, and DatabaseUnavailable."""

    async def __call__(self, choice: DatabaseChoice, options: BackendOptions) -> None: ...


@dataclass(frozen=True, slots=True)
class CheckpointBackend:
    """A kind of database: the check that comes first, and the opening."""

    check: BackendCheck
    open: BackendOpener


async def stop_store_task(store: AsyncBatchedBaseStore) -> None:
    """Cancels the store's background task, which has no public method for it."""
    task = store._task
    if task and not task.done():
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
