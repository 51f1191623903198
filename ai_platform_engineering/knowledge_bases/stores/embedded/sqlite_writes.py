"""Writes to the SQLite tables of the embedded store."""

import json
import sqlite3
import struct
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.files.sqlite_file import microseconds
from ai_platform_engineering.knowledge_bases.access import VisibleTo
from ai_platform_engineering.knowledge_bases.documents import Chunk, Document
from ai_platform_engineering.knowledge_bases.stores.embedded.sqlite_reads import (
    has_unindexed,
    select_chunk_texts,
    select_deleted_documents,
)
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    ChunkRef,
    Datasource,
    Vector,
    build_embedding_text,
)

T = TypeVar("T")
Numbers = list[int]


def begin(db: sqlite3.Connection) -> None:
    if not db.in_transaction:
        db.execute("BEGIN IMMEDIATE")


def run_in_savepoint(db: sqlite3.Connection, work: Callable[[], T]) -> T:
    """Runs the work in the open transaction, or in a new one; an error of its own undoes the work alone."""
    begin(db)
    db.execute("SAVEPOINT work")
    try:
        result = work()
    except sqlite3.OperationalError:
        raise  # a full disk or the like: SQLite may have undone the whole transaction
    except BaseException:
        db.execute("ROLLBACK TO work")
        db.execute("RELEASE work")
        raise
    db.execute("RELEASE work")
    return result


def put_datasource(db: sqlite3.Connection, datasource: Datasource) -> None:
    db.execute(
        "INSERT INTO datasources(name, location, kind, title, options, refreshed, cursor, visible_to) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(name) DO UPDATE SET "
        "location = excluded.location, kind = excluded.kind, title = excluded.title, "
        "options = excluded.options, refreshed = excluded.refreshed, cursor = excluded.cursor",
        (
            datasource.name,
            datasource.location,
            datasource.kind,
            datasource.title,
            json.dumps(dict(datasource.options)),
            _write_time(datasource.refreshed),
            datasource.cursor,
            _write_names(datasource.visible_to),
        ),
    )


def set_visible_to(db: sqlite3.Connection, name: str, visible_to: VisibleTo) -> None:
    db.execute("UPDATE datasources SET visible_to = ? WHERE name = ?", (_write_names(visible_to), name))


def set_schedule(
    db: sqlite3.Connection, name: str, every: int | None, due: datetime | None, failures: int
) -> None:
    db.execute(
        "UPDATE datasources SET refresh_every = ?, refresh_due = ?, refresh_failures = ? WHERE name = ?",
        (every, _write_time(due), failures, name),
    )


def put_group(db: sqlite3.Connection, name: str, members: Collection[str]) -> None:
    remove_group(db, name)
    db.executemany("INSERT INTO group_members VALUES (?, ?)", ((member, name) for member in set(members)))


def remove_group(db: sqlite3.Connection, name: str) -> bool:
    return db.execute("DELETE FROM group_members WHERE group_name = ?", (name,)).rowcount > 0


def put_document(db: sqlite3.Connection, document: Document, mark: str) -> Numbers:
    """Replaces a document; returns the numbers of deleted vectors.

    A chunk with the same text as before keeps its vectors."""
    vectors_by_text = _select_vectors_by_text(db, document.document_id)
    old_vectors = delete_documents(db, [document.document_id], keep_vectors=True)
    number = _insert_document(db, document, mark)
    reused: set[int] = set()
    for chunk in document.chunks:
        chunk_number = _insert_chunk(db, number, document.text, chunk)
        embedding_text = build_embedding_text(document.title, chunk.headings, chunk.text)
        for vector in vectors_by_text.pop(embedding_text, ()):
            db.execute("UPDATE vectors SET chunk = ? WHERE number = ?", (chunk_number, vector))
            reused.add(vector)
    deleted = [vector for vector in old_vectors if vector not in reused]
    db.executemany("DELETE FROM vectors WHERE number = ?", ((vector,) for vector in deleted))
    return deleted


