"""The lexical index and the vector indexes of a folder, which follow the rows of its database.

The rows are the truth and are written by another process; here they are only read.
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.files import sqlite_file
from ai_platform_engineering.knowledge_bases.stores.embedded import lexical_index, sqlite_reads, sqlite_tables
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_search import SearchRequest, search
from ai_platform_engineering.knowledge_bases.stores.embedded.vector_indexes import VectorIndexes
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Hit

log = logging.getLogger(__name__)

_LOCK_SECONDS = 20.0  # for the writer before this one, which is ending


class SearchEngine:
    """Searches the folder of an embedded store. `writes`: whether it may change the indexes; one that may not
    reads what another process has written.

    `update` is called by one thread at a time, `search` by several at any time."""

    def __init__(self, folder: Path, *, readers: int, writes: bool, rebuild: bool = False) -> None:
        """`rebuild`: the indexes of the folder are thrown away first. Raises ConfigurationError."""
        self._folder = folder
        self._writes = writes
        self._lock: int | None = None
        if writes:
            self._lock = _wait_for_lock(folder / "index.lock")
        if rebuild:
            _remove_indexes(folder)
        self._lexical_folder = folder / "lexical"
        self._lexical: lexical_index.LexicalIndex | None = None
        self._lexical_lock = threading.Lock()
        self._indexed_generation = 0  # that a reader sees
        self._indexed_up_to = 0  # every document up to this number is in the lexical index
        self._readers = sqlite_tables.ReaderPool(folder / sqlite_tables.DATABASE_NAME, readers)
        self._vector_indexes = VectorIndexes(folder, writes=writes)
        if writes:
            with self._readers.connection() as db:
                self._lexical = self._open_lexical_index(db)
                for model in sqlite_reads.select_purged_models(db):
                    self._vector_indexes.drop(model)

    def update(
        self, *, model: str = "", removed_vectors: Sequence[int] = (), dropped_models: Sequence[int] = ()
    ) -> None:
        """Takes in what was committed since the last time: documents, and the vectors of a model."""
        assert self._lexical is not None
        for dropped in dropped_models:
            self._vector_indexes.drop(dropped)
        with self._readers.connection() as db:
            self._index_documents(db, self._lexical)
            self._vector_indexes.remove(removed_vectors)
            model_row = sqlite_reads.find_model(db, model)
            if model_row is not None:
                self._vector_indexes.follow(db, *model_row)

    def search(self, request: SearchRequest) -> list[Hit]:
        with self._readers.connection() as db:
            lexical = self._lexical
            if not self._writes:
                lexical = self._read_lexical_index(db)
            if lexical is None:
                return []
            return search(db, lexical, self._vector_indexes, request)

    def close(self) -> None:
        """Saves the vectors that are only in memory, and closes; no search runs any more."""
        if self._writes:
            self._vector_indexes.save(all_of_them=True)
        if self._lexical is not None:
            self._lexical.close()
        self._readers.close()
        if self._lock is not None:
            os.close(self._lock)

    # --- the lexical index of the writer

    def _open_lexical_index(self, db: sqlite3.Connection) -> lexical_index.LexicalIndex:
        """The index with every document of the rows: a crash may have left some out, or files are missing."""
        index = lexical_index.open_index(self._lexical_folder, writes=True)
        self._index_since(db, index, sqlite_reads.find_indexed_generation(db))
        if index.size != sqlite_reads.count_all_chunks(db):
            log.warning("The lexical index does not fit the documents and is built again.")
            index.close()
            index = lexical_index.create_empty_index(self._lexical_folder)
            self._index_since(db, index, 0)
        return index

    def _index_since(
        self, db: sqlite3.Connection, index: lexical_index.LexicalIndex, generation: int
    ) -> None:
        count = 0
        for number, entries in sqlite_reads.select_unindexed(db, generation):
            index.delete([number])
            index.add(entries)
            count += 1
        self._commit(db, index, count)

    def _index_documents(self, db: sqlite3.Connection, index: lexical_index.LexicalIndex) -> None:
        """Indexes the documents that are new: a changed one has a new number."""
        count = 0
        for _, entries in sqlite_reads.select_entries_after(db, self._indexed_up_to):
            index.add(entries)
            count += 1
        self._commit(db, index, count)

    def _commit(self, db: sqlite3.Connection, index: lexical_index.LexicalIndex, added: int) -> None:
        deleted = sqlite_reads.select_deleted_documents(db)
        if added or deleted:
            index.delete(deleted)
            index.commit()
        self._indexed_up_to = sqlite_reads.find_last_document_number(db)

    # --- the lexical index of a reader

    def _read_lexical_index(self, db: sqlite3.Connection) -> lexical_index.LexicalIndex | None:
        """The index as another process has committed it; None as long as there is none."""
        indexed = sqlite_reads.find_indexed_generation(db)
        with self._lexical_lock:
            if self._lexical is None:
                if not lexical_index.index_exists(self._lexical_folder):
                    return None
                self._lexical = lexical_index.open_index(self._lexical_folder, writes=False)
            elif indexed != self._indexed_generation:
                try:
                    self._lexical.reload()
                except ValueError:  # built again meanwhile
                    self._lexical = lexical_index.open_index(self._lexical_folder, writes=False)
            self._indexed_generation = indexed
            return self._lexical


def _wait_for_lock(path: Path) -> int:
    """The lock of the process that changes the indexes: two at once would destroy them."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        lock = sqlite_file.acquire_lock(path)
        if lock is not None:
            return lock
        if time.monotonic() > deadline:
            raise ConfigurationError("Another process is changing the index of the knowledge base.")
        time.sleep(0.02)


def _remove_indexes(folder: Path) -> None:
    log.warning("the indexes of the knowledge base are built again from its documents")
    lexical_index.remove_index(folder / "lexical")
    for path in folder.glob("vectors-*.usearch"):
        path.unlink(missing_ok=True)
