"""The vector indexes of all embedding models, kept in step with the database."""

import logging
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ai_platform_engineering.knowledge_bases.stores.embedded import sqlite_reads
from ai_platform_engineering.knowledge_bases.stores.embedded.vector_search import AllowedVectors

if TYPE_CHECKING:
    from ai_platform_engineering.knowledge_bases.stores.embedded.vector_index import VectorIndex

log = logging.getLogger(__name__)

# A crash costs at most the time to add this many again.
SAVE_AFTER = 2_000
_ROWS = 5_000  # read at once


class VectorIndexes:
    """Vector indexes by model, each loaded when it is first needed. A vector without a row is ignored where
    rows are looked up."""

    def __init__(self, folder: Path, *, writes: bool) -> None:
        self._folder = folder
        self._writes = writes
        self._indexes: dict[int, VectorIndex] = {}
        self._complete_up_to: dict[int, int] = {}  # by model: the number of a vector
        self._unsaved: dict[int, int] = {}  # by model: changes since it was saved
        self._lock = threading.Lock()
        self.allowed_vectors = AllowedVectors()

    def get_index(self, db: sqlite3.Connection, model: int, dimensions: int) -> "VectorIndex":
        """The index of a model, with every vector that `db` sees."""
        with self._lock:
            index = self._indexes.get(model)
            if index is None:
                index = self._load(db, model, dimensions)
                self._indexes[model] = index
            if not self._writes:  # another process does: this one follows
                self._add_new_rows(db, model, index)
            return index

    def follow(self, db: sqlite3.Connection, model: int, dimensions: int) -> None:
        """Adds the vectors of a model that were written to `db` since the last time."""
        index = self.get_index(db, model, dimensions)
        self._count_changes(model, self._add_new_rows(db, model, index))

    def remove(self, numbers: Sequence[int]) -> None:
        for model, index in list(self._indexes.items()):  # a reader may load another meanwhile
            index.remove(numbers)
            self._count_changes(model, len(numbers))

    def drop(self, model: int) -> None:
        """Forgets a model whose vectors are deleted, and removes the file of its index."""
        with self._lock:
            self._indexes.pop(model, None)
            self._complete_up_to.pop(model, None)
            self._unsaved.pop(model, None)
            self._path(model).unlink(missing_ok=True)

    def save(self, *, all_of_them: bool = False) -> None:
        """Saves the indexes with enough changes, or all that have any."""
        least = SAVE_AFTER
        if all_of_them:
            least = 1
        for model, count in list(self._unsaved.items()):
            if count >= least:
                self._indexes[model].save(self._path(model))
                self._unsaved[model] = 0

    def _load(self, db: sqlite3.Connection, model: int, dimensions: int) -> "VectorIndex":
        from ai_platform_engineering.knowledge_bases.stores.embedded.vector_index import load_index

        index = load_index(dimensions, self._path(model))
        indexed = set(index.numbers().tolist())
        if self._writes:
            stored = {row[0] for row in db.execute("SELECT number FROM vectors WHERE model = ?", (model,))}
            self._repair(db, model, index, deleted=indexed - stored, missing=sorted(stored - indexed))
            self._complete_up_to[model] = sqlite_reads.find_last_vector_number(db)
        else:
            self._complete_up_to[model] = max(indexed, default=0)
        return index

    def _repair(
        self,
        db: sqlite3.Connection,
        model: int,
        index: "VectorIndex",
        *,
        deleted: set[int],
        missing: Sequence[int],
    ) -> None:
        """Removes vectors without a row, and adds those that were not saved before a crash."""
        if (deleted or missing) and self._path(model).exists():
            log.info(
                "vectors of model %d: %d to add and %d to remove since they were saved",
                model,
                len(missing),
                len(deleted),
            )
        index.remove(deleted)
        for start in range(0, len(missing), _ROWS):
            batch = missing[start : start + _ROWS]
            numbers = set(batch)
            rows = sqlite_reads.select_vectors_between(db, model, batch[0], batch[-1])
            _add_rows(index, [row for row in rows if row[0] in numbers])
        self._unsaved[model] = len(deleted) + len(missing)

    def _add_new_rows(self, db: sqlite3.Connection, model: int, index: "VectorIndex") -> int:
        """Adds what another process has written; returns how many vectors that are."""
        last = sqlite_reads.find_last_vector_number(db)
        count = 0
        while self._complete_up_to[model] < last:
            first = self._complete_up_to[model] + 1
            end = min(last, self._complete_up_to[model] + _ROWS)
            rows = sqlite_reads.select_vectors_between(db, model, first, end)
            _add_rows(index, rows)
            count += len(rows)
            self._complete_up_to[model] = end
        return count

    def _count_changes(self, model: int, count: int) -> None:
        self._unsaved[model] = self._unsaved.get(model, 0) + count
        self.save()

    def _path(self, model: int) -> Path:
        return self._folder / f"vectors-{model}.usearch"


def _add_rows(index: "VectorIndex", rows: Sequence[tuple[int, bytes]]) -> None:
    from ai_platform_engineering.knowledge_bases.stores.embedded.vector_index import decode_vectors

    if rows:
        numbers, vectors = zip(*rows, strict=True)
        index.add(numbers, decode_vectors(vectors))
