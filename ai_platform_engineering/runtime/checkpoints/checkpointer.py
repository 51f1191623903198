"""The graph's checkpointer and store on the database the settings choose, checked by a real call when the server starts."""

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
    """What a graph is compiled with; `problem` says why it is memory although a database was chosen."""

    saver: BaseCheckpointSaver[Any]
    store: BaseStore
    backend: str
    problem: str | None
    _opened: OpenBackend
    _stack: AsyncExitStack

    async def prune(self, thread_id: str, *, idle: bool) -> None:
        """Keeps what the next turn needs; `idle` (over, and nothing pending) also forgets the sub-graphs of the turn."""
        try:
            await self._opened.prune(thread_id, idle)
        except Exception as error:  # noqa: BLE001 - the turn is stored; what is left over goes with the next prune
            log.warning(
                "Old checkpoints were not removed: %s", type(error).__name__, extra={"thread_id": thread_id}
            )

    async def aclose(self) -> None:
        await self._stack.aclose()


async def open_checkpoints(
    settings: StorageSettings, home: Path, *, limit: float = FIRST_ANSWER_SECONDS
) -> Checkpoints:
    """Opens what the settings choose; a database that does not answer within `limit` seconds is replaced by memory, with a warning."""
    choice, for_store = (
        _in_home(choose_checkpoint_database(settings), home),
        _in_home(choose_store_database(settings), home),
    )
    terms = BackendOptions(limit, settings.ttl_minutes)
    stack = AsyncExitStack()
    try:
        try:
            opened = await _open(choice, terms, stack)
            if for_store.backend != choice.backend:
                opened = replace(opened, store=(await _open(for_store, terms, stack)).store)
        except BaseException:
            await stack.aclose()
            raise
    except _Unavailable as unavailable:
        problem = f"{unavailable} Conversations are kept in memory and are lost when the server stops."
        if settings.required:
            raise ConfigurationError(f"{unavailable} STORAGE_REQUIRED forbids to go on without it.") from None
        log.warning("%s", problem)
        memory = await open_memory(DatabaseChoice("memory"), terms, stack)
        return Checkpoints(memory.saver, memory.store, "memory", problem, memory, stack)
    return Checkpoints(opened.saver, opened.store, choice.backend, None, opened, stack)


class _Unavailable(Exception):
    """The database cannot be used; the text names it without its password."""


async def _open(choice: DatabaseChoice, terms: BackendOptions, stack: AsyncExitStack) -> OpenBackend:
    opener = _opener(choice)
    try:
        async with asyncio.timeout(SETUP_SECONDS):
            opened = await opener(choice, terms, stack)
        # A saver connects late: only an answer shows that it works.
        async with asyncio.timeout(terms.timeout_seconds):
            await opened.saver.aget_tuple({"configurable": {"thread_id": "caipe-start", "checkpoint_ns": ""}})
        return opened
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - five client libraries; the text may quote the address, so only the type is told
        raise _Unavailable(f"{choice.label} cannot be used ({type(error).__name__}).") from None


def _opener(choice: DatabaseChoice) -> BackendOpener:
    """The backend's module, imported only when it is chosen."""
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


def _in_home(choice: DatabaseChoice, home: Path) -> DatabaseChoice:
    if choice.backend == "sqlite" and not choice.address:
        return replace(choice, address=str(home / CHECKPOINT_FILE))
    return choice
