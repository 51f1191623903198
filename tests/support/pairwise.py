"""Fewer combinations of parameters: those in which every pair of values occurs."""

import itertools
from collections import defaultdict

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
    values = sorted((name, repr(value)) for name, value in item.callspec.params.items())
    return set(itertools.combinations(values, 2))
