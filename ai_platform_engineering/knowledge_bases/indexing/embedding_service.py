"""The embedding worker: the embedded model, for questions at once and for documents in the background."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ai_platform_engineering.knowledge_bases.indexing.minilm import MiniLM
from ai_platform_engineering.knowledge_bases.workers import priority
from ai_platform_engineering.knowledge_bases.workers.frames import Reply
from ai_platform_engineering.knowledge_bases.workers.worker_server import Arguments, Handler

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_BATCH = 4  # texts at once: more are no faster, and need more memory
_QUERY_THREADS = 2


class EmbeddingService:
    """`open` with the folder of the model's graph and a number of threads, then texts. A question has a
    thread of its own with an ordinary priority, so it does not wait behind documents."""

    def __init__(self) -> None:
        self._model: MiniLM | None = None
        self._threads = 1
        # The first loads the model, at the priority of a question: one may wait for it.
        queries = ThreadPoolExecutor(_QUERY_THREADS, "embedding-query")
        self._calls = ThreadPoolExecutor(1, "embedding-call")
        self._batches: ThreadPoolExecutor | None = None
        self.handlers: Mapping[str, Handler] = {
            "open": Handler(self._open, queries),
            "embed_query": Handler(self._embed_query, queries),
            "embed": Handler(self._embed_documents, self._calls),
        }

    def close(self) -> None:
        if self._batches is not None:
            self._batches.shutdown()

    def _open(self, arguments: Arguments, _: bytes) -> Reply:
        self._batches = ThreadPoolExecutor(
            arguments["threads"],
            "embedding-batch",
            initializer=priority.lower_priority,
            initargs=(priority.EMBEDDING,),
        )
        self._model = MiniLM(Path(arguments["cache"]))
        self._model.load()
        return Reply()

    def _embed_query(self, _: Arguments, body: bytes) -> Reply:
        assert self._model is not None
        return _to_reply([self._model.embed(_read_texts(body))])

    def _embed_documents(self, _: Arguments, body: bytes) -> Reply:
        import numpy as np

        assert self._model is not None
        assert self._batches is not None
        texts = _read_texts(body)
        by_length = sorted(range(len(texts)), key=lambda index: len(texts[index]))  # little padding
        batches = [by_length[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
        futures = [
            self._batches.submit(self._model.embed, [texts[index] for index in batch]) for batch in batches
        ]
        rows = np.concatenate([future.result() for future in futures])
        vectors = np.empty_like(rows)
        vectors[by_length] = rows
        return _to_reply([vectors])


def _read_texts(body: bytes) -> list[str]:
    texts: list[str] = json.loads(body)
    return texts


def _to_reply(arrays: "Sequence[npt.NDArray[np.float32]]") -> Reply:
    """The rows one after the other, as little-endian numbers of four bytes."""
    return Reply(body=b"".join(array.astype("<f4").tobytes() for array in arrays))


def create_service() -> EmbeddingService:
    return EmbeddingService()
