"""Writes to the tables of the store in PostgreSQL."""

import json
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from psycopg.sql import SQL, Composed

from ai_platform_engineering.knowledge_bases.access import Viewer, VisibleTo
from ai_platform_engineering.knowledge_bases.documents import Document
from ai_platform_engineering.knowledge_bases.search.tokens import extract_identifiers, split_camel_case
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    ChunkRef,
    Vector,
    build_embedding_text,
)
from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_search import (
    build_viewer_condition,
    format_vector,
)
from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_tables import (
    Connection,
    ensure_vector_table,
    find_vector_table,
    list_vector_tables,
)

_UPSERT_DOCUMENT = (
    "INSERT INTO documents(document_id, datasource, address, title, kind, digest, mark, link, changed, text, "
    "missing, visible_to, metadata) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) "
    "ON CONFLICT (document_id) DO UPDATE SET "
    "datasource = excluded.datasource, address = excluded.address, title = excluded.title, kind = "
    "excluded.kind, "
    "digest = excluded.digest, mark = excluded.mark, link = excluded.link, changed = excluded.changed, "
    "text = excluded.text, missing = excluded.missing, visible_to = excluded.visible_to, "
    "metadata = excluded.metadata RETURNING number"
)
_INSERT_CHUNK = (
    "INSERT INTO chunks(document, ordinal, headings, start, stop, text, words) VALUES (%s, %s, %s, %s, %s, "
    "%s, "
    "setweight(to_tsvector('english', %s), 'A') || setweight(to_tsvector('english', %s), 'B') || "
    "setweight(to_tsvector('english', %s), 'D') || setweight(to_tsvector('simple', %s), 'C')) RETURNING "
    "number"
)
_COUNT_LEXEMES = (
    "INSERT INTO lexemes AS l SELECT lexeme, {} count(*) FROM chunks c, unnest(c.words) WHERE c.number = "
    "ANY(%s) "
    "GROUP BY lexeme ORDER BY lexeme ON CONFLICT (word) DO UPDATE SET chunks = l.chunks + excluded.chunks"
)


class _StoredChunk(NamedTuple):
    number: int
    embedding_text: str


async def put_document(db: Connection, document: Document, mark: str) -> None:
    """Adds or replaces a document; a chunk with the same text as before keeps its vectors."""
    old_chunks = await _lock_chunks(db, document.document_id)
    row = await (
        await db.execute(
            _UPSERT_DOCUMENT,
            (
                document.document_id,
                document.datasource,
                document.address,
                document.title,
                document.kind,
                document.digest,
                mark,
                document.link,
                document.changed,
                document.text,
                document.missing,
                _write_names(document.visible_to),
                json.dumps(dict(document.metadata)),
            ),
        )
    ).fetchone()
    assert row is not None, "an upsert gives its row"
    new_chunks = await _insert_chunks(db, row["number"], document)
    await _move_vectors(db, old_chunks, new_chunks)
    await _delete_chunks(db, [chunk.number for chunk in old_chunks])


async def delete_documents(db: Connection, document_ids: Collection[str]) -> None:
    ids = list(document_ids)
    chunks = await db.execute(
        "SELECT c.number FROM chunks c JOIN documents d ON d.number = c.document WHERE d.document_id = "
        "ANY(%s)",
        (ids,),
    )
    await _delete_chunks(db, [row["number"] for row in await chunks.fetchall()])
    await db.execute("DELETE FROM documents WHERE document_id = ANY(%s)", (ids,))


async def count_new_chunks(db: Connection) -> None:
    """Counts the words of new chunks: lexical search finds them from now on."""
    rows = await (await db.execute("DELETE FROM uncounted RETURNING chunk")).fetchall()
    chunks = [row["chunk"] for row in rows]
    if chunks:
        await db.execute(SQL(_COUNT_LEXEMES).format(SQL("")), (chunks,))
        await db.execute("UPDATE totals SET chunks = chunks + %s", (len(chunks),))


