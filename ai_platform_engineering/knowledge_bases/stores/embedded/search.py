"""A search in the embedded knowledge base."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.knowledge_bases.search.fusion import (
    ENOUGH,
    best,
    candidates,
    depth,
    fuse_rankings,
)
from ai_platform_engineering.knowledge_bases.stores.embedded import reads
from ai_platform_engineering.knowledge_bases.stores.embedded.vector_indexes import VectorIndexes
from ai_platform_engineering.knowledge_bases.stores.store import Hit, SearchMode, Vector

if TYPE_CHECKING:
    from ai_platform_engineering.knowledge_bases.stores.embedded.lexical_index import Lexical

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
    db: sqlite3.Connection, lexical: "Lexical", graphs: VectorIndexes, asked: SearchRequest
) -> list[Hit]:
    only = reads.condition(asked.datasources, asked.filters)
    rankings: list[list[int]] = []
    if asked.mode != "vectors":
        rankings.append(_worded(db, lexical, asked, only))
    if asked.mode != "lexical":
        rankings.append(_nearest(db, graphs, asked, only))
    searched = lexical.size if only is None else reads.count(db, only, ENOUGH)
    scores = fuse_rankings(rankings, depth(searched))
    places = reads.places(db, scores)
    return best(
        (Hit(*places[chunk], score) for chunk, score in scores.items() if chunk in places), asked.limit
    )


def _worded(
    db: sqlite3.Connection, lexical: "Lexical", asked: SearchRequest, only: reads.Condition | None
) -> list[int]:
    documents = reads.chosen(db, only) if only and asked.filters else None
    return lexical.search(
        asked.query, candidates(asked.limit), datasources=asked.datasources, documents=documents
    )


def _nearest(
    db: sqlite3.Connection, graphs: VectorIndexes, asked: SearchRequest, only: reads.Condition | None
) -> list[int]:
    known = reads.model(db, asked.model)
    if known is None or asked.vector is None:
        return []
    model, dimensions = known
    if len(asked.vector) != dimensions:
        raise ConfigurationError(
            f"The vectors of {asked.model} have {dimensions} numbers, and the question's has {len(asked.vector)}."
        )
    graph, count = graphs.graph(db, model, dimensions), candidates(asked.limit)
    if only is None:
        return reads.chunks_of_vectors(db, graph.search(asked.vector, count))
    found = reads.chunks_of_vectors(db, graph.search(asked.vector, _WIDER * count), only)
    if len(found) < count and len(graph) > _WIDER * count:
        found = reads.chunks_of_vectors(
            db, graph.search_among(asked.vector, reads.vectors_of(db, model, only), count)
        )
    return found[:count]
