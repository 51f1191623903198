"""Vectors for chunks, made in the background: documents are found by their words before they have them."""

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore

if TYPE_CHECKING:
    from ai_platform_engineering.knowledge_bases.indexing.embeddings import Embedder

log = logging.getLogger(__name__)

_BATCH = 32
_COMMIT_EVERY = 16  # batches
_AGAIN = (1.0, 5.0, 30.0, 120.0)  # seconds, after failures in a row


class EmbeddingWorker:
    """One worker that goes on as long as chunks wait, and again when it is woken."""

    def __init__(self, store: KnowledgeStore, embedder: "Embedder") -> None:
        self._store, self._embedder = store, embedder
        self._wanted, self._settled = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.problem: str | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._work(), name="vectors of chunks")
        self.wake()

    def wake(self) -> None:
        """More chunks may wait."""
        self._settled.clear()
        self._wanted.set()

    async def wait_until_idle(self) -> None:
        """Waits until no chunk waits, or until the worker has failed and will try again later; not at all where none works."""
        if self._task is not None:
            await self._settled.wait()

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        failures = 0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._drain()
                failures, self.problem = 0, None
            except Exception as error:  # noqa: BLE001 - a model or a server that fails now may work later; words are found meanwhile
                failures += 1
                if self.problem is None:
                    log.warning("documents get no vectors for now: %s", type(error).__name__)
                self.problem = f"Vectors cannot be made now ({type(error).__name__})."
            if not self._wanted.is_set():
                self._settled.set()
            if failures:
                await self._later(_AGAIN[min(failures, len(_AGAIN)) - 1])

    async def _later(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wanted.wait()
        self._wanted.set()

    async def _drain(self) -> None:
        batches = 0
        try:
            while waiting := await self._store.list_chunks_without_vector(self._embedder.name, _BATCH):
                made = await self._embedder.embed([chunk.text for chunk in waiting])
                await self._store.put_vectors(self._embedder.name, list(zip(waiting, made, strict=True)))
                batches += 1
                if batches % _COMMIT_EVERY == 0:
                    await self._store.commit()
        finally:
            if batches % _COMMIT_EVERY:
                await asyncio.shield(self._store.commit())
