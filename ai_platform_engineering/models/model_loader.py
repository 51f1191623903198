"""Chat models that are made in a thread: importing a provider's package takes seconds."""

import asyncio
import threading
from functools import partial

from langchain_core.language_models import BaseChatModel

from ai_platform_engineering.core.import_collections import paused_collections
from ai_platform_engineering.core.settings import ModelSettings
from ai_platform_engineering.models.chat_model import create_chat_model

_MOMENT = 0.05  # seconds
# Their packages are part of every installation.
_BUNDLED_PROVIDERS = frozenset({"openai", "anthropic", "azure", "azure_openai"})
# Threads that import the same packages at the same time can meet in a half-initialised module.
_IMPORT_LOCK = threading.Lock()


async def load_chat_model(settings: ModelSettings, name: str | None = None) -> BaseChatModel:
    """As create_chat_model, without stopping the event loop."""
    return await asyncio.to_thread(_create, settings, name)


def _create(settings: ModelSettings, name: str | None) -> BaseChatModel:
    with _IMPORT_LOCK, paused_collections():
        return create_chat_model(settings, name)


class ModelLoader:
    """Makes each model once, also when many ask for it at the same time."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._models: dict[str | None, BaseChatModel] = {}
        self._tasks: dict[str | None, asyncio.Task[BaseChatModel]] = {}

    def get(self, name: str | None = None) -> BaseChatModel:
        """The model of that name, or the configured one; made now unless it was loaded before."""
        return self._models.get(name) or create_chat_model(self._settings, name)

    async def load(self, name: str | None = None) -> BaseChatModel:
        """As `get`, without stopping the event loop. Raises ConfigurationError."""
        if name in self._models:
            return self._models[name]
        return await asyncio.shield(self.start(name))

    def start(self, name: str | None = None) -> asyncio.Task[BaseChatModel]:
        """Begins to load a model, so that the one who needs it first waits less."""
        task = self._tasks.get(name)
        if task is None:
            task = asyncio.create_task(load_chat_model(self._settings, name), name="loading of a model")
            task.add_done_callback(partial(self._finish, name))
            self._tasks[name] = task
        return task

    def _finish(self, name: str | None, task: asyncio.Task[BaseChatModel]) -> None:
        """Keeps the model. After a failure the next one who needs it tries again."""
        del self._tasks[name]
        if not task.cancelled() and task.exception() is None:
            self._models[name] = task.result()

    async def is_loading(self) -> bool:
        """Whether the configured model takes longer than a moment to load, and there is no doubt of its
        package."""
        task = self._tasks.get(None)
        if task is None or not self._is_bundled():
            return False
        await asyncio.wait({task}, timeout=_MOMENT)
        return not task.done()

    def _is_bundled(self) -> bool:
        return (self._settings.name or "").partition(":")[0] in _BUNDLED_PROVIDERS
