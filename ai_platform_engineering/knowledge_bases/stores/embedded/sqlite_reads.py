"""What is read from the tables of the embedded knowledge base."""

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.knowledge_bases.documents import Chunk, Document
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    ChunkRef,
    Datasource,
    DocumentVersion,
    IngestJob,
    build_embedding_text,
)
from ai_platform_engineering.runtime.log.sqlite_database import moment

Condition = tuple[str, list[str]]  # SQL on the documents `d`, and its values

_FILTERS = {
    "kind": "d.kind = ?",
    "title": "instr(lower(d.title), lower(?)) > 0",
    "path": "instr(d.address, ?) = 1",
}
_TEXT = "coalesce(c.text, substr(d.text, c.start + 1, c.stop - c.start))"
_CHUNKS = "chunks c JOIN documents d ON d.number = c.document"
_VECTORS = "vectors v JOIN chunks c ON c.number = v.chunk JOIN documents d ON d.number = c.document"


@dataclass(frozen=True, slots=True)
class LexicalEntry:
    """A chunk as it is looked for."""

    chunk: int
    document: int
    datasource: str
    title: str
    headings: Sequence[str]
    text: str


def select_datasources(db: sqlite3.Connection) -> list[Datasource]:
    documents = dict(_pairs(db, "SELECT datasource, count(*) FROM documents GROUP BY datasource"))
    chunks = dict(_pairs(db, f"SELECT d.datasource, count(*) FROM {_CHUNKS} GROUP BY d.datasource"))  # noqa: S608
    vectors = f"SELECT d.datasource, count(DISTINCT v.chunk) FROM {_VECTORS} GROUP BY d.datasource"  # noqa: S608
    embedded = dict(_pairs(db, vectors))
    return [
        Datasource(
            row["name"],
            row["location"],
            row["kind"],
            row["title"],
            json.loads(row["options"]),
            documents.get(row["name"], 0),
            chunks.get(row["name"], 0),
            embedded.get(row["name"], 0),
            row["refreshed"] and moment(row["refreshed"]),
        )
        for row in db.execute("SELECT * FROM datasources ORDER BY name")
    ]


def select_jobs(db: sqlite3.Connection, *, unfinished: bool) -> list[IngestJob]:
    only = "WHERE state IN ('waiting', 'running')" if unfinished else ""
    return [
        IngestJob(
            *(
                row["job_id"],
                row["datasource"],
                row["state"],
                row["total"],
                row["done"],
                row["skipped"],
                row["removed"],
            ),
            tuple((address, why) for address, why in json.loads(row["failed"])),
            row["problem"],
            *(row[name] and moment(row[name]) for name in ("created", "ended")),
        )
        for row in db.execute(f"SELECT * FROM jobs {only} ORDER BY number DESC")  # noqa: S608
    ]


def select_versions(db: sqlite3.Connection, datasource: str) -> dict[str, DocumentVersion]:
    rows = db.execute(
        "SELECT document_id, address, digest, mark FROM documents WHERE datasource = ?", (datasource,)
    )
    return {row["address"]: DocumentVersion(*row) for row in rows}


def select_document(db: sqlite3.Connection, document_id: str) -> Document | None:
    row = db.execute("SELECT * FROM documents WHERE document_id = ?", (document_id,)).fetchone()
    if row is None:
        return None
    chunks = db.execute("SELECT * FROM chunks WHERE document = ? ORDER BY ordinal", (row["number"],))
    return _document(row, row["text"], tuple(_chunk(chunk, row["text"]) for chunk in chunks))


def select_documents(db: sqlite3.Connection, datasource: str, after: str, limit: int) -> list[Document]:
    rows = db.execute(
        "SELECT document_id, datasource, title, address, digest, link, kind, changed FROM documents "
        "WHERE datasource = ? AND address > ? ORDER BY address LIMIT ?",
        (datasource, after, limit),
    )
    return [_document(row, "", ()) for row in rows]


def select_chunk_texts(db: sqlite3.Connection, where: str, *values: Any) -> Iterator[tuple[ChunkRef, int]]:
    """Chunks with the text to embed, and their numbers. `where` is ours, never a user's."""
    query = f"SELECT c.number, c.ordinal, c.headings, d.document_id, d.title, {_TEXT} AS text FROM {_CHUNKS} WHERE {where}"  # noqa: S608
    for row in db.execute(query, values):
        text = build_embedding_text(row["title"], json.loads(row["headings"]), row["text"])
        yield ChunkRef(row["document_id"], row["ordinal"], text), row["number"]


def select_chunks_without_vector(
    db: sqlite3.Connection, model: int, floor: int, limit: int
) -> tuple[list[ChunkRef], int]:
    """Those after the chunk `floor`, and the floor of the next call: no chunk up to it waits."""
    waiting = "c.number > ? AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.chunk = c.number AND v.model = ?) ORDER BY c.number LIMIT ?"
    found = list(select_chunk_texts(db, waiting, floor, model, limit))
    last = db.execute("SELECT max(number) FROM chunks").fetchone()[0] or 0
    return [ref for ref, _ in found], found[0][1] - 1 if found else max(floor, last)


