"""Queries on the SQLite tables of the embedded store."""

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ai_platform_engineering.files.sqlite_file import moment
from ai_platform_engineering.knowledge_bases.access import OPERATOR, Viewer, VisibleTo
from ai_platform_engineering.knowledge_bases.documents import Chunk, Document
from ai_platform_engineering.knowledge_bases.search.score_fusion import ScoredChunk
from ai_platform_engineering.knowledge_bases.stores.embedded.sqlite_conditions import (
    NO_CONDITION,
    Condition,
    build_viewer_condition,
    read_names,
)
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    ChunkRef,
    Datasource,
    DocumentVersion,
    RefreshSchedule,
    VectorModel,
    build_embedding_text,
)

_TEXT = "coalesce(c.text, substr(d.text, c.start + 1, c.stop - c.start))"
_CHUNKS = "chunks c JOIN documents d ON d.number = c.document"
_VECTORS = "vectors v JOIN chunks c ON c.number = v.chunk JOIN documents d ON d.number = c.document"


@dataclass(frozen=True, slots=True)
class LexicalEntry:
    """A chunk as the lexical index has it."""

    chunk: int
    document: int
    datasource: str
    title: str
    headings: Sequence[str]
    text: str
    visible_to: VisibleTo = None


def select_datasources(db: sqlite3.Connection, viewer: Viewer) -> list[Datasource]:
    """The datasources that the viewer may see, by name, with the counts of what they may see."""
    condition = build_viewer_condition(db, viewer) or NO_CONDITION
    document_kinds = _count_document_kinds(db, condition)
    chunk_counts = _count_by_datasource(db, "count(*)", _CHUNKS, condition)
    embedded_counts = _count_by_datasource(db, "count(DISTINCT v.chunk)", _VECTORS, condition)
    datasources: list[Datasource] = []
    for row in db.execute("SELECT * FROM datasources ORDER BY name"):
        name = row["name"]
        visible_to = read_names(row["visible_to"])
        if not viewer.may_see(visible_to):
            continue
        datasource = Datasource(
            name=name,
            location=row["location"],
            kind=row["kind"],
            title=row["title"],
            options=json.loads(row["options"]),
            documents=sum(document_kinds.get(name, {}).values()),
            chunks=chunk_counts.get(name, 0),
            embedded=embedded_counts.get(name, 0),
            refreshed=_read_time(row["refreshed"]),
            document_kinds=document_kinds.get(name, {}),
            visible_to=visible_to,
            refresh_every=row["refresh_every"],
            refresh_due=_read_time(row["refresh_due"]),
            refresh_failures=row["refresh_failures"],
            cursor=row["cursor"],
        )
        datasources.append(datasource)
    return datasources


def select_schedules(db: sqlite3.Connection) -> list[RefreshSchedule]:
    """Soonest first."""
    rows = db.execute(
        "SELECT name, refresh_every, refresh_due, refresh_failures FROM datasources "
        "WHERE refresh_every IS NOT NULL AND refresh_due IS NOT NULL ORDER BY refresh_due, name"
    )
    return [RefreshSchedule(name, every, moment(due), failures) for name, every, due, failures in rows]


def _count_document_kinds(db: sqlite3.Connection, condition: Condition) -> dict[str, dict[str, int]]:
    """By datasource, then by kind."""
    query = (
        f"SELECT datasource, kind, count(*) FROM documents d WHERE {condition.where} "  # noqa: S608
        "GROUP BY datasource, kind ORDER BY kind"
    )
    kinds: dict[str, dict[str, int]] = {}
    for datasource, kind, count in db.execute(query, condition.values):
        kinds.setdefault(datasource, {})[kind] = count
    return kinds


def _count_by_datasource(
    db: sqlite3.Connection, count: str, tables: str, condition: Condition
) -> dict[str, int]:
    where = condition.where
    query = f"SELECT d.datasource, {count} FROM {tables} WHERE {where} GROUP BY d.datasource"  # noqa: S608
    rows = db.execute(query, condition.values)
    return {row[0]: row[1] for row in rows}


