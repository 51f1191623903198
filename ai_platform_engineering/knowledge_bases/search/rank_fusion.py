"""One ranking from several: reciprocal rank fusion, and not too much of one document."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Hit

MAX_CHUNKS_PER_DOCUMENT = 2

_RANK_OFFSET = 60  # the usual constant: how little the first places count more than the next ones
_LEAST = 10
_MOST = 100
_SHARE = 10
_BELOW = 0.001

T = TypeVar("T", bound=Hashable)


def choose_depth(searched: int) -> int:
    """How many places of a ranking count, by the number of chunks that are searched: a tenth of them, and 10 to 100.

    Were all to count, a chunk in the middle of both rankings would beat the first of one."""
    return min(_MOST, max(_LEAST, searched // _SHARE))


# Counting further than this changes no depth.
MAX_COUNTED = _MOST * _SHARE


def count_candidates(limit: int) -> int:
    """How many each ranking gives, so that enough are left when some of a document come later."""
    return max(_MOST, 4 * limit)


def fuse_rankings(rankings: Sequence[Sequence[T]], places: int) -> dict[T, float]:
    """Scores by the first places of every ranking; those below fill up, and overtake none of them."""
    scores: dict[T, float] = {}
    for ranking in rankings:
        for place, item in enumerate(ranking, 1):
            score = 1 / (_RANK_OFFSET + place)
            scores[item] = scores.get(item, 0.0) + (score if place <= places else _BELOW * score)
    return scores


def select_best(hits: Iterable[Hit], limit: int) -> list[Hit]:
    """By score, ties by document and place; a document's third chunk comes after everything else."""
    ordered = sorted(hits, key=lambda hit: (-hit.score, hit.document_id, hit.ordinal))
    seen: Counter[str] = Counter()
    first: list[Hit] = []
    later: list[Hit] = []
    for hit in ordered:
        (first if seen[hit.document_id] < MAX_CHUNKS_PER_DOCUMENT else later).append(hit)
        seen[hit.document_id] += 1
    return (first + later)[:limit]