def _insert_document(db: sqlite3.Connection, document: Document, mark: str) -> int:
    row = db.execute(
        "INSERT INTO documents(document_id, datasource, address, title, kind, digest, mark, link, changed, "
        "generation, text, missing, visible_to, metadata) "
        "SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, writing, ?, ?, ?, ? FROM state "
        "RETURNING number",
        (
            document.document_id,
            document.datasource,
            document.address,
            document.title,
            document.kind,
            document.digest,
            mark,
            document.link,
            _write_time(document.changed),
            document.text,
            document.missing,
            _write_names(document.visible_to),
            json.dumps(dict(document.metadata)),
        ),
    ).fetchone()
    number = int(row[0])
    if document.visible_to is not None:
        rows = ((name, number) for name in {"", *document.visible_to})
        db.executemany("INSERT INTO document_viewers VALUES (?, ?)", rows)
    return number


def update_mark(db: sqlite3.Connection, document_id: str, mark: str) -> None:
    db.execute("UPDATE documents SET mark = ? WHERE document_id = ?", (mark, document_id))


def delete_documents(
    db: sqlite3.Connection, document_ids: Collection[str], *, keep_vectors: bool = False
) -> Numbers:
    """Deletes documents; returns the numbers of their vectors, which `keep_vectors` leaves in place."""
    vectors: Numbers = []
    for document_id in document_ids:
        row = db.execute("SELECT number FROM documents WHERE document_id = ?", (document_id,)).fetchone()
        if row is None:
            continue
        number = row[0]
        where = "chunk IN (SELECT number FROM chunks WHERE document = ?)"
        for vector_row in db.execute(f"SELECT number FROM vectors WHERE {where}", (number,)):  # noqa: S608
            vectors.append(vector_row[0])
        if not keep_vectors:
            db.execute(f"DELETE FROM vectors WHERE {where}", (number,))  # noqa: S608
        db.execute("DELETE FROM chunks WHERE document = ?", (number,))
        db.execute("DELETE FROM document_viewers WHERE document = ?", (number,))
        db.execute("DELETE FROM documents WHERE number = ?", (number,))
        db.execute("INSERT INTO gone VALUES (?)", (number,))
    return vectors


def remove_datasource(db: sqlite3.Connection, name: str) -> tuple[bool, Numbers]:
    """Deletes a datasource and its documents; returns whether there was anything, and the numbers of its
    vectors."""
    rows = db.execute("SELECT document_id FROM documents WHERE datasource = ?", (name,))
    document_ids = [row[0] for row in rows]
    vectors = delete_documents(db, document_ids)
    existed = db.execute("DELETE FROM datasources WHERE name = ?", (name,)).rowcount > 0
    return existed or bool(document_ids), vectors


def _ensure_model(db: sqlite3.Connection, name: str, dimensions: int) -> int:
    """The number of an embedding model, which is added if it is new; its vectors all have the same
    dimensions."""
    row = db.execute("SELECT model, dimensions, state FROM models WHERE name = ?", (name,)).fetchone()
    if row is None:
        cursor = db.execute("INSERT INTO models(name, dimensions) VALUES (?, ?)", (name, dimensions))
        return int(cursor.lastrowid or 0)
    if row["dimensions"] != dimensions:
        raise ConfigurationError(
            f"The embedding model {name} used to return {row['dimensions']} dimensions "
            f"and now returns {dimensions}. "
            "Set EMBEDDINGS_MODEL to the model that the server runs."
        )
    if row["state"] in {"purging", "purged"}:
        db.execute("UPDATE models SET state = 'partial' WHERE name = ?", (name,))
    return int(row["model"])


def mark_complete(db: sqlite3.Connection, name: str) -> None:
    db.execute("UPDATE models SET state = 'complete' WHERE name = ? AND state = 'partial'", (name,))


def begin_purge(db: sqlite3.Connection, keep: str) -> Numbers:
    """The models whose vectors are to be deleted; none of them answers any more."""
    db.execute("UPDATE models SET state = 'purging' WHERE name <> ? AND state <> 'purged'", (keep,))
    return [row[0] for row in db.execute("SELECT model FROM models WHERE state = 'purging'")]


def purge_vectors(db: sqlite3.Connection, model: int, after: int, limit: int) -> int | None:
    """Deletes some vectors of a model, those with higher numbers than `after`; returns the `after` of the
    next call, None when no more are left."""
    rows = db.execute(
        "SELECT number FROM vectors WHERE number > ? AND model = ? ORDER BY number LIMIT ?",
        (after, model, limit),
    ).fetchall()
    if not rows:
        db.execute("UPDATE models SET state = 'purged' WHERE model = ?", (model,))
        return None
    numbers: Numbers = [row[0] for row in rows]
    db.executemany("DELETE FROM vectors WHERE number = ?", ((number,) for number in numbers))
    return numbers[-1]


