"""What is written to the tables of the knowledge base in PostgreSQL."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from psycopg.sql import SQL

from ai_platform_engineering.knowledge_bases.documents import Document
from ai_platform_engineering.knowledge_bases.search.tokens import extract_identifiers, split_camel_case
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    ChunkRef,
    Vector,
    build_embedding_text,
)
from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_search import format_vector
from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_tables import (
    Connection,
    ensure_vector_table,
    find_vector_table,
    list_vector_tables,
)

_INSERT = (
    "INSERT INTO chunks(document, ordinal, headings, start, stop, text, words) VALUES (%s, %s, %s, %s, %s, %s, "
    "setweight(to_tsvector('english', %s), 'A') || setweight(to_tsvector('english', %s), 'B') || "
    "setweight(to_tsvector('english', %s), 'D') || setweight(to_tsvector('simple', %s), 'C')) RETURNING number"
)
_COUNT = (
    "INSERT INTO lexemes AS l SELECT lexeme, {} count(*) FROM chunks c, unnest(c.words) WHERE c.number = ANY(%s) "
    "GROUP BY lexeme ORDER BY lexeme ON CONFLICT (word) DO UPDATE SET chunks = l.chunks + excluded.chunks"
)


async def put_document(db: Connection, new: Document, mark: str) -> None:
    old = await _embedded(db, new.document_id)
    row = await (
        await db.execute(
            "INSERT INTO documents(document_id, datasource, address, title, kind, digest, mark, link, changed, text) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (document_id) DO UPDATE SET datasource = excluded.datasource, "
            "address = excluded.address, title = excluded.title, kind = excluded.kind, digest = excluded.digest, mark = excluded.mark, "
            "link = excluded.link, changed = excluded.changed, text = excluded.text RETURNING number",
            (
                new.document_id,
                new.datasource,
                new.address,
                new.title,
                new.kind,
                new.digest,
                mark,
                new.link,
                new.changed,
                new.text,
            ),
        )
    ).fetchone()
    assert row is not None, "an upsert gives its row"
    added = await _put_chunks(db, row["number"], new)
    await _keep_vectors(db, old, added)
    await _delete_chunks(db, [number for number, _ in old])


async def delete_documents(db: Connection, document_ids: Collection[str]) -> None:
    ids = list(document_ids)
    chunks = await db.execute(
        "SELECT c.number FROM chunks c JOIN documents d ON d.number = c.document WHERE d.document_id = ANY(%s)",
        (ids,),
    )
    await _delete_chunks(db, [row["number"] for row in await chunks.fetchall()])
    await db.execute("DELETE FROM documents WHERE document_id = ANY(%s)", (ids,))


async def count_new_chunks(db: Connection) -> None:
    """The words of new chunks are known from now on."""
    gone = await (await db.execute("DELETE FROM uncounted RETURNING chunk")).fetchall()
    if chunks := [row["chunk"] for row in gone]:
        await db.execute(SQL(_COUNT).format(SQL("")), (chunks,))
        await db.execute("UPDATE totals SET chunks = chunks + %s", (len(chunks),))


async def count_by_datasource(db: Connection) -> dict[str, dict[str, int]]:
    """By datasource: documents, chunks, and those that have a vector."""
    tables = [SQL("SELECT chunk FROM {}").format(table) for table in await list_vector_tables(db)]
    vectors = SQL(" UNION ").join([SQL("SELECT NULL::bigint AS chunk").format(), *tables])
    rows = await db.execute(
        SQL(
            "SELECT d.datasource, count(DISTINCT d.number) AS documents, count(c.number) AS chunks, count(v.chunk) AS embedded "
            "FROM documents d LEFT JOIN chunks c ON c.document = d.number LEFT JOIN ({}) v ON v.chunk = c.number GROUP BY d.datasource"
        ).format(vectors)
    )
    return {row.pop("datasource"): row for row in await rows.fetchall()}


async def select_chunks_without_vector(
    db: Connection, model: str, floor: int, limit: int
) -> list[tuple[int, ChunkRef]]:
    """By number, those after the chunk `floor`."""
    found = await find_vector_table(db, model)
    missing = (
        SQL("true")
        if found is None
        else SQL("NOT EXISTS (SELECT 1 FROM {} v WHERE v.chunk = c.number)").format(found[0])
    )
    rows = await db.execute(
        SQL(
            "SELECT c.number, c.ordinal, c.headings, c.text, d.document_id, d.title "
            "FROM chunks c JOIN documents d ON d.number = c.document WHERE c.number > %s AND {} ORDER BY c.number LIMIT %s"
        ).format(missing),
        (floor, limit),
    )
    return [(row["number"], _ref(row)) for row in await rows.fetchall()]


async def put_vectors(db: Connection, model: str, vectors: Sequence[tuple[ChunkRef, Vector]]) -> None:
    """A chunk that has gone or changed meanwhile gets none."""
    table = await ensure_vector_table(db, model, len(vectors[0][1]))
    rows = await db.execute(
        "SELECT c.number, c.ordinal, c.headings, c.text, d.document_id, d.title FROM unnest(%s::text[], %s::integer[]) w(id, place) "
        "JOIN documents d ON d.document_id = w.id JOIN chunks c ON c.document = d.number AND c.ordinal = w.place FOR SHARE OF c",
        ([ref.document_id for ref, _ in vectors], [ref.ordinal for ref, _ in vectors]),
    )
    numbers = {_ref(row): row["number"] for row in await rows.fetchall()}
    async with db.cursor() as cursor:
        await cursor.executemany(
            SQL(
                "INSERT INTO {} VALUES (%s, %s::halfvec) ON CONFLICT (chunk) DO UPDATE SET vector = excluded.vector"
            ).format(table),
            [(numbers[ref], format_vector(vector)) for ref, vector in vectors if ref in numbers],
        )


async def _put_chunks(db: Connection, document: int, new: Document) -> list[tuple[int, str]]:
    """Their numbers, with what is embedded of them."""
    added: list[tuple[int, str]] = []
    for chunk in new.chunks:
        above = " ".join(one for one in chunk.headings if one != new.title)
        whole = f"{new.title} {above}\n{chunk.text}"
        looked_for = (
            new.title,
            above,
            f"{chunk.text}\n{split_camel_case(whole)}",
            extract_identifiers(whole),
        )
        values = (
            document,
            chunk.ordinal,
            json.dumps(list(chunk.headings)),
            chunk.start,
            chunk.end,
            chunk.text,
        )
        row = await (await db.execute(_INSERT, (*values, *looked_for))).fetchone()
        assert row is not None, "an insert gives its row"
        added.append((row["number"], build_embedding_text(new.title, chunk.headings, chunk.text)))
    await db.execute("INSERT INTO uncounted SELECT unnest(%s::bigint[])", ([number for number, _ in added],))
    return added


async def _keep_vectors(
    db: Connection, old: Sequence[tuple[int, str]], new: Sequence[tuple[int, str]]
) -> None:
    """A chunk that stays as it is keeps its vectors."""
    by_text = {text: number for number, text in reversed(new)}
    moved = [(number, by_text.pop(text)) for number, text in old if text in by_text]
    if not moved:
        return
    for table in await list_vector_tables(db):
        await db.execute(
            SQL(
                "UPDATE {} v SET chunk = m.new FROM unnest(%s::bigint[], %s::bigint[]) m(old, new) WHERE v.chunk = m.old"
            ).format(table),
            ([one for one, _ in moved], [other for _, other in moved]),
        )


async def _delete_chunks(db: Connection, numbers: Sequence[int]) -> None:
    if not numbers:
        return
    uncounted = await (
        await db.execute("DELETE FROM uncounted WHERE chunk = ANY(%s) RETURNING chunk", (list(numbers),))
    ).fetchall()
    counted = sorted(set(numbers) - {row["chunk"] for row in uncounted})
    await db.execute(SQL(_COUNT).format(SQL("-")), (counted,))
    await db.execute("UPDATE totals SET chunks = chunks - %s", (len(counted),))
    await db.execute("DELETE FROM chunks WHERE number = ANY(%s)", (list(numbers),))


async def _embedded(db: Connection, document_id: str) -> list[tuple[int, str]]:
    """The chunks of a document that others leave alone now, with what is embedded of them."""
    rows = await db.execute(
        "SELECT c.*, d.document_id, d.title FROM documents d JOIN chunks c ON c.document = d.number WHERE d.document_id = %s FOR UPDATE",
        (document_id,),
    )
    return [(row["number"], _ref(row).text) for row in await rows.fetchall()]


def _ref(row: dict[str, Any]) -> ChunkRef:
    return ChunkRef(
        row["document_id"], row["ordinal"], build_embedding_text(row["title"], row["headings"], row["text"])
    )
