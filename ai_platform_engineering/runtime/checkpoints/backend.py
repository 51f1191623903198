"""What a backend gives when it is open, and the sentence when its package is missing."""

import asyncio
import contextlib
import importlib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore
from langgraph.store.base.batch import AsyncBatchedBaseStore

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.runtime.checkpoints.database_choice import DatabaseChoice


@dataclass(frozen=True, slots=True)
class OpenBackend:
    """A checkpointer, a store and how to prune a thread; what has to be closed is on the stack that was handed in."""

    saver: BaseCheckpointSaver[Any]
    store: BaseStore
    prune: Callable[[str, bool], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """How long to wait for a first answer, and after how many minutes an untouched conversation may be forgotten."""

    timeout_seconds: float
    ttl_minutes: int | None = None


class BackendOpener(Protocol):
    async def __call__(
        self, choice: DatabaseChoice, terms: BackendOptions, stack: AsyncExitStack
    ) -> OpenBackend: ...


def import_optional(name: str, extra: str) -> ModuleType:
    """An optional package; a missing one is answered with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        command = f"pip install 'ai-platform-engineering[{extra}]'"
        raise ConfigurationError(
            f"The chosen database needs packages that are not installed. Run: {command}"
        ) from error


async def stop_store_task(store: AsyncBatchedBaseStore) -> None:
    """Ends the store's background task, which has no public end."""
    task = store._task
    if task and not task.done():
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