def find_model(db: sqlite3.Connection, name: str) -> tuple[int, int] | None:
    """Its number and how long its vectors are."""
    row = db.execute("SELECT model, dimensions FROM models WHERE name = ?", (name,)).fetchone()
    if row:
        return (row[0], row[1])
    return None


def select_vectors_between(
    db: sqlite3.Connection, model: int, first: int, last: int
) -> list[tuple[int, bytes]]:
    rows = db.execute(
        "SELECT number, vector FROM vectors WHERE number BETWEEN ? AND ? AND model = ? ORDER BY number",
        (first, last, model),
    )
    return [(row[0], row[1]) for row in rows]


def find_last_vector_number(db: sqlite3.Connection) -> int:
    """The highest number that a vector has or had."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'vectors'").fetchone()
    if row:
        return int(row[0])
    return 0


def build_condition(datasources: Collection[str], filters: Mapping[str, str]) -> Condition | None:
    """Which documents a search is about; None is all of them."""
    where, values = list[str](), list[str]()
    for name, value in filters.items():
        if name not in _FILTERS:
            raise Refused(
                f"There is no filter {name!r}. Use kind, title (a part of it) or path (how the address begins)."
            )
        where.append(_FILTERS[name])
        values.append(value)
    if datasources:
        where.append("d.datasource IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(sorted(datasources)))
    if where:
        return (" AND ".join(where), values)
    return None


def select_document_numbers(db: sqlite3.Connection, only: Condition) -> list[int]:
    """The numbers of the documents."""
    return [row[0] for row in db.execute(f"SELECT d.number FROM documents d WHERE {only[0]}", only[1])]  # noqa: S608


def count_chunks(db: sqlite3.Connection, only: Condition, most: int) -> int:
    """How many chunks a search is about, counted up to `most`."""
    query = f"SELECT count(*) FROM (SELECT 1 FROM {_CHUNKS} WHERE {only[0]} LIMIT ?)"  # noqa: S608
    return int(db.execute(query, (*only[1], most)).fetchone()[0])


def select_chunks_of_vectors(
    db: sqlite3.Connection, numbers: Sequence[int], only: Condition | None = None
) -> list[int]:
    """In the order of the vectors, without those that are gone or not asked for."""
    where, values = only or ("1", [])
    query = f"SELECT v.number, v.chunk FROM {_VECTORS} WHERE v.number IN (SELECT value FROM json_each(?)) AND {where}"  # noqa: S608
    found = {row[0]: row[1] for row in db.execute(query, (json.dumps(list(numbers)), *values))}
    return [found[number] for number in numbers if number in found]


def select_vector_numbers(db: sqlite3.Connection, model: int, only: Condition) -> list[int]:
    query = f"SELECT v.number FROM {_VECTORS} WHERE v.model = ? AND {only[0]}"  # noqa: S608
    return [row[0] for row in db.execute(query, (model, *only[1]))]


def select_chunk_locations(db: sqlite3.Connection, chunks: Collection[int]) -> dict[int, tuple[str, int]]:
    """Where the chunks stand that still exist."""
    query = f"SELECT c.number, d.document_id, c.ordinal FROM {_CHUNKS} WHERE c.number IN (SELECT value FROM json_each(?))"  # noqa: S608
    return {row[0]: (row[1], row[2]) for row in db.execute(query, (json.dumps(list(chunks)),))}


def build_entries(number: int, chunks: Sequence[int], of: Document) -> Iterator[LexicalEntry]:
    for row, chunk in zip(chunks, of.chunks, strict=True):
        yield LexicalEntry(row, number, of.datasource, of.title, chunk.headings, chunk.text)


def select_unindexed(db: sqlite3.Connection, generation: int) -> Iterator[tuple[int, list[LexicalEntry]]]:
    """The documents after a generation, with what is looked for in them."""
    rows = db.execute(
        "SELECT number, document_id FROM documents WHERE generation > ? ORDER BY number", (generation,)
    ).fetchall()
    for number, document_id in rows:
        chunks = [
            row[0]
            for row in db.execute("SELECT number FROM chunks WHERE document = ? ORDER BY ordinal", (number,))
        ]
        if found := select_document(db, document_id):
            yield number, list(build_entries(number, chunks, found))


def _document(row: sqlite3.Row, text: str, chunks: tuple[Chunk, ...]) -> Document:
    changed = row["changed"] and moment(row["changed"])
    named = (
        row["document_id"],
        row["datasource"],
        row["title"],
        row["address"],
        text,
        row["digest"],
        row["link"],
        row["kind"],
    )
    return Document(*named, changed, chunks)


def _chunk(row: sqlite3.Row, text: str) -> Chunk:
    own = row["text"] if row["text"] is not None else text[row["start"] : row["stop"]]
    return Chunk(row["ordinal"], own, tuple(json.loads(row["headings"])), row["start"], row["stop"])


def _pairs(db: sqlite3.Connection, query: str) -> Iterator[tuple[str, int]]:
    return ((row[0], row[1]) for row in db.execute(query))
