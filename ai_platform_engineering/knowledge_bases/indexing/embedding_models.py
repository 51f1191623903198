"""Which embedding model answers: the configured one, or the model before it until the new vectors are
complete."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore, Vector

if TYPE_CHECKING:
    from ai_platform_engineering.knowledge_bases.indexing.embeddings import Embedder

log = logging.getLogger(__name__)

_QUERY_SECONDS = 10.0  # to embed a query; after that the search is lexical only
_TRUST_SECONDS = 10.0  # so long the configured model is taken for complete without looking again
_RETRY_SECONDS = 60.0  # before a model that failed is asked again, while another can answer


@dataclass(frozen=True, slots=True)
class QueryVector:
    """The vector of a query, and the model that made it."""

    model: str
    vector: Vector


class EmbeddingModels:
    """The embedders of a knowledge base. `configured`: whose vectors the index is to have.
    `create_embedder`: gives the embedder of another model that an index names, None when it cannot be
    asked."""

    def __init__(
        self,
        store: KnowledgeStore,
        configured: "Embedder",
        create_embedder: "Callable[[str], Embedder | None]" = lambda _: None,
    ) -> None:
        self.configured = configured
        self._store = store
        self._create_embedder = create_embedder
        self._previous: Embedder | None = None
        self._previous_failed_at: float | None = None
        self._complete_until = 0.0
        self._is_purged = False  # also what a process before this one did not get done
        self._previous_queries = 0  # that search with the vectors of the model before
        self._no_previous_query = asyncio.Event()
        self._no_previous_query.set()

    @asynccontextmanager
    async def embed_query(self, query: str) -> AsyncIterator[QueryVector | None]:
        """The query's vector, or None when no model can be asked. Its model's vectors stay at least as long
        as the context."""
        previous = await self.find_previous()
        if previous is None:
            yield await self._embed(self.configured, query)
            return
        self._previous_queries += 1
        self._no_previous_query.clear()
        try:
            vector = await self._embed(previous, query)
            if vector is None:  # the new vectors as far as they go
                self._previous_failed_at = time.monotonic()
                vector = await self._embed(self.configured, query)
            yield vector
        finally:
            self._previous_queries -= 1
            if not self._previous_queries:
                self._no_previous_query.set()

    async def find_previous(self) -> "Embedder | None":
        """The embedder of the model that answers until the configured one is complete; None when there is
        none, or it cannot be asked now."""
        if time.monotonic() < self._complete_until:
            return None
        models = await self._store.list_models()
        complete_names = [model.name for model in models if model.complete]
        if self.configured.name in complete_names:
            self._complete_until = time.monotonic() + _TRUST_SECONDS
            return None
        if self._previous_failed_at is not None:
            if time.monotonic() < self._previous_failed_at + _RETRY_SECONDS:
                return None
            self._previous_failed_at = None
        for name in reversed(complete_names):
            if self._open_previous(name):
                return self._previous
        return None

    def leave_out_previous(self) -> None:
        """Does without the model before for a while, since it failed."""
        self._previous_failed_at = time.monotonic()

    async def finish_change(self) -> None:
        """Has the configured model answer, since its vectors are complete, and purges those of others."""
        models = await self._store.list_models()
        current = next((model for model in models if model.name == self.configured.name), None)
        if current is None:  # there is no chunk at all
            return
        if not current.complete:
            await self._store.mark_complete(current.name)
            if len(models) > 1:
                log.info("the embedding model %s answers from now on", current.name)
        self._complete_until = time.monotonic() + _TRUST_SECONDS
        if len(models) > 1:
            self._is_purged = False
        await self.purge_others()

    async def purge_others(self) -> None:
        """Purges the vectors of other models, if some may be left and no process uses them."""
        if self._is_purged:
            return
        # A search that began with the old vectors ends with them.
        await self._no_previous_query.wait()
        await self._close_previous()
        self._is_purged = await self._store.purge_models(self.configured.name)

    async def keep_model(self) -> None:
        """Says that this process uses the configured model."""
        await self._store.keep_model(self.configured.name)

    async def close(self) -> None:
        await self._close_previous()
        await self.configured.close()

    def _open_previous(self, name: str) -> bool:
        if self._previous is None:
            self._previous = self._create_embedder(name)
            if self._previous is not None:
                log.info("vectors of %s answer until those of %s are complete", name, self.configured.name)
        return self._previous is not None and self._previous.name == name

    async def _close_previous(self) -> None:
        previous, self._previous = self._previous, None
        if previous is not None:
            await previous.close()

    async def _embed(self, embedder: "Embedder", query: str) -> QueryVector | None:
        try:
            async with asyncio.timeout(_QUERY_SECONDS):
                (vector,) = await embedder.embed([query])
                return QueryVector(embedder.name, vector)
        # A model that cannot be loaded or a server that is away: words still find most of it.
        except Exception as error:  # noqa: BLE001
            log.warning("a query has no vector of %s: %s", embedder.name, type(error).__name__)
            return None
