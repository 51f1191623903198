"""A search in PostgreSQL: a ranking by rare words, which ts_rank alone does not know, and the nearest vectors."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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
from ai_platform_engineering.knowledge_bases.search.tokens import parse_query as words_of
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Hit, SearchMode, Vector
from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_tables import (
    Connection,
    find_vector_table,
)

# Chunks that are ranked: reading them is what a search costs. Frequent words rank, and add no chunks once rarer ones gave enough.
_RANKED = 2_000
_WEIGHTS = "{0.6, 0.8, 0.8, 1.0}"  # of the text, identifiers, headings, the title
_FILTERS = {
    "kind": SQL("d.kind = %s"),
    "title": SQL("position(lower(%s) in lower(d.title)) > 0"),
    "path": SQL("starts_with(d.address, %s)"),
}

SqlCondition = tuple[Composed | SQL, list[Any]]


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A word of the question, and in how many chunks it is."""

    word: str
    chunks: int

    def weight(self, all_chunks: int) -> float:
        return math.log(1 + (all_chunks - self.chunks + 0.5) / (self.chunks + 0.5))


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
    only, count = _only(datasources, filters), count_candidates(limit)
    total = await _total(connection, only if datasources or filters else None)
    rankings: list[list[int]] = []
    if mode != "vectors":
        rankings.append(await _worded(connection, query, only, count))
    if mode != "lexical" and vector is not None:
        rankings.append(await _nearest(connection, vector, model, only, count))
    scores = fuse_rankings(rankings, choose_depth(total))
    rows = await connection.execute(
        "SELECT c.number, d.document_id, c.ordinal FROM chunks c JOIN documents d ON d.number = c.document WHERE c.number = ANY(%s)",
        (list(scores),),
    )
    return select_best(
        [Hit(row["document_id"], row["ordinal"], scores[row["number"]]) for row in await rows.fetchall()],
        limit,
    )


def _only(datasources: Collection[str], filters: Mapping[str, str]) -> SqlCondition:
    conditions: list[SQL] = [SQL("true")]
    values: list[Any] = []
    for name, value in filters.items():
        if name not in _FILTERS:
            raise Refused(
                f"There is no filter {name!r}. Use kind, title (a part of it) or path (how the address begins)."
            )
        conditions.append(_FILTERS[name])
        values.append(value)
    if datasources:
        conditions.append(SQL("d.datasource = ANY(%s)"))
        values.append(sorted(datasources))
    return SQL(" AND ").join(conditions), values


async def _total(connection: Connection, only: SqlCondition | None) -> int:
    if only is None:
        row = await (await connection.execute("SELECT chunks FROM totals")).fetchone()
    else:
        chunks = SQL(
            "SELECT 1 FROM chunks c JOIN documents d ON d.number = c.document WHERE {} LIMIT %s"
        ).format(only[0])
        row = await (
            await connection.execute(
                SQL("SELECT count(*) AS chunks FROM ({}) f").format(chunks), (*only[1], MAX_COUNTED)
            )
        ).fetchone()
    if row:
        return int(row["chunks"])
    return 0


async def _worded(connection: Connection, query: str, only: SqlCondition, count: int) -> list[int]:
    terms = await _terms(connection, query)
    if not terms:
        return []
    total = max(await _total(connection, None), terms[-1].chunks)
    rank = SQL(" + ").join([SQL("%s * ts_rank(%s, c.words, %s::tsquery, 1)")] * len(terms))
    ranks = [value for term in terms for value in (term.weight(total), _WEIGHTS, _quoted(term))]
    found = await connection.execute(
        SQL(
            "SELECT c.number, {} AS score FROM chunks c JOIN documents d ON d.number = c.document "
            "WHERE c.words @@ %s::tsquery AND {} ORDER BY score DESC, c.number LIMIT %s"
        ).format(rank, only[0]),
        (*ranks, _looked_for(terms), *only[1], count),
    )
    return [row["number"] for row in await found.fetchall()]


async def _terms(connection: Connection, query: str) -> list[QueryTerm]:
    """Rarest first; a word that no chunk has is none."""
    words, identifiers = words_of(query)
    found = await connection.execute(
        "SELECT l.word, l.chunks FROM unnest(to_tsvector('english', %s) || to_tsvector('simple', %s)) q "
        "JOIN lexemes l ON l.word = q.lexeme WHERE l.chunks > 0 ORDER BY l.chunks, l.word",
        (" ".join(words), " ".join(identifiers)),
    )
    return [QueryTerm(row["word"], row["chunks"]) for row in await found.fetchall()]


def _looked_for(terms: Sequence[QueryTerm]) -> str:
    """Any of the rarest words that together are in few enough chunks; where one alone is in too many, two of three."""
    if terms[0].chunks > _RANKED and len(terms) > 1:
        first, second, *others = (_quoted(term) for term in terms[:3])
        return " | ".join(
            f"({one} & {two})"
            for one, two in (
                (first, second),
                *((given, third) for third in others for given in (first, second)),
            )
        )
    chosen, together = [terms[0]], terms[0].chunks
    for term in terms[1:]:
        together += term.chunks
        if together > _RANKED:
            break
        chosen.append(term)
    return " | ".join(map(_quoted, chosen))


def _quoted(term: QueryTerm) -> str:
    return "'" + term.word.replace("\\", "\\\\").replace("'", "''") + "'"


async def _nearest(
    connection: Connection, vector: Vector, model: str, only: SqlCondition, count: int
) -> list[int]:
    found = await find_vector_table(connection, model)
    if found is None:
        return []
    table, dimensions = found
    if len(vector) != dimensions:
        raise ConfigurationError(
            f"The vectors of {model} have {dimensions} numbers, and the question's has {len(vector)}."
        )
    await connection.execute(SQL("SET LOCAL hnsw.ef_search = {}").format(min(1000, count + 20)))
    await connection.execute(
        "SET LOCAL hnsw.iterative_scan = strict_order"
    )  # goes on until enough are left after the filter
    rows = await connection.execute(
        SQL(
            "SELECT v.chunk, v.vector <=> %s::halfvec AS distance FROM {} v JOIN chunks c ON c.number = v.chunk "
            "JOIN documents d ON d.number = c.document WHERE {} ORDER BY distance LIMIT %s"
        ).format(table, only[0]),
        (format_vector(vector), *only[1], count),
    )
    ranked = sorted(await rows.fetchall(), key=lambda row: (row["distance"], row["chunk"]))
    return [row["chunk"] for row in ranked]


def format_vector(vector: Vector) -> str:
    return json.dumps([float(number) for number in vector])
