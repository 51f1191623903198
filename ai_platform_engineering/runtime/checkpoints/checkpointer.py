"""Opens the graph's checkpointer and store on the configured database, and checks it by a real call."""

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError, DatabaseUnavailable
from ai_platform_engineering.core.storage_settings import REQUIRED, StorageSettings
from ai_platform_engineering.databases.database_choice import (
    DatabaseChoice,
    choose_checkpoint_database,
    choose_store_database,
)
from ai_platform_engineering.databases.database_clients import import_optional
from ai_platform_engineering.databases.database_failures import unavailable
from ai_platform_engineering.runtime.checkpoints.backend import (
    BackendOptions,
    CheckpointBackend,
    OpenBackend,
)
from ai_platform_engineering.runtime.checkpoints.memory import MEMORY, open_memory

log = logging.getLogger(__name__)

CHECKPOINT_FILE = "checkpoints.db"
_SETUP_SECONDS = 60.0


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
    settings: StorageSettings, home: Path, runs_schema: str | None = None
) -> Checkpoints:
    """Opens the configured database; memory, with a warning, if it cannot be used.

    Raises ConfigurationError for a setting that is wrong by itself, and, with STORAGE_REQUIRED, in the place
    of memory."""
    choice, store_choice = _choose_databases(settings, home)
    options = BackendOptions(settings.timeout_seconds, settings.ttl_minutes, runs_schema)
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
    except DatabaseUnavailable as error:
        if settings.required:
            raise ConfigurationError(error.describe(REQUIRED)) from None
        problem = error.describe("Conversations are kept in memory and are lost when the server stops.")
        memory = await open_memory(DatabaseChoice("memory"), options, stack)
        return Checkpoints(memory.saver, memory.store, "memory", problem, memory, stack)
    return Checkpoints(backend.saver, backend.store, choice.backend, None, backend, stack)


async def check_databases(settings: StorageSettings, home: Path) -> str:
    """Tries the configured databases, creates nothing in them, and returns the name of the first.

    Raises ConfigurationError and DatabaseUnavailable."""
    choice, store_choice = _choose_databases(settings, home)
    options = BackendOptions(settings.timeout_seconds, settings.ttl_minutes)
    for database in {choice.backend: choice, store_choice.backend: store_choice}.values():
        await _check_backend(database, options)
    return choice.label


async def _open_backend(
    choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack
) -> OpenBackend:
    database = await _check_backend(choice, options)
    try:
        async with asyncio.timeout(_SETUP_SECONDS):
            backend = await database.open(choice, options, stack)
        # A saver connects late: only an answer shows that it works.
        async with asyncio.timeout(options.timeout_seconds):
            await backend.saver.aget_tuple(
                {"configurable": {"thread_id": "caipe-start", "checkpoint_ns": ""}}
            )
        return backend
    except CaipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the client libraries have no common base class
        raise _describe_failure(choice, error) from None


async def _check_backend(choice: DatabaseChoice, options: BackendOptions) -> CheckpointBackend:
    """The backend, whose database has answered."""
    try:
        backend = _import_backend(choice)
        await backend.check(choice, options)
    except CaipeError:
        raise
    except Exception as error:  # noqa: BLE001 - also a client that is installed and cannot be imported
        raise _describe_failure(choice, error) from None
    return backend


def _describe_failure(choice: DatabaseChoice, error: Exception) -> DatabaseUnavailable:
    return unavailable(choice.label, error, f"Check {choice.variable or 'CAIPE_HOME'}.")


def _import_backend(choice: DatabaseChoice) -> CheckpointBackend:
    """The backend; its module is imported only when it is configured. Raises DatabaseUnavailable."""
    match choice.backend:
        case "memory":
            return MEMORY
        case "sqlite":
            from ai_platform_engineering.runtime.checkpoints.sqlite import SQLITE

            return SQLITE
        case "postgres":
            for module in ("langgraph.checkpoint.postgres.aio", "psycopg_pool"):
                import_optional(module, "postgres", choice)
            from ai_platform_engineering.runtime.checkpoints.postgres import POSTGRES

            return POSTGRES
        case "redis":
            from ai_platform_engineering.runtime.checkpoints.redis import REDIS

            return REDIS
        case "mongodb":
            for module in ("langgraph.checkpoint.mongodb", "langgraph.store.mongodb"):
                import_optional(module, "mongodb", choice)
            from ai_platform_engineering.runtime.checkpoints.mongodb import MONGODB

            return MONGODB


def _choose_databases(settings: StorageSettings, home: Path) -> tuple[DatabaseChoice, DatabaseChoice]:
    """The databases of the checkpointer and of the store."""
    checkpoints = _set_default_path(choose_checkpoint_database(settings), home)
    store = _set_default_path(choose_store_database(settings), home)
    return checkpoints, store


def _set_default_path(choice: DatabaseChoice, home: Path) -> DatabaseChoice:
    if choice.backend == "sqlite" and not choice.address:
        return replace(choice, address=str(home / CHECKPOINT_FILE))
    return choice