def select_versions(db: sqlite3.Connection, datasource: str) -> dict[str, DocumentVersion]:
    """By address."""
    rows = db.execute(
        "SELECT document_id, address, digest, mark FROM documents WHERE datasource = ?", (datasource,)
    )
    return {row["address"]: DocumentVersion(*row) for row in rows}


def find_versions(db: sqlite3.Connection, document_ids: Collection[str]) -> dict[str, DocumentVersion]:
    """By id."""
    rows = db.execute(
        "SELECT document_id, address, digest, mark FROM documents "
        "WHERE document_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(document_ids)),),
    )
    return {row["document_id"]: DocumentVersion(*row) for row in rows}


def select_groups(db: sqlite3.Connection) -> dict[str, list[str]]:
    """Members by group."""
    groups: dict[str, list[str]] = {}
    for group, member in db.execute(
        "SELECT group_name, member FROM group_members ORDER BY group_name, member"
    ):
        groups.setdefault(group, []).append(member)
    return groups


def select_groups_of(db: sqlite3.Connection, member: str) -> list[str]:
    query = "SELECT group_name FROM group_members WHERE member = ? ORDER BY group_name"
    return [row[0] for row in db.execute(query, (member,))]


def select_document(db: sqlite3.Connection, document_id: str, viewer: Viewer) -> Document | None:
    """None for one that the viewer may not see."""
    condition = build_viewer_condition(db, viewer) or NO_CONDITION
    row = db.execute(
        f"SELECT d.* FROM documents d WHERE d.document_id = ? AND {condition.where}",  # noqa: S608
        (document_id, *condition.values),
    ).fetchone()
    if row is None:
        return None
    text = row["text"]
    chunks = db.execute("SELECT * FROM chunks WHERE document = ? ORDER BY ordinal", (row["number"],))
    return _read_document(row, text, tuple(_read_chunk(chunk, text) for chunk in chunks))


def select_documents(db: sqlite3.Connection, datasource: str, after: str, limit: int) -> list[Document]:
    """Documents by address, without their texts and chunks."""
    rows = db.execute(
        "SELECT document_id, datasource, title, address, digest, link, kind, changed, missing, visible_to, "
        "metadata FROM documents "
        "WHERE datasource = ? AND address > ? ORDER BY address LIMIT ?",
        (datasource, after, limit),
    )
    return [_read_document(row, "", ()) for row in rows]


def select_chunk_texts(db: sqlite3.Connection, where: str, *values: Any) -> Iterator[tuple[ChunkRef, int]]:
    """Chunks with the text to embed, and their numbers. `where` is SQL of ours, never a user's."""
    columns = f"c.number, c.ordinal, c.headings, d.document_id, d.title, {_TEXT} AS text"
    query = f"SELECT {columns} FROM {_CHUNKS} WHERE {where}"  # noqa: S608
    for row in db.execute(query, values):
        text = build_embedding_text(row["title"], json.loads(row["headings"]), row["text"])
        yield ChunkRef(row["document_id"], row["ordinal"], text), row["number"]


def select_chunks_without_vector(
    db: sqlite3.Connection, model: int, after: int, limit: int, except_of: str
) -> tuple[list[ChunkRef], int]:
    """Chunks with a higher number than `after`, and the `after` of the next call: no chunk up to it needs a
    vector."""
    where = (
        "c.number > ? AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.chunk = c.number AND v.model = ?) "
        "AND d.datasource <> ? ORDER BY c.number LIMIT ?"
    )
    refs: list[ChunkRef] = []
    numbers: list[int] = []
    for ref, number in select_chunk_texts(db, where, after, model, except_of, limit):
        refs.append(ref)
        numbers.append(number)
    if numbers:
        return refs, numbers[0] - 1
    last = db.execute("SELECT max(number) FROM chunks").fetchone()[0] or 0
    return refs, max(after, last)


