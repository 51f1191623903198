"""Pseudo-relevance feedback: a query's vector, moved towards the best documents of a first search."""

import math
from collections.abc import Sequence

FEEDBACK_DOCUMENTS = 3

_FEEDBACK_WEIGHT = 0.3

Vector = Sequence[float]


def add_feedback(query: Vector, vectors: Sequence[Vector]) -> list[float]:
    """The query's vector plus a part of the mean of the documents' vectors, each of length 1 before."""
    factor = 1 / _length(query)
    expanded = [factor * value for value in query]
    for vector in vectors:
        factor = _FEEDBACK_WEIGHT / len(vectors) / _length(vector)
        expanded = [total + factor * value for total, value in zip(expanded, vector, strict=True)]
    return expanded


def _length(vector: Vector) -> float:
    return math.hypot(*vector) or 1.0
