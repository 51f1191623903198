"""Search in PostgreSQL: a lexical ranking in which rare words count more, which ts_rank alone does not do,
and a vector ranking, fused, and a second vector ranking with the feedback of the first."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

from psycopg.sql import SQL, Composed, Identifier

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.knowledge_bases.access import Viewer
from ai_platform_engineering.knowledge_bases.search.exact_terms import (
    ExactTerm,
    find_exact_terms,
    find_held_terms,
    weigh_holders,
)
from ai_platform_engineering.knowledge_bases.search.feedback import FEEDBACK_DOCUMENTS, add_feedback
from ai_platform_engineering.knowledge_bases.search.score_fusion import (
    DEEPER,
    FusedDocument,
    Ranking,
    ScoredChunk,
    count_candidates,
    create_lexical_ranking,
    fuse_scores,
    is_too_shallow,
)
from ai_platform_engineering.knowledge_bases.search.tokens import parse_query
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import (
    Hit,
    SearchMode,
    Vector,
    build_embedding_text,
)
from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_tables import (
    Connection,
    find_vector_table,
)
from ai_platform_engineering.knowledge_bases.stores.search_hits import check_filters, create_hits, list_chunks

# Chunks that are ranked: reading them is what a search costs. Frequent words count in the rank, but add no
# chunks once rarer words gave enough.
_MAX_RANKED_CHUNKS = 2_000
_WEIGHTS = "{0.6, 0.8, 0.8, 1.0}"  # of the text, identifiers, headings, the title
_FILTERS = {
    "kind": SQL("d.kind = %s"),
    "title": SQL("position(lower(%s) in lower(d.title)) > 0"),
    "path": SQL("starts_with(d.address, %s)"),
}

SqlCondition = tuple[Composed | SQL, list[Any]]  # on the documents `d`, and its values


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A word of the query, and the number of chunks that have it."""

    word: str
    chunks: int

    def weight(self, all_chunks: int) -> float:
        """Inverse document frequency, as in BM25."""
        return math.log(1 + (all_chunks - self.chunks + 0.5) / (self.chunks + 0.5))

    def to_tsquery(self) -> str:
        escaped = self.word.replace("\\", "\\\\").replace("'", "''")
        return f"'{escaped}'"


async def search(
    connection: Connection,
    query: str,
    vector: Vector | None,
    model: str,
    datasources: Collection[str],
    filters: Mapping[str, str],
    limit: int,
    mode: SearchMode,
    viewer: Viewer,
) -> list[Hit]:
    """The best documents, best first."""
    condition = _join_conditions(_build_condition(datasources, filters), build_viewer_condition(viewer))
    rank = partial(_rank, connection, query, vector, model, condition, mode)
    candidates = count_candidates(limit)
    rankings, exact_weights = await rank(candidates)
    if is_too_shallow(rankings, candidates, limit):
        rankings, exact_weights = await rank(DEEPER * candidates)
    return await _select_hits(connection, fuse_scores(rankings, limit, exact_weights))


async def _rank(
    connection: Connection,
    query: str,
    vector: Vector | None,
    model: str,
    condition: SqlCondition,
    mode: SearchMode,
    candidates: int,
) -> tuple[list[Ranking], Mapping[int, float]]:
    """The rankings of the mode, and the share of the query's identifiers that chunks hold exactly."""
    rankings: list[Ranking] = []
    exact_weights: Mapping[int, float] = {}
    if mode != "vectors":
        chunks = await _rank_by_words(connection, query, condition, candidates)
        exact_weights = await _weigh_exact_terms(connection, query, chunks)
        rankings.append(create_lexical_ranking(chunks, candidates))
    vector_table = None
    if mode != "lexical" and vector is not None:
        vector_table = await find_vector_table(connection, model)
    if vector is None or vector_table is None:
        return rankings, exact_weights
    table, dimensions = vector_table
    if len(vector) != dimensions:
        raise ConfigurationError(
            f"The vectors of {model} have {dimensions} dimensions, but the query vector has {len(vector)}."
        )
    nearest = await _rank_by_vector(connection, table, vector, condition, candidates)
    if mode == "hybrid":
        best = fuse_scores([*rankings, nearest], FEEDBACK_DOCUMENTS, exact_weights)
        vectors = await _select_vectors(connection, table, [document.chunk for document in best])
        nearest = await _rank_by_vector(
            connection, table, add_feedback(vector, vectors), condition, candidates
        )
    return [*rankings, nearest], exact_weights


