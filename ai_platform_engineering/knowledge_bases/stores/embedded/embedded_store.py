"""The store in a folder: rows in SQLite are the truth; a lexical index and vector indexes beside them find.

One process writes. Another that opens the folder meanwhile reads, and sees what is committed.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from ai_platform_engineering.knowledge_bases.documents import Document
from ai_platform_engineering.knowledge_bases.stores.embedded import sqlite_reads, sqlite_tables, sqlite_writes
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_search import SearchRequest, search
from ai_platform_engineering.knowledge_bases.stores.embedded.vector_indexes import VectorIndexes
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    ChunkRef,
    Datasource,
    DocumentVersion,
    Hit,
    IngestJob,
    SearchMode,
    Vector,
)
from ai_platform_engineering.runtime.log.sqlite_database import StorageFailed, StorageInUse

log = logging.getLogger(__name__)

T = TypeVar("T")

_READERS = 4
_SETUP_SECONDS = 5.0


class _Executors(NamedTuple):
    """The threads of a store: SQLite takes one writer."""

    writer: ThreadPoolExecutor
    readers: ThreadPoolExecutor


class EmbeddedStore:
    """`KnowledgeStore` in a folder. Imports its search engines when it is opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: int | None = None
        self._db: sqlite3.Connection | None = None
        self._resources = contextlib.ExitStack()  # to close
        self._indexed_generation = 0  # that a reader sees
        self._executors: _Executors | None = None
        self._embedded_up_to: dict[str, int] = {}  # by model: every chunk up to this number has a vector

    @property
    def is_writable(self) -> bool:
        return self._lock is not None

    async def open(self) -> None:
        self._lock = sqlite_tables.acquire_lock(self._folder)
        self._executors = _Executors(
            ThreadPoolExecutor(1, "knowledge-writer"), ThreadPoolExecutor(_READERS, "knowledge-reader")
        )
        try:
            await self._run_in_writer(self._open_files)
        except BaseException:
            await self._shut_down(self._resources.close)
            raise

    async def close(self) -> None:
        """Commits, and closes. Searches that run end first."""
        if self._executors is not None:
            await self._shut_down(self._close_files)

    # --- datasources and jobs

    async def put_datasource(self, datasource: Datasource) -> None:
        await self._write(lambda db: sqlite_writes.put_datasource(db, datasource), commit=True)

    async def list_datasources(self) -> list[Datasource]:
        return await self._read(sqlite_reads.select_datasources)

    async def is_empty(self) -> bool:
        return await self._read(lambda db: db.execute("SELECT 1 FROM documents LIMIT 1").fetchone() is None)

    async def remove_datasource(self, name: str) -> bool:
        def remove(db: sqlite3.Connection) -> bool:
            existed, vectors = sqlite_writes.remove_datasource(db, name)
            self._vector_indexes.remove(vectors)
            return existed

        existed = await self._write(remove)
        await self.commit()
        return existed

    async def put_job(self, job: IngestJob) -> None:
        await self._write(lambda db: sqlite_writes.put_job(db, job), commit=True)

    async def list_jobs(self, *, unfinished: bool = False) -> list[IngestJob]:
        return await self._read(lambda db: sqlite_reads.select_jobs(db, unfinished=unfinished))

    # --- documents

    async def list_versions(self, datasource: str) -> dict[str, DocumentVersion]:
        return await self._read(lambda db: sqlite_reads.select_versions(db, datasource))

    async def put_document(self, document: Document, mark: str = "") -> None:
        def put(db: sqlite3.Connection) -> None:
            number, chunks, removed_vectors = sqlite_writes.put_document(db, document, mark)
            self._vector_indexes.remove(removed_vectors)
            self._lexical.add(sqlite_reads.build_entries(number, chunks, document))

        await self._write(put)

    async def update_mark(self, document_id: str, mark: str) -> None:
        await self._write(lambda db: sqlite_writes.update_mark(db, document_id, mark))

    async def delete_documents(self, document_ids: Collection[str]) -> None:
        def delete(db: sqlite3.Connection) -> None:
            self._vector_indexes.remove(sqlite_writes.delete_documents(db, document_ids))

        await self._write(delete)

    async def commit(self) -> None:
        await self._run_in_writer(lambda: self._with_writer(self._commit))

    async def find_document(self, document_id: str) -> Document | None:
        return await self._read(lambda db: sqlite_reads.select_document(db, document_id))

    async def list_documents(self, datasource: str, *, after: str = "", limit: int = 100) -> list[Document]:
        return await self._read(lambda db: sqlite_reads.select_documents(db, datasource, after, limit))

    # --- vectors and search

    async def list_chunks_without_vector(self, model: str, limit: int) -> list[ChunkRef]:
        def select(db: sqlite3.Connection) -> list[ChunkRef]:
            model_number, _ = sqlite_reads.find_model(db, model) or (0, 0)
            chunks, self._embedded_up_to[model] = sqlite_reads.select_chunks_without_vector(
                db, model_number, self._embedded_up_to.get(model, 0), limit
            )
            return chunks

        return await self._read(select)

    async def put_vectors(self, model: str, vectors: Sequence[tuple[ChunkRef, Vector]]) -> None:
        def put(db: sqlite3.Connection) -> None:
            from ai_platform_engineering.knowledge_bases.stores.embedded.vector_index import encode_vector

            dimensions = len(vectors[0][1])
            encoded = [(ref, encode_vector(vector)) for ref, vector in vectors]
            number, new_vectors, old_vectors = sqlite_writes.run_in_savepoint(
                db, lambda: sqlite_writes.put_vectors(db, model, dimensions, encoded)
            )
            db.execute("COMMIT")  # before the index: it must have no vector that the rows may lose
            self._vector_indexes.remove(old_vectors)
            self._vector_indexes.add(db, number, dimensions, new_vectors)

        if vectors:
            await self._run_in_writer(lambda: self._with_writer(put))

    async def search(
        self,
        query: str,
        vector: Vector | None = None,
        *,
        model: str = "",
        datasources: Collection[str] = (),
        filters: Mapping[str, str] | None = None,
        limit: int = 10,
        mode: SearchMode = "hybrid",
    ) -> list[Hit]:
        request = SearchRequest(query, vector, model, tuple(datasources), dict(filters or {}), limit, mode)

        def find(db: sqlite3.Connection) -> list[Hit]:
            self._reload_index(db)
            return search(db, self._lexical, self._vector_indexes, request)

        return await self._read(find)

    # --- in the writer's thread

    def _open_files(self) -> None:
        from ai_platform_engineering.knowledge_bases.stores.embedded import lexical_index

        path = self._folder / "knowledge.db"
        lexical_folder = self._folder / "lexical"
        if self.is_writable:
            self._db = sqlite_tables.open_writer(path)
            self._resources.callback(self._db.close)
        else:
            _wait_until(lambda: lexical_index.index_exists(lexical_folder))
        self._lexical = lexical_index.open_index(lexical_folder, writes=self.is_writable)
        self._resources.callback(lambda: self._lexical.close())  # noqa: PLW0108 - it may be another one by then
        self._reader_pool = sqlite_tables.ReaderPool(path, _READERS)
        self._resources.callback(self._reader_pool.close)
        self._vector_indexes = VectorIndexes(self._folder, writes=self.is_writable)
        if self._db is not None:
            self._index_since(self._db, sqlite_reads.find_indexed_generation(self._db))
            if self._lexical.size != sqlite_reads.count_all_chunks(self._db):
                log.warning("The lexical index does not fit the documents and is built again.")
                self._lexical.close()
                self._lexical = lexical_index.create_empty_index(lexical_folder)
                self._index_since(self._db, 0)

    def _index_since(self, db: sqlite3.Connection, generation: int) -> None:
        """Indexes the documents after a generation: a crash may have left them out of the lexical index."""
        for number, entries in sqlite_reads.select_unindexed(db, generation):
            self._lexical.delete([number])
            self._lexical.add(entries)
        self._commit_index(db)

    def _commit(self, db: sqlite3.Connection) -> None:
        """Commits the rows, then the lexical index: a difference between them is repaired when the folder is
        opened."""
        if db.in_transaction:
            db.execute("COMMIT")
        if sqlite_reads.has_unindexed(db):
            self._commit_index(db)

    def _commit_index(self, db: sqlite3.Connection) -> None:
        self._lexical.delete([row[0] for row in db.execute("SELECT document FROM gone")])
        self._lexical.commit()
        sqlite_writes.begin(db)
        sqlite_writes.mark_all_indexed(db)
        db.execute("COMMIT")

    def _close_files(self) -> None:
        with self._resources:
            if self._db is not None:
                self._commit(self._db)
                self._vector_indexes.save(all_of_them=True)

    def _with_writer(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._db is None:
            raise StorageInUse(
                "Another process of this program writes the knowledge base; this one can only read it."
            )
        try:
            return work(self._db)
        except sqlite3.Error as error:  # a full disk or the like
            self._roll_back(self._db)
            raise StorageFailed(f"The knowledge base could not be written: {error}.") from error

    def _roll_back(self, db: sqlite3.Connection) -> None:
        """Takes rows and indexes back to the last commit."""
        if db.in_transaction:
            db.execute("ROLLBACK")
        self._lexical.rollback()
        self._vector_indexes.clear()
        self._index_since(db, sqlite_reads.find_indexed_generation(db))

    # --- in a reader's thread

    def _reload_index(self, db: sqlite3.Connection) -> None:
        """Loads what another process has committed."""
        if self.is_writable:
            return
        indexed = sqlite_reads.find_indexed_generation(db)
        if indexed != self._indexed_generation:
            try:
                self._lexical.reload()
            except ValueError:  # built again meanwhile
                from ai_platform_engineering.knowledge_bases.stores.embedded import lexical_index

                self._lexical = lexical_index.open_index(self._folder / "lexical", writes=False)
            self._indexed_generation = indexed

    def _with_reader(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._reader_pool.connection() as db:
            return work(db)

    # --- threads

    async def _write(self, work: Callable[[sqlite3.Connection], T], *, commit: bool = False) -> T:
        """Runs the work in a transaction. `commit`: the rows are seen at once, with all that was written
        before."""

        def write(db: sqlite3.Connection) -> T:
            result = sqlite_writes.run_in_savepoint(db, lambda: work(db))
            if commit:
                db.execute("COMMIT")
            return result

        return await self._run_in_writer(lambda: self._with_writer(write))

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        executor = self._open_executors().readers
        return await asyncio.get_running_loop().run_in_executor(executor, self._with_reader, work)

    async def _run_in_writer(self, work: Callable[[], T]) -> T:
        executor = self._open_executors().writer
        return await asyncio.get_running_loop().run_in_executor(executor, work)

    def _open_executors(self) -> _Executors:
        if self._executors is None:
            raise StorageFailed("The knowledge base is closed.")
        return self._executors

    async def _shut_down(self, last_work: Callable[[], None]) -> None:
        """Takes no more work, waits for what runs, and does `last_work` in the writer's thread."""
        executors = self._open_executors()
        self._executors = None
        await asyncio.to_thread(executors.readers.shutdown)
        try:
            await asyncio.get_running_loop().run_in_executor(executors.writer, last_work)
        finally:
            await asyncio.to_thread(executors.writer.shutdown)
            self._db = None
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None


def _wait_until(ready: Callable[[], bool]) -> None:
    """Waits for the process that writes, which may be creating the folder just now."""
    deadline = time.monotonic() + _SETUP_SECONDS
    while not ready():
        if time.monotonic() > deadline:
            raise StorageInUse("Another process is setting up the knowledge base. Try again in a moment.")
        time.sleep(0.05)