async def find_document(db: Connection, document_id: str, viewer: Viewer) -> dict[str, Any] | None:
    """The row of a document, unless the viewer may not see it."""
    where, values = build_viewer_condition(viewer)
    query = SQL("SELECT d.* FROM documents d WHERE d.document_id = %s AND {}").format(where)
    return await (await db.execute(query, (document_id, *values))).fetchone()


async def count_by_datasource(db: Connection, viewer: Viewer) -> dict[str, dict[str, Any]]:
    """By datasource: the numbers of documents, of each kind of them, of chunks, and chunks with a vector."""
    where, values = build_viewer_condition(viewer)
    selects = [SQL("SELECT NULL::bigint AS chunk").format()]
    for table in await list_vector_tables(db):
        selects.append(SQL("SELECT chunk FROM {}").format(table))
    rows = await db.execute(
        SQL(
            "SELECT d.datasource, count(DISTINCT d.number) AS documents, count(c.number) AS chunks, "
            "count(v.chunk) AS embedded FROM documents d LEFT JOIN chunks c ON c.document = d.number "
            "LEFT JOIN ({}) v ON v.chunk = c.number WHERE {} GROUP BY d.datasource"
        ).format(SQL(" UNION ").join(selects), where),
        values,
    )
    counts = {row.pop("datasource"): row for row in await rows.fetchall()}
    kinds = await db.execute(
        SQL(
            "SELECT datasource, kind, count(*) AS documents FROM documents d WHERE {} "
            'GROUP BY datasource, kind ORDER BY kind COLLATE "C"'
        ).format(where),
        values,
    )
    for row in await kinds.fetchall():
        if row["datasource"] in counts:  # not one whose first document came between the two queries
            counts[row["datasource"]].setdefault("document_kinds", {})[row["kind"]] = row["documents"]
    return counts


async def select_chunks_without_vector(
    db: Connection, model: str, after: int, limit: int, except_of: str
) -> list[tuple[int, ChunkRef]]:
    """Chunks with a higher number than `after`, by number."""
    condition: SQL | Composed = SQL("true")
    vector_table = await find_vector_table(db, model)
    if vector_table is not None:
        table, _ = vector_table
        condition = SQL("NOT EXISTS (SELECT 1 FROM {} v WHERE v.chunk = c.number)").format(table)
    rows = await db.execute(
        SQL(
            "SELECT c.number, c.ordinal, c.headings, c.text, d.document_id, d.title "
            "FROM chunks c JOIN documents d ON d.number = c.document "
            "WHERE c.number > %s AND d.datasource <> %s AND {} ORDER BY c.number LIMIT %s"
        ).format(condition),
        (after, except_of, limit),
    )
    return [(row["number"], _create_ref(row)) for row in await rows.fetchall()]


async def put_vectors(db: Connection, model: str, vectors: Sequence[tuple[ChunkRef, Vector]]) -> None:
    """Stores vectors; a chunk that was deleted or changed meanwhile gets none."""
    table = await ensure_vector_table(db, model, len(vectors[0][1]))
    rows = await db.execute(
        "SELECT c.number, c.ordinal, c.headings, c.text, d.document_id, d.title "
        "FROM unnest(%s::text[], %s::integer[]) w(id, place) JOIN documents d ON d.document_id = w.id "
        "JOIN chunks c ON c.document = d.number AND c.ordinal = w.place FOR SHARE OF c",
        ([ref.document_id for ref, _ in vectors], [ref.ordinal for ref, _ in vectors]),
    )
    numbers = {_create_ref(row): row["number"] for row in await rows.fetchall()}
    insert = SQL(
        "INSERT INTO {} VALUES (%s, %s::halfvec) ON CONFLICT (chunk) DO UPDATE SET vector = excluded.vector"
    ).format(table)
    async with db.cursor() as cursor:
        await cursor.executemany(
            insert, [(numbers[ref], format_vector(vector)) for ref, vector in vectors if ref in numbers]
        )


