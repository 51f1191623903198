"""Embeds chunks in the background: documents are found by their words before they have vectors."""

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
_RETRY_DELAYS = (1.0, 5.0, 30.0, 120.0)  # seconds, after failures in a row


class EmbeddingWorker:
    """Embeds chunks without a vector until none is left, and again when it is woken."""

    def __init__(self, store: KnowledgeStore, embedder: "Embedder") -> None:
        self._store = store
        self._embedder = embedder
        self._wake_event = asyncio.Event()
        self._idle_event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.problem: str | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._work(), name="vectors of chunks")
        self.wake()

    def wake(self) -> None:
        """Looks for chunks without a vector again."""
        self._idle_event.clear()
        self._wake_event.set()

    async def wait_until_idle(self) -> None:
        """Waits until every chunk has a vector, or the worker has failed and will retry later; returns at
        once when it was not started."""
        if self._task is not None:
            await self._idle_event.wait()

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        failures = 0
        while True:
            await self._wake_event.wait()
            self._wake_event.clear()
            try:
                await self._embed_all()
                failures = 0
                self.problem = None
            # A model or a server that fails now may work later; lexical search works meanwhile.
            except Exception as error:  # noqa: BLE001
                failures += 1
                if self.problem is None:
                    log.warning("documents get no vectors for now: %s", type(error).__name__)
                self.problem = f"Vectors cannot be made now ({type(error).__name__})."
            if not self._wake_event.is_set():
                self._idle_event.set()
            if failures:
                await self._wait_for_retry(_RETRY_DELAYS[min(failures, len(_RETRY_DELAYS)) - 1])

    async def _wait_for_retry(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake_event.wait()
        self._wake_event.set()

    async def _embed_all(self) -> None:
        batches = 0
        try:
            while chunks := await self._store.list_chunks_without_vector(self._embedder.name, _BATCH):
                vectors = await self._embedder.embed([chunk.text for chunk in chunks])
                await self._store.put_vectors(self._embedder.name, list(zip(chunks, vectors, strict=True)))
                batches += 1
                if batches % _COMMIT_EVERY == 0:
                    await self._store.commit()
        finally:
            if batches % _COMMIT_EVERY:
                await asyncio.shield(self._store.commit())
