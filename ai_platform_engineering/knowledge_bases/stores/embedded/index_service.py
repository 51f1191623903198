"""The index worker: it searches, and keeps the indexes in step with the rows."""

import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ai_platform_engineering.knowledge_bases.access import Viewer
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_search import SearchRequest
from ai_platform_engineering.knowledge_bases.stores.embedded.search_engine import SearchEngine
from ai_platform_engineering.knowledge_bases.workers.frames import Reply
from ai_platform_engineering.knowledge_bases.workers.worker_server import Arguments, Handler

_READERS = 4


class IndexService:
    """`open` with a folder, then searches and updates; an update has a thread of its own."""

    def __init__(self) -> None:
        self._engine: SearchEngine | None = None
        writer = ThreadPoolExecutor(1, "index-writer")
        readers = ThreadPoolExecutor(_READERS, "index-reader")
        self.handlers: Mapping[str, Handler] = {
            "open": Handler(self._open, writer),
            "update": Handler(self._update, writer),
            "search": Handler(self._search, readers),
        }

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

    def _open(self, arguments: Arguments, _: bytes) -> Reply:
        self._engine = SearchEngine(
            Path(arguments["folder"]),
            readers=_READERS + 1,
            writes=arguments["writes"],
            rebuild=arguments["rebuild"],
        )
        return Reply()

    def _update(self, arguments: Arguments, _: bytes) -> Reply:
        assert self._engine is not None
        self._engine.update(
            model=arguments["model"],
            removed_vectors=arguments["removed_vectors"],
            dropped_models=arguments["dropped_models"],
        )
        return Reply()

    def _search(self, arguments: Arguments, body: bytes) -> Reply:
        assert self._engine is not None
        vector = None
        if body:
            vector = struct.unpack(f"<{len(body) // 4}f", body)
        request = SearchRequest(
            query=arguments["query"],
            vector=vector,
            model=arguments["model"],
            datasources=arguments["datasources"],
            filters=arguments["filters"],
            limit=arguments["limit"],
            mode=arguments["mode"],
            viewer=Viewer(tuple(arguments["viewer_names"]), sees_all=arguments["sees_all"]),
        )
        hits = self._engine.search(request)
        rows: list[tuple[object, ...]] = []
        for hit in hits:
            scores = (hit.word_score, hit.meaning_score)
            rows.append((hit.document_id, hit.ordinal, hit.score, hit.other_ordinals, scores))
        return Reply({"hits": rows})


def create_service() -> IndexService:
    return IndexService()
