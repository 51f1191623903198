"""The indexes of an embedded store as its process sees them: searched and updated in a worker."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ai_platform_engineering.knowledge_bases.search.score_fusion import MAX_OTHER_CHUNKS
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_search import SearchRequest
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Hit
from ai_platform_engineering.knowledge_bases.workers.running_worker import RunningWorker
from ai_platform_engineering.knowledge_bases.workers.worker_errors import WorkerFailed
from ai_platform_engineering.knowledge_bases.workers.worker_process import Call, WorkerOptions, WorkerProcess

_OPEN_SECONDS = 1800.0  # an index that is lost is built again from all documents
_UPDATE_SECONDS = 1800.0
_CLOSE_SECONDS = 10.0  # to save the vectors that are only in memory
_ATTEMPTS_TO_UPDATE = 3
_CRASHES_UNTIL_REBUILD = 3  # an index file that kills whoever opens it is made again


class IndexProcess:
    """Searches and updates the indexes in a folder. `writes`: whether they may be changed."""

    def __init__(
        self, folder: Path, options: WorkerOptions | None = None, *, writes: bool, search_seconds: float
    ) -> None:
        self._folder = folder.absolute()
        self._writes = writes
        self._search_seconds = search_seconds
        self._worker = WorkerProcess(
            "index",
            options,
            prepare=self._open,
            prepare_seconds=_OPEN_SECONDS,
            close_seconds=_CLOSE_SECONDS,
        )

    async def start(self) -> None:
        """Starts the worker, if it does not run. Raises WorkerFailed."""
        await self._worker.start(seconds=self._search_seconds)

    async def search(self, request: SearchRequest) -> list[Hit]:
        """Raises WorkerFailed, and Refused and ConfigurationError for what cannot be searched."""
        body = b""
        if request.vector is not None:
            body = struct.pack(f"<{len(request.vector)}f", *request.vector)
        arguments = {
            "query": request.query,
            "model": request.model,
            "datasources": list(request.datasources),
            "filters": dict(request.filters),
            "limit": request.limit,
            "mode": request.mode,
            "viewer_names": list(request.viewer.names),
            "sees_all": request.viewer.sees_all,
        }
        reply = await self._worker.call(Call("search", arguments, body, self._search_seconds, attempts=2))
        return _read_hits(reply.result.get("hits"), request.limit)

    async def update(
        self, *, model: str = "", removed_vectors: Sequence[int] = (), dropped_models: Sequence[int] = ()
    ) -> None:
        """Takes in what was committed: documents, and the vectors of a model. `dropped_models`: their
        numbers. Raises WorkerFailed."""
        arguments = {
            "model": model,
            "removed_vectors": list(removed_vectors),
            "dropped_models": list(dropped_models),
        }
        await self._worker.call(
            Call("update", arguments, b"", _UPDATE_SECONDS, attempts=_ATTEMPTS_TO_UPDATE, patient=True)
        )

    async def aclose(self) -> None:
        await self._worker.aclose()

    async def _open(self, running: RunningWorker) -> None:
        rebuild = self._writes and self._worker.crashes >= _CRASHES_UNTIL_REBUILD
        await running.call("open", {"folder": str(self._folder), "writes": self._writes, "rebuild": rebuild})


def _read_hits(rows: Any, limit: int) -> list[Hit]:
    hits: list[Hit] = []
    if not isinstance(rows, list) or len(rows) > limit:
        raise WorkerFailed("The index worker gave an answer that is none.")
    for row in rows:
        match row:
            case [
                str(document_id),
                int(ordinal),
                float(score),
                list(others),
                [(float() | None) as word_score, (float() | None) as meaning_score],
            ] if _are_ordinals(others):
                hits.append(Hit(document_id, ordinal, score, tuple(others), word_score, meaning_score))
            case _:
                raise WorkerFailed("The index worker gave an answer that is none.")
    return hits


def _are_ordinals(values: list[Any]) -> bool:
    return len(values) <= MAX_OTHER_CHUNKS and all(isinstance(value, int) for value in values)
