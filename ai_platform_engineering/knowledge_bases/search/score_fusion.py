"""Convex fusion: one ranking of documents from the scores of several rankings of chunks.

Each ranking's scores are scaled to between 0 and 1; a document counts with its best chunk in each.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

MAX_OTHER_CHUNKS = 3

_MIN_CANDIDATES = 100
_CANDIDATES_PER_RESULT = 10  # several may be chunks of one document
DEEPER = 10  # times as many candidates, where they are of too few documents


RankingKind = Literal["words", "meaning"]


class ScoredChunk(NamedTuple):
    """A chunk in a ranking, by the numbers that the store has for it and its document."""

    chunk: int
    document: int
    score: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """Chunks, best first. `floor`: the score of chunks that are not among them; None where the ranking was
    cut, and its last one is the floor."""

    chunks: Sequence[ScoredChunk]
    floor: float | None = None
    kind: RankingKind = "meaning"


@dataclass(frozen=True, slots=True)
class FusedDocument:
    """A document with its best chunk; `others`: more chunks of it that were found, best first.

    `shares`: its score in each ranking, between 0 and 1."""

    document: int
    chunk: int
    score: float
    others: tuple[int, ...] = ()
    shares: Mapping[RankingKind, float] = field(default_factory=dict, compare=False)


def count_candidates(limit: int) -> int:
    """How many chunks each ranking gives, so that enough documents are among them."""
    return max(_MIN_CANDIDATES, _CANDIDATES_PER_RESULT * limit)


def is_too_shallow(rankings: Sequence[Ranking], candidates: int, limit: int) -> bool:
    """Whether rankings that were cut hold fewer documents than are asked for: a few long ones fill them."""
    if all(len(ranking.chunks) < candidates for ranking in rankings):
        return False
    return len({item.document for ranking in rankings for item in ranking.chunks}) < limit


def create_lexical_ranking(chunks: Sequence[ScoredChunk], candidates: int) -> Ranking:
    """A ranking by words. With fewer than could be given, all other chunks have none of the words."""
    if len(chunks) < candidates:
        return Ranking(chunks, floor=0.0, kind="words")
    return Ranking(chunks, kind="words")


def fuse_scores(
    rankings: Sequence[Ranking], limit: int, exact_weights: Mapping[int, float] | None = None
) -> list[FusedDocument]:
    """The best documents of the rankings, which all count the same, best first; equal ones by number.

    `exact_weights`: the share of the query's identifiers that chunks hold exactly. A document that holds
    all of them comes before all that hold none."""
    scaled_rankings = [_scale(ranking, 1 / len(rankings)) for ranking in rankings]
    exact_weights = exact_weights or {}
    scores: dict[int, float] = {}  # by document
    best_scores: list[dict[int, float]] = []  # of each ranking, by document
    for scaled in scaled_rankings:
        best: dict[int, float] = {}
        for _, document, score in scaled:
            if score > best.get(document, -1.0):
                best[document] = score
        best_scores.append(best)
        for document, score in best.items():
            scores[document] = scores.get(document, 0.0) + score
    for document, weight in _weigh_documents(scaled_rankings, exact_weights).items():
        scores[document] += weight
    best_documents = sorted(scores, key=lambda document: (-scores[document], document))[:limit]
    chunk_scores = _add_chunk_scores(scaled_rankings, set(best_documents), exact_weights)
    # Scores stay between 0 and 1.
    most = 2.0 if exact_weights else 1.0
    fused: list[FusedDocument] = []
    for document in best_documents:
        chunks = chunk_scores[document]
        ordered = sorted(chunks, key=lambda chunk: (-chunks[chunk], chunk))
        others = tuple(ordered[1 : 1 + MAX_OTHER_CHUNKS])
        shares: dict[RankingKind, float] = {}
        for ranking, best in zip(rankings, best_scores, strict=True):
            shares[ranking.kind] = min(1.0, best.get(document, 0.0) * len(rankings))
        fused.append(FusedDocument(document, ordered[0], scores[document] / most, others, shares))
    return fused


def _scale(ranking: Ranking, weight: float) -> list[ScoredChunk]:
    """The scores between 0 and the weight: the best has the weight, and what was not found 0."""
    # The cosine of a vector of zeros is no number.
    items = [item for item in ranking.chunks if math.isfinite(item[2])]
    scores = [score for _, _, score in items]
    lowest = min(scores, default=0.0)
    if ranking.floor is not None:
        lowest = min(lowest, ranking.floor)
    span = max(scores, default=0.0) - lowest
    if span <= 0:  # all are equally good
        return [ScoredChunk(chunk, document, weight) for chunk, document, _ in items]
    factor = weight / span
    return [ScoredChunk(chunk, document, (score - lowest) * factor) for chunk, document, score in items]


def _weigh_documents(
    rankings: Sequence[Sequence[ScoredChunk]], exact_weights: Mapping[int, float]
) -> dict[int, float]:
    """The weight of each document's chunk that holds most of the query's identifiers."""
    weights: dict[int, float] = {}
    if exact_weights:
        for ranking in rankings:
            for chunk, document, _ in ranking:
                weights[document] = max(weights.get(document, 0.0), exact_weights.get(chunk, 0.0))
    return weights


def _add_chunk_scores(
    rankings: Sequence[Sequence[ScoredChunk]], documents: set[int], exact_weights: Mapping[int, float]
) -> dict[int, dict[int, float]]:
    """The scores of these documents' chunks, by document."""
    chunk_scores: dict[int, dict[int, float]] = {document: {} for document in documents}
    for ranking in rankings:
        for chunk, document, score in ranking:
            if document in documents:
                chunks = chunk_scores[document]
                chunks[chunk] = chunks.get(chunk, exact_weights.get(chunk, 0.0)) + score
    return chunk_scores