def encode_vector(vector: Vector) -> bytes:
    """A vector as it is stored: little-endian numbers of two bytes."""
    try:
        return struct.pack(f"<{len(vector)}e", *vector)
    except (OverflowError, struct.error):
        raise ConfigurationError(
            "The embedding model returned values that do not fit into a vector."
        ) from None


def put_vectors(
    db: sqlite3.Connection, name: str, dimensions: int, vectors: Iterable[tuple[ChunkRef, bytes]]
) -> Numbers:
    """Stores vectors; returns the numbers of those that they replace.

    A chunk that was deleted or changed meanwhile gets none."""
    model = _ensure_model(db, name, dimensions)
    old: Numbers = []
    for ref, vector in vectors:
        chunk = _find_chunk(db, ref)
        if chunk is None:
            continue
        replaced = db.execute(
            "DELETE FROM vectors WHERE chunk = ? AND model = ? RETURNING number", (chunk, model)
        ).fetchall()
        old += [row[0] for row in replaced]
        db.execute("INSERT INTO vectors(model, chunk, vector) VALUES (?, ?, ?)", (model, chunk, vector))
    return old


@dataclass(frozen=True, slots=True)
class UnindexedRows:
    """Committed rows that the lexical index may lack: documents up to a generation, and the numbers of those
    that were deleted."""

    generation: int
    deleted: Numbers


def commit_rows(db: sqlite3.Connection) -> UnindexedRows | None:
    """Commits; returns what the lexical index lacks, if anything. What comes after it is of the next
    generation."""
    if not has_unindexed(db):
        if db.in_transaction:
            db.execute("COMMIT")
        return None
    begin(db)
    (generation,) = db.execute("UPDATE state SET writing = writing + 1 RETURNING writing - 1").fetchone()
    rows = UnindexedRows(generation, select_deleted_documents(db))
    db.execute("COMMIT")
    return rows


def mark_indexed(db: sqlite3.Connection, rows: UnindexedRows) -> None:
    """Notes, and commits, that the lexical index has these rows."""
    begin(db)
    db.execute("UPDATE state SET indexed = max(indexed, ?)", (rows.generation,))
    db.execute(
        "DELETE FROM gone WHERE document IN (SELECT value FROM json_each(?))", (json.dumps(rows.deleted),)
    )
    db.execute("COMMIT")


def _insert_chunk(db: sqlite3.Connection, document: int, text: str, chunk: Chunk) -> int:
    """The text is stored only where it is not a slice of the document's text."""
    own_text: str | None = chunk.text
    if text[chunk.start : chunk.end] == chunk.text and "\0" not in text:  # SQL's substr ends at a NUL
        own_text = None
    values = (document, chunk.ordinal, json.dumps(list(chunk.headings)), chunk.start, chunk.end, own_text)
    cursor = db.execute(
        "INSERT INTO chunks(document, ordinal, headings, start, stop, text) VALUES (?, ?, ?, ?, ?, ?)", values
    )
    return int(cursor.lastrowid or 0)


def _select_vectors_by_text(db: sqlite3.Connection, document_id: str) -> dict[str, Numbers]:
    """The numbers of a document's vectors by the text that was embedded."""
    if db.execute("SELECT 1 FROM models LIMIT 1").fetchone() is None:
        return {}
    vectors: dict[str, Numbers] = {}
    for ref, chunk in select_chunk_texts(db, "d.document_id = ?", document_id):
        rows = db.execute("SELECT number FROM vectors WHERE chunk = ?", (chunk,)).fetchall()
        vectors.setdefault(ref.text, [row[0] for row in rows])
    return vectors


def _find_chunk(db: sqlite3.Connection, ref: ChunkRef) -> int | None:
    """The number of a chunk, if its text has not changed."""
    where = "d.document_id = ? AND c.ordinal = ?"
    for stored, number in select_chunk_texts(db, where, ref.document_id, ref.ordinal):
        if stored.text == ref.text:
            return number
    return None


def _write_names(names: VisibleTo) -> str | None:
    if names is None:
        return None
    return json.dumps(list(names))


def _write_time(time: datetime | None) -> int | None:
    if time is None:
        return None
    return microseconds(time)
