"""Fewer combinations of parameters: those in which every pair of values occurs, or a sample of them."""

import itertools
import zlib
from collections import Counter, defaultdict

import pytest

Pair = tuple[tuple[str, str], ...]


def mark_redundant_combinations(items: list[pytest.Item]) -> None:
    """Marks as `full` what a test that is marked `pairwise` need not try: no pair of values is new in it."""
    products: defaultdict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("pairwise"):
            products[item.nodeid.partition("[")[0]].append(item)
    for product in products.values():
        for item in find_redundant(product):
            item.add_marker(pytest.mark.full)


def mark_beyond_sample(items: list[pytest.Item]) -> None:
    """Marks as `full` what is not in the sample of a test that is marked `sample(count)`."""
    products: defaultdict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        is_sampled = item.get_closest_marker("sample") and not item.get_closest_marker("full")
        if isinstance(item, pytest.Function) and is_sampled:
            products[item.nodeid.partition("[")[0]].append(item)
    for product in products.values():
        [count] = next(product[0].iter_markers("sample")).args
        for item in find_beyond_sample(product, count):
            item.add_marker(pytest.mark.full)


def find_beyond_sample(product: list[pytest.Function], count: int) -> list[pytest.Function]:
    """The combinations that are left when so many are chosen, in which each value occurs if possible.

    Among equals the name of the test decides: tests with the same parameters try different values.
    """
    rest = sorted(product, key=lambda item: zlib.crc32(item.nodeid.encode()))
    values = {value for item in product for value in read_values(item)}
    alternatives = Counter(name for name, _ in values)
    uses: Counter[tuple[str, str]] = Counter()

    def rank(item: pytest.Function) -> tuple[int, int]:
        values = read_values(item)
        unused = sum(not uses[value] for value in values)
        return -unused, sum(uses[value] * alternatives[value[0]] for value in values)

    for _ in range(min(count, len(product))):  # fewer, where some are selected by their ids
        best = min(rest, key=rank)
        uses.update(read_values(best))
        rest.remove(best)
    return rest


def find_redundant(product: list[pytest.Function]) -> list[pytest.Function]:
    """The combinations that are left when the others, chosen greedily, hold every pair."""
    pairs_by_item = {item: read_pairs(item) for item in product}
    missing = set[Pair]().union(*pairs_by_item.values())
    redundant = list(product)
    while missing:
        best = max(redundant, key=lambda item: len(pairs_by_item[item] & missing))
        missing -= pairs_by_item[best]
        redundant.remove(best)
    return redundant


def read_pairs(item: pytest.Function) -> set[Pair]:
    """The pairs of values of one combination."""
    return set(itertools.combinations(read_values(item), 2))


def read_values(item: pytest.Function) -> list[tuple[str, str]]:
    """The values of one combination, by the names of their parameters."""
    return sorted((name, repr(value)) for name, value in item.callspec.params.items())
