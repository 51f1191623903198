"""Search in PostgreSQL: a lexical ranking in which rare words count more, which ts_rank alone does not do,
and a vector ranking, fused."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from psycopg.sql import SQL, Composed

from ai_platform_engineering.core.errors import ConfigurationError, Refused
from ai_platform_engineering.knowledge_bases.search.rank_fusion import (
    MAX_COUNTED,
    choose_depth,
    count_candidates,
    fuse_rankings,
    select_best,
)
from ai_platform_engineering.knowledge_bases.search.tokens import parse_query
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Hit, SearchMode, Vector
from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_tables import (
    Connection,
    find_vector_table,
)

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
) -> list[Hit]:
    """The best chunks, best first."""
    condition = _build_condition(datasources, filters)
    candidates = count_candidates(limit)
    if datasources or filters:
        chunk_count = await _count_chunks(connection, condition)
    else:
        chunk_count = await _count_all_chunks(connection)
    rankings: list[list[int]] = []
    if mode != "vectors":
        rankings.append(await _rank_by_words(connection, query, condition, candidates))
    if mode != "lexical" and vector is not None:
        rankings.append(await _rank_by_vector(connection, vector, model, condition, candidates))
    scores = fuse_rankings(rankings, choose_depth(chunk_count))
    rows = await connection.execute(
        "SELECT c.number, d.document_id, c.ordinal FROM chunks c JOIN documents d ON d.number = c.document "
        "WHERE c.number = ANY(%s)",
        (list(scores),),
    )
    hits: list[Hit] = []
    for row in await rows.fetchall():
        hits.append(Hit(row["document_id"], row["ordinal"], scores[row["number"]]))
    return select_best(hits, limit)


def _build_condition(datasources: Collection[str], filters: Mapping[str, str]) -> SqlCondition:
    clauses: list[SQL] = [SQL("true")]
    values: list[Any] = []
    for name, value in filters.items():
        if name not in _FILTERS:
            raise Refused(
                f"There is no filter {name!r}. Use kind, title (a part of it) or path (how the address "
                "begins)."
            )
        clauses.append(_FILTERS[name])
        values.append(value)
    if datasources:
        clauses.append(SQL("d.datasource = ANY(%s)"))
        values.append(sorted(datasources))
    return SQL(" AND ").join(clauses), values


async def _count_all_chunks(connection: Connection) -> int:
    row = await (await connection.execute("SELECT chunks FROM totals")).fetchone()
    if row is None:
        return 0
    return int(row["chunks"])


async def _count_chunks(connection: Connection, condition: SqlCondition) -> int:
    """How many chunks meet the condition, counted up to MAX_COUNTED."""
    where, values = condition
    query = SQL(
        "SELECT count(*) AS chunks FROM (SELECT 1 FROM chunks c JOIN documents d ON d.number = c.document "
        "WHERE {} LIMIT %s) f"
    ).format(where)
    row = await (await connection.execute(query, (*values, MAX_COUNTED))).fetchone()
    if row is None:
        return 0
    return int(row["chunks"])


async def _rank_by_words(
    connection: Connection, query: str, condition: SqlCondition, limit: int
) -> list[int]:
    terms = await _find_terms(connection, query)
    if not terms:
        return []
    where, values = condition
    chunk_count = max(await _count_all_chunks(connection), terms[-1].chunks)
    rank = SQL(" + ").join([SQL("%s * ts_rank(%s, c.words, %s::tsquery, 1)")] * len(terms))
    rank_values: list[Any] = []
    for term in terms:
        rank_values += (term.weight(chunk_count), _WEIGHTS, term.to_tsquery())
    rows = await connection.execute(
        SQL(
            "SELECT c.number, {} AS score FROM chunks c JOIN documents d ON d.number = c.document "
            "WHERE c.words @@ %s::tsquery AND {} ORDER BY score DESC, c.number LIMIT %s"
        ).format(rank, where),
        (*rank_values, _build_tsquery(terms), *values, limit),
    )
    return [row["number"] for row in await rows.fetchall()]


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
    connection: Connection, vector: Vector, model: str, condition: SqlCondition, limit: int
) -> list[int]:
    vector_table = await find_vector_table(connection, model)
    if vector_table is None:
        return []
    table, dimensions = vector_table
    if len(vector) != dimensions:
        raise ConfigurationError(
            f"The vectors of {model} have {dimensions} numbers, and the question's has {len(vector)}."
        )
    await connection.execute(SQL("SET LOCAL hnsw.ef_search = {}").format(min(1000, limit + 20)))
    # The index scan goes on until enough are left after the filter.
    await connection.execute("SET LOCAL hnsw.iterative_scan = strict_order")
    where, values = condition
    rows = await connection.execute(
        SQL(
            "SELECT v.chunk, v.vector <=> %s::halfvec AS distance FROM {} v JOIN chunks c ON c.number = "
            "v.chunk "
            "JOIN documents d ON d.number = c.document WHERE {} ORDER BY distance LIMIT %s"
        ).format(table, where),
        (format_vector(vector), *values, limit),
    )
    ranked = sorted(await rows.fetchall(), key=lambda row: (row["distance"], row["chunk"]))
    return [row["chunk"] for row in ranked]


def format_vector(vector: Vector) -> str:
    """A vector as pgvector reads it."""
    return json.dumps(list(map(float, vector)))
