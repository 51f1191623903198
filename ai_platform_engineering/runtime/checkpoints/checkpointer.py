"""Opens the graph's checkpointer and store on the configured database, and checks it by a real call."""

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import StorageSettings
from ai_platform_engineering.runtime.checkpoints.backend import (
    BackendOpener,
    BackendOptions,
    OpenBackend,
    import_optional,
)
from ai_platform_engineering.runtime.checkpoints.database_choice import (
    DatabaseChoice,
    choose_checkpoint_database,
    choose_store_database,
)
from ai_platform_engineering.runtime.checkpoints.memory import open_memory

log = logging.getLogger(__name__)

CHECKPOINT_FILE = "checkpoints.db"
FIRST_ANSWER_SECONDS = 5.0
SETUP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpointer and store of a graph; `problem` says why memory replaces the configured database."""

    saver: BaseCheckpointSaver[Any]
    store: BaseStore
    backend: str
    problem: str | None
    _backend: OpenBackend
    _stack: AsyncExitStack

    async def prune(self, thread_id: str, *, idle: bool) -> None:
        """Deletes checkpoints that the next turn does not need.

        For an `idle` thread (its run is over, no request is pending) also those of sub-graphs."""
        try:
            await self._backend.prune(thread_id, idle)
        except Exception as error:  # noqa: BLE001 - the turn is stored; the next prune deletes the rest
            log.warning(
                "Old checkpoints were not removed: %s", type(error).__name__, extra={"thread_id": thread_id}
            )

    async def aclose(self) -> None:
        await self._stack.aclose()


async def open_checkpoints(
    settings: StorageSettings, home: Path, *, limit: float = FIRST_ANSWER_SECONDS
) -> Checkpoints:
    """Opens the configured database; memory, with a warning, if it does not answer in `limit` seconds."""
    choice = _set_default_path(choose_checkpoint_database(settings), home)
    store_choice = _set_default_path(choose_store_database(settings), home)
    options = BackendOptions(limit, settings.ttl_minutes)
    stack = AsyncExitStack()
    try:
        try:
            backend = await _open_backend(choice, options, stack)
            if store_choice.backend != choice.backend:
                store_backend = await _open_backend(store_choice, options, stack)
                backend = replace(backend, store=store_backend.store)
        except BaseException:
            await stack.aclose()
            raise
    except _Unavailable as unavailable:
        problem = f"{unavailable} Conversations are kept in memory and are lost when the server stops."
        if settings.required:
            raise ConfigurationError(f"{unavailable} STORAGE_REQUIRED forbids to go on without it.") from None
        log.warning("%s", problem)
        memory = await open_memory(DatabaseChoice("memory"), options, stack)
        return Checkpoints(memory.saver, memory.store, "memory", problem, memory, stack)
    return Checkpoints(backend.saver, backend.store, choice.backend, None, backend, stack)


class _Unavailable(Exception):
    """The database cannot be used; the text names it without its password."""


async def _open_backend(
    choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack
) -> OpenBackend:
    open_backend = _import_opener(choice)
    try:
        async with asyncio.timeout(SETUP_SECONDS):
            backend = await open_backend(choice, options, stack)
        # A saver connects late: only an answer shows that it works.
        async with asyncio.timeout(options.timeout_seconds):
            await backend.saver.aget_tuple(
                {"configurable": {"thread_id": "caipe-start", "checkpoint_ns": ""}}
            )
        return backend
    except ConfigurationError:
        raise
    # Five client libraries have no common base class; only the type is told: a text may quote the address.
    except Exception as error:  # noqa: BLE001
        raise _Unavailable(f"{choice.label} cannot be used ({type(error).__name__}).") from None


def _import_opener(choice: DatabaseChoice) -> BackendOpener:
    """The function that opens the backend; its module is imported only when it is configured."""
    match choice.backend:
        case "memory":
            return open_memory
        case "sqlite":
            from ai_platform_engineering.runtime.checkpoints.sqlite import open_sqlite

            return open_sqlite
        case "postgres":
            import_optional("langgraph.checkpoint.postgres.aio", "postgres")
            from ai_platform_engineering.runtime.checkpoints.postgres import open_postgres

            return open_postgres
        case "redis":
            from ai_platform_engineering.runtime.checkpoints.redis import open_redis

            return open_redis
        case "mongodb":
            import_optional("langgraph.checkpoint.mongodb", "mongodb")
            import_optional("langgraph.store.mongodb", "mongodb")
            from ai_platform_engineering.runtime.checkpoints.mongodb import open_mongodb

            return open_mongodb


def _set_default_path(choice: DatabaseChoice, home: Path) -> DatabaseChoice:
    if choice.backend == "sqlite" and not choice.address:
        return replace(choice, address=str(home / CHECKPOINT_FILE))
    return choice
