"""Uploaded files in PostgreSQL."""

from collections.abc import Mapping
from datetime import datetime

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.knowledge_bases.results import compute_document_id
from ai_platform_engineering.knowledge_bases.stores.job_store import IngestJob
from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_jobs import (
    OpenTransaction,
    add_job,
    lock_datasource,
)
from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_tables import Connection
from ai_platform_engineering.knowledge_bases.stores.upload_store import (
    UPLOAD,
    UploadedFile,
    UploadLimits,
    describe_no_room,
)


class PostgresUploads:
    """`UploadStore` in a database."""

    def __init__(self, transaction: OpenTransaction) -> None:
        self._transaction = transaction

    async def check_room(self, limits: UploadLimits) -> None:
        async with self._transaction() as db:
            await _check_room(db, limits)

    async def put(
        self, datasource: str, title: str, name: str, content: bytes, limits: UploadLimits
    ) -> IngestJob:
        async with self._transaction() as db:
            await lock_datasource(db, datasource)
            # One after the other, so that they do not pass the limit together.
            await db.execute("SELECT pg_advisory_xact_lock(hashtextextended('caipe_kb uploads', 0))")
            await db.execute("DELETE FROM uploads WHERE datasource = %s AND name = %s", (datasource, name))
            await _check_room(db, limits)
            await db.execute(
                "INSERT INTO uploads(datasource, name, content, size, changed) "
                "VALUES (%s, %s, %b, %s, clock_timestamp())",
                (datasource, name, content, len(content)),
            )
            await db.execute(
                "INSERT INTO datasources(name, location, kind, title, options) VALUES (%s, %s, %s, %s, '{}') "
                "ON CONFLICT (name) DO UPDATE SET location = excluded.location, kind = excluded.kind, "
                "options = excluded.options WHERE datasources.kind IN ('upload', 'folder')",
                (datasource, f"{UPLOAD}:{datasource}", UPLOAD, title),
            )
            return await add_job(db, datasource, again=True)

    async def remove(self, datasource: str, document_id: str) -> IngestJob | None:
        names = await self.list_marks(datasource)
        name = next((name for name in names if compute_document_id(datasource, name) == document_id), None)
        if name is None:
            return None
        async with self._transaction() as db:
            await lock_datasource(db, datasource)
            query = "DELETE FROM uploads WHERE datasource = %s AND name = %s"
            if not (await db.execute(query, (datasource, name))).rowcount:
                return None
            return await add_job(db, datasource, again=True)

    async def list_marks(self, datasource: str) -> Mapping[str, str]:
        async with self._transaction() as db:
            query = "SELECT name, size, changed FROM uploads WHERE datasource = %s ORDER BY name"
            rows = await (await db.execute(query, (datasource,))).fetchall()
        return {row["name"]: _make_mark(row["changed"], row["size"]) for row in rows}

    async def read(self, datasource: str, name: str) -> UploadedFile | None:
        async with self._transaction() as db:
            rows = await db.execute(
                "SELECT content, changed FROM uploads WHERE datasource = %s AND name = %s",
                (datasource, name),
                binary=True,
            )
            row = await rows.fetchone()
        if row is None:
            return None
        return UploadedFile(bytes(row["content"]), row["changed"])


async def _check_room(db: Connection, limits: UploadLimits) -> None:
    """Raises Refused."""
    query = "SELECT count(*)::bigint AS files, coalesce(sum(size), 0)::bigint AS bytes FROM uploads"
    row = await (await db.execute(query)).fetchone()
    assert row is not None, "an aggregate gives its row"
    if row["files"] >= limits.files or row["bytes"] >= limits.total_bytes:
        raise Refused(describe_no_room(row["files"], row["bytes"]))


def _make_mark(changed: datetime, size: int) -> str:
    return f"{changed.isoformat()}-{size}"
