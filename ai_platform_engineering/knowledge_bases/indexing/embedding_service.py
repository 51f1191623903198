"""The embedding worker: the embedded model, for questions at once and for documents in the background."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ai_platform_engineering.knowledge_bases.indexing.embedded_models import get_model
from ai_platform_engineering.knowledge_bases.indexing.text_encoder import TextEncoder, return_memory
from ai_platform_engineering.knowledge_bases.workers import priority
from ai_platform_engineering.knowledge_bases.workers.frames import Reply
from ai_platform_engineering.knowledge_bases.workers.worker_server import Arguments, Handler

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_QUERY_THREADS = 2


class EmbeddingService:
    """`open` with a model, the folder of its graph and a number of threads, then texts. A question has a
    thread of its own with an ordinary priority, so it does not wait behind documents."""

    def __init__(self) -> None:
        self._encoder: TextEncoder | None = None
        # The first loads the model, at the priority of a question: one may wait for it.
        queries = ThreadPoolExecutor(_QUERY_THREADS, "embedding-query")
        self._calls = ThreadPoolExecutor(1, "embedding-call")
        self._documents: ThreadPoolExecutor | None = None
        self.handlers: Mapping[str, Handler] = {
            "open": Handler(self._open, queries),
            "embed_query": Handler(self._embed_query, queries),
            "embed": Handler(self._embed_documents, self._calls),
        }

    def close(self) -> None:
        if self._documents is not None:
            self._documents.shutdown()

    def _open(self, arguments: Arguments, _: bytes) -> Reply:
        self._documents = ThreadPoolExecutor(
            arguments["threads"],
            "embedding-document",
            initializer=priority.lower_priority,
            initargs=(priority.EMBEDDING,),
        )
        self._encoder = TextEncoder(get_model(arguments["model"]), Path(arguments["cache"]))
        self._encoder.load()
        return Reply()

    def _embed_query(self, _: Arguments, body: bytes) -> Reply:
        assert self._encoder is not None
        return _to_reply(self._encoder.embed_all(_read_texts(body)))

    def _embed_documents(self, _: Arguments, body: bytes) -> Reply:
        assert self._encoder is not None
        assert self._documents is not None
        vectors = list(self._documents.map(self._encoder.embed, _read_texts(body)))
        return_memory()
        return _to_reply(vectors)


def _read_texts(body: bytes) -> list[str]:
    texts: list[str] = json.loads(body)
    return texts


def _to_reply(vectors: "Sequence[npt.NDArray[np.float32]]") -> Reply:
    """The vectors one after the other, as little-endian numbers of four bytes."""
    return Reply(body=b"".join(vector.astype("<f4").tobytes() for vector in vectors))


def create_service() -> EmbeddingService:
    return EmbeddingService()
