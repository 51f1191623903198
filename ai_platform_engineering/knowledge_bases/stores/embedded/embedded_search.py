"""A search in the embedded knowledge base."""

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

_WIDER = 4  # times as many candidates when some will not be asked for


@dataclass(frozen=True, slots=True)
class SearchRequest:
    query: str
    vector: Vector | None
    model: str
    datasources: Sequence[str]
    filters: Mapping[str, str]
    limit: int
    mode: SearchMode


def search(
    db: sqlite3.Connection, lexical: "LexicalIndex", graphs: VectorIndexes, asked: SearchRequest
) -> list[Hit]:
    only = sqlite_reads.build_condition(asked.datasources, asked.filters)
    rankings: list[list[int]] = []
    if asked.mode != "vectors":
        rankings.append(_worded(db, lexical, asked, only))
    if asked.mode != "lexical":
        rankings.append(_nearest(db, graphs, asked, only))
    searched = lexical.size if only is None else sqlite_reads.count_chunks(db, only, MAX_COUNTED)
    scores = fuse_rankings(rankings, choose_depth(searched))
    places = sqlite_reads.select_chunk_locations(db, scores)
    return select_best(
        (Hit(*places[chunk], score) for chunk, score in scores.items() if chunk in places), asked.limit
    )


def _worded(
    db: sqlite3.Connection, lexical: "LexicalIndex", asked: SearchRequest, only: sqlite_reads.Condition | None
) -> list[int]:
    documents = sqlite_reads.select_document_numbers(db, only) if only and asked.filters else None
    return lexical.search(
        asked.query, count_candidates(asked.limit), datasources=asked.datasources, documents=documents
    )


def _nearest(
    db: sqlite3.Connection, graphs: VectorIndexes, asked: SearchRequest, only: sqlite_reads.Condition | None
) -> list[int]:
    known = sqlite_reads.find_model(db, asked.model)
    if known is None or asked.vector is None:
        return []
    model, dimensions = known
    if len(asked.vector) != dimensions:
        raise ConfigurationError(
            f"The vectors of {asked.model} have {dimensions} numbers, and the question's has {len(asked.vector)}."
        )
    graph, count = graphs.get_index(db, model, dimensions), count_candidates(asked.limit)
    if only is None:
        return sqlite_reads.select_chunks_of_vectors(db, graph.search(asked.vector, count))
    found = sqlite_reads.select_chunks_of_vectors(db, graph.search(asked.vector, _WIDER * count), only)
    if len(found) < count and len(graph) > _WIDER * count:
        found = sqlite_reads.select_chunks_of_vectors(
            db, graph.search_among(asked.vector, sqlite_reads.select_vector_numbers(db, model, only), count)
        )
    return found[:count]
