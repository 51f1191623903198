"""The chunks that are nearest to a vector, of the documents that a search is about and its viewer may see."""

import sqlite3
import struct
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ai_platform_engineering.knowledge_bases.search.score_fusion import Ranking, ScoredChunk
from ai_platform_engineering.knowledge_bases.stores.embedded import sqlite_reads
from ai_platform_engineering.knowledge_bases.stores.embedded.sqlite_conditions import Condition
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Vector

if TYPE_CHECKING:
    from ai_platform_engineering.knowledge_bases.stores.embedded.vector_index import Numbers, VectorIndex

_MARGIN = 1.25  # times as many neighbours as are needed by the share that meets the condition
_MAX_DEPTH_FACTOR = 8  # times the limit: beyond that, comparing with every allowed vector is cheaper
_KEPT_LISTS = 32
_MAX_KEPT_NUMBERS = 100_000  # in one list: 800 KB


@dataclass(frozen=True, slots=True)
class _ListKey:
    """What a list of allowed vectors depends on. A document that changes gets a new number."""

    model: int
    condition: Condition
    last_document: int
    last_vector: int


class AllowedVectors:
    """The vectors that meet a condition, kept for the next search with the same one.

    A kept list may hold vectors of documents that were deleted since; who uses it checks what it finds."""

    def __init__(self) -> None:
        self._lists: OrderedDict[_ListKey, Numbers] = OrderedDict()
        self._lock = threading.Lock()

    def select(self, db: sqlite3.Connection, model: int, condition: Condition) -> "Numbers":
        from ai_platform_engineering.knowledge_bases.stores.embedded.vector_index import create_numbers

        last_document = sqlite_reads.find_last_document_number(db)
        last_vector = sqlite_reads.find_last_vector_number(db)
        key = _ListKey(model, condition, last_document, last_vector)
        with self._lock:
            numbers = self._lists.get(key)
            if numbers is not None:
                self._lists.move_to_end(key)
                return numbers
        numbers = create_numbers(sqlite_reads.select_vector_numbers(db, model, condition))
        if len(numbers) > _MAX_KEPT_NUMBERS:
            return numbers
        with self._lock:
            self._lists[key] = numbers
            if len(self._lists) > _KEPT_LISTS:
                self._lists.popitem(last=False)
        return numbers


class VectorSearch:
    """The rankings by meaning of one search. `limit`: how many chunks each has."""

    def __init__(
        self,
        db: sqlite3.Connection,
        index: "VectorIndex",
        model: int,
        condition: Condition | None,
        limit: int,
        allowed_vectors: AllowedVectors,
    ) -> None:
        self._db = db
        self._index = index
        self._model = model
        self._condition = condition
        self._limit = limit
        self._allowed_vectors = allowed_vectors
        # By number of the vector: a second ranking has many of the first.
        self._chunks: dict[int, tuple[int, int] | None] = {}
        # How many neighbours to ask for; None: compare with every allowed vector. The second ranking starts
        # with what the first one needed.
        self._depth: int | None = limit
        if condition is not None:
            self._depth = int(_MARGIN * limit)

    def rank(self, vector: Vector) -> Ranking:
        while self._depth is not None:
            neighbours = self._index.search(vector, self._depth)
            chunks = self._find_chunks(neighbours)
            is_complete = self._condition is None or len(neighbours) < self._depth
            if is_complete or len(chunks) >= self._limit:
                return Ranking(chunks[: self._limit])
            self._depth = self._choose_depth(len(chunks), self._depth)
        assert self._condition is not None
        allowed = self._allowed_vectors.select(self._db, self._model, self._condition)
        return Ranking(self._find_chunks(self._index.search_among(vector, allowed, self._limit)))

    def select_vectors(self, chunks: Sequence[int]) -> list[Vector]:
        """The vectors of the chunks that have one."""
        rows = sqlite_reads.select_vectors_of_chunks(self._db, self._model, chunks)
        return [struct.unpack(f"<{len(row) // 2}e", row) for row in rows]

    def _choose_depth(self, found: int, depth: int) -> int | None:
        """How many neighbours it takes, by the share of the last ones that met the condition."""
        needed = int(_MARGIN * self._limit * depth / max(1, found))
        if needed > _MAX_DEPTH_FACTOR * self._limit:
            return None
        return max(needed, depth + 1)

    def _find_chunks(self, neighbours: Sequence[tuple[int, float]]) -> list[ScoredChunk]:
        """The chunks of the vectors, without those that were deleted or do not meet the condition."""
        unknown = [number for number, _ in neighbours if number not in self._chunks]
        if unknown:
            self._chunks.update(dict.fromkeys(unknown))
            self._chunks.update(sqlite_reads.select_chunks_of_vectors(self._db, unknown, self._condition))
        chunks: list[ScoredChunk] = []
        for number, score in neighbours:
            location = self._chunks[number]
            if location is not None:
                chunks.append(ScoredChunk(*location, score))
        return chunks
