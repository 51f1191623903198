"""Reciprocal rank fusion: one ranking from several, with few chunks of the same document."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Hit

MAX_CHUNKS_PER_DOCUMENT = 2

_RANK_OFFSET = 60  # the usual constant: how little the first ranks count more than the next ones
_MIN_DEPTH = 10
_MAX_DEPTH = 100
_CHUNKS_PER_RANK = 10
_BELOW_DEPTH = 0.001  # the weight of ranks below the depth

T = TypeVar("T", bound=Hashable)


def choose_depth(chunk_count: int) -> int:
    """How many ranks count, by the number of chunks that are searched: a tenth of it, from 10 to 100.

    Were all to count, a chunk in the middle of both rankings would beat the first of one."""
    return min(_MAX_DEPTH, max(_MIN_DEPTH, chunk_count // _CHUNKS_PER_RANK))


# Counting more chunks than this does not change the depth.
MAX_COUNTED = _MAX_DEPTH * _CHUNKS_PER_RANK


def count_candidates(limit: int) -> int:
    """How many chunks each ranking gives, so that enough are left when some of a document come later."""
    return max(_MAX_DEPTH, 4 * limit)


def fuse_rankings(rankings: Sequence[Sequence[T]], depth: int) -> dict[T, float]:
    """Scores by the ranks down to the depth; items below fill up, and overtake none of them."""
    scores: dict[T, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            score = 1 / (_RANK_OFFSET + rank)
            if rank > depth:
                score *= _BELOW_DEPTH
            scores[item] = scores.get(item, 0.0) + score
    return scores


def select_best(hits: Iterable[Hit], limit: int) -> list[Hit]:
    """The hits by score, ties by document and ordinal; a document's third chunk comes after everything
    else."""
    hits_per_document: Counter[str] = Counter()
    first: list[Hit] = []
    later: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: (-hit.score, hit.document_id, hit.ordinal)):
        hits_per_document[hit.document_id] += 1
        if hits_per_document[hit.document_id] <= MAX_CHUNKS_PER_DOCUMENT:
            first.append(hit)
        else:
            later.append(hit)
    return (first + later)[:limit]
