"""Search in the embedded store: a lexical and a vector ranking, fused, and a second vector ranking with the
feedback of the first."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.knowledge_bases.access import ANYBODY, Viewer
from ai_platform_engineering.knowledge_bases.search.exact_terms import (
    MAX_HOLDERS,
    ExactTerm,
    find_exact_terms,
    weigh_holders,
)
from ai_platform_engineering.knowledge_bases.search.feedback import FEEDBACK_DOCUMENTS, add_feedback
from ai_platform_engineering.knowledge_bases.search.score_fusion import (
    DEEPER,
    FusedDocument,
    Ranking,
    count_candidates,
    create_lexical_ranking,
    fuse_scores,
    is_too_shallow,
)
from ai_platform_engineering.knowledge_bases.stores.embedded import sqlite_conditions, sqlite_reads
from ai_platform_engineering.knowledge_bases.stores.embedded.vector_indexes import VectorIndexes
from ai_platform_engineering.knowledge_bases.stores.embedded.vector_search import VectorSearch
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Hit, SearchMode, Vector
from ai_platform_engineering.knowledge_bases.stores.search_hits import create_hits, list_chunks

if TYPE_CHECKING:
    from ai_platform_engineering.knowledge_bases.stores.embedded.lexical_index import LexicalIndex


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
    viewer: Viewer = ANYBODY


def search(
    db: sqlite3.Connection, lexical: "LexicalIndex", vector_indexes: VectorIndexes, request: SearchRequest
) -> list[Hit]:
    """The best documents, best first."""
    rank = partial(_rank, db, lexical, vector_indexes, request)
    candidates = count_candidates(request.limit)
    rankings, exact_weights = rank(candidates)
    if is_too_shallow(rankings, candidates, request.limit):
        rankings, exact_weights = rank(DEEPER * candidates)
    return _create_hits(db, fuse_scores(rankings, request.limit, exact_weights))


def _rank(
    db: sqlite3.Connection,
    lexical: "LexicalIndex",
    vector_indexes: VectorIndexes,
    request: SearchRequest,
    candidates: int,
) -> tuple[list[Ranking], Mapping[int, float]]:
    """The rankings of the mode, and the share of the query's identifiers that chunks hold exactly."""
    condition = sqlite_conditions.join_conditions(
        sqlite_conditions.build_condition(request.datasources, request.filters),
        sqlite_conditions.build_viewer_condition(db, request.viewer),
    )
    rankings: list[Ranking] = []
    exact_weights: Mapping[int, float] = {}
    if request.mode != "vectors":
        ranking, exact_weights = _rank_by_words(db, lexical, request, condition, candidates)
        rankings.append(ranking)
    vector_search = None
    if request.mode != "lexical":
        vector_search = _open_vector_search(db, vector_indexes, request, condition, candidates)
    if vector_search is None or request.vector is None:
        return rankings, exact_weights
    nearest = vector_search.rank(request.vector)
    if request.mode == "hybrid":
        best = fuse_scores([*rankings, nearest], FEEDBACK_DOCUMENTS, exact_weights)
        vectors = vector_search.select_vectors([document.chunk for document in best])
        nearest = vector_search.rank(add_feedback(request.vector, vectors))
    return [*rankings, nearest], exact_weights


def _create_hits(db: sqlite3.Connection, documents: Sequence[FusedDocument]) -> list[Hit]:
    locations = sqlite_reads.select_chunk_locations(db, list_chunks(documents))
    return create_hits(documents, locations)


def _rank_by_words(
    db: sqlite3.Connection,
    lexical: "LexicalIndex",
    request: SearchRequest,
    condition: sqlite_conditions.Condition | None,
    candidates: int,
) -> tuple[Ranking, dict[int, float]]:
    """The ranking, and the share of the query's identifiers that chunks hold exactly."""
    documents = None
    if condition is not None and request.filters:  # datasources and viewers are in the lexical index
        documents = sqlite_reads.select_document_numbers(db, condition)
    viewer_names = None
    hidden_datasources: Sequence[str] = ()
    if not request.viewer.sees_all:
        hidden_datasources = sqlite_conditions.select_hidden_datasources(db, request.viewer)
        if sqlite_conditions.has_restricted_documents(db):
            viewer_names = request.viewer.names
    search_chunks = partial(
        lexical.search,
        request.query,
        datasources=request.datasources,
        documents=documents,
        viewer_names=viewer_names,
        hidden_datasources=hidden_datasources,
    )
    scores = dict(search_chunks(limit=candidates))
    holders: dict[ExactTerm, list[int]] = {}
    for term in find_exact_terms(request.query):
        term_scores = dict(search_chunks(limit=MAX_HOLDERS + 1, exact=term))
        scores.update(term_scores)
        holders[term] = list(term_scores)
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    chunks = sqlite_reads.select_scored_chunks(db, ranked)
    return create_lexical_ranking(chunks, candidates), weigh_holders(holders)


def _open_vector_search(
    db: sqlite3.Connection,
    vector_indexes: VectorIndexes,
    request: SearchRequest,
    condition: sqlite_conditions.Condition | None,
    candidates: int,
) -> VectorSearch | None:
    """None without a vector to compare with, or to compare."""
    model_row = sqlite_reads.find_model(db, request.model)
    if model_row is None or request.vector is None:
        return None
    model, dimensions = model_row
    if len(request.vector) != dimensions:
        raise ConfigurationError(
            f"The vectors of {request.model} have {dimensions} dimensions, but the query vector has "
            f"{len(request.vector)}."
        )
    index = vector_indexes.get_index(db, model, dimensions)
    return VectorSearch(db, index, model, condition, candidates, vector_indexes.allowed_vectors)