async def _select_hits(connection: Connection, documents: Sequence[FusedDocument]) -> list[Hit]:
    rows = await connection.execute(
        "SELECT c.number, d.document_id, c.ordinal FROM chunks c JOIN documents d ON d.number = c.document "
        "WHERE c.number = ANY(%s)",
        (list_chunks(documents),),
    )
    locations = {row["number"]: (row["document_id"], row["ordinal"]) for row in await rows.fetchall()}
    return create_hits(documents, locations)


def _build_condition(datasources: Collection[str], filters: Mapping[str, str]) -> SqlCondition:
    check_filters(filters)
    clauses: list[SQL] = [SQL("true")]
    values: list[Any] = []
    for name, value in filters.items():
        clauses.append(_FILTERS[name])
        values.append(value)
    if datasources:
        clauses.append(SQL("d.datasource = ANY(%s)"))
        values.append(sorted(datasources))
    return SQL(" AND ").join(clauses), values


def build_viewer_condition(viewer: Viewer) -> SqlCondition:
    """For the documents that the viewer may see."""
    if viewer.sees_all:
        return SQL("true"), []
    names = list(viewer.names)
    condition = SQL(
        "(d.visible_to IS NULL OR d.visible_to && %s::text[]) AND d.datasource NOT IN "
        "(SELECT name FROM datasources WHERE visible_to IS NOT NULL AND NOT visible_to && %s::text[])"
    )
    return condition, [names, names]


def _join_conditions(first: SqlCondition, second: SqlCondition) -> SqlCondition:
    return SQL("{} AND {}").format(first[0], second[0]), [*first[1], *second[1]]


async def _count_all_chunks(connection: Connection) -> int:
    row = await (await connection.execute("SELECT chunks FROM totals")).fetchone()
    if row is None:
        return 0
    return int(row["chunks"])


async def _rank_by_words(
    connection: Connection, query: str, condition: SqlCondition, limit: int
) -> list[ScoredChunk]:
    terms = await _find_terms(connection, query)
    if not terms:
        return []
    chunk_count = max(await _count_all_chunks(connection), terms[-1].chunks)
    chunks = await _rank_terms(connection, terms, _build_tsquery(terms), chunk_count, condition, limit)
    if len(chunks) < limit:
        # The condition may have dropped the chunks with rare words, and others have the frequent ones.
        any_term = " | ".join(term.to_tsquery() for term in terms)
        chunks = await _rank_terms(connection, terms, any_term, chunk_count, condition, limit)
    return chunks


async def _rank_terms(
    connection: Connection,
    terms: Sequence[QueryTerm],
    tsquery: str,
    chunk_count: int,
    condition: SqlCondition,
    limit: int,
) -> list[ScoredChunk]:
    """The best of the chunks that match and meet the condition."""
    where, values = condition
    rank = SQL(" + ").join([SQL("%s * ts_rank(%s, c.words, %s::tsquery, 1)")] * len(terms))
    rank_values: list[Any] = []
    for term in terms:
        rank_values += (term.weight(chunk_count), _WEIGHTS, term.to_tsquery())
    rows = await connection.execute(
        SQL(
            "SELECT c.number, c.document, {} AS score "
            "FROM chunks c JOIN documents d ON d.number = c.document "
            "WHERE c.words @@ %s::tsquery AND {} ORDER BY score DESC, c.number LIMIT %s"
        ).format(rank, where),
        (*rank_values, tsquery, *values, limit),
    )
    return [ScoredChunk(row["number"], row["document"], row["score"]) for row in await rows.fetchall()]


