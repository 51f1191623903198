"""How sure a pass rate is, and whether the difference of two may be chance."""

import math

_Z_95 = 1.959964


def wilson_interval(passed: int, attempts: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a pass rate; also sensible for few attempts, and for none or all passed."""
    if attempts == 0:
        return 0.0, 1.0
    rate = passed / attempts
    square = _Z_95**2
    center = rate + square / (2 * attempts)
    spread = _Z_95 * math.sqrt(rate * (1 - rate) / attempts + square / (4 * attempts**2))
    scale = 1 + square / attempts
    return max(0.0, (center - spread) / scale), min(1.0, (center + spread) / scale)


def fisher_p_value(passed_before: int, before: int, passed_after: int, after: int) -> float:
    """Fisher's exact test of two pass rates, two-sided: how often chance makes a difference as unlikely."""
    passed = passed_before + passed_after
    total = before + after
    observed = _probability(passed_before, before, passed, total)
    lowest = max(0, passed - after)
    highest = min(before, passed)
    p_value = 0.0
    for count in range(lowest, highest + 1):
        probability = _probability(count, before, passed, total)
        if probability <= observed * (1 + 1e-9):
            p_value += probability
    return min(1.0, p_value)


def _probability(passed_before: int, before: int, passed: int, total: int) -> float:
    """That of so many passes before, when `passed` of `total` attempts pass by chance."""
    after = total - before
    ways = math.comb(before, passed_before) * math.comb(after, passed - passed_before)
    return ways / math.comb(total, passed)
