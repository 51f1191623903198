"""Reciprocal rank fusion: the baseline that an evaluation compares the ranking of a search with."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

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
