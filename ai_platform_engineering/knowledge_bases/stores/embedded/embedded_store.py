"""The knowledge base in a folder: rows in SQLite are the truth, a lexical index and graphs of vectors beside them find.

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
from typing import TypeVar

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
_PATIENCE = 5.0


class EmbeddedStore:
    """`Store` in a folder. Imports its engines when it is opened. `writes` says whether this process may change anything."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: int | None = None
        self._db: sqlite3.Connection | None = None
        self._parts = contextlib.ExitStack()  # what has to be closed
        self._indexed = 0  # a reader's: the generation that it sees
        self._threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor] | None = None
        self._floors: dict[str, int] = {}  # by model: no chunk up to this one waits for a vector

    @property
    def is_writable(self) -> bool:
        return self._lock is not None

    async def open(self) -> None:
        self._lock = sqlite_tables.acquire_lock(self._folder)
        self._threads = (
            ThreadPoolExecutor(1, "knowledge-writer"),
            ThreadPoolExecutor(_READERS, "knowledge-reader"),
        )
        try:
            await self._in_thread(0, self._opened)
        except BaseException:
            await self._given_up(self._parts.close)
            raise

    async def close(self) -> None:
        """Stores what was put. Searches that run end first."""
        if self._threads is not None:
            await self._given_up(self._closed)

    # --- datasources and jobs

    async def put_datasource(self, datasource: Datasource) -> None:
        await self._write(lambda db: sqlite_writes.put_datasource(db, datasource), store=True)

    async def list_datasources(self) -> list[Datasource]:
        return await self._read(sqlite_reads.select_datasources)

    async def is_empty(self) -> bool:
        return await self._read(lambda db: db.execute("SELECT 1 FROM documents LIMIT 1").fetchone() is None)

    async def remove_datasource(self, name: str) -> bool:
        def removed(db: sqlite3.Connection) -> bool:
            known, vectors = sqlite_writes.remove_datasource(db, name)
            self._graphs.remove(vectors)
            return known

        known = await self._write(removed)
        await self.commit()
        return known

    async def put_job(self, job: IngestJob) -> None:
        await self._write(lambda db: sqlite_writes.put_job(db, job), store=True)

    async def list_jobs(self, *, unfinished: bool = False) -> list[IngestJob]:
        return await self._read(lambda db: sqlite_reads.select_jobs(db, unfinished=unfinished))

    # --- documents

    async def list_versions(self, datasource: str) -> dict[str, DocumentVersion]:
        return await self._read(lambda db: sqlite_reads.select_versions(db, datasource))

    async def put_document(self, document: Document, mark: str = "") -> None:
        def put(db: sqlite3.Connection) -> None:
            number, chunks, lost = sqlite_writes.put_document(db, document, mark)
            self._graphs.remove(lost)
            self._lexical.add(sqlite_reads.build_entries(number, chunks, document))

        await self._write(put)

    async def update_mark(self, document_id: str, mark: str) -> None:
        await self._write(lambda db: sqlite_writes.update_mark(db, document_id, mark))

    async def delete_documents(self, document_ids: Collection[str]) -> None:
        await self._write(lambda db: self._graphs.remove(sqlite_writes.delete_documents(db, document_ids)))

    async def commit(self) -> None:
        await self._in_thread(0, lambda: self._guarded(self._commit))

    async def find_document(self, document_id: str) -> Document | None:
        return await self._read(lambda db: sqlite_reads.select_document(db, document_id))

    async def list_documents(self, datasource: str, *, after: str = "", limit: int = 100) -> list[Document]:
        return await self._read(lambda db: sqlite_reads.select_documents(db, datasource, after, limit))

    # --- vectors and search

    async def list_chunks_without_vector(self, model: str, limit: int) -> list[ChunkRef]:
        def waiting(db: sqlite3.Connection) -> list[ChunkRef]:
            known = sqlite_reads.find_model(db, model)
            found, self._floors[model] = sqlite_reads.select_chunks_without_vector(
                db, known[0] if known else 0, self._floors.get(model, 0), limit
            )
            return found

        return await self._read(waiting)

    async def put_vectors(self, model: str, vectors: Sequence[tuple[ChunkRef, Vector]]) -> None:
        def put(db: sqlite3.Connection) -> None:
            from ai_platform_engineering.knowledge_bases.stores.embedded.vector_index import encode_vector

            dimensions = len(vectors[0][1])
            packed = [(ref, encode_vector(vector)) for ref, vector in vectors]
            number, new, old = sqlite_writes.run_in_savepoint(
                db, lambda: sqlite_writes.put_vectors(db, model, dimensions, packed)
            )
            db.execute("COMMIT")  # before the graph: that never has what the rows may lose
            self._graphs.remove(old)
            self._graphs.add(db, number, dimensions, new)

        if vectors:
            await self._in_thread(0, lambda: self._guarded(put))

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
        asked = SearchRequest(query, vector, model, tuple(datasources), dict(filters or {}), limit, mode)

        def found(db: sqlite3.Connection) -> list[Hit]:
            self._follow(db)
            return search(db, self._lexical, self._graphs, asked)

        return await self._read(found)

    # --- in the writer's thread

    def _opened(self) -> None:
        from ai_platform_engineering.knowledge_bases.stores.embedded import lexical_index

        path, beside = self._folder / "knowledge.db", self._folder / "lexical"
        if self.is_writable:
            self._db = sqlite_tables.open_writer(path)
            self._parts.callback(self._db.close)
        else:
            _until(lambda: lexical_index.index_exists(beside))
        self._lexical = lexical_index.open_index(beside, writes=self.is_writable)
        self._parts.callback(lambda: self._lexical.close())  # noqa: PLW0108 - it may be another one by then
        self._readers = sqlite_tables.ReaderPool(path, _READERS)
        self._parts.callback(self._readers.close)
        self._graphs = VectorIndexes(self._folder, writes=self.is_writable)
        if self._db is not None:
            self._mend(self._db, indexed=self._db.execute("SELECT indexed FROM state").fetchone()[0])
            if self._lexical.size != self._db.execute("SELECT count(*) FROM chunks").fetchone()[0]:
                log.warning("The lexical index does not fit the documents and is built again.")
                self._lexical.close()
                self._lexical = lexical_index.create_empty_index(beside)
                self._mend(self._db, indexed=0)

    def _mend(self, db: sqlite3.Connection, *, indexed: int) -> None:
        """Puts what came after a generation into the lexical index, where a crash may have left it out."""
        for number, entries in sqlite_reads.select_unindexed(db, indexed):
            self._lexical.delete([number])
            self._lexical.add(entries)
        self._index_rows(db)

    def _commit(self, db: sqlite3.Connection) -> None:
        """The rows first: what the indexes have more or less than they is mended when the folder is opened."""
        if db.in_transaction:
            db.execute("COMMIT")
        waiting = "SELECT EXISTS (SELECT 1 FROM gone) OR EXISTS (SELECT 1 FROM documents, state WHERE generation > indexed)"
        if db.execute(waiting).fetchone()[0]:
            self._index_rows(db)

    def _index_rows(self, db: sqlite3.Connection) -> None:
        self._lexical.delete([row[0] for row in db.execute("SELECT document FROM gone")])
        self._lexical.commit()
        sqlite_writes.begin(db)
        sqlite_writes.mark_all_indexed(db)
        db.execute("COMMIT")

    def _closed(self) -> None:
        with self._parts:
            if self._db is not None:
                self._commit(self._db)
                self._graphs.save(all_of_them=True)

    def _written(self, db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], store: bool) -> T:
        done = sqlite_writes.run_in_savepoint(db, lambda: work(db))
        if store:
            db.execute("COMMIT")
        return done

    def _guarded(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._db is None:
            raise StorageInUse(
                "Another process of this program writes the knowledge base; this one can only read it."
            )
        try:
            return work(self._db)
        except sqlite3.Error as error:  # a full disk or the like
            self._forget_unstored(self._db)
            raise StorageFailed(f"The knowledge base could not be written: {error}.") from error

    def _forget_unstored(self, db: sqlite3.Connection) -> None:
        """Rows and indexes go back to the last commit together."""
        if db.in_transaction:
            db.execute("ROLLBACK")
        self._lexical.rollback()
        self._graphs.clear()
        self._mend(db, indexed=db.execute("SELECT indexed FROM state").fetchone()[0])

    # --- in a reader's thread

    def _follow(self, db: sqlite3.Connection) -> None:
        """What another process has committed."""
        if self.is_writable:
            return
        indexed = db.execute("SELECT indexed FROM state").fetchone()[0]
        if indexed != self._indexed:
            try:
                self._lexical.reload()
            except ValueError:  # built again meanwhile
                from ai_platform_engineering.knowledge_bases.stores.embedded import lexical_index

                self._lexical = lexical_index.open_index(self._folder / "lexical", writes=False)
            self._indexed = indexed

    def _seen(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._readers.connection() as db:
            return work(db)

    # --- threads

    async def _write(self, work: Callable[[sqlite3.Connection], T], *, store: bool = False) -> T:
        """`store`: for all to see at once, with whatever was put before it."""
        return await self._in_thread(0, lambda: self._guarded(lambda db: self._written(db, work, store)))

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._in_thread(1, lambda: self._seen(work))

    async def _in_thread(self, which: int, work: Callable[[], T]) -> T:
        if self._threads is None:
            raise StorageFailed("The knowledge base is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._threads[which], work)

    async def _given_up(self, last: Callable[[], None]) -> None:
        """No more work is taken, what runs ends, and `last` is done by the writer."""
        threads, self._threads = self._threads, None
        assert threads is not None, "it is open"
        writer, readers = threads
        await asyncio.to_thread(readers.shutdown)
        try:
            await asyncio.get_running_loop().run_in_executor(writer, last)
        finally:
            await asyncio.to_thread(writer.shutdown)
            self._db = None
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None


def _until(ready: Callable[[], bool]) -> None:
    """The process that writes may be making the folder just now."""
    end = time.monotonic() + _PATIENCE
    while not ready():
        if time.monotonic() > end:
            raise StorageInUse("Another process is setting up the knowledge base. Try again in a moment.")
        time.sleep(0.05)
