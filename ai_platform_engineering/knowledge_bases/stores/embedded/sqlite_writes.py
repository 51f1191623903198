"""What is written to the tables of the embedded knowledge base."""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.knowledge_bases.documents import Chunk, Document
from ai_platform_engineering.knowledge_bases.stores.embedded.sqlite_reads import select_chunk_texts
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    ChunkRef,
    Datasource,
    IngestJob,
    build_embedding_text,
)
from ai_platform_engineering.runtime.log.sqlite_database import microseconds

T = TypeVar("T")
Numbers = list[int]


def begin(db: sqlite3.Connection) -> None:
    if not db.in_transaction:
        db.execute("BEGIN IMMEDIATE")


def run_in_savepoint(db: sqlite3.Connection, work: Callable[[], T]) -> T:
    """The work within the open transaction; an error of its own undoes the work alone."""
    begin(db)
    db.execute("SAVEPOINT work")
    try:
        done = work()
    except sqlite3.OperationalError:
        raise  # a full disk or the like: SQLite may have undone the whole transaction
    except BaseException:
        db.execute("ROLLBACK TO work")
        db.execute("RELEASE work")
        raise
    db.execute("RELEASE work")
    return done


def put_datasource(db: sqlite3.Connection, new: Datasource) -> None:
    db.execute(
        "INSERT INTO datasources VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT(name) DO UPDATE SET location = excluded.location, "
        "kind = excluded.kind, title = excluded.title, options = excluded.options, refreshed = excluded.refreshed",
        (
            new.name,
            new.location,
            new.kind,
            new.title,
            json.dumps(dict(new.options)),
            new.refreshed and microseconds(new.refreshed),
        ),
    )


def put_job(db: sqlite3.Connection, job: IngestJob) -> None:
    db.execute(
        "INSERT INTO jobs(job_id, datasource, state, total, done, skipped, removed, failed, problem, created, ended) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(job_id) DO UPDATE SET datasource = excluded.datasource, "
        "state = excluded.state, total = excluded.total, done = excluded.done, skipped = excluded.skipped, removed = excluded.removed, "
        "failed = excluded.failed, problem = excluded.problem, created = excluded.created, ended = excluded.ended",
        (
            *(job.job_id, job.datasource, job.state, job.total, job.done, job.skipped, job.removed),
            *(json.dumps([list(one) for one in job.failed]), job.problem),
            *(at and microseconds(at) for at in (job.created, job.ended)),
        ),
    )


def put_document(db: sqlite3.Connection, new: Document, mark: str) -> tuple[int, Numbers, Numbers]:
    """Its number, the numbers of its chunks, and those of the vectors that are gone."""
    vectors = _vectors_by_text(db, new.document_id)
    gone = delete_documents(db, [new.document_id], keep_vectors=True)
    number = db.execute(
        "INSERT INTO documents(document_id, datasource, address, title, kind, digest, mark, link, changed, generation, text) "
        "SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, writing, ? FROM state RETURNING number",
        (
            *(new.document_id, new.datasource, new.address, new.title, new.kind, new.digest, mark, new.link),
            *(new.changed and microseconds(new.changed), new.text),
        ),
    ).fetchone()[0]
    chunks = [_put_chunk(db, number, new.text, chunk) for chunk in new.chunks]
    kept: set[int] = set()
    for chunk, row in zip(new.chunks, chunks, strict=True):
        for vector in vectors.pop(build_embedding_text(new.title, chunk.headings, chunk.text), ()):
            db.execute("UPDATE vectors SET chunk = ? WHERE number = ?", (row, vector))
            kept.add(vector)
    lost = [vector for vector in gone if vector not in kept]
    db.executemany("DELETE FROM vectors WHERE number = ?", ((vector,) for vector in lost))
    return number, chunks, lost


def update_mark(db: sqlite3.Connection, document_id: str, mark: str) -> None:
    db.execute("UPDATE documents SET mark = ? WHERE document_id = ?", (mark, document_id))


