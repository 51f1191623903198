"""Search in the embedded store: a lexical and a vector ranking, fused, and a second vector ranking with the
feedback of the first."""

import sqlite3
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    ScoredChunk,
    count_candidates,
    create_lexical_ranking,
    fuse_scores,
    is_too_shallow,
)
from ai_platform_engineering.knowledge_bases.stores.embedded import sqlite_conditions, sqlite_reads
from ai_platform_engineering.knowledge_bases.stores.embedded.vector_indexes import VectorIndexes
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Hit, SearchMode, Vector

if TYPE_CHECKING:
    from ai_platform_engineering.knowledge_bases.stores.embedded.lexical_index import LexicalIndex
    from ai_platform_engineering.knowledge_bases.stores.embedded.vector_index import VectorIndex

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
    if vector_search is None:
        return rankings, exact_weights
    nearest = vector_search.rank(vector_search.vector)
    if request.mode == "hybrid":
        best = fuse_scores([*rankings, nearest], FEEDBACK_DOCUMENTS, exact_weights)
        vectors = vector_search.select_vectors([document.chunk for document in best])
        nearest = vector_search.rank(add_feedback(vector_search.vector, vectors))
    return [*rankings, nearest], exact_weights


def _create_hits(db: sqlite3.Connection, documents: Sequence[FusedDocument]) -> list[Hit]:
    chunks: list[int] = []
    for document in documents:
        chunks += (document.chunk, *document.others)
    locations = sqlite_reads.select_chunk_locations(db, chunks)
    hits: list[Hit] = []
    for document in documents:
        if document.chunk in locations:
            document_id, ordinal = locations[document.chunk]
            others = tuple(locations[chunk][1] for chunk in document.others if chunk in locations)
            shares = document.shares
            hits.append(
                Hit(document_id, ordinal, document.score, others, shares.get("words"), shares.get("meaning"))
            )
    return hits


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


@dataclass(frozen=True, slots=True)
class _VectorSearch:
    """The search for the nearest chunks. `vector`: the query's."""

    db: sqlite3.Connection
    index: "VectorIndex"
    model: int
    vector: Vector
    condition: sqlite_conditions.Condition | None
    limit: int
    # By number of the vector: a second ranking has many of the first.
    chunks: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    allowed: list[int] = field(default_factory=list)  # the vectors that meet the condition, once it is needed

    def rank(self, vector: Vector) -> Ranking:
        if self.condition is None:
            return Ranking(self._find_chunks(self.index.search(vector, self.limit)))
        chunks = self._find_chunks(self.index.search(vector, _FILTERED_FACTOR * self.limit))
        if len(chunks) < self.limit and len(self.index) > _FILTERED_FACTOR * self.limit:
            # The filter left too few: compare with every vector that it allows.
            if not self.allowed:
                self.allowed.extend(sqlite_reads.select_vector_numbers(self.db, self.model, self.condition))
            chunks = self._find_chunks(self.index.search_among(vector, self.allowed, self.limit))
        return Ranking(chunks[: self.limit])

    def _find_chunks(self, neighbours: Sequence[tuple[int, float]]) -> list[ScoredChunk]:
        """The chunks of the vectors, without those that were deleted or do not meet the condition."""
        unknown = [number for number, _ in neighbours if number not in self.chunks]
        if unknown:
            self.chunks.update(dict.fromkeys(unknown))
            self.chunks.update(sqlite_reads.select_chunks_of_vectors(self.db, unknown, self.condition))
        found: list[ScoredChunk] = []
        for number, score in neighbours:
            location = self.chunks[number]
            if location is not None:
                found.append(ScoredChunk(*location, score))
        return found

    def select_vectors(self, chunks: Sequence[int]) -> list[Vector]:
        """The vectors of the chunks that have one."""
        rows = sqlite_reads.select_vectors_of_chunks(self.db, self.model, chunks)
        return [struct.unpack(f"<{len(row) // 2}e", row) for row in rows]


def _open_vector_search(
    db: sqlite3.Connection,
    vector_indexes: VectorIndexes,
    request: SearchRequest,
    condition: sqlite_conditions.Condition | None,
    candidates: int,
) -> _VectorSearch | None:
    """None without a vector to compare with, or to compare."""
    model_row = sqlite_reads.find_model(db, request.model)
    if model_row is None or request.vector is None:
        return None
    model, dimensions = model_row
    if len(request.vector) != dimensions:
        raise ConfigurationError(
            f"The vectors of {request.model} have {dimensions} numbers, and the question's has "
            f"{len(request.vector)}."
        )
    index = vector_indexes.get_index(db, model, dimensions)
    return _VectorSearch(db, index, model, request.vector, condition, candidates)