def find_model(db: sqlite3.Connection, name: str) -> tuple[int, int] | None:
    """The number of an embedding model, and the dimensions of its vectors."""
    row = db.execute("SELECT model, dimensions FROM models WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    return row[0], row[1]


def select_models(db: sqlite3.Connection) -> list[VectorModel]:
    """The models that have vectors, the oldest first."""
    rows = db.execute(
        "SELECT name, state = 'complete' FROM models WHERE state IN ('partial', 'complete') ORDER BY model"
    )
    return [VectorModel(name, bool(complete)) for name, complete in rows]


def select_purged_models(db: sqlite3.Connection) -> list[int]:
    """The numbers of models whose vectors are deleted, or about to be."""
    return _select_numbers(db, "SELECT model FROM models WHERE state IN ('purging', 'purged')")


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
    return _find_last_number(db, "vectors")


def find_last_document_number(db: sqlite3.Connection) -> int:
    """The highest number that a document has or had."""
    return _find_last_number(db, "documents")


def _find_last_number(db: sqlite3.Connection, table: str) -> int:
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    if row is None:
        return 0
    return int(row[0])


def select_document_numbers(db: sqlite3.Connection, condition: Condition) -> list[int]:
    query = f"SELECT d.number FROM documents d WHERE {condition.where}"  # noqa: S608
    return _select_numbers(db, query, *condition.values)


def count_all_chunks(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM chunks").fetchone()[0])


def select_chunks_of_vectors(
    db: sqlite3.Connection, numbers: Sequence[int], condition: Condition | None = None
) -> dict[int, tuple[int, int]]:
    """The chunk and the document of each vector, without those that were deleted or do not meet the
    condition."""
    rows = db.execute(
        "SELECT v.number, v.chunk, c.document FROM vectors v JOIN chunks c ON c.number = v.chunk "
        "WHERE v.number IN (SELECT value FROM json_each(?))",
        (json.dumps(numbers),),
    )
    chunks = {number: (chunk, document) for number, chunk, document in rows}
    if condition is None:
        return chunks
    documents = {document for _, document in chunks.values()}
    allowed = _select_documents_that_meet(db, documents, condition)
    return {number: location for number, location in chunks.items() if location[1] in allowed}


def _select_documents_that_meet(
    db: sqlite3.Connection, documents: Collection[int], condition: Condition
) -> set[int]:
    """Those of the documents, by number, that meet the condition: each is checked once, not once a chunk."""
    tables = "(SELECT value AS number FROM json_each(?)) d"
    if not condition.number_only:
        tables = "json_each(?) n CROSS JOIN documents d ON d.number = n.value"
    query = f"SELECT d.number FROM {tables} WHERE {condition.where}"  # noqa: S608
    return set(_select_numbers(db, query, json.dumps(list(documents)), *condition.values))


def select_scored_chunks(db: sqlite3.Connection, scores: Sequence[tuple[int, float]]) -> list[ScoredChunk]:
    """The chunks that still exist, in the same order. `scores`: numbers of chunks, with scores."""
    rows = db.execute(
        "SELECT number, document FROM chunks WHERE number IN (SELECT value FROM json_each(?))",
        (json.dumps([chunk for chunk, _ in scores]),),
    )
    documents: dict[int, int] = dict(rows)
    return [ScoredChunk(chunk, documents[chunk], score) for chunk, score in scores if chunk in documents]


def select_vectors_of_chunks(db: sqlite3.Connection, model: int, chunks: Sequence[int]) -> list[bytes]:
    """The vectors of the chunks that have one."""
    rows = db.execute(
        "SELECT vector FROM vectors WHERE chunk IN (SELECT value FROM json_each(?)) AND model = ?",
        (json.dumps(chunks), model),
    )
    return [row[0] for row in rows]


def select_vector_numbers(db: sqlite3.Connection, model: int, condition: Condition) -> list[int]:
    # Documents first: each is checked once, not for each of its vectors.
    tables = (
        "documents d CROSS JOIN chunks c ON c.document = d.number CROSS JOIN vectors v ON v.chunk = c.number"
    )
    query = f"SELECT v.number FROM {tables} WHERE v.model = ? AND {condition.where}"  # noqa: S608
    return _select_numbers(db, query, model, *condition.values)


def select_chunk_locations(db: sqlite3.Connection, chunks: Collection[int]) -> dict[int, tuple[str, int]]:
    """The document id and ordinal of each chunk that still exists."""
    rows = db.execute(
        f"SELECT c.number, d.document_id, c.ordinal FROM {_CHUNKS} "  # noqa: S608
        "WHERE c.number IN (SELECT value FROM json_each(?))",
        (json.dumps(list(chunks)),),
    )
    return {row[0]: (row[1], row[2]) for row in rows}


def build_entries(number: int, chunk_numbers: Sequence[int], document: Document) -> Iterator[LexicalEntry]:
    """The entries of a document's chunks; `number` is the document's."""
    for chunk_number, chunk in zip(chunk_numbers, document.chunks, strict=True):
        yield LexicalEntry(
            chunk_number,
            number,
            document.datasource,
            document.title,
            chunk.headings,
            chunk.text,
            document.visible_to,
        )


def find_indexed_generation(db: sqlite3.Connection) -> int:
    """Documents up to this generation are in the lexical index."""
    return int(db.execute("SELECT indexed FROM state").fetchone()[0])


def has_unindexed(db: sqlite3.Connection) -> bool:
    """Whether the lexical index lacks a document, or has one that was deleted."""
    row = db.execute(
        "SELECT EXISTS (SELECT 1 FROM gone) "
        "OR EXISTS (SELECT 1 FROM documents, state WHERE generation > indexed)"
    ).fetchone()
    return bool(row[0])


def select_deleted_documents(db: sqlite3.Connection) -> list[int]:
    """The numbers of documents that the lexical index may have although they are gone."""
    return _select_numbers(db, "SELECT document FROM gone")


def select_unindexed(db: sqlite3.Connection, generation: int) -> Iterator[tuple[int, list[LexicalEntry]]]:
    """The numbers of the documents after a generation, each with its entries."""
    return _select_entries(db, "generation > ?", generation)


def select_entries_after(db: sqlite3.Connection, number: int) -> Iterator[tuple[int, list[LexicalEntry]]]:
    """The numbers of the documents after a number, each with its entries."""
    return _select_entries(db, "number > ?", number)


def _select_entries(
    db: sqlite3.Connection, where: str, value: int
) -> Iterator[tuple[int, list[LexicalEntry]]]:
    query = f"SELECT number, document_id FROM documents WHERE {where} ORDER BY number"  # noqa: S608
    for number, document_id in db.execute(query, (value,)).fetchall():
        chunk_query = "SELECT number FROM chunks WHERE document = ? ORDER BY ordinal"
        chunk_numbers = _select_numbers(db, chunk_query, number)
        document = select_document(db, document_id, OPERATOR)
        if document is not None:
            yield number, list(build_entries(number, chunk_numbers, document))


def _select_numbers(db: sqlite3.Connection, query: str, *values: Any) -> list[int]:
    return [row[0] for row in db.execute(query, values)]


def _read_document(row: sqlite3.Row, text: str, chunks: tuple[Chunk, ...]) -> Document:
    return Document(
        document_id=row["document_id"],
        datasource=row["datasource"],
        title=row["title"],
        address=row["address"],
        text=text,
        digest=row["digest"],
        link=row["link"],
        kind=row["kind"],
        changed=_read_time(row["changed"]),
        chunks=chunks,
        missing=row["missing"],
        metadata=json.loads(row["metadata"]),
        visible_to=read_names(row["visible_to"]),
    )


def _read_chunk(row: sqlite3.Row, document_text: str) -> Chunk:
    text = row["text"]
    if text is None:
        text = document_text[row["start"] : row["stop"]]
    return Chunk(row["ordinal"], text, tuple(json.loads(row["headings"])), row["start"], row["stop"])


def _read_time(microseconds: int | None) -> datetime | None:
    if microseconds is None:
        return None
    return moment(microseconds)
