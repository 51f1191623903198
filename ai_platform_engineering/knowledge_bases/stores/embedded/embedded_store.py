"""The store in a folder: rows in SQLite are the truth; a lexical index and vector indexes beside them find.

One process writes the rows. Another that opens the folder meanwhile reads, and sees what is committed. The
indexes follow the rows in a worker of each process.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from ai_platform_engineering.databases.sql_connections import StorageFailed, StorageInUse
from ai_platform_engineering.knowledge_bases.access import ANYBODY, Viewer, VisibleTo
from ai_platform_engineering.knowledge_bases.documents import Document
from ai_platform_engineering.knowledge_bases.stores.embedded import (
    sqlite_jobs,
    sqlite_reads,
    sqlite_tables,
    sqlite_writes,
)
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_search import SearchRequest
from ai_platform_engineering.knowledge_bases.stores.embedded.index_process import IndexProcess
from ai_platform_engineering.knowledge_bases.stores.embedded.sqlite_jobs import SqliteJobs
from ai_platform_engineering.knowledge_bases.stores.job_store import JobStore
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    ChunkRef,
    Datasource,
    DocumentVersion,
    Hit,
    RefreshSchedule,
    SearchMode,
    Vector,
    VectorModel,
)
from ai_platform_engineering.knowledge_bases.workers.worker_errors import WorkerFailed
from ai_platform_engineering.knowledge_bases.workers.worker_process import WorkerOptions

log = logging.getLogger(__name__)

T = TypeVar("T")

_READERS = 4
_SETUP_SECONDS = 5.0
_SEARCH_SECONDS = 30.0
_REMOVED_AT_ONCE = 10_000  # numbers of vectors in one call of the worker
_PURGED_AT_ONCE = 2_000  # vectors in one transaction: other writes wait for it


class _Executors(NamedTuple):
    """The threads of a store: SQLite takes one writer."""

    writer: ThreadPoolExecutor
    readers: ThreadPoolExecutor


class EmbeddedStore:
    """`KnowledgeStore` in a folder. `search_seconds`: how long a search may take, the start of its worker
    included."""

    def __init__(
        self,
        folder: Path,
        options: WorkerOptions | None = None,
        *,
        search_seconds: float = _SEARCH_SECONDS,
    ) -> None:
        self._folder = folder
        self._options = options
        self._search_seconds = search_seconds
        self._lock: int | None = None
        self._db: sqlite3.Connection | None = None
        self._resources = contextlib.ExitStack()  # to close
        self._executors: _Executors | None = None
        self._update_lock = asyncio.Lock()
        self._removed_vectors: list[int] = []  # that the vector indexes may still have
        # By model and datasource left out: every other chunk up to this number has a vector.
        self._embedded_up_to: dict[tuple[str, str], int] = {}
        self._jobs = SqliteJobs(self._write, self._read, self._removed_vectors)

    @property
    def is_writable(self) -> bool:
        return self._lock is not None

    @property
    def is_shared(self) -> bool:
        return False

    @property
    def jobs(self) -> JobStore:
        return self._jobs

    async def open(self) -> None:
        self._lock = await asyncio.to_thread(sqlite_tables.acquire_lock, self._folder)
        self._executors = _Executors(
            ThreadPoolExecutor(1, "knowledge-writer"), ThreadPoolExecutor(_READERS, "knowledge-reader")
        )
        self._index = IndexProcess(
            self._folder, self._options, writes=self.is_writable, search_seconds=self._search_seconds
        )
        try:
            await self._run_in_writer(self._open_files)
        except BaseException:
            await self._shut_down()
            raise

    async def close(self) -> None:
        """Commits, and closes."""
        if self._executors is None:
            return
        try:
            if self.is_writable:
                await self.commit()
        except WorkerFailed as error:  # the rows are committed, and the index is repaired when it is opened
            log.warning("the index of the knowledge base lacks its last documents for now: %s", error)
        finally:
            await self._shut_down()

    @property
    def uploads(self) -> None:
        """No: files lie in a folder beside it."""

    # --- datasources

    async def put_datasource(self, datasource: Datasource) -> None:
        await self._write(lambda db: sqlite_writes.put_datasource(db, datasource), commit=True)

    async def list_datasources(self, viewer: Viewer = ANYBODY) -> list[Datasource]:
        return await self._read(lambda db: sqlite_reads.select_datasources(db, viewer))

    async def set_visible_to(self, name: str, visible_to: VisibleTo) -> None:
        await self._write(lambda db: sqlite_writes.set_visible_to(db, name, visible_to), commit=True)

    async def list_schedules(self) -> list[RefreshSchedule]:
        return await self._read(sqlite_reads.select_schedules)

    async def set_schedule(
        self, name: str, every: int | None, due: datetime | None, failures: int = 0
    ) -> None:
        await self._write(lambda db: sqlite_writes.set_schedule(db, name, every, due, failures), commit=True)

    async def is_empty(self) -> bool:
        return await self._read(lambda db: db.execute("SELECT 1 FROM documents LIMIT 1").fetchone() is None)

    async def remove_datasource(self, name: str) -> bool:
        def remove(db: sqlite3.Connection) -> bool:
            sqlite_jobs.stop_jobs(db, name)
            existed, vectors = sqlite_writes.remove_datasource(db, name)
            self._removed_vectors += vectors
            return existed

        existed = await self._write(remove)
        await self.commit()
        return existed

    # --- groups of people

    async def put_group(self, name: str, members: Collection[str]) -> None:
        await self._write(lambda db: sqlite_writes.put_group(db, name, members), commit=True)

    async def remove_group(self, name: str) -> bool:
        return await self._write(lambda db: sqlite_writes.remove_group(db, name), commit=True)

    async def list_groups(self) -> dict[str, list[str]]:
        return await self._read(sqlite_reads.select_groups)

    async def list_groups_of(self, member: str) -> list[str]:
        return await self._read(lambda db: sqlite_reads.select_groups_of(db, member))

    # --- documents

    async def find_versions(self, document_ids: Collection[str]) -> dict[str, DocumentVersion]:
        return await self._run_in_writer(
            lambda: self._with_writer(lambda db: sqlite_reads.find_versions(db, document_ids))
        )

    async def list_versions(self, datasource: str) -> dict[str, DocumentVersion]:
        return await self._read(lambda db: sqlite_reads.select_versions(db, datasource))

    async def put_document(self, document: Document, mark: str = "") -> None:
        def put(db: sqlite3.Connection) -> None:
            self._removed_vectors += sqlite_writes.put_document(db, document, mark)

        await self._write(put)

    async def update_mark(self, document_id: str, mark: str) -> None:
        await self._write(lambda db: sqlite_writes.update_mark(db, document_id, mark))

    async def delete_documents(self, document_ids: Collection[str]) -> None:
        def delete(db: sqlite3.Connection) -> None:
            self._removed_vectors += sqlite_writes.delete_documents(db, document_ids)

        await self._write(delete)

    async def commit(self) -> None:
        """Commits the rows, then has the index take them in; more may be written meanwhile."""
        rows = await self._run_in_writer(lambda: self._with_writer(sqlite_writes.commit_rows))
        if rows is not None:
            await self._update_index()
            mark = partial(sqlite_writes.mark_indexed, rows=rows)
            await self._run_in_writer(lambda: self._with_writer(mark))

    async def find_document(self, document_id: str, viewer: Viewer = ANYBODY) -> Document | None:
        return await self._read(lambda db: sqlite_reads.select_document(db, document_id, viewer))

    async def list_documents(self, datasource: str, *, after: str = "", limit: int = 100) -> list[Document]:
        return await self._read(lambda db: sqlite_reads.select_documents(db, datasource, after, limit))

    # --- vectors and search

    async def list_chunks_without_vector(
        self, model: str, limit: int, *, except_of: str = ""
    ) -> list[ChunkRef]:
        key = (model, except_of)

        def select(db: sqlite3.Connection) -> list[ChunkRef]:
            model_number, _ = sqlite_reads.find_model(db, model) or (0, 0)
            chunks, self._embedded_up_to[key] = sqlite_reads.select_chunks_without_vector(
                db, model_number, self._embedded_up_to.get(key, 0), limit, except_of
            )
            return chunks

        return await self._read(select)

    async def claim_embedding(self, model: str, seconds: float) -> bool:
        """Yes: no other process writes."""
        return True

    async def release_embedding(self, model: str) -> None:
        """Does nothing: no other process writes."""

    async def put_vectors(self, model: str, vectors: Sequence[tuple[ChunkRef, Vector]]) -> None:
        def put(db: sqlite3.Connection) -> None:
            dimensions = len(vectors[0][1])
            encoded = [(ref, sqlite_writes.encode_vector(vector)) for ref, vector in vectors]
            self._removed_vectors += sqlite_writes.run_in_savepoint(
                db, lambda: sqlite_writes.put_vectors(db, model, dimensions, encoded)
            )
            db.execute("COMMIT")

        if vectors:
            await self._run_in_writer(lambda: self._with_writer(put))
            await self._update_index(model)

    async def list_models(self) -> list[VectorModel]:
        return await self._read(sqlite_reads.select_models)

    async def mark_complete(self, model: str) -> None:
        await self._write(lambda db: sqlite_writes.mark_complete(db, model), commit=True)

    async def keep_model(self, model: str) -> None:
        """Does nothing: no other process writes."""

    async def purge_models(self, keep: str) -> bool:
        models = await self._write(lambda db: sqlite_writes.begin_purge(db, keep), commit=True)
        for model in models:
            after: int | None = 0
            while after is not None:
                step = partial(sqlite_writes.purge_vectors, model=model, after=after, limit=_PURGED_AT_ONCE)
                after = await self._write(step, commit=True)
        if models:
            self._embedded_up_to.clear()
            async with self._update_lock:
                await self._index.update(dropped_models=models)
        return True

    async def prepare_search(self) -> None:
        self._open_executors()
        await self._index.start()

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
        viewer: Viewer = ANYBODY,
    ) -> list[Hit]:
        request = SearchRequest(
            query, vector, model, tuple(datasources), dict(filters or {}), limit, mode, viewer
        )
        self._open_executors()
        return await self._index.search(request)

    # --- in the writer's thread

    def _open_files(self) -> None:
        path = self._folder / sqlite_tables.DATABASE_NAME
        if self.is_writable:
            self._db = sqlite_tables.open_writer(path)
            self._resources.callback(self._db.close)
            sqlite_jobs.release_all(self._db)
        else:
            _wait_until(lambda: sqlite_tables.is_set_up(path))
        self._reader_pool = sqlite_tables.ReaderPool(path, _READERS)
        self._resources.callback(self._reader_pool.close)

    def _with_writer(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._db is None:
            raise StorageInUse(
                "Another process of this program writes the knowledge base; this one can only read it."
            )
        try:
            return work(self._db)
        except sqlite3.Error as error:  # a full disk or the like
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._removed_vectors.clear()  # they may be there again
            raise StorageFailed(f"The knowledge base could not be written: {error}.") from error

    # --- in a reader's thread

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

    async def _update_index(self, model: str = "") -> None:
        """Has the worker take in the committed rows, and what they no longer have."""
        async with self._update_lock:
            while True:
                removed = self._removed_vectors[:_REMOVED_AT_ONCE]
                await self._index.update(model=model, removed_vectors=removed)
                del self._removed_vectors[: len(removed)]
                if not self._removed_vectors:
                    return

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

    async def _shut_down(self) -> None:
        """Takes no more work, waits for what runs, and closes everything."""
        executors = self._open_executors()
        self._executors = None
        try:
            await self._index.aclose()
            await asyncio.to_thread(executors.readers.shutdown)
            await asyncio.get_running_loop().run_in_executor(executors.writer, self._resources.close)
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
