"""Search in the embedded store: a lexical and a vector ranking, fused."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.knowledge_bases.search.rank_fusion import (
    MAX_COUNTED,
    choose_depth,
    count_candidates,
    fuse_rankings,
    select_best,
)
from ai_platform_engineering.knowledge_bases.stores.embedded import sqlite_reads
from ai_platform_engineering.knowledge_bases.stores.embedded.vector_indexes import VectorIndexes
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Hit, SearchMode, Vector

if TYPE_CHECKING:
    from ai_platform_engineering.knowledge_bases.stores.embedded.lexical_index import LexicalIndex

_FILTERED_FACTOR = 4  # times as many nearest vectors when a filter will drop some


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The arguments of one search."""

    query: str
    vector: Vector | None
    model: str
    datasources: Sequence[str]
    filters: Mapping[str, str]
    limit: int
    mode: SearchMode


def search(
    db: sqlite3.Connection, lexical: "LexicalIndex", vector_indexes: VectorIndexes, request: SearchRequest
) -> list[Hit]:
    """The best chunks, best first."""
    condition = sqlite_reads.build_condition(request.datasources, request.filters)
    rankings: list[list[int]] = []
    if request.mode != "vectors":
        rankings.append(_rank_by_words(db, lexical, request, condition))
    if request.mode != "lexical":
        rankings.append(_rank_by_vector(db, vector_indexes, request, condition))
    if condition is None:
        chunk_count = lexical.size
    else:
        chunk_count = sqlite_reads.count_chunks(db, condition, MAX_COUNTED)
    scores = fuse_rankings(rankings, choose_depth(chunk_count))
    locations = sqlite_reads.select_chunk_locations(db, scores)
    hits = [Hit(*location, scores[chunk]) for chunk, location in locations.items()]
    return select_best(hits, request.limit)


def _rank_by_words(
    db: sqlite3.Connection,
    lexical: "LexicalIndex",
    request: SearchRequest,
    condition: sqlite_reads.Condition | None,
) -> list[int]:
    documents = None
    if condition is not None and request.filters:  # datasources alone are in the lexical index
        documents = sqlite_reads.select_document_numbers(db, condition)
    return lexical.search(
        request.query, count_candidates(request.limit), datasources=request.datasources, documents=documents
    )


def _rank_by_vector(
    db: sqlite3.Connection,
    vector_indexes: VectorIndexes,
    request: SearchRequest,
    condition: sqlite_reads.Condition | None,
) -> list[int]:
    model_row = sqlite_reads.find_model(db, request.model)
    vector = request.vector
    if model_row is None or vector is None:
        return []
    model, dimensions = model_row
    if len(vector) != dimensions:
        raise ConfigurationError(
            f"The vectors of {request.model} have {dimensions} numbers, and the question's has {len(vector)}."
        )
    index = vector_indexes.get_index(db, model, dimensions)
    limit = count_candidates(request.limit)
    if condition is None:
        return sqlite_reads.select_chunks_of_vectors(db, index.search(vector, limit))
    nearest = index.search(vector, _FILTERED_FACTOR * limit)
    chunks = sqlite_reads.select_chunks_of_vectors(db, nearest, condition)
    if len(chunks) < limit and len(index) > _FILTERED_FACTOR * limit:
        # The filter left too few: compare with every vector that it allows.
        allowed = sqlite_reads.select_vector_numbers(db, model, condition)
        chunks = sqlite_reads.select_chunks_of_vectors(db, index.search_among(vector, allowed, limit))
    return chunks[:limit]