def delete_documents(
    db: sqlite3.Connection, document_ids: Collection[str], *, keep_vectors: bool = False
) -> Numbers:
    """The numbers of the vectors that go with them."""
    vectors: Numbers = []
    for document_id in document_ids:
        found = db.execute("SELECT number FROM documents WHERE document_id = ?", (document_id,)).fetchone()
        if found is None:
            continue
        number = found[0]
        of_chunks = "chunk IN (SELECT number FROM chunks WHERE document = ?)"
        vectors += [row[0] for row in db.execute(f"SELECT number FROM vectors WHERE {of_chunks}", (number,))]  # noqa: S608
        if not keep_vectors:
            db.execute(f"DELETE FROM vectors WHERE {of_chunks}", (number,))  # noqa: S608
        db.execute("DELETE FROM chunks WHERE document = ?", (number,))
        db.execute("DELETE FROM documents WHERE number = ?", (number,))
        db.execute("INSERT INTO gone VALUES (?)", (number,))
    return vectors


def remove_datasource(db: sqlite3.Connection, name: str) -> tuple[bool, Numbers]:
    ids = [row[0] for row in db.execute("SELECT document_id FROM documents WHERE datasource = ?", (name,))]
    vectors = delete_documents(db, ids)
    known = db.execute("DELETE FROM datasources WHERE name = ?", (name,)).rowcount > 0
    return known or bool(ids), vectors


def _model_of(db: sqlite3.Connection, name: str, dimensions: int) -> int:
    """The number of an embedding model; its vectors all have the same length."""
    found = db.execute("SELECT model, dimensions FROM models WHERE name = ?", (name,)).fetchone()
    if found is None:
        cursor = db.execute("INSERT INTO models(name, dimensions) VALUES (?, ?)", (name, dimensions))
        return int(cursor.lastrowid or 0)
    if found["dimensions"] != dimensions:
        raise ConfigurationError(
            f"The embedding model {name} gave vectors of {found['dimensions']} numbers before and of {dimensions} now. "
            "Set EMBEDDINGS_MODEL to the model that is really served."
        )
    return int(found["model"])


def put_vectors(
    db: sqlite3.Connection, name: str, dimensions: int, vectors: Iterable[tuple[ChunkRef, bytes]]
) -> tuple[int, list[tuple[int, bytes]], Numbers]:
    """The number of the model, new vectors by number, and the numbers of those that they replace.

    A chunk that has gone or changed meanwhile gets none."""
    model = _model_of(db, name, dimensions)
    new: list[tuple[int, bytes]] = []
    old: Numbers = []
    for ref, vector in vectors:
        chunk = _same_chunk(db, ref)
        if chunk is None:
            continue
        replaced = db.execute(
            "DELETE FROM vectors WHERE chunk = ? AND model = ? RETURNING number", (chunk, model)
        ).fetchall()
        old += [row[0] for row in replaced]
        number = db.execute(
            "INSERT INTO vectors(model, chunk, vector) VALUES (?, ?, ?)", (model, chunk, vector)
        ).lastrowid
        new.append((int(number or 0), vector))
    return model, new, old


def mark_all_indexed(db: sqlite3.Connection) -> None:
    """The lexical index has what was written so far; what comes now is of the next generation."""
    db.execute("UPDATE state SET indexed = writing, writing = writing + 1")
    db.execute("DELETE FROM gone")


def _put_chunk(db: sqlite3.Connection, document: int, text: str, chunk: Chunk) -> int:
    same = text[chunk.start : chunk.end] == chunk.text and "\0" not in text  # SQL's substr ends at a NUL
    own = None if same else chunk.text
    values = (document, chunk.ordinal, json.dumps(list(chunk.headings)), chunk.start, chunk.end, own)
    inserted = db.execute(
        "INSERT INTO chunks(document, ordinal, headings, start, stop, text) VALUES (?, ?, ?, ?, ?, ?)", values
    )
    return int(inserted.lastrowid or 0)


def _vectors_by_text(db: sqlite3.Connection, document_id: str) -> dict[str, Numbers]:
    """The vectors of a document by what was embedded: a chunk that stays as it is keeps its own."""
    if db.execute("SELECT 1 FROM models LIMIT 1").fetchone() is None:
        return {}
    found: dict[str, Numbers] = {}
    for ref, chunk in select_chunk_texts(db, "d.document_id = ?", document_id):
        rows = db.execute("SELECT number FROM vectors WHERE chunk = ?", (chunk,)).fetchall()
        found.setdefault(ref.text, [row[0] for row in rows])
    return found


def _same_chunk(db: sqlite3.Connection, ref: ChunkRef) -> int | None:
    for found, chunk in select_chunk_texts(
        db, "d.document_id = ? AND c.ordinal = ?", ref.document_id, ref.ordinal
    ):
        if found.text == ref.text:
            return chunk
        return None
    return None
