"""Embeds chunks in the background: documents are found by their words before they have vectors.

An index whose vectors are of another model gets new ones the same way; the old ones answer meanwhile."""

import asyncio
import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.task_cancellation import cancel_and_wait
from ai_platform_engineering.knowledge_bases.indexing.embedding_models import EmbeddingModels
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore

if TYPE_CHECKING:
    from ai_platform_engineering.knowledge_bases.indexing.embeddings import Embedder

log = logging.getLogger(__name__)

_BATCH = 64
_COMMIT_EVERY = 8  # batches
_RETRY_DELAYS = (1.0, 5.0, 30.0, 120.0)  # seconds, after failures in a row
_IDLE_SECONDS = 10.0
_MAX_WAIT_SECONDS = 60.0
_KEEP_SECONDS = 60.0  # between two signs that this process uses its model
_LEASE_SECONDS = 180.0  # longer than a batch and the wait for idle time take
_ELSEWHERE_SECONDS = 5.0  # between two looks whether another process still makes vectors
_LOOK_SECONDS = 300.0  # until chunks are looked for of processes that died


class EmbeddingWorker:
    """Embeds chunks without a vector until none is left, and again when it is woken. Of the processes that
    share a store one at a time does so.

    `last_datasource`: embedded after all others, and only while nobody has asked anything for
    `idle_seconds`."""

    def __init__(
        self,
        store: KnowledgeStore,
        models: EmbeddingModels,
        *,
        last_datasource: str = "",
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        self._store = store
        self._models = models
        self._last_datasource = last_datasource
        self._idle_seconds = idle_seconds
        self._asked_at = -math.inf
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

    def note_question(self) -> None:
        """Somebody asks something now: what can wait does."""
        self._asked_at = time.monotonic()

    async def wait_until_idle(self) -> None:
        """Waits until every chunk has a vector, or the worker has failed and will retry later; returns at
        once when it was not started."""
        if self._task is not None:
            await self._idle_event.wait()

    async def aclose(self) -> None:
        if self._task is not None:
            await cancel_and_wait(self._task)

    async def _work(self) -> None:
        failures = 0
        while True:
            await self._wait_for_work()
            self._wake_event.clear()
            is_elsewhere = False
            try:
                is_elsewhere = not await self._embed_all()
                failures = 0
                self.problem = None
            # A model or a server that fails now may work later; lexical search works meanwhile.
            except Exception as error:  # noqa: BLE001
                failures += 1
                if self.problem is None:
                    log.warning("documents get no vectors for now: %s", type(error).__name__)
                self.problem = f"Vectors cannot be made now ({type(error).__name__})."
            if is_elsewhere:
                await self._wait_for_retry(_ELSEWHERE_SECONDS)
            elif not self._wake_event.is_set():
                self._idle_event.set()
            if failures:
                await self._wait_for_retry(_RETRY_DELAYS[min(failures, len(_RETRY_DELAYS)) - 1])

    async def _wait_for_work(self) -> None:
        """Waits until it is woken, and meanwhile says that the model is in use."""
        look_at = time.monotonic() + _LOOK_SECONDS
        while not self._wake_event.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KEEP_SECONDS):
                    await self._wake_event.wait()
            if not self._wake_event.is_set():
                # A database that is away now is back later.
                with contextlib.suppress(CaipeError):
                    await self._models.keep_model()
                    await self._models.purge_others()
                if self._store.is_shared and time.monotonic() >= look_at:
                    self._wake_event.set()

    async def _wait_for_retry(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake_event.wait()
        self._wake_event.set()

    async def _embed_all(self) -> bool:
        """False when another process makes vectors now."""
        batches = 0
        model = self._models.configured.name
        await self._models.keep_model()
        try:
            while await self._store.claim_embedding(model, _LEASE_SECONDS):
                if not await self._embed_next_batch():
                    await self._models.finish_change()
                    return True
                batches += 1
                if batches % _COMMIT_EVERY == 0:
                    await self._store.commit()
                    await self._models.keep_model()
            return False
        finally:
            await asyncio.shield(self._finish(model, commit=batches % _COMMIT_EVERY > 0))

    async def _finish(self, model: str, *, commit: bool) -> None:
        """Commits, and lets others make vectors."""
        if commit:
            await self._store.commit()
        await self._store.release_embedding(model)

    async def _embed_next_batch(self) -> bool:
        """False when every chunk has its vector."""
        if await self._embed_new_for_previous():
            return True
        if await self._embed_batch(self._models.configured, except_of=self._last_datasource):
            return True
        if not self._last_datasource:
            return False
        await self._wait_for_idle_time()
        return await self._embed_batch(self._models.configured)

    async def _wait_for_idle_time(self) -> None:
        """At most a minute: with a question every few seconds a batch is embedded from time to time."""
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        seconds = self._asked_at + self._idle_seconds - time.monotonic()
        while seconds > 0:  # a question may come meanwhile
            await asyncio.sleep(seconds)
            seconds = min(self._asked_at + self._idle_seconds, deadline) - time.monotonic()

    async def _embed_new_for_previous(self) -> bool:
        """Embeds documents that come in while the model changes with the model that answers as well."""
        previous = await self._models.find_previous()
        if previous is None:
            return False
        try:
            return await self._embed_batch(previous)
        # The model before may be gone; the change goes on without it.
        except Exception as error:  # noqa: BLE001
            log.warning(
                "the embedding model %s cannot be asked any more: %s", previous.name, type(error).__name__
            )
            self._models.leave_out_previous()
            return False

    async def _embed_batch(self, embedder: "Embedder", *, except_of: str = "") -> bool:
        """False when no chunk lacks a vector of the embedder. `except_of`: a datasource that is left out."""
        chunks = await self._store.list_chunks_without_vector(embedder.name, _BATCH, except_of=except_of)
        if chunks:
            vectors = await embedder.embed([chunk.text for chunk in chunks])
            await self._store.put_vectors(embedder.name, list(zip(chunks, vectors, strict=True)))
        return bool(chunks)
