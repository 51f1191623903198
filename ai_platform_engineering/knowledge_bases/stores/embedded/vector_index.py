"""The vector index of one embedding model: usearch, filled from the rows of the database."""

import logging
import os
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from usearch.index import Index

log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float16]
Numbers = npt.NDArray[np.uint64]  # of vectors
Neighbour = tuple[int, float]  # the number of a vector, and its cosine similarity

# Up to this size, comparing with every vector is as fast as the graph, and exact.
EXACT_SEARCH_LIMIT = 5_000
# Vectors added under one lock: a search waits for one such step at most.
_STEP = 16
# Vectors that are compared at once: each is copied in full precision.
_COMPARED_AT_ONCE = 8_192


class VectorIndex:
    """Vectors by number, in memory. Numbers only grow and are never used twice."""

    def __init__(self, index: "Index") -> None:
        self._index: Any = index
        self._lock = threading.Lock()  # usearch must not be read while it changes

    def __len__(self) -> int:
        return len(self._index)

    def numbers(self) -> Numbers:
        if len(self._index):
            return np.asarray(self._index.keys[:], dtype=np.uint64)
        return np.empty(0, np.uint64)

    def add(self, numbers: Sequence[int], vectors: Floats) -> None:
        keys = np.array(numbers, dtype=np.uint64)
        for start in range(0, len(keys), _STEP):
            with self._lock:
                self._index.add(keys[start : start + _STEP], vectors[start : start + _STEP])

    def remove(self, numbers: Collection[int]) -> None:
        with self._lock:
            for number in numbers:
                self._index.remove(number)

    def search(self, vector: Sequence[float], limit: int) -> list[Neighbour]:
        """The nearest vectors, nearest first."""
        with self._lock:
            if not len(self._index):
                return []
            matches = self._index.search(
                np.array(vector, np.float32), limit, exact=len(self._index) <= EXACT_SEARCH_LIMIT, threads=1
            )
        return _sort_by_distance(matches.keys, matches.distances)

    def search_among(self, vector: Sequence[float], numbers: Numbers, limit: int) -> list[Neighbour]:
        """The nearest of some vectors, by comparing with each of them."""
        query = np.array(vector, np.float32)
        query /= np.linalg.norm(query) or 1.0
        nearest: list[Neighbour] = []
        for start in range(0, len(numbers), _COMPARED_AT_ONCE):
            nearest += self._compare(query, numbers[start : start + _COMPARED_AT_ONCE], limit)
        nearest.sort(key=lambda neighbour: (-neighbour[1], neighbour[0]))
        return nearest[:limit]

    def _compare(self, query: npt.NDArray[np.float32], numbers: Numbers, limit: int) -> list[Neighbour]:
        """The nearest of some vectors. `query` has the length 1."""
        with self._lock:
            keys = numbers[self._index.contains(numbers)]
            if not len(keys):
                return []
            rows = self._index.get(keys, dtype="f32")
        lengths = np.linalg.norm(rows, axis=1)
        distances = 1 - rows @ query / np.where(lengths > 0, lengths, 1.0)
        return _sort_by_distance(keys, distances)[:limit]

    def save(self, path: Path) -> None:
        """Replaces the file as a whole or not at all."""
        new_path = path.with_suffix(".new")
        with self._lock:
            self._index.save(str(new_path))
        with new_path.open("rb") as written:
            os.fsync(written.fileno())
        new_path.replace(path)


def load_index(dimensions: int, saved: Path) -> VectorIndex:
    """The saved index; an empty one when there is none, or when it cannot be read."""
    index = _create_empty(dimensions)
    if saved.exists():
        try:
            index.load(str(saved))
        except RuntimeError as error:
            log.warning("The saved vectors %s cannot be read and are made again: %s", saved.name, error)
            index = _create_empty(dimensions)
        if index.ndim != dimensions:
            index = _create_empty(dimensions)
    return VectorIndex(index)


def _create_empty(dimensions: int) -> Index:
    return Index(
        ndim=dimensions, metric="cos", dtype="f16", connectivity=16, expansion_add=96, expansion_search=96
    )


def create_numbers(numbers: Sequence[int]) -> Numbers:
    return np.array(numbers, dtype=np.uint64)


def decode_vectors(rows: Sequence[bytes]) -> Floats:
    return np.frombuffer(b"".join(rows), "<f2").reshape(len(rows), -1)


def _sort_by_distance(keys: Numbers, distances: npt.NDArray[np.float32]) -> list[Neighbour]:
    order = np.lexsort((keys, distances))
    similarities: list[float] = (1 - distances[order]).tolist()
    return list(zip(keys[order].tolist(), similarities, strict=True))
