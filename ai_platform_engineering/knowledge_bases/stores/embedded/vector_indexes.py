"""The graphs of vectors of all embedding models, kept in step with the database."""

import logging
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ai_platform_engineering.knowledge_bases.stores.embedded import sqlite_reads

if TYPE_CHECKING:
    from ai_platform_engineering.knowledge_bases.stores.embedded.vector_index import VectorIndex

log = logging.getLogger(__name__)

# A crash costs at most the time to add this many again.
SAVE_AFTER = 2_000
_ROWS = 5_000


class VectorIndexes:
    """Made when the first vector is written or looked for. What is in no row any more is dropped where rows are looked up."""

    def __init__(self, folder: Path, *, writes: bool) -> None:
        self._folder, self._writes = folder, writes
        self._graphs: dict[int, VectorIndex] = {}
        self._seen: dict[int, int] = {}  # by model: up to which number of a vector it is complete
        self._unsaved: dict[int, int] = {}
        self._opening = threading.Lock()

    def get_index(self, db: sqlite3.Connection, model: int, dimensions: int) -> "VectorIndex":
        """With every vector that `db` sees."""
        with self._opening:
            found = self._graphs.get(model)
            if found is None:
                found = self._graphs[model] = self._opened(db, model, dimensions)
            if not self._writes:  # another process does: this one follows
                self._catch_up(db, model, found)
            return found

    def add(
        self, db: sqlite3.Connection, model: int, dimensions: int, rows: Sequence[tuple[int, bytes]]
    ) -> None:
        """Vectors that were just written to `db`."""
        graph = self.get_index(db, model, dimensions)
        _add(graph, [row for row in rows if row[0] > self._seen[model]])
        self._seen[model] = max([self._seen[model], *(number for number, _ in rows)])
        self._changed(model, len(rows))

    def remove(self, numbers: Sequence[int]) -> None:
        for model, graph in list(self._graphs.items()):  # a reader may open another
            graph.remove(numbers)
            self._changed(model, len(numbers))

    def clear(self) -> None:
        """They are read again when they are needed."""
        self._graphs.clear()
        self._unsaved.clear()

    def save(self, *, all_of_them: bool = False) -> None:
        for model, count in list(self._unsaved.items()):
            if count >= (1 if all_of_them else SAVE_AFTER):
                self._graphs[model].save(self._path(model))
                self._unsaved[model] = 0

    def _opened(self, db: sqlite3.Connection, model: int, dimensions: int) -> "VectorIndex":
        from ai_platform_engineering.knowledge_bases.stores.embedded.vector_index import load_index

        graph = load_index(dimensions, self._path(model))
        known = set(graph.numbers().tolist())
        if self._writes:
            rows = {row[0] for row in db.execute("SELECT number FROM vectors WHERE model = ?", (model,))}
            self._mend(db, model, graph, known - rows, sorted(rows - known))
        self._seen[model] = (
            sqlite_reads.find_last_vector_number(db) if self._writes else max(known, default=0)
        )
        return graph

    def _mend(
        self, db: sqlite3.Connection, model: int, graph: "VectorIndex", gone: set[int], missing: Sequence[int]
    ) -> None:
        if (gone or missing) and self._path(model).exists():
            log.info(
                "vectors of model %d: %d to add and %d to remove since they were saved",
                model,
                len(missing),
                len(gone),
            )
        graph.remove(gone)
        for start in range(0, len(missing), _ROWS):
            part = missing[start : start + _ROWS]
            wanted = set(part)
            _add(
                graph,
                [
                    row
                    for row in sqlite_reads.select_vectors_between(db, model, part[0], part[-1])
                    if row[0] in wanted
                ],
            )
        self._unsaved[model] = len(gone) + len(missing)

    def _catch_up(self, db: sqlite3.Connection, model: int, graph: "VectorIndex") -> None:
        last = sqlite_reads.find_last_vector_number(db)
        while self._seen[model] < last:
            end = min(last, self._seen[model] + _ROWS)
            _add(graph, sqlite_reads.select_vectors_between(db, model, self._seen[model] + 1, end))
            self._seen[model] = end

    def _changed(self, model: int, count: int) -> None:
        self._unsaved[model] = self._unsaved.get(model, 0) + count
        self.save()

    def _path(self, model: int) -> Path:
        return self._folder / f"vectors-{model}.usearch"


def _add(graph: "VectorIndex", rows: Iterable[tuple[int, bytes]]) -> None:
    from ai_platform_engineering.knowledge_bases.stores.embedded.vector_index import decode_vectors

    if found := list(rows):
        graph.add([number for number, _ in found], decode_vectors([vector for _, vector in found]))
