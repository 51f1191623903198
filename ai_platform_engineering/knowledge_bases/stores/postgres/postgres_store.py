"""The store in PostgreSQL with pgvector: for several processes, and for teams that have such a server
anyway."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ai_platform_engineering.core.errors import DatabaseUnavailable
from ai_platform_engineering.core.optional_packages import explain_extra
from ai_platform_engineering.databases.database_choice import DatabaseChoice
from ai_platform_engineering.databases.sql_connections import StorageFailed
from ai_platform_engineering.knowledge_bases.access import ANYBODY, Viewer, VisibleTo
from ai_platform_engineering.knowledge_bases.documents import Chunk, Document
from ai_platform_engineering.knowledge_bases.stores.job_store import JobStore, StoreUnavailable
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
from ai_platform_engineering.knowledge_bases.stores.upload_store import UploadStore

if TYPE_CHECKING:
    from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_tables import Connection, Pool

_UNUSED_SECONDS = 300.0
_DROP_ATTEMPTS = 5
_DROP_PAUSE_SECONDS = 0.5


class PostgresStore:
    """`KnowledgeStore` in a database. Rows are seen by all processes at once; lexical search finds them after
    `commit`."""

    def __init__(
        self, address: str, *, connect_seconds: float = 5.0, unused_seconds: float = _UNUSED_SECONDS
    ) -> None:
        """`connect_seconds`: how long the first answer of the database may take. `unused_seconds`: the
        vectors of a model are purged when no process has used it for so long."""
        self._unused_seconds = unused_seconds
        self._database = DatabaseChoice("postgres", address, "RAG_DATABASE_URL")
        self._connect_seconds = connect_seconds
        self._pool: Pool | None = None
        self._process_id = uuid.uuid4().hex
        # By model and datasource left out: every other chunk up to this number had a vector.
        self._embedded_up_to: dict[tuple[str, str], int] = {}

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

    @property
    def is_shared(self) -> bool:
        return True

    @cached_property
    def jobs(self) -> JobStore:
        from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_jobs import PostgresJobs

        return PostgresJobs(self._transaction)

    @cached_property
    def uploads(self) -> UploadStore:
        from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_uploads import PostgresUploads

        return PostgresUploads(self._transaction)

    # --- datasources

    async def put_datasource(self, datasource: Datasource) -> None:
        async with self._transaction() as db:
            await db.execute(
                "INSERT INTO datasources(name, location, kind, title, options, refreshed, cursor, "
                "visible_to) VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (name) DO UPDATE SET "
                "location = excluded.location, kind = excluded.kind, title = excluded.title, "
                "options = excluded.options, refreshed = excluded.refreshed, cursor = excluded.cursor",
                (
                    datasource.name,
                    datasource.location,
                    datasource.kind,
                    datasource.title,
                    json.dumps(dict(datasource.options)),
                    datasource.refreshed,
                    datasource.cursor,
                    _write_names(datasource.visible_to),
                ),
            )

    async def set_visible_to(self, name: str, visible_to: VisibleTo) -> None:
        async with self._transaction() as db:
            await db.execute(
                "UPDATE datasources SET visible_to = %s WHERE name = %s", (_write_names(visible_to), name)
            )

    async def list_schedules(self) -> list[RefreshSchedule]:
        async with self._transaction() as db:
            rows = await db.execute(
                "SELECT name AS datasource, refresh_every AS every, refresh_due AS due, "
                "refresh_failures AS failures FROM datasources "
                "WHERE refresh_every IS NOT NULL AND refresh_due IS NOT NULL ORDER BY refresh_due, name"
            )
            return [RefreshSchedule(**row) for row in await rows.fetchall()]

    async def set_schedule(
        self, name: str, every: int | None, due: datetime | None, failures: int = 0
    ) -> None:
        async with self._transaction() as db:
            await db.execute(
                "UPDATE datasources SET refresh_every = %s, refresh_due = %s, refresh_failures = %s "
                "WHERE name = %s",
                (every, due, failures, name),
            )

    async def list_datasources(self, viewer: Viewer = ANYBODY) -> list[Datasource]:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        async with self._transaction() as db:
            counts = await postgres_writes.count_by_datasource(db, viewer)
            rows = await (await db.execute('SELECT * FROM datasources ORDER BY name COLLATE "C"')).fetchall()
        datasources: list[Datasource] = []
        for row in rows:
            row["visible_to"] = _read_names(row["visible_to"])
            if viewer.may_see(row["visible_to"]):
                datasources.append(Datasource(**row, **counts.get(row["name"], {})))
        return datasources

    async def is_empty(self) -> bool:
        async with self._transaction() as db:
            return await (await db.execute("SELECT 1 FROM documents LIMIT 1")).fetchone() is None

    async def remove_datasource(self, name: str) -> bool:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_jobs, postgres_writes

        async with self._transaction() as db:
            await postgres_jobs.lock_datasource(db, name)
            await postgres_jobs.stop_jobs(db, name)
            rows = await db.execute("SELECT document_id FROM documents WHERE datasource = %s", (name,))
            document_ids = [row["document_id"] for row in await rows.fetchall()]
            await postgres_writes.delete_documents(db, document_ids)
            await db.execute("DELETE FROM uploads WHERE datasource = %s", (name,))
            deleted = await db.execute("DELETE FROM datasources WHERE name = %s", (name,))
        return deleted.rowcount > 0 or bool(document_ids)

    # --- groups of people

    async def put_group(self, name: str, members: Collection[str]) -> None:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        async with self._transaction() as db:
            await postgres_writes.put_group(db, name, members)

    async def remove_group(self, name: str) -> bool:
        async with self._transaction() as db:
            cursor = await db.execute("DELETE FROM group_members WHERE group_name = %s", (name,))
            return cursor.rowcount > 0

    async def list_groups(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        async with self._transaction() as db:
            rows = await db.execute(
                'SELECT group_name, member FROM group_members ORDER BY group_name COLLATE "C", '
                'member COLLATE "C"'
            )
            for row in await rows.fetchall():
                groups.setdefault(row["group_name"], []).append(row["member"])
        return groups

    async def list_groups_of(self, member: str) -> list[str]:
        async with self._transaction() as db:
            rows = await db.execute(
                'SELECT group_name FROM group_members WHERE member = %s ORDER BY group_name COLLATE "C"',
                (member,),
            )
            return [row["group_name"] for row in await rows.fetchall()]

    # --- documents

    async def find_versions(self, document_ids: Collection[str]) -> dict[str, DocumentVersion]:
        async with self._transaction() as db:
            rows = await db.execute(
                "SELECT document_id, address, digest, mark FROM documents WHERE document_id = ANY(%s)",
                (list(document_ids),),
            )
            return {row["document_id"]: DocumentVersion(**row) for row in await rows.fetchall()}

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
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        async with self._transaction() as db:
            await postgres_writes.update_mark(db, document_id, mark)

    async def delete_documents(self, document_ids: Collection[str]) -> None:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        async with self._transaction() as db:
            await postgres_writes.delete_documents(db, document_ids)

    async def commit(self) -> None:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        async with self._transaction() as db:
            await postgres_writes.count_new_chunks(db)

    async def find_document(self, document_id: str, viewer: Viewer = ANYBODY) -> Document | None:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        async with self._transaction() as db:
            row = await postgres_writes.find_document(db, document_id, viewer)
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
                "SELECT document_id, datasource, title, address, digest, link, kind, changed, missing, "
                "visible_to, metadata FROM documents "
                "WHERE datasource = %s AND address > %s ORDER BY address LIMIT %s",
                (datasource, after, limit),
            )
            return [_read_document(row, "", ()) for row in await rows.fetchall()]

    # --- vectors and search

    async def list_chunks_without_vector(
        self, model: str, limit: int, *, except_of: str = ""
    ) -> list[ChunkRef]:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        async with self._transaction() as db:
            embedded_up_to = self._embedded_up_to.get((model, except_of), 0)
            select = partial(
                postgres_writes.select_chunks_without_vector, db, model, limit=limit, except_of=except_of
            )
            chunks = await select(after=embedded_up_to)
            if not chunks and embedded_up_to:  # another process may have stored lower numbers later
                chunks = await select(after=0)
        self._embedded_up_to[model, except_of] = 0
        if chunks:
            first_number, _ = chunks[0]
            self._embedded_up_to[model, except_of] = first_number - 1
        return [ref for _, ref in chunks]

    async def claim_embedding(self, model: str, seconds: float) -> bool:
        async with self._transaction() as db:
            claimed = await db.execute(
                "INSERT INTO embedding_leases AS l(model, holder, lease_until) "
                "VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s)) "
                "ON CONFLICT (model) DO UPDATE SET holder = excluded.holder, "
                "lease_until = excluded.lease_until "
                "WHERE l.holder = excluded.holder OR l.lease_until < clock_timestamp()",
                (model, self._process_id, seconds),
            )
            return claimed.rowcount > 0

    async def release_embedding(self, model: str) -> None:
        async with self._transaction() as db:
            await db.execute(
                "DELETE FROM embedding_leases WHERE model = %s AND holder = %s", (model, self._process_id)
            )

    async def put_vectors(self, model: str, vectors: Sequence[tuple[ChunkRef, Vector]]) -> None:
        from ai_platform_engineering.knowledge_bases.stores.postgres import postgres_writes

        if vectors:
            async with self._transaction() as db:
                await postgres_writes.put_vectors(db, model, vectors)

    async def list_models(self) -> list[VectorModel]:
        async with self._transaction() as db:
            rows = await db.execute("SELECT name, complete FROM models ORDER BY model")
            return [VectorModel(row["name"], row["complete"]) for row in await rows.fetchall()]

    async def mark_complete(self, model: str) -> None:
        async with self._transaction() as db:
            await db.execute("UPDATE models SET complete = true, used = now() WHERE name = %s", (model,))

    async def keep_model(self, model: str) -> None:
        async with self._transaction() as db:
            await db.execute("UPDATE models SET used = now() WHERE name = %s", (model,))

    async def purge_models(self, keep: str) -> bool:
        async with self._transaction() as db:
            rows = await db.execute(
                "SELECT model, used < now() - make_interval(secs => %s) AS unused FROM models "
                "WHERE name <> %s",
                (self._unused_seconds, keep),
            )
            models = await rows.fetchall()
        dropped = [await self._drop_model(row["model"]) for row in models if row["unused"]]
        return len(dropped) == len(models) and all(dropped)

    async def _drop_model(self, model: int) -> bool:
        """False when its vectors are in use all the time."""
        from psycopg.errors import LockNotAvailable

        from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_tables import drop_model

        for _ in range(_DROP_ATTEMPTS):
            try:
                async with self._transaction() as db:
                    await drop_model(db, model)
                return True
            except StorageFailed as error:
                if not isinstance(error.__cause__, LockNotAvailable):
                    raise
            await asyncio.sleep(_DROP_PAUSE_SECONDS)
        return False

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
        viewer: Viewer = ANYBODY,
    ) -> list[Hit]:
        from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_search import search

        async with self._transaction() as db:
            return await search(db, query, vector, model, datasources, filters or {}, limit, mode, viewer)

    @asynccontextmanager
    async def _transaction(self) -> "AsyncIterator[Connection]":
        """A connection with a transaction; database errors become StorageFailed, without the address."""
        from psycopg import Error, InterfaceError, OperationalError

        if self._pool is None:
            raise StorageFailed("The knowledge base is closed.")
        try:
            async with self._pool.connection() as connection, connection.transaction():
                yield connection
        except Error as error:
            failure = StorageFailed
            if isinstance(error, InterfaceError | OperationalError):
                failure = StoreUnavailable
            raise failure(f"The database of the knowledge base failed: {type(error).__name__}.") from error


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
        metadata=row["metadata"],
        visible_to=_read_names(row["visible_to"]),
    )


def _read_names(names: list[str] | None) -> VisibleTo:
    if names is None:
        return None
    return tuple(names)


def _write_names(names: VisibleTo) -> list[str] | None:
    if names is None:
        return None
    return list(names)


def _read_chunk(row: Mapping[str, Any]) -> Chunk:
    return Chunk(row["ordinal"], row["text"], tuple(row["headings"]), row["start"], row["stop"])