async def _weigh_exact_terms(
    connection: Connection, query: str, chunks: Sequence[ScoredChunk]
) -> dict[int, float]:
    """The share of the query's identifiers that chunks hold exactly.

    Read from their texts: PostgreSQL's parser takes some identifiers apart."""
    terms = find_exact_terms(query)
    if not terms:
        return {}
    rows = await connection.execute(
        "SELECT c.number, c.headings, c.text, d.title "
        "FROM chunks c JOIN documents d ON d.number = c.document "
        "WHERE c.number = ANY(%s)",
        ([item.chunk for item in chunks],),
    )
    holders: dict[ExactTerm, list[int]] = {term: [] for term in terms}
    for row in await rows.fetchall():
        text = build_embedding_text(row["title"], row["headings"], row["text"])
        for term in find_held_terms(terms, text):
            holders[term].append(row["number"])
    return weigh_holders(holders)


async def _find_terms(connection: Connection, query: str) -> list[QueryTerm]:
    """The words of the query that some chunk has, rarest first."""
    words, identifiers = parse_query(query)
    rows = await connection.execute(
        "SELECT l.word, l.chunks FROM unnest(to_tsvector('english', %s) || to_tsvector('simple', %s)) q "
        "JOIN lexemes l ON l.word = q.lexeme WHERE l.chunks > 0 ORDER BY l.chunks, l.word",
        (" ".join(words), " ".join(identifiers)),
    )
    return [QueryTerm(row["word"], row["chunks"]) for row in await rows.fetchall()]


def _build_tsquery(terms: Sequence[QueryTerm]) -> str:
    """Any of the rarest words that together are in few enough chunks; where one alone is in too many, two of
    three."""
    if terms[0].chunks > _MAX_RANKED_CHUNKS and len(terms) > 1:
        pairs = combinations([term.to_tsquery() for term in terms[:3]], 2)
        return " | ".join(f"({first} & {second})" for first, second in pairs)
    selected = [terms[0].to_tsquery()]
    chunk_count = terms[0].chunks
    for term in terms[1:]:
        chunk_count += term.chunks
        if chunk_count > _MAX_RANKED_CHUNKS:
            break
        selected.append(term.to_tsquery())
    return " | ".join(selected)


async def _rank_by_vector(
    connection: Connection, table: Identifier, vector: Vector, condition: SqlCondition, limit: int
) -> Ranking:
    await connection.execute(SQL("SET LOCAL hnsw.ef_search = {}").format(min(1000, limit + 20)))
    # The index scan goes on until enough are left after the filter.
    await connection.execute("SET LOCAL hnsw.iterative_scan = strict_order")
    where, values = condition
    tables = SQL(
        "{} v JOIN chunks c ON c.number = v.chunk JOIN documents d ON d.number = c.document WHERE {}"
    ).format(table, where)
    query = SQL(
        "SELECT v.chunk, c.document, v.vector <=> %s::halfvec AS distance FROM {} ORDER BY distance LIMIT %s"
    ).format(tables)
    rows = await (await connection.execute(query, (format_vector(vector), *values, limit))).fetchall()
    if len(rows) < limit:
        # The index scan ends after so many: compare with every vector that the condition allows.
        query = SQL(
            "WITH allowed AS MATERIALIZED (SELECT v.chunk, c.document, v.vector FROM {}) "
            "SELECT chunk, document, vector <=> %s::halfvec AS distance FROM allowed "
            "ORDER BY distance LIMIT %s"
        ).format(tables)
        rows = await (await connection.execute(query, (*values, format_vector(vector), limit))).fetchall()
    ranked = sorted(rows, key=lambda row: (row["distance"], row["chunk"]))
    return Ranking([ScoredChunk(row["chunk"], row["document"], 1 - row["distance"]) for row in ranked])


async def _select_vectors(connection: Connection, table: Identifier, chunks: Sequence[int]) -> list[Vector]:
    """The vectors of the chunks that have one."""
    rows = await connection.execute(
        SQL("SELECT vector::text AS vector FROM {} WHERE chunk = ANY(%s)").format(table), (list(chunks),)
    )
    return [json.loads(row["vector"]) for row in await rows.fetchall()]


def format_vector(vector: Vector) -> str:
    """A vector as pgvector reads it."""
    return json.dumps(list(map(float, vector)))