async def _insert_chunks(db: Connection, document_number: int, document: Document) -> list[_StoredChunk]:
    chunks: list[_StoredChunk] = []
    for chunk in document.chunks:
        headings = " ".join(heading for heading in chunk.headings if heading != document.title)
        full_text = f"{document.title} {headings}\n{chunk.text}"
        values = (
            document_number,
            chunk.ordinal,
            json.dumps(list(chunk.headings)),
            chunk.start,
            chunk.end,
            chunk.text,
            # What the lexical index has, by weight: title, headings, words, identifiers.
            document.title,
            headings,
            f"{chunk.text}\n{split_camel_case(full_text)}",
            extract_identifiers(full_text),
        )
        row = await (await db.execute(_INSERT_CHUNK, values)).fetchone()
        assert row is not None, "an insert gives its row"
        embedding_text = build_embedding_text(document.title, chunk.headings, chunk.text)
        chunks.append(_StoredChunk(row["number"], embedding_text))
    numbers = [chunk.number for chunk in chunks]
    await db.execute("INSERT INTO uncounted SELECT unnest(%s::bigint[])", (numbers,))
    return chunks


async def _move_vectors(
    db: Connection, old_chunks: Sequence[_StoredChunk], new_chunks: Sequence[_StoredChunk]
) -> None:
    """Gives the vectors of old chunks to the new chunks with the same text."""
    number_by_text = {chunk.embedding_text: chunk.number for chunk in reversed(new_chunks)}
    old_numbers: list[int] = []
    new_numbers: list[int] = []
    for chunk in old_chunks:
        if chunk.embedding_text in number_by_text:
            old_numbers.append(chunk.number)
            new_numbers.append(number_by_text.pop(chunk.embedding_text))
    if not old_numbers:
        return
    for table in await list_vector_tables(db):
        await db.execute(
            SQL(
                "UPDATE {} v SET chunk = m.new FROM unnest(%s::bigint[], %s::bigint[]) m(old, new) "
                "WHERE v.chunk = m.old"
            ).format(table),
            (old_numbers, new_numbers),
        )


async def _delete_chunks(db: Connection, numbers: Sequence[int]) -> None:
    if not numbers:
        return
    uncounted = await (
        await db.execute("DELETE FROM uncounted WHERE chunk = ANY(%s) RETURNING chunk", (list(numbers),))
    ).fetchall()
    counted = sorted(set(numbers) - {row["chunk"] for row in uncounted})
    await db.execute(SQL(_COUNT_LEXEMES).format(SQL("-")), (counted,))
    await db.execute("UPDATE totals SET chunks = chunks - %s", (len(counted),))
    await db.execute("DELETE FROM chunks WHERE number = ANY(%s)", (list(numbers),))


async def _lock_chunks(db: Connection, document_id: str) -> list[_StoredChunk]:
    """The chunks of a document, locked for other transactions."""
    rows = await db.execute(
        "SELECT c.*, d.document_id, d.title FROM documents d JOIN chunks c ON c.document = d.number "
        "WHERE d.document_id = %s FOR UPDATE",
        (document_id,),
    )
    return [_StoredChunk(row["number"], _create_ref(row).text) for row in await rows.fetchall()]


def _write_names(names: VisibleTo) -> list[str] | None:
    if names is None:
        return None
    return list(names)


def _create_ref(row: dict[str, Any]) -> ChunkRef:
    text = build_embedding_text(row["title"], row["headings"], row["text"])
    return ChunkRef(row["document_id"], row["ordinal"], text)


async def update_mark(db: Connection, document_id: str, mark: str) -> None:
    await db.execute("UPDATE documents SET mark = %s WHERE document_id = %s", (mark, document_id))


async def put_group(db: Connection, name: str, members: Collection[str]) -> None:
    """Adds a group, or replaces its members."""
    await db.execute("DELETE FROM group_members WHERE group_name = %s", (name,))
    await db.execute(
        "INSERT INTO group_members(member, group_name) SELECT DISTINCT unnest(%s::text[]), %s",
        (list(members), name),
    )
