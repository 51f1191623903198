"""The embedder that runs the embedded model in a worker."""

import json
import math
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from ai_platform_engineering.knowledge_bases.indexing.embedded_models import DIMENSIONS, EmbeddedModel
from ai_platform_engineering.knowledge_bases.workers.running_worker import RunningWorker
from ai_platform_engineering.knowledge_bases.workers.worker_errors import WorkerFailed
from ai_platform_engineering.knowledge_bases.workers.worker_process import Call, WorkerOptions, WorkerProcess

_QUERY_TEXTS = 2  # at most; more are documents
_TEXTS_PER_CALL = 64
_MAX_TEXT_CHARS = 32_000  # the models read 512 tokens at most
_START_SECONDS = 120.0  # the graph of the model is built once
_QUERY_SECONDS = 30.0
_DOCUMENTS_SECONDS = 900.0  # with a low priority on a busy machine
_VECTOR = struct.Struct(f"<{DIMENSIONS}f")


class EmbeddingProcess:
    """`Embedder` over a worker. `threads`: that embed documents, each on one core."""

    dimensions = DIMENSIONS

    def __init__(
        self,
        model: EmbeddedModel,
        cache: Path,
        options: WorkerOptions | None = None,
        *,
        threads: int | None = None,
    ) -> None:
        self.name = model.index_name
        self._model = model
        self._cache = cache.absolute()
        self._threads = threads or _choose_threads()
        self._worker = WorkerProcess(
            "embedding", options, prepare=self._prepare, prepare_seconds=_START_SECONDS
        )

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if len(texts) <= _QUERY_TEXTS:
            call = Call("embed_query", {}, _encode_texts(texts), _QUERY_SECONDS, attempts=2)
            return await self._call(call, len(texts))
        vectors: list[list[float]] = []
        for start in range(0, len(texts), _TEXTS_PER_CALL):
            batch = texts[start : start + _TEXTS_PER_CALL]
            call = Call("embed", {}, _encode_texts(batch), _DOCUMENTS_SECONDS, attempts=2, patient=True)
            vectors += await self._call(call, len(batch))
        return vectors

    async def close(self) -> None:
        await self._worker.aclose()

    async def _prepare(self, running: RunningWorker) -> None:
        await running.call(
            "open", {"model": self._model.name, "cache": str(self._cache), "threads": self._threads}
        )

    async def _call(self, call: Call, count: int) -> list[list[float]]:
        reply = await self._worker.call(call)
        if len(reply.body) != count * _VECTOR.size:
            raise WorkerFailed("The embedding worker gave other vectors than it was asked for.")
        vectors = [list(numbers) for numbers in _VECTOR.iter_unpack(reply.body)]
        if not all(all(map(math.isfinite, vector)) for vector in vectors):
            raise WorkerFailed("The embedding worker gave vectors with numbers that are none.")
        return vectors


def _encode_texts(texts: Sequence[str]) -> bytes:
    return json.dumps([text[:_MAX_TEXT_CHARS] for text in texts]).encode()


def _choose_threads() -> int:
    """All cores, at the lowest priority: a question has threads of its own and comes first."""
    return min(4, os.cpu_count() or 1)
