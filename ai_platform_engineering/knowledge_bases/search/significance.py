"""A paired randomisation test: whether a difference between two rankings may be chance."""

import math
import random
from collections.abc import Sequence

_ROUNDS = 10_000
_SEED = 20


def compute_p_value(before: Sequence[float], after: Sequence[float]) -> float:
    """How often a difference as large comes about when each question's two values are swapped by chance.

    The same values have the same result: the seed is fixed."""
    differences = [second - first for first, second in zip(before, after, strict=True) if second != first]
    observed = abs(math.fsum(differences))
    generator = random.Random(_SEED)
    as_large = 0
    for _ in range(_ROUNDS):
        total = sum(value if generator.random() < 0.5 else -value for value in differences)
        if abs(total) >= observed - 1e-12:
            as_large += 1
    return (as_large + 1) / (_ROUNDS + 1)
