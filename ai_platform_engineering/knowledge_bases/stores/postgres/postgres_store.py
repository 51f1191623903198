"""The store in PostgreSQL with pgvector: for several processes, and for teams that have such a server
anyway."""

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ai_platform_engineering.core.errors import DatabaseUnavailable
from ai_platform_engineering.core.optional_packages import explain_extra
from ai_platform_engineering.knowledge_bases.documents import Chunk, Document
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    ChunkRef,
    Datasource,
    DocumentVersion,
    Hit,
    IngestJob,
    SearchMode,
    Vector,
)
from ai_platform_engineering.runtime.checkpoints.database_choice import DatabaseChoice
from ai_platform_engineering.runtime.log.sqlite_database import StorageFailed

if TYPE_CHECKING:
    from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_tables import Connection, Pool


class PostgresStore:
    """`KnowledgeStore` in a database. Rows are seen by all processes at once; lexical search finds them after
    `commit`."""

    def __init__(self, address: str, *, connect_seconds: float = 5.0) -> None:
        """`connect_seconds`: how long the first answer of the database may take."""
        self._database = DatabaseChoice("postgres", address, "RAG_DATABASE_URL")
        self._connect_seconds = connect_seconds
        self._pool: Pool | None = None
        self._embedded_up_to: dict[str, int] = {}  # by model: every chunk up to this number had a vector

    async def open(self) -> None:
        self._pool = await self._import_tables().open_pool(self._database, self._connect_seconds)

    async def check(self) -> None:
        """Tries the database, and creates nothing. Raises ConfigurationError and DatabaseUnavailable."""
        await self._import_tables().check_database(self._database, self._connect_seconds)

    def _import_tables(self) -> ModuleType:
        try:
            from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_tables
        except ImportError:
            problem = (
                f"The knowledge base in {self._database.label} cannot be used: its client is not installed."
            )
            raise DatabaseUnavailable(problem, explain_extra("postgres")) from None
        return postgres_tables

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    @property
    def is_writable(self) -> bool:
        """Every process may write: the database isolates them."""
        return self._pool is not None

    # --- datasources and jobs

    async def put_datasource(self, datasource: Datasource) -> None:
        async with self._transaction() as db:
            await db.execute(
                "INSERT INTO datasources VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (name) DO UPDATE SET "
                "location = excluded.location, kind = excluded.kind, title = excluded.title, "
                "options = excluded.options, refreshed = excluded.refreshed",
                (
                    datasource.name,
                    datasource.location,
                    datasource.kind,
                    datasource.title,
                    json.dumps(dict(datasource.options)),
                    datasource.refreshed,
                ),
            )

    async def list_datasources(self) -> list[Datasource]:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        async with self._transaction() as db:
            counts = await postgres_writes.count_by_datasource(db)
            rows = await (await db.execute('SELECT * FROM datasources ORDER BY name COLLATE "C"')).fetchall()
        datasources: list[Datasource] = []
        for row in rows:
            datasources.append(Datasource(**row, **counts.get(row["name"], {})))
        return datasources

    async def is_empty(self) -> bool:
        async with self._transaction() as db:
            return await (await db.execute("SELECT 1 FROM documents LIMIT 1")).fetchone() is None

    async def remove_datasource(self, name: str) -> bool:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        async with self._transaction() as db:
            rows = await db.execute("SELECT document_id FROM documents WHERE datasource = %s", (name,))
            document_ids = [row["document_id"] for row in await rows.fetchall()]
            await postgres_writes.delete_documents(db, document_ids)
            deleted = await db.execute("DELETE FROM datasources WHERE name = %s", (name,))
        return deleted.rowcount > 0 or bool(document_ids)

    async def put_job(self, job: IngestJob) -> None:
        async with self._transaction() as db:
            await db.execute(
                "INSERT INTO jobs(job_id, datasource, state, total, done, skipped, removed, failed, "
                "problem, created, "
                "ended, cut) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) "
                "ON CONFLICT (job_id) DO UPDATE "
                "SET "
                "datasource = excluded.datasource, state = excluded.state, total = excluded.total, "
                "done = excluded.done, skipped = excluded.skipped, removed = excluded.removed, "
                "failed = excluded.failed, problem = excluded.problem, created = excluded.created, "
                "ended = excluded.ended, cut = excluded.cut",
                (
                    job.job_id,
                    job.datasource,
                    job.state,
                    job.total,
                    job.done,
                    job.skipped,
                    job.removed,
                    json.dumps(list(job.failed)),
                    job.problem,
                    job.created,
                    job.ended,
                    json.dumps(list(job.cut)),
                ),
            )

    async def list_jobs(self, *, unfinished: bool = False) -> list[IngestJob]:
        async with self._transaction() as db:
            rows = await db.execute(
                "SELECT * FROM jobs WHERE state IN ('waiting', 'running') OR NOT %s ORDER BY number DESC",
                (unfinished,),
            )
            return [_read_job(row) for row in await rows.fetchall()]

    # --- documents

    async def list_versions(self, datasource: str) -> dict[str, DocumentVersion]:
        async with self._transaction() as db:
            rows = await db.execute(
                "SELECT document_id, address, digest, mark FROM documents WHERE datasource = %s",
                (datasource,),
            )
            return {row["address"]: DocumentVersion(**row) for row in await rows.fetchall()}

    async def put_document(self, document: Document, mark: str = "") -> None:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        async with self._transaction() as db:
            await postgres_writes.put_document(db, document, mark)

    async def update_mark(self, document_id: str, mark: str) -> None:
        async with self._transaction() as db:
            await db.execute("UPDATE documents SET mark = %s WHERE document_id = %s", (mark, document_id))

    async def delete_documents(self, document_ids: Collection[str]) -> None:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        async with self._transaction() as db:
            await postgres_writes.delete_documents(db, document_ids)

    async def commit(self) -> None:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        async with self._transaction() as db:
            await postgres_writes.count_new_chunks(db)

    async def find_document(self, document_id: str) -> Document | None:
        async with self._transaction() as db:
            row = await (
                await db.execute("SELECT * FROM documents WHERE document_id = %s", (document_id,))
            ).fetchone()
            if row is None:
                return None
            chunk_rows = await db.execute(
                "SELECT * FROM chunks WHERE document = %s ORDER BY ordinal", (row["number"],)
            )
            chunks = tuple(map(_read_chunk, await chunk_rows.fetchall()))
            return _read_document(row, row["text"], chunks)

    async def list_documents(self, datasource: str, *, after: str = "", limit: int = 100) -> list[Document]:
        async with self._transaction() as db:
            rows = await db.execute(
                "SELECT document_id, datasource, title, address, digest, link, kind, changed, missing "
                "FROM documents "
                "WHERE datasource = %s AND address > %s ORDER BY address LIMIT %s",
                (datasource, after, limit),
            )
            return [_read_document(row, "", ()) for row in await rows.fetchall()]

    # --- vectors and search

    async def list_chunks_without_vector(self, model: str, limit: int) -> list[ChunkRef]:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        async with self._transaction() as db:
            embedded_up_to = self._embedded_up_to.get(model, 0)
            chunks = await postgres_writes.select_chunks_without_vector(db, model, embedded_up_to, limit)
            if not chunks and embedded_up_to:  # another process may have stored lower numbers later
                chunks = await postgres_writes.select_chunks_without_vector(db, model, 0, limit)
        self._embedded_up_to[model] = 0
        if chunks:
            first_number, _ = chunks[0]
            self._embedded_up_to[model] = first_number - 1
        return [ref for _, ref in chunks]

    async def put_vectors(self, model: str, vectors: Sequence[tuple[ChunkRef, Vector]]) -> None:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        if vectors:
            async with self._transaction() as db:
                await postgres_writes.put_vectors(db, model, vectors)

    async def prepare_search(self) -> None:
        """Does nothing: the database runs."""

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
        from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_search import search

        async with self._transaction() as db:
            return await search(db, query, vector, model, datasources, filters or {}, limit, mode)

    @asynccontextmanager
    async def _transaction(self) -> "AsyncIterator[Connection]":
        """A connection with a transaction; database errors become StorageFailed, without the address."""
        from psycopg import Error

        if self._pool is None:
            raise StorageFailed("The knowledge base is closed.")
        try:
            async with self._pool.connection() as connection, connection.transaction():
                yield connection
        except Error as error:
            raise StorageFailed(
                f"The database of the knowledge base failed: {type(error).__name__}."
            ) from error


def _read_document(row: Mapping[str, Any], text: str, chunks: tuple[Chunk, ...]) -> Document:
    return Document(
        document_id=row["document_id"],
        datasource=row["datasource"],
        title=row["title"],
        address=row["address"],
        text=text,
        digest=row["digest"],
        link=row["link"],
        kind=row["kind"],
        changed=row["changed"],
        chunks=chunks,
        missing=row["missing"],
    )


def _read_chunk(row: Mapping[str, Any]) -> Chunk:
    return Chunk(row["ordinal"], row["text"], tuple(row["headings"]), row["start"], row["stop"])


def _read_job(row: Mapping[str, Any]) -> IngestJob:
    return IngestJob(
        job_id=row["job_id"],
        datasource=row["datasource"],
        state=row["state"],
        total=row["total"],
        done=row["done"],
        skipped=row["skipped"],
        removed=row["removed"],
        failed=tuple((address, reason) for address, reason in row["failed"]),
        cut=tuple((address, missing) for address, missing in row["cut"]),
        problem=row["problem"],
        created=row["created"],
        ended=row["ended"],
    )
